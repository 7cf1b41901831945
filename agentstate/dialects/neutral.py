"""The neutral form of a request, and what a dialect does to be translated from and into.

The hub of translation: n dialects need n files, not n². A request is read into `Asked` and written
from it. Answers need no form of their own: every dialect's reader gives `ground.chat.Answer`, and
of a stream its `Piece`s; what a dialect adds here is how they are written.

Two rules. What a dialect cannot say is left out *and named*, by its path in the caller's request
("top_k", "messages[3].content[1]"), never dropped silently. And a translation is a pure function of
the request: the same history gives the same bytes, tool ids included, or prompt caches miss and a
later turn does not fit the one before it. Thinking of another vendor's model is left out: its
signature means nothing elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

from agentstate.dialects.base import Assembler, Dialect, ErrorFacts
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, Piece

T = TypeVar("T")


# --- what is said ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a turn or of a tool's result."""

    text: str
    cache: JSON = None  # Anthropic's `cache_control` beside it, as sent; None = none


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: by its data, or by its URL."""

    data: str | None = None  # base64; None = `url` says where it is
    media_type: str | None = None  # of `data`, e.g. "image/png"
    url: str | None = None
    detail: str | None = None  # how closely to look: OpenAI's low, high, auto; None = not said
    cache: JSON = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file to read: by its data, its text or its URL. One of the three is set."""

    data: str | None = None  # base64
    media_type: str | None = None  # of `data`, e.g. "application/pdf"
    text: str | None = None
    url: str | None = None
    name: str | None = None
    cache: JSON = None


@dataclass(frozen=True, slots=True)
class Audio:
    """Something to listen to."""

    data: str  # base64
    kind: str  # "wav", "mp3"


@dataclass(frozen=True, slots=True)
class Refused:
    """The model's own words when it refused, as they stand in a history."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call that the model made earlier."""

    call_id: str  # never '': see `with_ids`
    name: str
    arguments: str  # exact text as sent; may be '' or no valid JSON
    is_custom: bool = False  # it takes free text, not JSON
    cache: JSON = None


Seen = Text | Image | Document | Audio


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave."""

    call_id: str  # never ''
    parts: tuple[Seen, ...]
    is_error: bool = False
    is_custom: bool = False
    name: str = ""  # of the tool; '' = not said
    cache: JSON = None


Item = Seen | Refused | Called | Result


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. Results stand in turns of the user, in the order in which they were sent."""

    role: Literal["system", "user", "assistant"]  # a developer's turn is the system's
    items: tuple[Item, ...]
    name: str | None = None  # of the participant; None = not said


# --- what is wanted -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that the model may call and the agent runs."""

    name: str
    description: str | None = None
    schema: JSON = None  # JSON schema of its arguments; None = none was given
    is_strict: bool | None = None
    is_custom: bool = False  # it takes free text
    cache: JSON = None


@dataclass(frozen=True, slots=True)
class Pick:
    """Which tools the model may or must call."""

    mode: Literal["auto", "any", "none", "named"]
    name: str = ""  # of the one that is named


@dataclass(frozen=True, slots=True)
class Format:
    """What the text of the answer must be: any JSON object, or one that fits a schema."""

    schema: JSON = None  # None = any object
    name: str | None = None
    description: str | None = None
    is_strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in neutral form. Of what was not said the value is None or ()."""

    model: str
    turns: tuple[Turn, ...]
    streams: bool = False
    tools: tuple[Offer, ...] = ()
    pick: Pick | None = None
    calls_in_parallel: bool | None = None  # False = at most one call a turn
    output_tokens_max: int | None = None
    temperature: JSON = None  # numbers as `canonical.parse` gives them, text kept
    top_p: JSON = None
    top_k: JSON = None
    seed: JSON = None
    presence_penalty: JSON = None
    frequency_penalty: JSON = None
    stop: tuple[str, ...] = ()
    format: Format | None = None
    effort: str | None = None  # OpenAI's words: none, minimal, low, medium, high, xhigh
    verbosity: str | None = None  # OpenAI's: low, medium, high
    choices: int = 1
    user: str | None = None  # an id of the end user
    # Paths in the caller's request of what has no place here.
    unsaid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receiver:
    """Who a request is written for, as far as that changes how."""

    provider: str
    model: str
    # The most it may answer where the request does not say and the form has to. None = not known.
    output_tokens_max: int | None = None


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """What was written, and the names of what could not be said in it."""

    value: T
    dropped: tuple[str, ...] = ()


# --- answers --------------------------------------------------------------------------------------

# Why an answer ended. `filtered`: cut off by a filter, or the model refused.
Ending = Literal["stop", "stop_sequence", "length", "tool_calls", "filtered"]


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What an answer says of itself before it says anything."""

    seed: str  # hex, unique to the call: ids that are made up are made of it
    model: str  # the name of the one that answers
    created_s: int  # seconds since 1970
    body: Mapping[str, JSON]  # the caller's request: some forms repeat parts of it


class TellsPieces(Assembler, Protocol):
    """An assembler that tells what it reads as it comes."""

    def new_pieces(self) -> list[Piece]:
        """Return what came since this was last asked, in order. Asked once before the first frame:
        until then nothing is kept for it. Calls that the provider runs by itself are no pieces."""
        ...


class AnswerWriter(Protocol):
    """Writes one stream, in whole frames. One instance per stream; pieces come in order."""

    def begin(self) -> bytes:
        """Return what comes before anything is said; no content."""
        ...

    def write(self, pieces: Sequence[Piece]) -> bytes:
        """Return the frames of these pieces; b'' while a call's name may still grow."""
        ...

    def end(self, answer: Answer, ending: Ending) -> bytes:
        """Return all that is left: calls not yet begun, the reason, the usage, the end itself.
        `answer` is the whole answer, complete."""
        ...


class Translates(Protocol):
    """A dialect that can be translated from and into. Pure. Its `assembler` is a `TellsPieces`."""

    # Headers every request in this form needs, e.g. its version.
    request_headers: tuple[tuple[bytes, bytes], ...]

    def request_path(self, model: str, *, streams: bool) -> tuple[str, str]:
        """Return (path that begins with its version, query) of a request."""
        ...

    def read_request(self, body: Mapping[str, JSON]) -> Asked:
        """Read a request, as `Dialect.read_ask` has checked it, into neutral form."""
        ...

    def write_request(self, asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
        """Write a request. `dropped` has `asked.unsaid` and what else could not be said.

        Raises:
            BadRequest: something in it has no form here and cannot be left out either: arguments
                that are no JSON where the form wants an object. `param` names the message.
        """
        ...

    def ending(self, answer: Answer) -> Ending:
        """Say why an answer in this form ended, from its finish reason and `extra`. A reason nobody
        knows is `stop`, or `tool_calls` where there are calls."""
        ...

    def write_answer(self, answer: Answer, ending: Ending, head: AnswerHead) -> Written[bytes]:
        """Write a whole answer in the form that is not streamed."""
        ...

    def answer_writer(self, head: AnswerHead) -> AnswerWriter:
        """Return a writer for one stream."""
        ...

    def write_error(self, facts: ErrorFacts, status: int) -> bytes:
        """Write an upstream's error as an error body of this form, with the words it uses for this
        status; what `facts` say and the form has a place for is kept."""
        ...


@runtime_checkable
class StreamsLines(Protocol):
    """A dialect whose stream is JSON objects, one to a line, where others send events."""

    framing: Literal["lines"]


@runtime_checkable
class TellsFaults(Protocol):
    """A dialect in which a model may end an answer by failing at it, which no other form can say:
    there it would be an answer like any other."""

    def model_fault(self, answer: Answer) -> str | None:
        """Say how a complete answer failed; None = it did not."""
        ...


class TranslatingDialect(Dialect, Translates, Protocol):
    """A dialect that can be translated."""


def translates(dialect: Dialect) -> TypeGuard[TranslatingDialect]:
    """Say whether a dialect can be translated; by one method that stands for all."""
    return hasattr(dialect, "answer_writer")


# --- turns ----------------------------------------------------------------------------------------


def join_calling(turns: Iterable[Turn]) -> list[Turn]:
    """Join turns of the model that follow each other: one with calls takes in what follows it,
    since in the chat form nothing may stand between calls and their results."""
    joined: list[Turn] = []
    for turn in turns:
        if joined and any(isinstance(item, Called) for item in joined[-1].items):
            joined[-1] = replace(joined[-1], items=joined[-1].items + turn.items)
        else:
            joined.append(turn)
    return joined


# --- ids ------------------------------------------------------------------------------------------

# What every vendor takes as the id of a call: OpenAI has a limit of 40 characters, Anthropic an
# alphabet.
_SAFE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def safe_id(call_id: str) -> str:
    """Return an id that every vendor takes: the id itself where it is one, else a digest of it.

    The same id always gives the same one, and two different ids two different ones.
    """
    if _SAFE_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest[:32]}"


def made_id(seed: str, *places: int) -> str:
    """Return an id for a call that came without one, out of what makes it unique."""
    digest = hashlib.sha256(":".join((seed, *map(str, places))).encode()).hexdigest()
    return f"call_{digest[:24]}"


def with_ids(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Give calls and results without an id one, so that those that belong together have the same.

    A result without an id is of one of the model's last calls that has none yet: the first of its
    name, else the first. Google's client sends none, also where the call has one. Ids that are made
    depend on places alone, so a history that grows keeps them.
    """
    waiting: list[Called] = []
    changed: list[Turn] = []
    for at, turn in enumerate(turns):
        has_calls = any(isinstance(item, Called) for item in turn.items)
        if has_calls and at and turns[at - 1].role != "assistant":
            waiting.clear()  # what has no result by now gets none
        answered = {item.call_id for item in turn.items if isinstance(item, Result)}
        waiting = [call for call in waiting if call.call_id not in answered]
        items: list[Item] = []
        for place, item in enumerate(turn.items):
            match item:
                case Called():
                    item = item if item.call_id else _renamed(item, made_id("history", at, place))
                    assert isinstance(item, Called), "a call stays one"
                    waiting.append(item)
                case Result(call_id="") if waiting:
                    call = next((call for call in waiting if call.name == item.name), waiting[0])
                    waiting.remove(call)
                    item = _renamed(item, call.call_id)
                case Result(call_id=""):
                    item = _renamed(item, made_id("result", at, place))
            items.append(item)
        changed.append(Turn(turn.role, tuple(items), turn.name))
    return tuple(changed)


def map_ids(turns: Sequence[Turn], mapped: Callable[[str], str]) -> tuple[Turn, ...]:
    """Return the turns with another id for each call and for its result."""
    return tuple(
        Turn(
            turn.role,
            tuple(
                _renamed(item, mapped(item.call_id)) if isinstance(item, Called | Result) else item
                for item in turn.items
            ),
            turn.name,
        )
        for turn in turns
    )


def _renamed(item: Called | Result, call_id: str) -> Called | Result:
    if isinstance(item, Called):
        return Called(call_id, item.name, item.arguments, item.is_custom, item.cache)
    return Result(call_id, item.parts, item.is_error, item.is_custom, item.name, item.cache)
