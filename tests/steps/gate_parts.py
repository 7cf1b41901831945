"""What a model says in the gate's fuzz tests, and what is to be known of it: parts, cases, scripts.

What a model says is a list of parts: texts, calls nobody guards, guarded calls, and calls that a
text spells. A script says how they are written down. How they are written in a dialect is in
`gate_chat.py`, `gate_responses.py` and `gate_others.py`; `gate_spellings.py` has the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

TOOL = "delete_rows"
EDITED = "ed1ted"  # in new arguments only
SECRETS = ("s3cretA", "s3cretB", "s3cretC")  # in the arguments of guarded calls only
SAFE = ("get_weather", "read_file")  # tools that nobody guards
NEXT = "I will not."  # what the model says once it was told of a refusal
SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}}

Cut = Callable[[str], list[str]]  # a text in the pieces it comes in
Raw = tuple[bytes, bool]  # an event as it comes; whether it shows part of a guarded call


def whole(text: str) -> list[str]:
    """Cut a text into one piece."""
    return [text]


def in_pieces(chars: int) -> Cut:
    """Return what cuts a text into pieces of so many characters."""
    return lambda text: [text[at : at + chars] for at in range(0, len(text), chars)] or [""]


@dataclass(frozen=True, slots=True)
class Say:
    """A text."""

    text: str


@dataclass(frozen=True, slots=True)
class Use:
    """A native call of a tool."""

    name: str
    secret: str = ""  # '' = a call nobody guards

    @property
    def arguments(self) -> dict[str, Any]:
        """What it is called with."""
        return {"table": self.secret} if self.secret else {"city": "Oslo"}

    @property
    def text(self) -> str:
        """The arguments as they are sent."""
        return json.dumps(self.arguments)

    @property
    def free_text(self) -> str:
        """What a tool that takes a text is called with."""
        return f"delete {self.secret}" if self.secret else "nothing"


@dataclass(frozen=True, slots=True)
class Spell:
    """A guarded call that a text spells."""

    text: str
    secret: str


Part = Say | Use | Spell
Choices = Sequence[Sequence[Part]]


@dataclass(frozen=True, slots=True)
class Script:
    """How an answer is written, apart from what it says."""

    cut: Cut = whole
    split: float = 0.5  # where a name that comes in two pieces is cut, within its last segment
    joins_end: bool = False  # the last piece comes with the end of its choice
    has_usage: bool = True
    ends: bool = True  # with the dialect's own mark of the end, where it may be missing
    offers: bool = True  # the request offers the tool
    # Who says the next piece, among choices and among calls that come side by side; () = one after
    # the other.
    turns: tuple[int, ...] = ()
    framing: Literal["plain", "crlf", "comments", "lines"] = "plain"


@dataclass(frozen=True, slots=True)
class Case:
    """An answer with guarded calls, and what is to be known of it."""

    path: str
    request: dict[str, Any]
    events: tuple[bytes, ...]
    open_count: int  # so many of the events may go out before a decision
    body: bytes
    secrets: tuple[str, ...]  # one for each guarded call, in the order they are asked about
    is_text: bool  # they are spelled in the text
    edited: str | None  # new arguments that fit; None = cannot be edited
    goes_on: bool  # the model can be told of a refusal
    follow: bytes  # what the model says then, not streamed
    stream_path: str = ""  # '' = as `path`, with `stream` in the body
    label: str = ""  # for people

    @property
    def open_bytes(self) -> bytes:
        """The most that may go out before a decision."""
        return b"".join(self.events[: self.open_count])

    def sent(self, *, streams: bool) -> tuple[str, bytes]:
        """Return path and body of a request for it."""
        request = self.request
        if streams and not self.stream_path:
            request = {**request, "stream": True}
        path = self.stream_path if streams and self.stream_path else self.path
        return path, json.dumps(request).encode()


Writer = Callable[[Choices, Script], Case]


def write_case(
    path: str,
    request: dict[str, Any],
    raws: Iterable[Raw],
    body: bytes,
    choices: Choices,
    script: Script,
    *,
    edited: str | None,
    follow: bytes,
    goes_on: bool = True,
    stream_path: str = "",
) -> Case:
    """Put a case together; what follows from what is said is worked out here."""
    events = list(_framed(raws, script))
    parts = [part for each in choices for part in each]
    is_text = any(isinstance(part, Spell) for part in parts)
    is_mixed = is_text and any(isinstance(part, Use) for part in parts)
    return Case(
        path=path,
        request=request,
        events=tuple(raw for raw, _ in events),
        open_count=next(at for at, (_, shows) in enumerate(events) if shows),
        body=body,
        secrets=tuple(
            part.secret for part in parts if isinstance(part, Use | Spell) and part.secret
        ),
        is_text=is_text,
        edited=None if is_text else edited,
        goes_on=goes_on and len(choices) == 1 and not is_mixed,
        follow=follow,
        stream_path=stream_path,
    )


def text_of(parts: Iterable[Part]) -> str:
    """Return all that the texts say."""
    return "".join(part.text for part in parts if not isinstance(part, Use))


def uses_of(parts: Iterable[Part]) -> list[Use]:
    """Return the native calls."""
    return [part for part in parts if isinstance(part, Use)]


def groups_of(parts: Sequence[Part]) -> Iterator[Use | list[Part]]:
    """Yield calls, and texts that follow one another as one."""
    texts: list[Part] = []
    for part in parts:
        if isinstance(part, Use):
            if text_of(texts):
                yield texts
            texts = []
            yield part
        else:
            texts.append(part)
    if text_of(texts):
        yield texts


def pieces_of(texts: Iterable[Part], cut: Cut) -> list[tuple[str, bool]]:
    """Cut texts that follow one another into pieces, each with whether it reaches into a spelled
    call."""
    text, start = "", None
    for part in texts:
        if isinstance(part, Spell) and start is None:
            start = len(text)
        text += "" if isinstance(part, Use) else part.text
    found: list[tuple[str, bool]] = []
    end = 0
    for piece in cut(text):
        end += len(piece)
        found.append((piece, start is not None and end > start))
    return found


def take_turns(queues: Iterable[Iterable[Any]], turns: Sequence[int]) -> Iterator[Any]:
    """Yield what all queues hold, each in its own order."""
    left = [list(queue) for queue in queues]
    for turn in turns:
        if waiting := [queue for queue in left if queue]:
            yield waiting[turn % len(waiting)].pop(0)
    for queue in left:
        yield from queue


def side_by_side(queues: Sequence[Sequence[Any]], turns: Sequence[int]) -> Iterator[Any]:
    """Yield what all queues hold: the first of each in order, the rest as it comes. Without turns
    one after the other."""
    if not turns:
        yield from take_turns(queues, ())
        return
    yield from (queue[0] for queue in queues)
    yield from take_turns((queue[1:] for queue in queues), turns)


def data(value: dict[str, Any]) -> bytes:
    """Render one event without a name."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _framed(raws: Iterable[Raw], script: Script) -> Iterator[Raw]:
    """Write events in another way that the standard has."""
    for raw, shows in raws:
        match script.framing:
            case "crlf":
                yield raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), shows
            case "comments":
                yield b": still here\n\n", False
                yield raw, shows
            case "lines" if raw.rstrip().endswith(b"}"):
                head, _, value = raw.partition(b"data: ")
                lines = json.dumps(json.loads(value), indent=1).encode().split(b"\n")
                yield head + b"".join(b"data:" + line + b"\n" for line in lines) + b"\n", shows
            case _:
                yield raw, shows
