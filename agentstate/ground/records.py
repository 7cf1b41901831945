"""The values that cross the seam between steps and store, and between store and doors.

All frozen. Time is integer milliseconds UTC (`_ms`), money integer micro-dollars (`_microusd`),
digests are 32 raw bytes. None always has the meaning given beside the field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentstate.ground.canonical import JSON
from agentstate.ground.chat import ToolCall, Usage
from agentstate.ground.control import About, Pause, Tags
from agentstate.ground.events import Event
from agentstate.ground.forks import Origin
from agentstate.ground.redaction import NOTHING_KNOWN, Redactor

StepState = Literal["in_flight", "complete", "failed", "interrupted"]
# in_flight    claimed, no answer yet             failed       no complete answer came
# complete     an answer is on record             interrupted  the proxy died while it was in flight

SessionStatus = Literal["RUNNING", "WAITING", "PAUSED", "FAILED", "COMPLETED"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a request that is stored once however many requests contain it."""

    digest: bytes  # over the canonical form, so key order does not matter
    value: JSON


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request body, split so that a long run grows by what is new.

    The body is rebuilt as `envelope` with each of `shared` put back under its key and the chain
    under `list_key`.
    """

    envelope: JSON  # the small rest of the body, as sent
    shared: tuple[tuple[str, Part], ...]  # large top-level values that repeat: tools, instructions
    list_key: str  # "messages" or "input"; '' = the body has no such list
    chain: tuple[Part, ...]  # its items in order; stored as nodes, each naming its parent
    # Takes secrets out of what is written of it. The digests are of what was sent, so what matches
    # stays the same.
    redactor: Redactor = NOTHING_KNOWN


@dataclass(frozen=True, slots=True)
class Identity:
    """The keys a request is found by. Pure functions of the request."""

    raw: bytes  # over dialect, path, counted headers and the raw body: the cheap first look
    exact: bytes  # the fingerprint
    pinned: bytes  # the fingerprint with the content of tool results left out
    masked: bytes  # `pinned` with clocks in system text left out as well


@dataclass(frozen=True, slots=True)
class Claim:
    """What is written before a call goes upstream: "in flight"."""

    session: str  # the caller's name for it; made on first sight
    step_number: int | None  # as the caller said; None = next free number
    run_id: str | None  # None = no run id was sent
    call_id: str | None
    occurrence: int  # n-th time of this fingerprint in its run, from 0; 0 without a run id
    dialect: str
    path: str  # below the base, e.g. "/v1/chat/completions"
    model: str
    streams: bool  # the body asked for a stream
    identity: Identity
    request: RequestRecord
    created_ms: int
    prompt: str = ""  # beginning of the last user message, for lists
    is_mock: bool = False  # the call would go to the mock provider
    # Why it goes upstream although it looks like a recorded step: {"step_number", "index", "path",
    # "sent", "recorded"}, values shortened; None = it looks like none.
    miss: JSON = None
    # Reuse this step's row (a failed or interrupted try of the same call, or a refresh).
    # None = a new row.
    step_id: int | None = None
    # What the agent says of its session. None = nothing. The same as it said before changes
    # nothing, so what a person wrote since stands.
    about: About | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The row a claim got."""

    step_id: int
    index: int  # order of first arrival in the session, from 0, unique
    step_number: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at one target, ended."""

    provider: str
    model: str
    started_ms: int
    ended_ms: int
    status: int | None = None  # upstream's HTTP status; None = it did not get that far
    error_code: str | None = None  # a code of errors.py; None = it succeeded
    error: str | None = None  # one line, redacted
    first_byte_ms: int | None = None  # since started_ms; None = none came
    excerpt: bytes = b""  # the beginning of an answer that was none, for a person to look at
    dropped: tuple[str, ...] = ()  # what translation could not say


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What the agent got, byte for byte."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]  # end-to-end ones, without length and coding
    form: Literal["body", "events"]
    content: bytes  # the body, or the raw events one after another
    pace: bytes = b""  # events: one little-endian (uint32 length, uint32 ms since head) per write
    # The upstream's end was seen, so nothing is missing after `content`. False: committed at the
    # completing frame, and the proxy died before the tail; a replay ends the stream itself.
    is_sealed: bool = True


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An answer and all that is known of it; committed and fsynced in one transaction."""

    step_id: int
    answered_ms: int
    attempts: tuple[Attempt, ...]
    answer: RecordedAnswer
    provider: str
    model: str  # as the upstream named it, else as asked
    response_id: str | None
    finish_reason: str | None
    text: str  # of the first choice, for lists and search
    tool_calls: tuple[tuple[int, ToolCall], ...]  # (choice index, call)
    usage: Usage | None
    usage_estimated: bool  # counted by us because the upstream sent none
    cost_microusd: int | None  # None = price or usage unknown
    latency_ms: int  # from request head to completing frame
    first_content_ms: int | None  # streams: to the first content event
    approval_id: str | None = None  # the approval that let the request go upstream; None = none did
    event: Event | None = None  # that it was answered in a way somebody wants to know; None = not
    is_mock: bool | None = None  # the mock provider gave it; None = if it was claimed so
    # A digest of the tool calls it asks the agent for, in canonical form; None = there are none.
    calls: bytes | None = None
    # A key that is known was in the answer and is taken out, so it is given to nobody again.
    is_censored: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """What came after the completing frame; appended, with what it changes."""

    step_id: int
    content: bytes  # may be empty: then only the rest changes
    pace: bytes
    seals: bool  # the upstream's end was seen: nothing comes after this
    usage: Usage | None
    usage_estimated: bool
    cost_microusd: int | None
    # Of the answer, where a person may have another one stand by now; None = the one that stands.
    answer_id: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayNote:
    """Bookkeeping of one replay, written behind."""

    session: str
    step_id: int
    replayed_ms: int
    mode: Literal["exact", "pinned", "masked", "joined"]
    saved_microusd: int  # 0 where the cost is unknown
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recorded step as the replay ladder sees it."""

    step_id: int
    answer_id: int | None  # None = no answer on record
    index: int
    step_number: int
    state: StepState
    run_id: str | None
    call_id: str | None
    occurrence: int
    model: str
    streams: bool
    identity: Identity
    is_mock: bool
    created_ms: int
    answered_ms: int | None  # None = not yet
    replayed_ms: int | None  # last time it was replayed; None = never
    cost_microusd: int | None
    provider: str | None
    calls_tools: bool = False  # its answer asks for a tool, so its replay is evidence of a re-run
    answer_model: str | None = None  # as who answered named it; `model` is what was asked for
    is_censored: bool = False  # see `Checkpoint.is_censored`


@dataclass(frozen=True, slots=True)
class Served:
    """That a run has got a step: as a replay, or because it recorded it."""

    step_id: int
    call_id: str | None  # of the call that got it; None = it sent none
    at_ms: int
    is_delivered: bool  # its answer was written whole to the client


@dataclass(frozen=True, slots=True)
class Emitter:
    """A step whose answer made a tool call."""

    step_id: int
    depth: int  # messages in its request
    replayed_ms: int | None  # last time it was replayed; None = never


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as lists and pages show it."""

    step_id: int
    session: str
    index: int
    step_number: int
    state: StepState
    fingerprint: bytes
    dialect: str
    path: str
    model: str
    provider: str | None
    streams: bool
    run_id: str | None
    response_id: str | None
    finish_reason: str | None
    prompt: str  # beginning of the last user message
    text: str  # beginning of the first choice's text
    usage: Usage | None
    usage_estimated: bool
    cost_microusd: int | None
    latency_ms: int | None
    first_content_ms: int | None
    created_ms: int
    answered_ms: int | None
    replays: int
    replayed_ms: int | None
    saved_microusd: int
    error_code: str | None  # of the last attempt; None = it succeeded or none ended
    error: str | None
    is_mock: bool
    rolled_back_ms: int | None = None  # None = active
    miss: JSON = None  # as in Claim
    # Of the answer that replays, else of the last one that was taken back. None = none ever came.
    answer_id: int | None = None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as lists and pages show it."""

    session: str
    status: SessionStatus
    created_ms: int
    updated_ms: int
    steps: int
    last_step_number: int | None  # the highest of an active step; None = there is none
    input_tokens: int
    output_tokens: int
    cost_microusd: int
    unknown_costs: int  # answered steps whose cost is not known, so the sum is a lower bound
    replays: int
    saved_microusd: int
    name: str | None = None  # for people; None = it has none
    parent: str | None = None  # the session that began it; None = none did, or nobody said
    tags: Tags = ()
    pause: Pause | None = None  # None = it is not paused
    origin: Origin | None = None  # None = it was not forked from another
    # Why it is COMPLETED or FAILED, or what somebody said of it. None = nobody did.
    status_reason: str | None = None
    status_by: str | None = None
    status_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Filter, order and page of a listing. Wide on purpose: most endpoints need no new method."""

    session: str | None = None
    status: str | None = None
    state: str | None = None
    search: str | None = None  # part of the session's id or name
    after: str | None = None  # opaque cursor of the page before; None = first page
    limit: int = 100
    newest_first: bool = True
    step_id: int | None = None  # of approvals: only those of this step
    parent: str | None = None  # of sessions: only those it began
    forked_from: str | None = None  # of sessions: only those that were forked from it
    # Of sessions: only those with all of these tags, at most `TAGS_SOUGHT_MAX`; None is any value.
    tags: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class StepPage:
    """One page of steps. `next_cursor` None = the last page."""

    rows: tuple[StepRow, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One page of sessions. `next_cursor` None = the last page."""

    rows: tuple[SessionRow, ...]
    next_cursor: str | None = None
