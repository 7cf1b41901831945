"""Reads answers in Anthropic's Messages form, whole or as a stream, into the neutral form.

Leniently, as the API's versioning asks of its clients: event types, block types and fields that
nobody here knows may come at any time. A block that looks like a tool call is taken for one,
whatever its type says. The one invariant: an answer is complete only if it began, has a stop
reason, no error came, and, of a stream, `message_stop` did (DESIGN section 4).
Source: platform.claude.com/docs/en/build-with-claude/streaming and the types of the `anthropic`
package 2.14, November 2026.
"""

from __future__ import annotations

from typing import Literal

from agentstate.dialects import anthropic_errors, openai_errors
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

# Some gateways add OpenAI's end to every stream; Anthropic's SDKs skip events without a name.
FOREIGN_DONE = b"[DONE]"

# Stop reasons that stop nothing. All others do, known or not: new ones are added.
NOT_TERMINAL = frozenset(("", "error"))

# Calls that Anthropic runs by itself; their results are blocks of the same answer.
RUN_UPSTREAM = frozenset(("server_tool_use", "mcp_tool_use"))

# The type of the block that a piece belongs to, where its start did not come.
IMPLIED_TYPES = {
    "text_delta": "text",
    "citations_delta": "text",
    "input_json_delta": "tool_use",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
}

# What the text of a block is to the neutral form, by the block's type.
_PIECE_KINDS: dict[str, Literal["text", "reasoning"]] = {"text": "text", "thinking": "reasoning"}


class MessagesAssembler:
    """Builds an answer from one stream; see `base.Assembler` and `neutral.TellsPieces`.

    An event that cannot be read is an error: it may have held anything, a tool call included, and
    clients break on it.
    """

    __slots__ = ("_is_completed", "_is_done", "_reading")

    def __init__(self) -> None:
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
            event = read_exact(data)
        except Unreadable:
            return self._take_no_json(data.strip())
        if not isinstance(event, dict):
            return self._mark_idle()
        if anthropic_errors.is_error(event):
            return self._fail(data)
        kind = event_type(event, frame)
        if kind == "message_stop":
            self._is_done = True
            return Mark.DONE
        mark = self._reading.take_event(kind, event)
        if self._is_completed:
            return Mark.TAIL
        if self._reading.is_stopped:
            self._is_completed = True
            return Mark.COMPLETING
        return mark

    def finish(self, clean_end: bool) -> Answer:
        """Return the answer when nothing more comes."""
        reading = self._reading
        fault = reading.fault or reading.missing()
        if fault is None and not self._is_done:
            fault = "no message_stop was sent" if clean_end else "the stream was cut before its end"
        return reading.answer(fault)

    def snapshot(self) -> Answer:
        """Return the answer so far, as if `message_stop` came next."""
        return self._reading.answer(self._reading.fault or self._reading.missing())

    def call_names(self) -> list[tuple[int, int, str]]:
        """Return (choice index, position, name so far) of every tool call."""
        return [(0, at, block.name) for at, block in enumerate(self._reading.calls)]

    def new_text(self) -> list[tuple[int, str]]:
        """Return the text that came since this was last asked, in the order it came."""
        texts = self._reading.new_texts
        self._reading.new_texts = []
        return [(0, piece) for piece in texts]

    def new_pieces(self) -> list[Piece]:
        """Return what came since this was last asked. Arguments that came whole, at the start of
        their block, are told at its end: until then pieces may come that stand for them."""
        pieces = self._reading.pieces
        self._reading.pieces = []
        return pieces or []

    def _mark_idle(self) -> Mark:
        return Mark.TAIL if self._is_completed else Mark.PREFACE

    def _take_no_json(self, data: bytes) -> Mark:
        if not data or data == FOREIGN_DONE:
            return self._mark_idle()
        self._reading.fault = self._reading.fault or "an event that is no JSON"
        return Mark.ERROR

    def _fail(self, data: bytes) -> Mark:
        try:
            fault = openai_errors.tell_fault(read_exact(data))
        except Unreadable:
            fault = "an error event that is no JSON"
        self._reading.fault = self._reading.fault or fault
        return Mark.ERROR


def event_type(event: dict[str, JSON], frame: Frame) -> str:
    """Return what an event is: its own word, else the name it was sent under; '' = neither."""
    return as_text(event.get("type")) or frame.event.decode("ascii", "replace")


def read_answer(body: bytes) -> Answer:
    """Read an answer that was not streamed. Never raises: what is wrong is in `fault`."""
    try:
        value = read_answer_body(body)
    except Unreadable as error:
        return Answer(fault=str(error))
    reading = _Reading()
    if anthropic_errors.is_error(value):
        reading.fault = openai_errors.tell_fault(value)
    elif value.get("type") != "message" or not isinstance(value.get("content"), list):
        reading.fault = "the body is no message with content"
    else:
        reading.take_message(value)
    return reading.answer(reading.fault or reading.missing())


def read_usage(fields: dict[str, JSON]) -> Usage | None:
    """Read token counts; None if neither side of them is a count.

    Anthropic counts what was read from and written to its cache beside `input_tokens`, not in it.
    """
    fresh, output = as_count(fields.get("input_tokens")), as_count(fields.get("output_tokens"))
    if fresh is None and output is None:
        return None
    cached = as_count(fields.get("cache_read_input_tokens")) or 0
    written = as_count(fields.get("cache_creation_input_tokens")) or 0
    details = as_object(fields.get("output_tokens_details"))
    return Usage(
        input_tokens=(fresh or 0) + cached + written,
        output_tokens=output or 0,
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=as_count(details.get("thinking_tokens")) or 0,
    )


def is_tool_call(block: dict[str, JSON]) -> bool:
    """Tell whether a content block is a call of a tool, whoever runs it."""
    kind = block.get("type")
    return (isinstance(kind, str) and kind.endswith("tool_use")) or (
        "input" in block and "name" in block
    )


class _Block:
    """One content block, as far as it was read."""

    __slots__ = ("_input", "arguments", "call_id", "is_call", "is_told", "kind", "name", "text")

    def __init__(self, fields: dict[str, JSON]) -> None:
        self.kind = as_text(fields.get("type")) or ""
        self.is_call = is_tool_call(fields)
        self.name = as_text(fields.get("name")) or ""
        self.call_id = as_text(fields.get("id"))
        self.text: list[str] = []  # of a text or thinking block
        text = fields.get(self.kind) if self.kind in ("text", "thinking") else None
        if isinstance(text, str) and text:
            self.text.append(text)
        self._input = fields.get("input")
        self.arguments: list[str] = []  # as they came in pieces
        self.is_told = False  # arguments that came whole are among the answer's pieces

    def take(self, delta: dict[str, JSON]) -> Mark:
        """Take in a piece and say what it holds."""
        kind = delta.get("type")
        if kind == "input_json_delta":
            if piece := as_text(delta.get("partial_json")):
                self.arguments.append(piece)
            return Mark.TOOL
        if kind in ("text_delta", "thinking_delta"):
            piece = as_text(delta.get("text" if kind == "text_delta" else "thinking"))
            if piece is None:
                return Mark.PREFACE
            self.text.append(piece)
        # Whatever else it is (a signature, a citation), it is more than a preface.
        return Mark.TOOL if self.is_call else Mark.CONTENT

    def call(self, position: int) -> ToolCall:
        return ToolCall(
            position=position,
            call_id=self.call_id,
            name=self.name,
            arguments=self._join_arguments(),
            kind=self._call_kind,
            runs_upstream=self.kind in RUN_UPSTREAM,
        )

    def piece(self, position: int, text: str) -> Piece:
        return Piece(0, "call", text, position, self.call_id, self.name, self._call_kind)

    def rest(self, position: int) -> list[Piece]:
        """Return the arguments, where they came whole and are not told yet."""
        if self.arguments or self.is_told or self.kind in RUN_UPSTREAM:
            return []
        self.is_told = True
        return [self.piece(position, self._join_arguments())]

    @property
    def _call_kind(self) -> str:
        return "function" if self.kind == "tool_use" else self.kind

    def _join_arguments(self) -> str:
        """Return the arguments as they came in pieces; else as they came at once, `{}` for none."""
        if self.arguments:
            return join_text(self.arguments)
        if self._input is None:
            return "{}"
        try:
            return encode(self._input).decode("ascii")
        except BadRequest:
            return "nested too deeply"  # no JSON, so that a gate takes them for malformed


class _Reading:
    """An answer, as far as it was read: from events or from a body."""

    __slots__ = (
        "_at",
        "_blocks",
        "_explanation",
        "_has_begun",
        "_has_told_refusal",
        "_model",
        "_response_id",
        "_stop_reason",
        "_stop_sequence",
        "_usage",
        "calls",
        "fault",
        "new_texts",
        "pieces",
    )

    def __init__(self) -> None:
        self.fault: str | None = None
        self.calls: list[_Block] = []  # those of the blocks that are tool calls
        self.new_texts: list[str] = []  # of the answer's text, what nobody has asked for yet
        self.pieces: list[Piece] | None = None  # the same of all of it; None = nobody ever asked
        self._has_begun = False
        self._response_id: str | None = None
        self._model: str | None = None
        self._blocks: list[_Block] = []  # in the order they came
        self._at: dict[int, _Block] = {}  # the last one that began at each index
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None
        self._explanation: str | None = None  # of a refusal
        self._has_told_refusal = False  # among the pieces
        self._usage: dict[str, JSON] = {}

    @property
    def is_stopped(self) -> bool:
        """Whether the message began and has its terminal reason."""
        return self._has_begun and (self._stop_reason or "") not in NOT_TERMINAL

    def take_event(self, kind: str, event: dict[str, JSON]) -> Mark:
        """Take in one event and say what it holds."""
        match kind:
            case "message_start":
                return self._take_start(as_object(event.get("message")))
            case "content_block_start":
                index = as_integer(event.get("index"))
                return self._open(index, as_object(event.get("content_block")))
            case "content_block_delta":
                delta = as_object(event.get("delta"))
                found = self._find(as_integer(event.get("index")), delta)
                known, known_arguments = len(found.text), len(found.arguments)
                mark = found.take(delta)
                self._note_text(found, known)
                if self.pieces is not None and len(found.arguments) > known_arguments:
                    self._note_call(found, found.arguments[-1])
                return mark
            case "content_block_stop":
                block = self._at.get(as_integer(event.get("index")) or 0)
                if block is None or not block.is_call:
                    return Mark.PREFACE
                if self.pieces is not None:
                    self.pieces += block.rest(self.calls.index(block))
                return Mark.TOOL
            case "message_delta":
                self._take_end(as_object(event.get("delta")))
                self._take_usage(event.get("usage"))
                if self.pieces is not None and self.is_stopped:
                    self._note_end(self.pieces)
        return Mark.PREFACE  # a ping, or an event type that is new

    def take_message(self, message: dict[str, JSON]) -> None:
        """Take in a whole message."""
        self._take_start(message)
        self._take_end(message)

    def missing(self) -> str | None:
        """Say what is missing to a complete answer, `message_stop` apart; None = nothing."""
        if not self._has_begun:
            return "no message_start was sent"
        if self.is_stopped:
            return None
        reason = self._stop_reason
        return "no stop reason was sent" if not reason else f"the stop reason is {reason!r}"

    def answer(self, fault: str | None) -> Answer:
        extra = {"service_tier": self._usage.get("service_tier"),
                 "stop_sequence": self._stop_sequence}  # fmt: skip
        return Answer(
            choices=(self._choice(),) if self._has_begun else (),
            response_id=self._response_id,
            model=self._model,
            usage=read_usage(self._usage),
            fault=fault,
            is_complete=fault is None,
            extra={key: value for key, value in extra.items() if isinstance(value, str)},
        )

    def _choice(self) -> Choice:
        text, thinking = self._join("text"), self._join("thinking")
        is_refusal = self._stop_reason == "refusal"
        return Choice(
            index=0,
            text=text or "",
            refusal=(self._explanation or "") if is_refusal else None,
            reasoning=thinking,
            tool_calls=tuple(block.call(at) for at, block in enumerate(self.calls)),
            finish_reason=self._stop_reason,
        )

    def _join(self, kind: str) -> str | None:
        """Return the text of all blocks of a kind; None if there is none."""
        pieces = [piece for block in self._blocks if block.kind == kind for piece in block.text]
        return join_text(pieces) if pieces else None

    def _take_start(self, message: dict[str, JSON]) -> Mark:
        if self._has_begun:
            return Mark.PREFACE  # clients take the first one and skip all others
        self._has_begun = True
        self._response_id = as_text(message.get("id"))
        self._model = as_text(message.get("model"))
        self._take_usage(message.get("usage"))
        marks = [
            self._open(index, block)
            for index, block in enumerate(as_list(message.get("content")))
            if isinstance(block, dict)
        ]
        return next((mark for mark in (Mark.TOOL, Mark.CONTENT) if mark in marks), Mark.PREFACE)

    def _take_end(self, fields: dict[str, JSON]) -> None:
        if (reason := as_text(fields.get("stop_reason"))) is not None:
            self._stop_reason = reason
        self._stop_sequence = as_text(fields.get("stop_sequence")) or self._stop_sequence
        details = as_object(fields.get("stop_details"))
        self._explanation = as_text(details.get("explanation")) or self._explanation

    def _take_usage(self, usage: JSON) -> None:
        """Take in counts. They are totals, each time; what a later event leaves out stands."""
        for key, value in as_object(usage).items():
            if value is not None:
                self._usage[key] = value

    def _open(self, index: int | None, fields: dict[str, JSON]) -> Mark:
        block = _Block(fields)
        self._blocks.append(block)
        self._at[len(self._blocks) - 1 if index is None else index] = block
        self._note_text(block, 0)
        if block.is_call:
            self.calls.append(block)
            if self.pieces is not None:
                self._note_call(block, "")
            return Mark.TOOL
        if block.kind == "fallback":
            # Anthropic's own fallback in mid-answer says which model goes on.
            self._model = as_text(as_object(fields.get("to")).get("model")) or self._model
        has_content = bool(block.text) or block.kind not in ("text", "thinking")
        return Mark.CONTENT if has_content else Mark.PREFACE

    def _note_text(self, block: _Block, known: int) -> None:
        """Note what of a block's text is new, from its piece `known` on."""
        if block.kind == "text":
            self.new_texts += block.text[known:]
        if self.pieces is not None and block.kind in _PIECE_KINDS:
            kind = _PIECE_KINDS[block.kind]
            self.pieces += [Piece(0, kind, text) for text in block.text[known:]]

    def _note_call(self, block: _Block, text: str) -> None:
        """Note a piece of a call, unless Anthropic runs it."""
        if self.pieces is not None and block.is_call and block.kind not in RUN_UPSTREAM:
            self.pieces.append(block.piece(self.calls.index(block), text))

    def _note_end(self, pieces: list[Piece]) -> None:
        """Note what is known at the end only: why the model refused, arguments nobody ended."""
        for position, block in enumerate(self.calls):
            pieces += block.rest(position)
        if self._stop_reason == "refusal" and self._explanation and not self._has_told_refusal:
            self._has_told_refusal = True
            pieces.append(Piece(0, "refusal", self._explanation))

    def _find(self, index: int | None, delta: dict[str, JSON]) -> _Block:
        """Return the block a piece belongs to; begin it if its start did not come."""
        block = self._at.get(max(self._at, default=0) if index is None else index)
        if block is None:
            self._open(index, {"type": IMPLIED_TYPES.get(str(delta.get("type")), "")})
            block = self._blocks[-1]
        return block
