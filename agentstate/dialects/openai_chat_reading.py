"""Reads answers in OpenAI's chat form, whole or as a stream, into the neutral form.

Leniently: nulls, missing indexes, unknown fields and unknown finish reasons are the rule out there,
not the exception. Which tool call a streamed piece belongs to is decided in `tool_deltas.py`.
The one invariant: an answer is complete only if every choice that was seen has a finish reason that
is neither empty nor `error`, and no error came (DESIGN section 4).
"""

from __future__ import annotations

from typing import Literal

from agentstate.dialects import openai_errors
from agentstate.dialects.base import Mark
from agentstate.dialects.lenient import (
    Unreadable,
    as_count,
    as_list,
    as_object,
    as_text,
    join_text,
    read,
    read_answer_body,
)
from agentstate.dialects.tool_deltas import CallBuilder, ToolDeltas
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, Choice, Piece, Usage
from agentstate.wire.sse import Frame

DONE = b"[DONE]"

# Finish reasons that finish nothing. All others do, known or not: servers invent their own.
NOT_TERMINAL = frozenset(("", "error"))

_REASONING_KEYS = ("reasoning_content", "reasoning")  # the first that says something counts


class ChatAssembler:
    """Builds an answer from one stream; see `base.Assembler`.

    An event that cannot be read is an error: it may have held anything, a tool call included, and
    clients break on it.
    """

    __slots__ = ("_choices_min", "_is_completed", "_is_done", "_reading")

    def __init__(self, choices: int = 1) -> None:
        self._choices_min = max(choices, 1)
        self._reading = _Reading()
        self._is_completed = False  # the completing frame was seen
        self._is_done = False

    def feed(self, frame: Frame) -> Mark:
        """Take in one frame and say what it is."""
        data = frame.data
        if data is None:
            return self._mark_idle()
        if frame.event == b"error":
            return self._fail(data)
        try:
            chunk = read(data)
        except Unreadable:
            return self._take_no_json(data.strip())
        if not isinstance(chunk, dict):
            return self._mark_idle()
        if openai_errors.is_error(chunk):
            return self._fail(data)
        reading = self._reading
        reading.take_head(chunk)
        mark = Mark.PREFACE
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for position, choice in enumerate(choices):
                if isinstance(choice, dict):
                    piece = reading.take_piece(position, choice)
                    if piece is not Mark.PREFACE and mark is not Mark.TOOL:
                        mark = piece
        if reading.fault is not None:
            return Mark.ERROR
        if self._is_completed:
            return Mark.TAIL
        if not reading.open_choices and len(reading.choices) >= self._choices_min:
            self._is_completed = True
            return Mark.COMPLETING
        return mark

    def finish(self, clean_end: bool) -> Answer:
        """Return the answer when nothing more comes."""
        reading = self._reading
        fault = reading.fault or reading.missing()
        if fault is None and not (clean_end or self._is_done):
            fault = "the stream was cut before its end"
        return reading.answer(fault)

    def snapshot(self) -> Answer:
        """Return the answer so far."""
        return self.finish(clean_end=True)

    def call_names(self) -> list[tuple[int, int, str]]:
        """Return (choice index, position, name so far) of every tool call."""
        return [
            (choice.index, call.position, call.name)
            for choice in self._reading.sorted_choices()
            for call in choice.tools.calls
        ]

    def new_text(self) -> list[tuple[int, str]]:
        """Return (choice index, piece) of the text that came since this was last asked."""
        pieces = self._reading.new_text[:]
        self._reading.new_text.clear()
        return pieces

    def new_pieces(self) -> list[Piece]:
        """Return the pieces that came since this was last asked; see `neutral.TellsPieces`."""
        return self._reading.new_pieces()

    def _mark_idle(self) -> Mark:
        return Mark.TAIL if self._is_completed else Mark.PREFACE

    def _take_no_json(self, data: bytes) -> Mark:
        if data == DONE:
            self._is_done = True
            return Mark.DONE
        if not data:
            return self._mark_idle()  # some keep a stream alive with empty events
        self._reading.fault = self._reading.fault or "an event that is no JSON"
        return Mark.ERROR

    def _fail(self, data: bytes) -> Mark:
        try:
            fault = openai_errors.tell_fault(read(data))
        except Unreadable:
            fault = "an error event that is no JSON"
        self._reading.fault = self._reading.fault or fault
        return Mark.ERROR


def read_answer(body: bytes) -> Answer:
    """Read an answer that was not streamed. Never raises: what is wrong is in `fault`."""
    try:
        value = read_answer_body(body, read)
    except Unreadable as error:
        return Answer(fault=str(error))
    reading = _Reading()
    reading.take_head(value)
    if openai_errors.is_error(value):
        reading.fault = openai_errors.tell_fault(value)
    for position, choice in enumerate(as_list(value.get("choices"))):
        if isinstance(choice, dict):
            reading.take_whole(position, choice)
    return reading.answer(reading.fault or reading.missing())


def read_chunk(frame: Frame) -> dict[str, JSON] | None:
    """Read a frame for looking at it; None if it is no chunk of an answer: a comment, `[DONE]`, an
    error, or nothing that can be read."""
    if frame.data is None or frame.event == b"error":
        return None
    try:
        chunk = read(frame.data)
    except Unreadable:
        return None
    return chunk if isinstance(chunk, dict) and not openai_errors.is_error(chunk) else None


def choice_index(index: JSON, position: int) -> int:
    """Return which choice is meant by an entry of `choices`: some leave the index out."""
    return index if type(index) is int else position


def read_usage(value: JSON) -> Usage | None:
    """Read token counts in the chat form; None if neither side of them is a count."""
    fields = as_object(value)
    prompt = as_count(fields.get("prompt_tokens"))
    completion = as_count(fields.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    of_prompt = as_object(fields.get("prompt_tokens_details"))
    of_completion = as_object(fields.get("completion_tokens_details"))
    return Usage(
        input_tokens=prompt or 0,
        output_tokens=completion or 0,
        cached_tokens=as_count(of_prompt.get("cached_tokens")) or 0,
        cache_write_tokens=as_count(of_prompt.get("cache_write_tokens")) or 0,
        reasoning_tokens=as_count(of_completion.get("reasoning_tokens")) or 0,
    )


class _ChoiceReading:
    """One choice, as far as it was read."""

    __slots__ = (
        "_new_text",
        "_reasoning_key",
        "finish_reason",
        "index",
        "pieces",
        "reasoning",
        "refusal",
        "stop_sequence",
        "text",
        "tools",
    )

    def __init__(
        self, index: int, new_text: list[tuple[int, str]], pieces: list[Piece] | None
    ) -> None:
        self.index = index
        self._new_text = new_text
        self.pieces = pieces  # None = nobody wants them
        self.text: list[str] = []
        self.refusal: list[str] = []
        self.reasoning: list[str] = []
        self._reasoning_key: str | None = None  # the name it came under; None = none came
        self.tools = ToolDeltas()
        self.finish_reason: str | None = None
        self.stop_sequence: str | None = None  # the one that ended it; None = none is known to

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None and self.finish_reason not in NOT_TERMINAL

    def take(self, fields: dict[str, JSON], *, is_whole: bool) -> Mark:
        """Take in a delta, or a whole message, and say what it holds."""
        mark = Mark.PREFACE
        for key, value in fields.items():
            if not value or key == "role":
                continue  # null, '', an empty list
            if key == "tool_calls":
                for call in as_list(value):
                    if isinstance(call, dict):
                        self._tell_call((self.tools.add if is_whole else self.tools.feed)(call))
                        mark = Mark.TOOL
                continue
            if key == "function_call":
                if isinstance(value, dict):
                    self._tell_call(self.tools.feed_legacy(value))
                    mark = Mark.TOOL
                continue
            if key == "content":
                text = value if isinstance(value, str) else text_of(value)
                self.text.append(text)
                if text:
                    self._new_text.append((self.index, text))
                    self._tell("text", text)
            elif key == "refusal" and isinstance(value, str):
                self.refusal.append(value)
                self._tell("refusal", value)
            elif (
                key in _REASONING_KEYS
                and isinstance(value, str)
                and key == self._choose_reasoning(fields)
            ):
                self.reasoning.append(value)
                self._tell("reasoning", value)
            # Whatever it is (audio, annotations), it is more than a preface.
            if mark is Mark.PREFACE:
                mark = Mark.CONTENT
        return mark

    def choice(self) -> Choice:
        return Choice(
            index=self.index,
            text=join_text(self.text),
            refusal=join_text(self.refusal) if self.refusal else None,
            reasoning=join_text(self.reasoning) if self.reasoning else None,
            tool_calls=tuple(call.build() for call in self.tools.calls),
            finish_reason=self.finish_reason,
        )

    def _choose_reasoning(self, fields: dict[str, JSON]) -> str:
        """Return the name that counts: some send the same reasoning under both."""
        if self._reasoning_key is None:
            self._reasoning_key = next(key for key in _REASONING_KEYS if as_text(fields.get(key)))
        return self._reasoning_key

    def _tell(self, kind: Literal["text", "refusal", "reasoning"], text: str) -> None:
        if self.pieces is not None:
            self.pieces.append(Piece(self.index, kind, text))

    def _tell_call(self, call: CallBuilder) -> None:
        if self.pieces is not None:
            at, latest = call.position, call.latest
            self.pieces.append(
                Piece(self.index, "call", latest, at, call.call_id, call.name, call.kind)
            )


class _Reading:
    """An answer, as far as it was read: from chunks or from a body."""

    __slots__ = (
        "choices",
        "fault",
        "model",
        "new_text",
        "open_choices",
        "pieces",
        "response_id",
        "tier",
        "usage",
    )

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.model: str | None = None
        self.tier: str | None = None
        self.usage: Usage | None = None
        self.fault: str | None = None
        self.choices: dict[int, _ChoiceReading] = {}
        self.open_choices = 0  # how many of them are not finished
        self.new_text: list[tuple[int, str]] = []  # not asked for yet
        self.pieces: list[Piece] | None = None  # the same; None = nobody ever asked

    def new_pieces(self) -> list[Piece]:
        """Return the pieces since this was last asked; from the first time on they are kept."""
        if self.pieces is None:
            self.pieces = []
            for choice in self.choices.values():
                choice.pieces = self.pieces
        pieces = self.pieces[:]
        self.pieces.clear()
        return pieces

    def take_head(self, fields: dict[str, JSON]) -> None:
        """Take in what a body and each of a stream's chunks say besides the choices."""
        # The first that says something: Azure's first chunk has id '' and model ''.
        if self.response_id is None:
            self.response_id = as_text(fields.get("id"))
        if self.model is None:
            self.model = as_text(fields.get("model"))
        if (tier := fields.get("service_tier")) is not None:
            self.tier = as_text(tier) or self.tier
        if (usage := fields.get("usage")) is not None:
            # The last one counts: some send it in every chunk, growing. Never the sum.
            self.usage = read_usage(usage) or self.usage

    def take_piece(self, position: int, choice: dict[str, JSON]) -> Mark:
        """Take in one choice of a chunk."""
        reading = self._choice(choice.get("index"), position)
        delta = choice.get("delta")
        mark = Mark.PREFACE
        if isinstance(delta, dict):
            mark = reading.take(delta, is_whole=False)
        self._take_end(reading, choice)
        return mark

    def take_whole(self, position: int, choice: dict[str, JSON]) -> None:
        """Take in one choice of a body."""
        reading = self._choice(choice.get("index"), position)
        reading.take(as_object(choice.get("message")), is_whole=True)
        self._take_end(reading, choice)

    def missing(self) -> str | None:
        """Say what is missing to a complete answer, None = nothing."""
        if not self.choices:
            return "no choice was sent"
        for choice in self.sorted_choices():
            if not choice.is_finished:
                reason = choice.finish_reason
                said = "no finish reason" if not reason else f"the finish reason {reason!r}"
                return f"choice {choice.index} has {said}"
        return None

    def answer(self, fault: str | None) -> Answer:
        return Answer(
            choices=tuple(choice.choice() for choice in self.sorted_choices()),
            response_id=self.response_id,
            model=self.model,
            usage=self.usage,
            fault=fault,
            is_complete=fault is None,
            extra=self._extra(),
        )

    def _extra(self) -> dict[str, str]:
        first = self.choices[min(self.choices)] if self.choices else None
        facts = {
            "service_tier": self.tier,
            "stop_sequence": first.stop_sequence if first is not None else None,
        }
        return {key: value for key, value in facts.items() if value is not None}

    def sorted_choices(self) -> list[_ChoiceReading]:
        return [self.choices[index] for index in sorted(self.choices)]

    def _choice(self, index: JSON, position: int) -> _ChoiceReading:
        at = choice_index(index, position)
        reading = self.choices.get(at)
        if reading is None:
            reading = self.choices[at] = _ChoiceReading(at, self.new_text, self.pieces)
            self.open_choices += 1
        return reading

    def _take_end(self, reading: _ChoiceReading, choice: dict[str, JSON]) -> None:
        # OpenRouter's place for an error of one choice.
        if choice.get("error"):
            self.fault = self.fault or openai_errors.tell_fault({"error": choice["error"]})
        reason = choice.get("finish_reason")
        if not isinstance(reason, str) or (not reason and reading.finish_reason):
            return
        was_finished = reading.is_finished
        reading.finish_reason = reason
        if reason == "stop":
            # vLLM's and SGLang's names for what was hit. A number is a token's, so a natural end.
            hit = as_text(choice.get("stop_reason")) or as_text(choice.get("matched_stop"))
            reading.stop_sequence = hit or reading.stop_sequence
        self.open_choices += int(was_finished) - int(reading.is_finished)


def text_of(content: JSON) -> str:
    """Return the text of a content that is a list of parts."""
    texts = (as_object(part).get("text") for part in as_list(content))
    return "".join(text for text in texts if isinstance(text, str))
