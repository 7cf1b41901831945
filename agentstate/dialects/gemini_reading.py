"""Reads Gemini's answers, whole or as a stream, into the neutral form.

A stream is made of the same objects as the body, each with more parts of each candidate; nothing
marks its end but the end itself. The invariant: an answer is complete only if every candidate that
was seen has a finish reason that says something, and no error came. A prompt that was blocked is an
answer too: Gemini's last word, with a reason and no candidate.
Source: ai.google.dev/api/generate-content, November 2026.
"""

from __future__ import annotations

from agentstate.dialects import openai_errors
from agentstate.dialects.base import Mark
from agentstate.dialects.lenient import (
    Unreadable,
    as_count,
    as_integer,
    as_list,
    as_object,
    as_text,
    join_text,
    read_answer_body,
    read_exact,
)
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.ground.errors import BadRequest
from agentstate.wire.sse import Frame

# What proto's JSON has for "nothing was set".
NOT_TERMINAL = frozenset(("", "FINISH_REASON_UNSPECIFIED"))
_NOT_BLOCKED = frozenset(("", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"))
# Of a part: how it is meant, besides what it holds.
ASIDE = frozenset(("thought", "thoughtSignature", "thought_signature", "partMetadata"))
# Google takes both spellings.
CALL_NAMES = ("functionCall", "function_call")
RESULT_NAMES = ("functionResponse", "function_response")


class GeminiAssembler:
    """Builds an answer from one stream; see `base.Assembler` and `neutral.TellsPieces`."""

    __slots__ = ("_choices_min", "_is_completed", "_reading")

    def __init__(self, choices: int = 1) -> None:
        self._choices_min = max(choices, 1)
        self._reading = Reading()
        self._is_completed = False  # the completing frame was seen

    def feed(self, frame: Frame) -> Mark:
        """Take in one frame and say what it is."""
        data = frame.data
        if data is None or not data.strip():
            return self._mark_idle()
        reading = self._reading
        try:
            chunk = read_exact(data)
        except Unreadable:
            return self._fail("an event that is no JSON")
        if frame.event == b"error":
            return self._fail(openai_errors.tell_fault(chunk))
        if not isinstance(chunk, dict):
            return self._mark_idle()
        if openai_errors.is_error(chunk):
            return self._fail(openai_errors.tell_fault(chunk))
        mark = reading.take(chunk)
        if reading.fault is not None:
            return Mark.ERROR
        if self._is_completed:
            return Mark.TAIL
        count = len(reading.candidates)
        if reading.missing() is None and (count >= self._choices_min or reading.block_reason):
            self._is_completed = True
            return Mark.COMPLETING
        return mark

    def finish(self, clean_end: bool) -> Answer:
        """Return the answer when nothing more comes."""
        reading = self._reading
        fault = reading.fault or reading.missing()
        if fault is None and not clean_end:
            fault = "the stream was cut before its end"
        return reading.answer(fault)

    def snapshot(self) -> Answer:
        """Return the answer so far."""
        return self.finish(clean_end=True)

    def call_names(self) -> list[tuple[int, int, str]]:
        """Return (choice index, position, name so far) of every tool call."""
        return [
            (index, position, call.name)
            for index, candidate in sorted(self._reading.candidates.items())
            for position, call in enumerate(candidate.calls)
        ]

    def new_text(self) -> list[tuple[int, str]]:
        """Return the text that came since this was last asked."""
        return [
            (index, piece)
            for index, candidate in sorted(self._reading.candidates.items())
            for piece in candidate.new_texts()
        ]

    def new_pieces(self) -> list[Piece]:
        """Return what came since this was last asked, of text, thoughts and calls."""
        return self._reading.new_pieces()

    def _mark_idle(self) -> Mark:
        return Mark.TAIL if self._is_completed else Mark.PREFACE

    def _fail(self, fault: str) -> Mark:
        self._reading.fault = self._reading.fault or fault
        return Mark.ERROR


def read_answer(body: bytes) -> Answer:
    """Read an answer that was not streamed. Never raises: what is wrong is in `fault`."""
    try:
        value = read_answer_body(body)
    except Unreadable as error:
        return Answer(fault=str(error))
    reading = Reading()
    if openai_errors.is_error(value):
        reading.fault = openai_errors.tell_fault(value)
    reading.take(value)
    return reading.answer(reading.fault or reading.missing())


def function_of(part: JSON, camel: str, snake: str) -> dict[str, JSON] | None:
    """Return a part's functionCall or functionResponse, however it is spelled; None = has none."""
    fields = as_object(part)
    value = fields.get(camel, fields.get(snake))
    return value if isinstance(value, dict) else None


class _Call:
    """One tool call, as far as it has arrived."""

    __slots__ = ("arguments", "call_id", "name")

    def __init__(self, call_id: str | None, name: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = ""


class _Candidate:
    """One candidate, as far as it was read."""

    __slots__ = ("_index", "_pieces", "_told", "calls", "finish_reason", "text", "thoughts")

    def __init__(self, index: int, pieces: list[Piece] | None) -> None:
        self._index = index
        self._pieces = pieces  # where to tell of what comes; None = nobody asks
        self._told = 0  # how many pieces of the text were asked for
        self.text: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[_Call] = []
        self.finish_reason: str | None = None

    def take(self, part: JSON) -> Mark:
        """Take in one part and say what it holds."""
        fields = as_object(part)
        if (call := function_of(part, *CALL_NAMES)) is not None:
            self._take_call(call)
            return Mark.TOOL
        if isinstance(text := fields.get("text"), str):
            if text:
                self._take_text(text, is_thought=fields.get("thought") is True)
            return Mark.CONTENT if text else Mark.PREFACE
        # Whatever it is (an image, code that was run), it is more than a preface.
        return Mark.CONTENT if fields.keys() - ASIDE else Mark.PREFACE

    def new_texts(self) -> list[str]:
        """Return the pieces of text that came since this was last asked."""
        known, self._told = self._told, len(self.text)
        return self.text[known:]

    def choice(self, index: int) -> Choice:
        return Choice(
            index=index,
            text=join_text(self.text),
            reasoning=join_text(self.thoughts) if self.thoughts else None,
            tool_calls=tuple(
                ToolCall(position, call.call_id, call.name, call.arguments)
                for position, call in enumerate(self.calls)
            ),
            finish_reason=self.finish_reason,
        )

    def _take_text(self, text: str, *, is_thought: bool) -> None:
        (self.thoughts if is_thought else self.text).append(text)
        if self._pieces is not None:
            self._pieces.append(Piece(self._index, "reasoning" if is_thought else "text", text))

    def _take_call(self, fields: dict[str, JSON]) -> None:
        name = as_text(fields.get("name")) or ""
        if not name and self.calls:
            # Arguments in pieces, which are no JSON object and so always looked at by the gate.
            call = self.calls[-1]
        else:
            call = _Call(as_text(fields.get("id")), name)
            self.calls.append(call)
        known = call.arguments
        pieces = fields.get("partialArgs", fields.get("partial_args"))
        if pieces is not None:
            call.arguments += _render(pieces)
        elif "args" in fields or not call.arguments:
            call.arguments = _render(fields.get("args") or {})
        if self._pieces is not None:
            # Arguments that replace earlier ones cannot be told in pieces; no API sends them so.
            self._pieces.append(
                Piece(
                    self._index,
                    "call",
                    call.arguments.removeprefix(known),
                    len(self.calls) - 1,
                    call.call_id,
                    call.name,
                )
            )


class Reading:
    """An answer, as far as it was read: from chunks or from a body."""

    __slots__ = (
        "_pieces",
        "block_reason",
        "candidates",
        "fault",
        "model",
        "response_id",
        "usage",
    )

    def __init__(self) -> None:
        self._pieces: list[Piece] | None = None  # that nobody has got; None = nobody asks
        self.response_id: str | None = None
        self.model: str | None = None
        self.usage: Usage | None = None
        self.fault: str | None = None
        self.block_reason: str | None = None  # of the prompt; None = it was not blocked
        self.candidates: dict[int, _Candidate] = {}

    def take(self, fields: dict[str, JSON]) -> Mark:
        """Take in a body or a chunk; return the most that it holds."""
        self.response_id = self.response_id or as_text(fields.get("responseId"))
        self.model = self.model or as_text(fields.get("modelVersion"))
        self.usage = _read_usage(fields.get("usageMetadata")) or self.usage
        reason = as_text(as_object(fields.get("promptFeedback")).get("blockReason"))
        if reason is not None and reason not in _NOT_BLOCKED:
            self.block_reason = reason
        mark = Mark.PREFACE
        for position, candidate in enumerate(as_list(fields.get("candidates"))):
            if not isinstance(candidate, dict):
                continue
            index = as_integer(candidate.get("index"))  # left out where it is 0
            reading = self._candidate(position if index is None else index)
            for part in as_list(as_object(candidate.get("content")).get("parts")):
                try:
                    piece = reading.take(part)
                except BadRequest:
                    self.fault = self.fault or "arguments that are nested too deeply"
                    continue
                if piece is not Mark.PREFACE and mark is not Mark.TOOL:
                    mark = piece
            reading.finish_reason = as_text(candidate.get("finishReason")) or reading.finish_reason
        return mark

    def new_pieces(self) -> list[Piece]:
        """Return what came since this was last asked; from the first time on it is kept for it."""
        if self._pieces is None:
            self._pieces = []
        told = self._pieces.copy()
        self._pieces.clear()  # each candidate has this list
        return told

    def missing(self) -> str | None:
        """Say what is missing to a complete answer, None = nothing."""
        if not self.candidates and self.block_reason is None:
            return "no candidate was sent"
        for index, candidate in sorted(self.candidates.items()):
            reason = candidate.finish_reason
            if reason is None or reason in NOT_TERMINAL:
                said = "no finish reason" if not reason else f"the finish reason {reason!r}"
                return f"candidate {index} has {said}"
        return None

    def _candidate(self, index: int) -> _Candidate:
        found = self.candidates.get(index)
        if found is None:
            found = self.candidates[index] = _Candidate(index, self._pieces)
        return found

    def answer(self, fault: str | None) -> Answer:
        choices = [each.choice(index) for index, each in sorted(self.candidates.items())]
        if not choices and self.block_reason is not None:
            choices = [Choice(0, finish_reason=self.block_reason)]
        return Answer(
            choices=tuple(choices),
            response_id=self.response_id,
            model=self.model,
            usage=self.usage,
            fault=fault,
            is_complete=fault is None,
        )


def _render(value: JSON) -> str:
    return encode(value).decode("ascii")


def _read_usage(value: JSON) -> Usage | None:
    """Read token counts; None if there is none. Thoughts are billed as output, and apart."""
    fields = as_object(value)
    counts = {name: count for name, each in fields.items() if (count := as_count(each)) is not None}
    if not counts:
        return None
    thoughts = counts.get("thoughtsTokenCount", 0)
    return Usage(
        input_tokens=counts.get("promptTokenCount", 0) + counts.get("toolUsePromptTokenCount", 0),
        output_tokens=counts.get("candidatesTokenCount", 0) + thoughts,
        cached_tokens=counts.get("cachedContentTokenCount", 0),
        reasoning_tokens=thoughts,
    )
