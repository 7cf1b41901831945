"""OpenAI's older text completions, `POST /v1/completions`, which many local servers still speak.

A prompt instead of messages, `choices[].text` instead of a delta; a stream is made of the same
objects as the body, each with a piece of the text. The invariant is that of chat: an answer is
complete only if every choice that was seen has a finish reason and no error came. What the gate
needs is in `openai_completions_calls.py`.
Source: schema CreateCompletionResponse in OpenAI's OpenAPI document of August 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from agentstate.dialects import openai_completions_calls, openai_errors
from agentstate.dialects.base import Ask, Mark, Round, Splice, Tool
from agentstate.dialects.lenient import (
    Unreadable,
    as_integer,
    as_list,
    as_object,
    as_text,
    join_text,
    read,
    read_answer_body,
    read_exact,
)
from agentstate.dialects.openai_chat_forms import DONE_FRAME
from agentstate.dialects.openai_chat_reading import DONE, NOT_TERMINAL, read_usage
from agentstate.dialects.openai_fields import (
    counted,
    read_choices,
    read_model,
    read_object,
    read_stream,
)
from agentstate.dialects.openai_plain import OpenAIPlain
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Usage
from agentstate.wire import sse
from agentstate.wire.sse import Frame

_CHOICE_KEYS = frozenset(("index", "text", "logprobs", "finish_reason"))
_HEAD_KEYS = ("id", "object", "created", "model", "system_fingerprint")
_BODY_KEYS = frozenset(("choices", "usage"))
_KNOWN_KEYS = _BODY_KEYS | frozenset(_HEAD_KEYS)


class OpenAICompletions(OpenAIPlain):
    """The dialect of text completions; see `base.Dialect` and `base.CallsTools`."""

    name = "openai_completions"
    paths: tuple[str, ...] = ("/completions",)
    # An agent's prompt holds all it has said so far: equal ones are stored once.
    shared_keys: tuple[str, ...] = ("prompt",)
    heartbeat = sse.comment(b"held")

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape of a request; without a prompt the upstream takes its own."""
        body = read_object(body, '{"model": ..., "prompt": ...}')
        return Ask(
            model=read_model(body),
            streams=read_stream(body),
            messages=(),
            envelope=counted(body),
            body=body,
            choices=_count_prompts(body.get("prompt")) * read_choices(body.get("n")),
            wants_usage=as_object(body.get("stream_options")).get("include_usage") is True,
        )

    def assembler(self, choices: int = 1) -> CompletionsAssembler:
        """Return a fresh assembler."""
        return CompletionsAssembler(choices)

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that was not streamed."""
        try:
            value = read_answer_body(body, read)
        except Unreadable as error:
            return Answer(fault=str(error))
        reading = _Reading()
        if openai_errors.is_error(value):
            reading.fault = openai_errors.tell_fault(value)
        reading.take(value)
        return reading.answer(reading.fault or reading.missing())

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Make the stream form: a chunk for each choice, whole, then usage and `[DONE]`."""
        try:
            value = as_object(read_exact(body))
        except Unreadable:
            value = {}
        head = {key: value[key] for key in _HEAD_KEYS if key in value}
        chunks: list[dict[str, JSON]] = [
            {**head, "choices": [_with_index(position, choice)]}
            for position, choice in enumerate(as_list(value.get("choices")))
            if isinstance(choice, dict)
        ]
        if chunks:
            # What no chunk is known to carry goes with the first.
            chunks[0] |= {key: each for key, each in value.items() if key not in _KNOWN_KEYS}
        usage = value.get("usage")
        if include_usage and isinstance(usage, dict):
            chunks.append({**head, "choices": [], "usage": usage})
        return [*(sse.encode(encode(cast(JSON, chunk))) for chunk in chunks), DONE_FRAME]

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Make the non-streaming form: texts joined by choice, the last usage."""
        merge = _Merge()
        for frame in frames:
            if frame.data is None:
                continue
            try:
                chunk = read_exact(frame.data)
            except Unreadable:
                continue  # `[DONE]`; a stream with other such frames is no complete answer
            if isinstance(chunk, dict) and not openai_errors.is_error(chunk):
                merge.take(chunk)
        return encode(cast(JSON, merge.body()))

    def done_frame(self) -> bytes:
        """Return the frame that ends a stream."""
        return DONE_FRAME

    def tools(self, ask: Ask) -> tuple[Tool, ...]:
        """Return none: tools are described in the prompt, if at all."""
        return ()

    def changed_body(self, body: bytes, changes: Changes) -> bytes:
        """Return the answer as it is: it has no calls."""
        openai_completions_calls.check_unchanged(changes)
        return body

    def changed_events(self, frames: Sequence[Frame], changes: Changes) -> bytes:
        """Return the stream as it is: it has no calls."""
        openai_completions_calls.check_unchanged(changes)
        return b"".join(frame.raw for frame in frames)

    def with_text(self, body: bytes, choice: int, text: str) -> bytes:
        """Return an answer that says something else."""
        return openai_completions_calls.with_text(body, choice, text)

    def joined_body(self, text: str, second: bytes) -> bytes:
        """Put a text before the first choice's own."""
        return openai_completions_calls.joined_body(text, second)

    def joined_events(self, first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
        """Let a stream go on as another one, under the first one's id."""
        return openai_completions_calls.joined_events(first, second)

    def go_on(self, request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
        """Add the answer's text and an observation to the prompt."""
        return openai_completions_calls.go_on(request, asked)

    def spliced(self, body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
        """Put back what an agent has not seen into its prompt."""
        return openai_completions_calls.spliced(body, splice)


class CompletionsAssembler:
    """Builds an answer from one stream; see `base.Assembler`."""

    __slots__ = ("_choices_min", "_is_completed", "_is_done", "_reading")

    def __init__(self, choices: int = 1) -> None:
        self._choices_min = max(choices, 1)
        self._reading = _Reading()
        self._is_completed = False  # the completing frame was seen
        self._is_done = False

    def feed(self, frame: Frame) -> Mark:
        """Take in one frame and say what it is."""
        data = frame.data
        if data is None or not data.strip():
            return self._mark_idle()
        if data.strip() == DONE:
            self._is_done = True
            return Mark.DONE
        try:
            chunk = read(data)
        except Unreadable:
            return self._fail("an event that is no JSON")
        if frame.event == b"error":
            return self._fail(openai_errors.tell_fault(chunk))
        if not isinstance(chunk, dict):
            return self._mark_idle()
        if openai_errors.is_error(chunk):
            return self._fail(openai_errors.tell_fault(chunk))
        reading = self._reading
        has_text = reading.take(chunk)
        if reading.fault is not None:
            return Mark.ERROR
        if self._is_completed:
            return Mark.TAIL
        if len(reading.choices) >= self._choices_min and reading.missing() is None:
            self._is_completed = True
            return Mark.COMPLETING
        return Mark.CONTENT if has_text else Mark.PREFACE

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
        """Return none: calls in this form are text, which the gate reads by itself."""
        return []

    def new_text(self) -> list[tuple[int, str]]:
        """Return (choice index, piece) of the text that came since this was last asked."""
        pieces = self._reading.new_text[:]
        self._reading.new_text.clear()
        return pieces

    def _mark_idle(self) -> Mark:
        return Mark.TAIL if self._is_completed else Mark.PREFACE

    def _fail(self, fault: str) -> Mark:
        self._reading.fault = self._reading.fault or fault
        return Mark.ERROR


class _Reading:
    """An answer, as far as it was read: from chunks or from a body."""

    __slots__ = ("choices", "fault", "model", "new_text", "response_id", "usage")

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.model: str | None = None
        self.usage: Usage | None = None
        self.fault: str | None = None
        self.choices: dict[int, tuple[list[str], str | None]] = {}  # texts, finish reason
        self.new_text: list[tuple[int, str]] = []  # not asked for yet

    def take(self, fields: dict[str, JSON]) -> bool:
        """Take in a body or a chunk; return whether it brought text."""
        self.response_id = self.response_id or as_text(fields.get("id"))
        self.model = self.model or as_text(fields.get("model"))
        self.usage = read_usage(fields.get("usage")) or self.usage
        has_text = False
        for position, choice in enumerate(as_list(fields.get("choices"))):
            if not isinstance(choice, dict):
                continue
            index = as_integer(choice.get("index"))
            index = position if index is None else index
            texts, reason = self.choices.get(index, ([], None))
            if text := as_text(choice.get("text")):
                texts.append(text)
                self.new_text.append((index, text))
                has_text = True
            self.choices[index] = texts, as_text(choice.get("finish_reason")) or reason
        return has_text

    def missing(self) -> str | None:
        """Say what is missing to a complete answer, None = nothing."""
        if not self.choices:
            return "no choice was sent"
        for index in sorted(self.choices):
            reason = self.choices[index][1]
            if reason is None or reason in NOT_TERMINAL:
                said = "no finish reason" if not reason else f"the finish reason {reason!r}"
                return f"choice {index} has {said}"
        return None

    def answer(self, fault: str | None) -> Answer:
        return Answer(
            choices=tuple(
                Choice(index, text=join_text(texts), finish_reason=reason)
                for index, (texts, reason) in sorted(self.choices.items())
            ),
            response_id=self.response_id,
            model=self.model,
            usage=self.usage,
            fault=fault,
            is_complete=fault is None,
        )


class _Merge:
    """The chunks of one stream, to be merged into a body."""

    __slots__ = ("choices", "head", "usage")

    def __init__(self) -> None:
        self.head: dict[str, JSON] = {}
        self.choices: dict[int, list[dict[str, JSON]]] = {}
        self.usage: JSON = None

    def take(self, chunk: dict[str, JSON]) -> None:
        for key, value in chunk.items():
            if key not in _BODY_KEYS and (value or key not in self.head):
                self.head[key] = value
        self.usage = chunk.get("usage") or self.usage
        for position, choice in enumerate(as_list(chunk.get("choices"))):
            if isinstance(choice, dict):
                index = as_integer(choice.get("index"))
                self.choices.setdefault(position if index is None else index, []).append(choice)

    def body(self) -> dict[str, JSON]:
        body = {**self.head}
        body["choices"] = [
            _merge_choice(index, pieces) for index, pieces in sorted(self.choices.items())
        ]
        if self.usage is not None:
            body["usage"] = self.usage
        return body


def _merge_choice(index: int, pieces: list[dict[str, JSON]]) -> JSON:
    texts = [text for piece in pieces if isinstance(text := piece.get("text"), str)]
    reasons = [piece["finish_reason"] for piece in pieces if piece.get("finish_reason")]
    merged: dict[str, JSON] = {
        key: value
        for piece in pieces
        for key, value in piece.items()
        if key not in _CHOICE_KEYS and value is not None
    }
    logprobs = [each for piece in pieces if isinstance(each := piece.get("logprobs"), dict)]
    return {
        **merged,
        "index": index,
        "text": "".join(texts),
        "logprobs": _merge_logprobs(logprobs),
        "finish_reason": reasons[-1] if reasons else None,
    }


def _merge_logprobs(pieces: list[dict[str, JSON]]) -> JSON:
    """Join the lists of logprobs (tokens, token_logprobs, ...); of all else the last one wins."""
    if not pieces:
        return None
    merged: dict[str, JSON] = {}
    for piece in pieces:
        for key, value in piece.items():
            before = merged.get(key)
            is_more = isinstance(before, list) and isinstance(value, list)
            merged[key] = [*as_list(before), *as_list(value)] if is_more else value
    return merged


def _with_index(position: int, choice: dict[str, JSON]) -> dict[str, JSON]:
    index = as_integer(choice.get("index"))
    return {**choice, "index": position if index is None else index}


def _count_prompts(prompt: JSON) -> int:
    """Return how many prompts are asked: a list of texts or of token lists is one each."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        return len(prompt)
    return 1
