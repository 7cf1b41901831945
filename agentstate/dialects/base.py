"""What a dialect must be able to say. One file per wire form; all pure functions on values.

A dialect reads requests, reads answers (whole or as a stream), and makes the bytes that are ours:
the other form of a recorded answer, errors, and error events. It knows nothing of sockets, stores
or sessions. The rows are in `dialects/__init__.py`; `tests/dialects/contract.py` proves them.
`lenient.py` reads the JSON of others, which is not always JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeGuard, runtime_checkable

from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import AgentStateError
from agentstate.wire.sse import Frame


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as far as the proxy must understand it."""

    model: str
    streams: bool  # the caller wants server-sent events
    messages: tuple[JSON, ...]  # the list that grows from call to call, in order
    # The rest of the body that counts for the fingerprint, without the messages and without the
    # fields that never change an answer (stream, user, metadata, ...).
    envelope: dict[str, JSON]
    body: dict[str, JSON]  # the whole body as parsed
    choices: int = 1  # alternatives asked for; what `Dialect.assembler` is told
    wants_usage: bool = False  # a stream asked to end with its usage (chat: stream_options)
    # What the messages go on from, kept by the upstream (Responses: the id of an earlier response
    # or of a conversation): they are then not the whole conversation. None = they are.
    goes_on_from: str | None = None
    # The upstream adds text or tools of its own that nobody here sees: what it kept of earlier
    # calls, a prompt it has under a name, a cache.
    has_hidden_part: bool = False
    # Not a call that is answered here and now (Responses: a background request): it goes upstream
    # as it is, unrecorded, and so does its answer.
    passes_through: bool = False
    # What counts of the path where it says more than what is asked (Gemini: in which form the
    # answer is wanted). '' = all of it.
    counted_path: str = ""


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """What an upstream's error says of itself."""

    message: str  # '' = it says nothing
    kind: str | None = None  # its own word for the class of error; None = not given
    code: str | None = None  # e.g. "insufficient_quota"; None = not given
    status: int | None = None  # the HTTP status it means, as inside a 200; None = it names none
    retry_after_s: float | None = None  # how long it asks to wait; None = it does not say


class Mark(Enum):
    """What one frame of a stream means for the answer."""

    PREFACE = "preface"  # nothing a person could read: role, usage, ping, empty delta, comment
    CONTENT = "content"  # text, refusal, reasoning: live from here on
    TOOL = "tool"  # part of a tool call
    # With this frame every choice has its terminal reason: as many as were asked for and every one
    # that was seen. Given at most once.
    COMPLETING = "completing"
    # After the completing one: usage, further empty chunks. If it brings content or a tool call all
    # the same, the snapshot has it.
    TAIL = "tail"
    # The dialect's end of stream: `[DONE]`, `message_stop` where it is separate. It can come with
    # no COMPLETING before it: nothing was answered, or fewer choices than were asked for.
    DONE = "done"
    ERROR = "error"  # the upstream's error as an event, or an event that cannot be read


class Assembler(Protocol):
    """Builds an answer from the frames of one stream. One instance per stream."""

    def feed(self, frame: Frame) -> Mark:
        """Take in one frame and say what it is. Never raises on odd content: see `answer.fault`."""
        ...

    def finish(self, clean_end: bool) -> Answer:
        """Return the answer. `clean_end`: the body ended as HTTP says it should.

        `is_complete` is true only by DESIGN section 4; otherwise `fault` says what is missing.
        """
        ...

    def snapshot(self) -> Answer:
        """Return the answer so far, `is_complete` as if the stream ended cleanly here."""
        ...

    def call_names(self) -> list[tuple[int, int, str]]:
        """Return (choice index, position, name so far) of every tool call, without joining texts:
        cheap enough to ask at every frame. A name may still grow."""
        ...

    def new_text(self) -> list[tuple[int, str]]:
        """Return (choice index, piece) of the text that came since this was last asked, in order:
        joined by choice they are the `text` of the snapshot's choices."""
        ...


@runtime_checkable
class NumbersEvents(Protocol):
    """An assembler of a dialect that numbers its events: an error of ours has the next number."""

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as the last frame of the stream that was fed so far."""
        ...


@runtime_checkable
class ReadsPath(Protocol):
    """A dialect whose path says what others say in the body: the model, and whether to stream."""

    def at(self, path: str, query: str) -> Dialect | None:
        """Return the dialect bound to a path, whole and with its version; None = not its path."""
        ...


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a request offers to the model."""

    name: (
        str  # of a built-in one its type name; of a server's one "label.tool", and the label alone
    )
    schema: JSON  # JSON schema of its arguments; None = none was given, or it takes free text
    runs_upstream: bool  # the provider runs it by itself, before anybody here sees the call


@dataclass(frozen=True, slots=True)
class Round:
    """An answer whose calls were refused, and what the model is told about it."""

    answer: bytes  # as the model gave it, in the form that is not streamed
    told: Mapping[int, str]  # by position of the refused call of the first choice
    observation: str = ""  # what a text that spells a call is answered; '' = it spells none


@dataclass(frozen=True, slots=True)
class Splice:
    """What an agent's history lacks: rounds it has not seen, and calls it has not got; or, with no
    rounds, what a person wrote in place of an answer it has."""

    request: Mapping[str, JSON]  # the body that the first round, or the answer, answered
    # In order; only the last one can have calls that were not refused. () = `follows` takes the
    # place of what was delivered.
    rounds: tuple[Round, ...]
    # What the agent got, in the form that is not streamed: the answer after the last round, or the
    # last round's own answer without the refused calls.
    delivered: bytes
    # The answer after the last round as the model gave it; None = the agent got what was left of
    # the last round.
    follows: bytes | None


@runtime_checkable
class CallsTools(Protocol):
    """A dialect whose answers can call tools: what the gate needs of it. Pure, like the rest.

    A call is named by its `Place`, as `Answer.tool_calls` numbers it. What is not changed stays as
    it was sent, byte for byte where it is a frame, field for field where it is a body.
    """

    heartbeat: bytes  # a frame that every client of the dialect passes over

    def tools(self, ask: Ask) -> tuple[Tool, ...]:
        """Return the tools a request offers; odd ones are passed over."""
        ...

    def changed_body(self, body: bytes, changes: Changes) -> bytes:
        """Return an answer with other arguments, or without some calls. A choice that had calls and
        has none left ends like one that called none; positions the wire form counts close up.

        Raises:
            BadRequest: the new arguments do not fit the form (an object is wanted), or as
                `Dialect.events_from_body`.
        """
        ...

    def changed_events(self, frames: Sequence[Frame], changes: Changes) -> bytes:
        """Return a whole stream, changed likewise. Frames before the first one that shows a changed
        call come out as they went in; same errors."""
        ...

    def with_text(self, body: bytes, choice: int, text: str) -> bytes:
        """Return an answer one choice of which says `text` and nothing else, its calls, thoughts,
        ids and usage as they were. One that was cut ends as a whole one does.

        Raises:
            BadRequest: it has no such choice, or cannot be read.
        """
        ...

    def joined_body(self, text: str, second: bytes) -> bytes:
        """Return an answer with `text` of an earlier round before its own text, a blank line
        between them; '' changes nothing, byte for byte."""
        ...

    def joined_events(self, first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
        """Return one stream made of the beginning of a stream and a whole other one.

        `first` comes out as it went in: it has no call and no end. The second goes on from there as
        if it were the same answer, a blank line between the texts; its end is the end. An empty
        `first` changes nothing, byte for byte.
        """
        ...

    def go_on(self, request: Mapping[str, JSON], asked: Round) -> dict[str, JSON]:
        """Return the request that comes after a round: what was asked, the answer with all its
        calls, and what the model is told about each; not streamed.

        Raises:
            BadRequest: this request has no form for that.
        """
        ...

    def spliced(self, body: Mapping[str, JSON], splice: Splice) -> dict[str, JSON] | None:
        """Put what the agent has not seen back into a later request; None = no place for it.

        1. It begins with the items of `splice.request`, and what comes then equals what was
           delivered in text and calls: that is replaced by the rounds and `follows`. Where no round
           follows, the refused calls are put back between the others, and what the model is told
           among their results.
        2. Else, where calls were delivered: exactly one place in the list has them by their ids.
        3. A chained request (Responses) that goes on from what was delivered: the results are added
           that the upstream still waits for. Without rounds it has no place: see `Chains`.
        """
        ...


class Dialect(Protocol):
    """One wire form."""

    name: str  # as in settings and in the record, e.g. "openai_chat"
    paths: tuple[str, ...]  # below /v1, e.g. ("/chat/completions",)
    provider: str  # whose endpoint this is, so gets the caller's key, e.g. "openai"
    counted_headers: tuple[bytes, ...]  # lower-case names that are part of the fingerprint
    list_key: str  # the body's key of the list that grows, e.g. "messages"
    shared_keys: tuple[str, ...]  # keys whose values are large and repeat: worth storing once

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape and split it.

        Raises:
            BadRequest: no object, no model, no list of messages; `param` names the field.
        """
        ...

    def tool_result_blank(self, message: JSON) -> JSON | None:
        """Return a copy of a message with the content of its tool results left out, ids kept; None
        if it has no tool result."""
        ...

    def tool_results(self, message: JSON) -> Sequence[tuple[str, JSON]]:
        """Return (id of the tool call, content) of each tool result in a message, in order; an id
        is '' where the wire form has none."""
        ...

    def masked(self, message: JSON, mask: Callable[[str], str]) -> JSON | None:
        """Return a copy of a system message with `mask` applied to its text; None if it is none."""
        ...

    def mask_envelope(
        self, envelope: dict[str, JSON], mask: Callable[[str], str]
    ) -> dict[str, JSON] | None:
        """Return a copy of the envelope with `mask` applied to the system text in it; None in
        dialects whose system text is a message."""
        ...

    def assembler(self, choices: int = 1) -> Assembler:
        """Return a fresh assembler for one stream whose request asked for `choices` alternatives
        (`Ask.choices`): the completing frame cannot be told without."""
        ...

    def read_answer(self, body: bytes) -> Answer:
        """Read a non-streaming answer. Never raises: what is wrong is in `fault`."""
        ...

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Make the stream form of a recorded body: complete frames, terminal one last.

        Meant for a body whose `read_answer` is complete; what is no answer gives no answer.

        Raises:
            BadRequest: nested so deeply that it can be read and not be written again.
        """
        ...

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Make the non-streaming form of a recorded stream: same condition, same error."""
        ...

    def done_frame(self) -> bytes:
        """Return the frame that ends a stream (`data: [DONE]`), b'' if the dialect has none."""
        ...

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as the dialect's JSON error body."""
        ...

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as the last frame of a stream that has begun."""
        ...

    def read_error(self, body: bytes) -> ErrorFacts | None:
        """Read an upstream's error: the body of an HTTP error or of a 200 that carries one, or the
        data of an error event. None if it is not one that can be read."""
        ...

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Make an upstream's error body readable for a client of this dialect.

        None where it can pass as it is: any JSON object, since clients cope with shapes they do not
        know. Anything else (an HTML page, text, nothing, other JSON) would break their parser: then
        an error body of the dialect that names the upstream's status and what came instead.
        """
        ...


@runtime_checkable
class Chains(Protocol):
    """A dialect whose requests can go on from an earlier answer by its id (Responses)."""

    def link(self, body: Mapping[str, JSON]) -> str | None:
        """Return the id of the answer that a request goes on from; None = of none."""
        ...

    def is_made_here(self, answer_id: str) -> bool:
        """Say whether an answer's id is one that was made here, for another vendor's answer."""
        ...

    def has_more_hidden(self, body: Mapping[str, JSON]) -> bool:
        """Say whether the upstream adds something else that it keeps under a name."""
        ...

    def with_link(
        self, body: Mapping[str, JSON], request: Mapping[str, JSON], answer: bytes
    ) -> dict[str, JSON]:
        """Return a request with the one before it, and that one's answer, written out in it: it
        then goes on from what that one went on from."""
        ...


class CallingDialect(Dialect, CallsTools, Protocol):
    """A dialect whose answers can call tools."""


class PathDialect(Dialect, ReadsPath, Protocol):
    """A dialect whose path says what others say in the body."""


def calls_tools(dialect: Dialect) -> TypeGuard[CallingDialect]:
    """Say whether a dialect's answers can call tools.

    By one method that stands for all (the contract suite holds the rest): `isinstance` looks at
    every member of a protocol, and this is asked several times a call.
    """
    return hasattr(dialect, "changed_events")


def reads_path(dialect: Dialect) -> TypeGuard[PathDialect]:
    """Say whether a dialect's path says what others say in the body; asked once a call."""
    return hasattr(dialect, "at")
