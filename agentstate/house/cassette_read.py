"""The lines of a cassette, read. Pure; the counterpart is `cassette_write.py`.

Nothing is believed: a file was edited by hand, merged by a tool, cut by a full disk. Each error
says which line it is about, what was expected there, and what was found.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Dialect
from agentstate.ground.canonical import DIGEST_BYTES, JSON, encode, parse
from agentstate.ground.control import About
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.load import nearest
from agentstate.ground.records import Identity, RecordedAnswer
from agentstate.house.cassette import FORMAT, VERSION, BadCassette, Take, Taped, Timing
from agentstate.house.cassette_content import CONTENT_KEYS, read_content
from agentstate.house.cassette_requests import Unfolder
from agentstate.steps.about import check_name, check_tag
from agentstate.steps.identify import STEP_NUMBER_MAX, check_session
from agentstate.store.base import COUNT_MAX

_SESSION_KEYS = ("session", "name", "parent", "tags")
_STEP_KEYS = (
    "step", "dialect", "path", "model", "stream", "mock", "keys", "like", "keep", "without",
    "request", "answer",
)  # fmt: skip
_NEEDED = ("dialect", "path", "model", "keys", "request", "answer")
_ANSWER_KEYS = (
    "provider", "model", "cost_microusd", "status", "type", "latency_ms", "first_content_ms",
    "pace", *CONTENT_KEYS,
)  # fmt: skip
_KEYS = ("raw", "exact", "pinned", "masked")
_PACE = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class ReadStep:
    """A step, and what it shares with one before it in its session."""

    line: int
    take: Take
    dialect: Dialect
    like: int  # how many steps before; 0 = none
    keep: int  # items of the list that are those of that step; 0 = none


@dataclass(frozen=True, slots=True)
class ReadSession:
    """A session that begins."""

    line: int
    taped: Taped


def read_cassette(raw: bytes) -> Iterator[ReadSession | ReadStep]:
    """Yield the sessions of a cassette, each with its steps after it.

    Raises:
        BadCassette: it is none, it is damaged, or it is of another version. What was yielded
            before is not to be kept then.
    """
    lines = _Lines(raw)
    _read_head(lines)
    reader: _StepReader | None = None
    names: set[str] = set()
    steps = 0
    for number, value in lines:
        if "end" in value:
            _check_end(number, value, len(names), steps)
            if reader is not None and not reader.count:
                raise _wrong(number, "the session before it has no step")
            if (after := next(iter(lines), None)) is not None:
                raise _wrong(after[0], "nothing comes after the end")
            return
        if "session" in value:
            if reader is not None and not reader.count:
                raise _wrong(number, "the session before it has no step")
            taped = _read_session(number, value)
            if taped.session in names:
                raise _wrong(number, f"the session {shorten(taped.session)!r} is there twice")
            names.add(taped.session)
            reader = _StepReader()
            yield ReadSession(number, taped)
        elif reader is None:
            raise _wrong(number, "a session must come before its steps")
        else:
            steps += 1
            yield reader.read(number, value)
    raise _wrong(lines.number, "the last line must say what there was: the file was cut")


class _Lines:
    """The lines that are not empty, as objects with their numbers."""

    def __init__(self, raw: bytes) -> None:
        self._lines = enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        self.number = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, JSON]]]:
        for number, line in self._lines:
            if not line.strip():
                continue
            self.number = number
            try:
                value = parse(line)
            except BadRequest as error:
                said = error.message.replace("The JSON body", "it").replace("The body", "it")
                raise _wrong(number, said.replace("at line 1, column", "at column")) from error
            if not isinstance(value, dict):
                raise _wrong(number, f"expected an object; found {_shown(value)}")
            yield number, value


def _read_head(lines: _Lines) -> None:
    number, value = next(iter(lines), (1, {}))
    if value.get("format") != FORMAT:
        raise _wrong(number, f'a cassette begins with {{"format":"{FORMAT}","version":{VERSION}}}')
    if value.get("version") != VERSION or set(value) != {"format", "version"}:
        raise _wrong(
            number,
            f"this program reads version {VERSION}; found {_shown(value.get('version'))}. A newer "
            "AgentState may have written it",
        )


def _check_end(number: int, value: Mapping[str, JSON], sessions: int, steps: int) -> None:
    said = value["end"]
    if not isinstance(said, dict) or set(value) != {"end"}:
        raise _wrong(number, "end must be an object, and alone")
    for name, found in (("sessions", sessions), ("steps", steps)):
        if said.get(name) != found:
            raise _wrong(
                number,
                f"it says that there are {_shown(said.get(name))} {name}; found {found}. The file "
                "was cut or edited: if you meant it, mend the number",
            )


def _read_session(number: int, value: Mapping[str, JSON]) -> Taped:
    _check_keys(number, value, _SESSION_KEYS)
    try:
        session = check_session(_text(number, value, "session"), "session")
        parent = value.get("parent")
        tags = value.get("tags", {})
        if not isinstance(tags, dict):
            raise _wrong(number, f"tags must be an object; found {_shown(tags)}")
        about = About(
            name=check_name(_text(number, value, "name"), "name") if "name" in value else None,
            parent=None
            if parent is None
            else check_session(_text(number, value, "parent"), "parent"),
            tags=tuple(sorted(check_tag(name, _text(number, tags, name), "tags") for name in tags)),
        )
    except BadCassette:
        raise
    except BadRequest as error:
        raise _wrong(number, error.message) from error
    return Taped(session, about)


class _StepReader:
    """Reads the steps of one session, in order."""

    def __init__(self) -> None:
        self._unfolder = Unfolder()
        self._highest = -1
        self.count = 0

    def read(self, number: int, value: Mapping[str, JSON]) -> ReadStep:
        _check_keys(number, value, _STEP_KEYS, _NEEDED)
        name = _text(number, value, "dialect")
        dialect = dialect_by_name(name)
        if dialect is None:
            raise _wrong(number, f"there is no dialect {shorten(name)!r}")
        step = _count(number, value, "step", STEP_NUMBER_MAX) if "step" in value else None
        step_number = self._highest + 1 if step is None else step
        self._highest = max(self._highest, step_number)
        try:
            request = self._unfolder.unfold(name, dialect.list_key, value)
        except BadRequest as error:
            raise _wrong(number, error.message) from error
        like, keep = self._unfolder.kept(value)
        said = value["answer"]
        if not isinstance(said, dict):
            raise _wrong(number, f"answer must be an object; found {_shown(said)}")
        _check_keys(number, said, _ANSWER_KEYS, ("provider",), "answer")
        model = _text(number, value, "model")
        self.count += 1
        take = Take(
            step_number=step_number,
            dialect=name,
            path=_text(number, value, "path"),
            model=model,
            streams=_flag(number, value, "stream"),
            is_mock=_flag(number, value, "mock"),
            identity=_read_keys(number, value["keys"]),
            request=request,
            answer=_read_answer(number, said),
            provider=_text(number, said, "provider"),
            answered_by=_text(number, said, "model") if "model" in said else model,
            cost_microusd=_maybe_count(number, said, "cost_microusd"),
            timing=_read_timing(number, said),
        )
        return ReadStep(number, take, dialect, like, keep)


def _read_keys(number: int, value: JSON) -> Identity:
    if not isinstance(value, dict):
        raise _wrong(number, f"keys must be an object; found {_shown(value)}")
    _check_keys(number, value, _KEYS, ("raw", "exact"), "keys")
    raw, exact = (_digest(number, value, name) for name in ("raw", "exact"))
    pinned = _digest(number, value, "pinned") if "pinned" in value else exact
    masked = _digest(number, value, "masked") if "masked" in value else pinned
    return Identity(raw=raw, exact=exact, pinned=pinned, masked=masked)


def _digest(number: int, value: Mapping[str, JSON], name: str) -> bytes:
    text = _text(number, value, name)
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != DIGEST_BYTES:
        raise _wrong(
            number,
            f"keys.{name} must be {2 * DIGEST_BYTES} hexadecimal digits; found {shorten(text)!r}",
        )
    return found


def _read_answer(number: int, said: Mapping[str, JSON]) -> RecordedAnswer:
    try:
        content, form = read_content(said)
    except BadRequest as error:
        raise _wrong(number, f"its answer: {error.message}") from error
    kind = _text(number, said, "type") if "type" in said else None
    if kind is not None and not (kind.isascii() and kind.isprintable()):
        raise _wrong(number, f"its answer: type must be a content type; found {shorten(kind)!r}")
    status = _count(number, said, "status", 299) if "status" in said else 200
    if status < 200:
        raise _wrong(number, f"its answer: status must be from 200 to 299; found {status}")
    return RecordedAnswer(
        status=status,
        headers=() if kind is None else ((b"content-type", kind.encode("ascii")),),
        form=form,
        content=content,
        pace=_read_pace(number, said.get("pace"), len(content)),
    )


def _read_pace(number: int, value: JSON, size: int) -> bytes:
    if value is None:
        return b""
    pairs = value if isinstance(value, list) else []
    numbers = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    if len(numbers) != len(pairs) or not all(
        type(each) is int and 0 <= each < 2**32 for pair in numbers for each in pair
    ):
        raise _wrong(number, "its answer: pace must be pairs of bytes and milliseconds")
    pace = b"".join(_PACE.pack(*pair) for pair in numbers)
    # It tells of the bytes as they came; of others, edited by hand, it tells nothing.
    return pace if sum(length for length, _ in _PACE.iter_unpack(pace)) == size else b""


def _read_timing(number: int, said: Mapping[str, JSON]) -> Timing | None:
    latency_ms = _maybe_count(number, said, "latency_ms")
    if latency_ms is None:
        return None
    return Timing(latency_ms, _maybe_count(number, said, "first_content_ms"))


def _check_keys(
    number: int,
    value: Mapping[str, JSON],
    known: tuple[str, ...],
    needed: Iterable[str] = (),
    where: str = "",
) -> None:
    place = f"{where}: " if where else ""
    for name in value:
        if name not in known:
            said = f"{place}there is no key {shorten(name)!r} here. {nearest(name, known)}"
            raise _wrong(number, said)
    for name in needed:
        if name not in value:
            raise _wrong(number, f"{place}the key {name} is missing")


def _text(number: int, value: Mapping[str, JSON], name: str) -> str:
    found = value[name]
    if not isinstance(found, str):
        raise _wrong(number, f"{name} must be a text; found {_shown(found)}")
    return found


def _flag(number: int, value: Mapping[str, JSON], name: str) -> bool:
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise _wrong(number, f"{name} must be true or false; found {_shown(found)}")
    return found


def _count(number: int, value: Mapping[str, JSON], name: str, most: int = COUNT_MAX) -> int:
    found = value[name]
    if type(found) is not int or not 0 <= found <= most:
        raise _wrong(number, f"{name} must be an integer from 0 to {most}; found {_shown(found)}")
    return found


def _maybe_count(number: int, value: Mapping[str, JSON], name: str) -> int | None:
    return _count(number, value, name) if value.get(name) is not None else None


def _shown(value: JSON) -> str:
    return shorten(encode(value).decode("ascii"), 40)


def _wrong(number: int, said: str) -> BadCassette:
    end = "" if said.endswith(("?", ".")) else "."
    return BadCassette(f"Line {number} of the cassette: {said}{end} Nothing was imported.")
