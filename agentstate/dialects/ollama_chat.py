"""Ollama's own form, `POST /api/chat`. A target only: nobody asks us in it.

So it has no path, its requests are written and never translated from, its answers read and never
written: who asks for that has made a mistake, and is told so. Answers are one JSON object, or, as a
stream, one to a line; the transport gives each line as one frame (`framing`). Calls come whole,
with an object for arguments, often without ids, and in a line before the last one, whose reason is
"stop" all the same. The invariant: only an answer that says `done` is complete.
Source: Ollama's docs/api.md and api/types.go (ChatResponse), November 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NoReturn

from agentstate.dialects import ollama_chat_requests, openai_errors
from agentstate.dialects.base import Ask, ErrorFacts, Mark
from agentstate.dialects.lenient import (
    Unreadable,
    as_count,
    as_list,
    as_object,
    as_text,
    join_text,
    read_answer_body,
    read_exact,
)
from agentstate.dialects.neutral import AnswerHead, AnswerWriter, Asked, Ending, Receiver, Written
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.ground.errors import AgentStateError, BadRequest
from agentstate.wire.sse import Frame

_CHAT = OpenAIChat()  # messages have its shape as far as the proxy looks into them


class OllamaChat:
    """The dialect; see `base.Dialect` and `neutral.Translates` for what each promises."""

    name = "ollama_chat"
    paths: tuple[str, ...] = ()
    provider = "ollama"
    counted_headers: tuple[bytes, ...] = ()
    request_headers: tuple[tuple[bytes, bytes], ...] = ()
    list_key = "messages"
    shared_keys: tuple[str, ...] = ("tools", "format")
    framing: Literal["lines"] = "lines"  # of a stream: one JSON object to a line

    def request_path(self, model: str, *, streams: bool) -> tuple[str, str]:
        """Return the path and query of a request; the model stands in its body."""
        return ollama_chat_requests.PATH, ""

    def write_request(self, asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
        """Write a request."""
        return ollama_chat_requests.write_request(asked, receiver)

    def assembler(self, choices: int = 1) -> OllamaAssembler:
        """Return a fresh assembler; there is one choice, however many were asked for."""
        return OllamaAssembler()

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that was not streamed."""
        return read_answer(body)

    def ending(self, answer: Answer) -> Ending:
        """Say why an answer ended."""
        if answer.finish_reason == "length":
            return "length"
        return "tool_calls" if answer.tool_calls else "stop"

    def read_error(self, body: bytes) -> ErrorFacts | None:
        """Read an upstream's error: a text under `error`."""
        return openai_errors.read_error(body)

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape of a request and split it: what counts stands where chat has it."""
        return _CHAT.read_ask(body)

    def tool_result_blank(self, message: JSON) -> JSON | None:
        """Leave out the content of a tool's message."""
        return _CHAT.tool_result_blank(message)

    def tool_results(self, message: JSON) -> Sequence[tuple[str, JSON]]:
        """Return the one result of a tool's message."""
        return _CHAT.tool_results(message)

    def masked(self, message: JSON, mask: Callable[[str], str]) -> JSON | None:
        """Apply `mask` to the text of a system message."""
        return _CHAT.masked(message, mask)

    def mask_envelope(
        self, envelope: dict[str, JSON], mask: Callable[[str], str]
    ) -> dict[str, JSON] | None:
        """Return None: the system text is a message."""
        return None

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as a JSON body."""
        return openai_errors.error_body(error)

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as the last line of a stream."""
        return openai_errors.error_body(error) + b"\n"

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Refuse: no answer is recorded in this form."""
        _refuse()

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Refuse: no answer is recorded in this form."""
        _refuse()

    def done_frame(self) -> bytes:
        """Return b'': the last line says that it is the last."""
        return b""

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Make an upstream's error body readable; None = it is."""
        return openai_errors.mend_error_body(status, body)

    def read_request(self, body: Mapping[str, JSON]) -> Asked:
        """Refuse: no request comes in this form."""
        _refuse()

    def write_answer(self, answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
        """Refuse: no client reads this form."""
        _refuse()

    def answer_writer(self, head: AnswerHead) -> AnswerWriter:
        """Refuse: no client reads this form."""
        _refuse()

    def write_error(self, facts: ErrorFacts, status: int) -> bytes:
        """Refuse: no client reads this form."""
        _refuse()


def _refuse() -> NoReturn:
    raise NotImplementedError("Ollama's own form is that of a target, never a caller's")


class OllamaAssembler:
    """Builds an answer from one stream; see `neutral.TellsPieces`. A frame is a line."""

    __slots__ = ("_reading", "_texts_told")

    def __init__(self) -> None:
        self._reading = _Reading()
        self._texts_told = 0

    def feed(self, frame: Frame) -> Mark:
        """Take in one line and say what it is."""
        reading = self._reading
        was_done = reading.is_done
        data = frame.data
        if data is None or not data.strip():
            return Mark.TAIL if was_done else Mark.PREFACE
        try:
            line = read_exact(data)
        except Unreadable:
            reading.fault = reading.fault or "a line that is no JSON"
            return Mark.ERROR
        if not isinstance(line, dict):
            return Mark.TAIL if was_done else Mark.PREFACE
        mark = reading.take(line)
        if reading.fault is not None:
            return Mark.ERROR
        if was_done:
            return Mark.TAIL
        return Mark.COMPLETING if reading.is_done else mark

    def finish(self, clean_end: bool) -> Answer:
        """Return the answer. The last line says that it is the last, so what becomes of the
        connection after it does not matter."""
        return self._reading.answer()

    def snapshot(self) -> Answer:
        """Return the answer so far."""
        return self._reading.answer()

    def call_names(self) -> list[tuple[int, int, str]]:
        """Return (choice index, position, name) of every tool call."""
        return [(0, call.position, call.name) for call in self._reading.calls]

    def new_text(self) -> list[tuple[int, str]]:
        """Return the text that came since this was last asked."""
        known, self._texts_told = self._texts_told, len(self._reading.texts)
        return [(0, text) for text in self._reading.texts[known:]]

    def new_pieces(self) -> list[Piece]:
        """Return what came since this was last asked, of text, thinking and calls."""
        told, self._reading.pieces = self._reading.pieces or [], []
        return told


def read_answer(body: bytes) -> Answer:
    """Read an answer that was not streamed. Never raises: what is wrong is in `fault`."""
    try:
        value = read_answer_body(body)
    except Unreadable as error:
        return Answer(fault=str(error))
    reading = _Reading()
    reading.take(value)
    return reading.answer()


class _Reading:
    """An answer, as far as it was read: from lines or from a body."""

    __slots__ = (
        "calls",
        "fault",
        "finish_reason",
        "is_done",
        "model",
        "pieces",
        "texts",
        "thoughts",
        "usage",
    )

    def __init__(self) -> None:
        self.pieces: list[Piece] | None = None  # that nobody has got; None = nobody asks
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.is_done = False
        self.fault: str | None = None

    def take(self, fields: dict[str, JSON]) -> Mark:
        """Take in a body or a line; return the most that it holds."""
        if fields.get("error"):
            self.fault = self.fault or openai_errors.tell_fault(fields)
            return Mark.ERROR
        self.model = self.model or as_text(fields.get("model"))
        self.usage = _read_usage(fields) or self.usage
        mark = self._take_message(as_object(fields.get("message")))
        if fields.get("done") is True:
            self.is_done = True
            self.finish_reason = as_text(fields.get("done_reason")) or "stop"  # older ones say none
        return mark

    def answer(self) -> Answer:
        fault = self.fault or (None if self.is_done else "it does not say that it is done")
        choice = Choice(
            0,
            text=join_text(self.texts),
            reasoning=join_text(self.thoughts) if self.thoughts else None,
            tool_calls=tuple(self.calls),
            finish_reason=self.finish_reason,
        )
        return Answer(
            choices=(choice,),
            model=self.model,
            usage=self.usage,
            fault=fault,
            is_complete=fault is None,
        )

    def _take_message(self, message: dict[str, JSON]) -> Mark:
        mark = Mark.PREFACE
        if thought := as_text(message.get("thinking")):
            self.thoughts.append(thought)
            self._tell(Piece(0, "reasoning", thought))
            mark = Mark.CONTENT
        if text := as_text(message.get("content")):
            self.texts.append(text)
            self._tell(Piece(0, "text", text))
            mark = Mark.CONTENT
        for call in as_list(message.get("tool_calls")):
            self._take_call(as_object(call))
            mark = Mark.TOOL
        return mark

    def _take_call(self, fields: dict[str, JSON]) -> None:
        function = as_object(fields.get("function"))
        try:
            arguments = _read_arguments(function.get("arguments"))
        except BadRequest:
            self.fault = self.fault or "arguments that are nested too deeply"
            return
        name = as_text(function.get("name")) or ""
        call = ToolCall(len(self.calls), as_text(fields.get("id")), name, arguments)
        self.calls.append(call)
        self._tell(Piece(0, "call", arguments, call.position, call.call_id, name))

    def _tell(self, piece: Piece) -> None:
        if self.pieces is not None:
            self.pieces.append(piece)


def _read_arguments(value: JSON) -> str:
    """Return arguments as text; some servers that speak this form send one."""
    if isinstance(value, str):
        return value
    return encode({} if value is None else value).decode("ascii")


def _read_usage(fields: dict[str, JSON]) -> Usage | None:
    """Read token counts; a count of nothing is left out, as that of a prompt still in memory."""
    prompt = as_count(fields.get("prompt_eval_count"))
    answer = as_count(fields.get("eval_count"))
    if prompt is None and answer is None:
        return None
    return Usage(input_tokens=prompt or 0, output_tokens=answer or 0)
