"""Reads answers in OpenAI's Responses form, whole or as a stream, into the neutral form.

What the pieces of a stream add up to is decided in `openai_responses_items.py`, and what of it is
new in `openai_responses_pieces.py`; here is what a response says of itself: its end, its usage, and
its items as text, reasoning and tool calls.
The one invariant: an answer is complete only if the response is completed, or incomplete by its
token limit and nothing else (DESIGN section 4). A stream has ended with the event that says so;
`[DONE]` is what some compatible servers add.
"""

from __future__ import annotations

import itertools

from agentstate.dialects import openai_errors
from agentstate.dialects.base import Mark
from agentstate.dialects.lenient import (
    Unreadable,
    as_count,
    as_integer,
    as_list,
    as_object,
    as_text,
    read_answer_body,
    read_exact,
)
from agentstate.dialects.openai_responses_items import (
    NAMED_CALLS,
    Output,
    is_call,
    read_input,
    runs_upstream,
)
from agentstate.dialects.openai_responses_pieces import KINDS, Pieces
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.ground.errors import AgentStateError, shorten
from agentstate.wire import sse
from agentstate.wire.sse import Frame

DONE = b"[DONE]"

COMPLETED = "completed"
TOKEN_LIMIT = "max_output_tokens"  # the one reason to be incomplete that makes an answer

# Events that only say how far the response as a whole is.
PROGRESS = frozenset(("response.created", "response.queued", "response.in_progress"))
# The last event of a stream. `response.done` is a variant that leaves the rest to the status.
ENDS = frozenset(("response.completed", "response.incomplete", "response.done"))
_FAILURES = frozenset(("error", "response.error", "response.failed", "response.cancelled"))


class ResponsesAssembler:
    """Builds an answer from one stream; see `base.Assembler`.

    Also the merged response itself, for the other form of a recorded stream, and the number of the
    next event, for an error of ours.
    """

    __slots__ = ("_fault", "_pieces", "_reason", "_response", "next_number", "output")

    def __init__(self) -> None:
        self._response: dict[str, JSON] = {}  # without its items
        self.output = Output()  # which item each event showed
        self._reason: str | None = None  # why it ended; None = it has not
        self._fault: str | None = None
        self._pieces: Pieces | None = None  # None = nobody asked for them
        self.next_number = 0  # of the event that would come next

    def feed(self, frame: Frame) -> Mark:
        """Take in one frame and say what it is."""
        data = frame.data
        if data is None:
            return self._mark_idle()
        try:
            event = read_exact(data)
        except Unreadable:
            return self._take_no_json(data.strip(), frame.event)
        if not isinstance(event, dict):
            return self._fail(event) if frame.event == b"error" else self._mark_idle()
        number = as_integer(event.get("sequence_number"))
        self.next_number = 1 + (self.next_number if number is None else number)
        name = event_name(event, frame)
        if name in _FAILURES or frame.event == b"error" or openai_errors.is_error(event):
            return self._fail(event)
        mark = self._take(name, event)
        if self._pieces is not None:
            self._pieces.take(name, event, self.output)
        if name in ENDS:
            return mark
        if self._fault is not None:
            return Mark.ERROR
        return mark if self._reason is None else Mark.TAIL

    def finish(self, clean_end: bool) -> Answer:
        """Return the answer when nothing more comes. How the body ended says nothing: an answer
        has ended with its last event, and one without it was cut."""
        fault = self._fault
        if fault is None and self._reason is None:
            fault = "the stream ended before the event that completes the response"
        placed = [(item.whole(), item.position) for item in self.output.items]
        return _build(self._response, placed, self._reason, fault)

    def snapshot(self) -> Answer:
        """Return the answer so far."""
        return self.finish(clean_end=True)

    def call_names(self) -> list[tuple[int, int, str]]:
        """Return (0, position, name so far) of every tool call."""
        return [(0, at, item.name) for at, item in enumerate(self.output.calls)]

    def new_text(self) -> list[tuple[int, str]]:
        """Return (0, piece) of the text that came since this was last asked."""
        pieces = [(0, piece) for piece in self.output.texts]
        self.output.texts.clear()
        return pieces

    def new_pieces(self) -> list[Piece]:
        """Return what came since this was last asked."""
        if self._pieces is None:
            self._pieces = Pieces()
        return self._pieces.give()

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours with the number that comes next."""
        return render_error_event(error, self.next_number)

    def response(self) -> dict[str, JSON]:
        """Return the response as a body: the last event's, its items made whole from all events."""
        body = {"object": "response", **self._response}
        body["output"] = [item.whole() for item in self.output.items]
        status = body.get("status")
        if self._reason is None and status in (None, COMPLETED):
            body["status"] = "in_progress"  # else what is no answer would read as one
        elif self._reason is not None and status is not None:
            body["status"] = COMPLETED if self._reason == COMPLETED else "incomplete"
        return body

    def _take(self, name: str, event: dict[str, JSON]) -> Mark:
        if name in ENDS:
            return self._take_end(name, as_object(event.get("response")))
        if name in PROGRESS:
            response = as_object(event.get("response"))
            self._response |= response
            return self.output.take_begun(as_list(response.get("output")))
        return self.output.take(name, event)

    def _take_end(self, name: str, response: dict[str, JSON]) -> Mark:
        self._response |= {key: value for key, value in response.items() if key != "output"}
        self.output.take_final(as_list(response.get("output")))
        reason, fault = read_ending(response, name)
        self._fault = self._fault or fault
        if self._fault is not None:
            return Mark.ERROR
        is_first, self._reason = self._reason is None, reason
        return Mark.COMPLETING if is_first else Mark.TAIL

    def _mark_idle(self) -> Mark:
        return Mark.PREFACE if self._reason is None else Mark.TAIL

    def _take_no_json(self, data: bytes, event: bytes) -> Mark:
        if data == DONE:
            return Mark.DONE
        if not data and event != b"error":
            return self._mark_idle()  # some keep a stream alive with empty events
        what = "an error event that is no JSON" if event == b"error" else "an event that is no JSON"
        self._fault = self._fault or what
        return Mark.ERROR

    def _fail(self, event: JSON) -> Mark:
        self._fault = self._fault or openai_errors.tell_fault(error_of(event) or event)
        return Mark.ERROR


def event_name(event: dict[str, JSON], frame: Frame) -> str:
    """Return an event's name; a few upstreams give it only in the frame's own field."""
    return as_text(event.get("type")) or frame.event.decode("ascii", "replace")


def read_answer(body: bytes) -> Answer:
    """Read an answer that was not streamed. Never raises: what is wrong is in `fault`."""
    try:
        value = read_answer_body(body)
    except Unreadable as error:
        return Answer(fault=str(error))
    reason, fault = read_ending(value)
    if openai_errors.is_error(value):
        fault = openai_errors.tell_fault(value)
    items = [item for item in as_list(value.get("output")) if isinstance(item, dict)]
    positions = itertools.count()
    placed = [(item, next(positions) if is_call(_type(item)) else 0) for item in items]
    return _build(value, placed, reason, fault)


def read_ending(response: dict[str, JSON], event: str = "") -> tuple[str | None, str | None]:
    """Return (why the response ended, what makes it no answer), each None where there is none.

    `event` is the name of the stream's last event; '' = the response came as a body.
    """
    status = as_text(response.get("status"))
    if event == "response.incomplete":
        status = "incomplete"
    elif event == "response.completed" and status not in ("incomplete", "failed", "cancelled"):
        status = COMPLETED
    elif status is None and isinstance(response.get("output"), list):
        status = COMPLETED  # some leave it out
    if status == "incomplete":
        reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        if reason == TOKEN_LIMIT:
            return reason, None
        said = shorten(reason) if reason else "it does not say why"
        return reason or status, f"the response is incomplete ({said})"
    if response.get("error"):
        return status, openai_errors.tell_fault({"error": response["error"]})
    if status == COMPLETED:
        return status, None
    return None, f"the response's status is {shorten(status)!r}" if status else "no response came"


def read_usage(value: JSON) -> Usage | None:
    """Read token counts in the Responses form; None if neither side of them is a count."""
    fields = as_object(value)
    input_tokens = as_count(fields.get("input_tokens"))
    output_tokens = as_count(fields.get("output_tokens"))
    if input_tokens is None and output_tokens is None:
        return None
    of_input = as_object(fields.get("input_tokens_details"))
    of_output = as_object(fields.get("output_tokens_details"))
    return Usage(
        input_tokens=input_tokens or 0,
        output_tokens=output_tokens or 0,
        cached_tokens=as_count(of_input.get("cached_tokens")) or 0,
        cache_write_tokens=as_count(of_input.get("cache_write_tokens")) or 0,
        reasoning_tokens=as_count(of_output.get("reasoning_tokens")) or 0,
    )


def error_of(value: JSON) -> JSON:
    """Return the error that an event or a body carries, in the form of an error body; None if it
    carries none. What is neither an event nor a response is returned as it is."""
    if not isinstance(value, dict):
        return value
    name, error = as_text(value.get("type")) or "", value.get("error")
    response = as_object(value.get("response"))
    if name in _FAILURES or name in ENDS:
        error = error or response.get("error")
        if error or name in ENDS:
            return {"error": error} if error else None
        # The error event has no envelope; its type only says that it is one.
        return {key: each for key, each in value.items() if key != "type"}
    if value.get("object") == "response" and not error:
        return None
    return value


def render_error_event(error: AgentStateError, number: int) -> bytes:
    """Render an error of ours as the event `error` with this sequence number."""
    words = as_object(as_object(read_exact(openai_errors.error_body(error))).get("error"))
    event: dict[str, JSON] = {"type": "error"}
    event |= {key: words[key] for key in ("code", "message", "param")}
    return sse.encode(encode({**event, "sequence_number": number}), b"error")


def _build(
    response: dict[str, JSON],
    placed: list[tuple[dict[str, JSON], int]],
    reason: str | None,
    fault: str | None,
) -> Answer:
    """Make the answer; `placed` are its items, each with its position if it is a tool call."""
    tier = as_text(response.get("service_tier"))
    return Answer(
        choices=(_build_choice(placed, reason),) if placed or reason is not None else (),
        response_id=as_text(response.get("id")),
        model=as_text(response.get("model")),
        usage=read_usage(response.get("usage")),
        fault=fault,
        is_complete=fault is None,
        extra={"service_tier": tier} if tier is not None else {},
    )


def _build_choice(placed: list[tuple[dict[str, JSON], int]], reason: str | None) -> Choice:
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for item, position in placed:
        kind = _type(item)
        if is_call(kind):
            calls.append(_build_call(kind, item, position))
        elif kind == "message":
            texts += _list_texts(item.get("content"), "text")
            refusals += _list_texts(item.get("content"), "refusal")
        elif kind == "reasoning":
            # The summary is what is shown of it; open models show the text itself.
            summary = _list_texts(item.get("summary"), "text")
            thoughts += summary or _list_texts(item.get("content"), "text")
    return Choice(
        index=0,
        text="".join(texts),
        refusal="".join(refusals) if refusals else None,
        reasoning="\n\n".join(thoughts) if thoughts else None,
        tool_calls=tuple(sorted(calls, key=lambda call: call.position)),
        finish_reason=reason,
    )


def _build_call(kind: str, item: dict[str, JSON], position: int) -> ToolCall:
    return ToolCall(
        position=position,
        call_id=as_text(item.get("call_id")) or as_text(item.get("id")),
        name=(as_text(item.get("name")) or "") if kind in NAMED_CALLS else kind,
        arguments=read_input(item),
        kind=KINDS.get(kind, kind),
        runs_upstream=runs_upstream(item),
    )


def _list_texts(parts: JSON, key: str) -> list[str]:
    if isinstance(parts, str):
        return [parts] if key == "text" and parts else []
    texts = (as_text(as_object(part).get(key)) for part in as_list(parts))
    return [text for text in texts if text is not None]


def _type(item: dict[str, JSON]) -> str:
    return as_text(item.get("type")) or ""
