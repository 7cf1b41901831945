"""Training data over HTTP: a file of lines, a report of what was found in them, or a manifest.

All three go through the same lines; what differs is what of them is sent. A file streams: its size
is nowhere held. If the record cannot be read on the connection is cut without its end, so that no
client takes half a file for one. With `progress=1` lines that begin with `#` stand between those of
the file, for the command line: how far it is, which part of a split follows, and at the end the
manifest, so that a file and what is said of it are of one look at the record.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import cast, get_args

from agentstate.doors.api.reply import OF_TAGS, json_response, read_one_of, read_params, read_tags
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import BadRequest, NotFound, SettingError, StoreError, shorten
from agentstate.ground.globs import check_glob
from agentstate.ground.records import SessionRow, SessionStatus
from agentstate.ground.redaction import NOTHING_KNOWN, Redactor
from agentstate.house.export import Line, Tally, filters_json, line_json, lines
from agentstate.house.export_base import FORMATS, Format, Part, Wanted
from agentstate.store.base import COUNT_MAX, Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Abort, Pair, Request, Response

WRITE_BYTES = 64 * 1024  # small lines go out together
PROGRESS_S = 0.2
HEARTBEAT_S = 5.0  # of a report in which nothing is found; white space says nothing in JSON
SEED_MAX = 2**63 - 1
FILE_NAME_CHARS_MAX = 80
DEFAULT_SEED = 0
MICRO = 1_000_000

INCLUDES = ("failed", "cut", "rolled_back", "replaced")
SWITCH = ("0", "1")
_FILTERS = (
    Field("format", "what a line is made for; openai if it is not said", choices=FORMATS),
    Field("status", "of sessions of this status", choices=get_args(SessionStatus)),
    OF_TAGS,
    Field("search", "of sessions with this in their id or name"),
    Field("parent", "of sessions that this one began"),
    Field("forked_from", "of sessions that were forked from this one"),
    Field("since", "of calls from then on: a date, date and time, or milliseconds since 1970"),
    Field("until", "of calls before then"),
    Field("model", "of models that this glob matches"),
    Field("tool", "in which a tool is called that this glob matches"),
    Field("cost_max_usd", "that cost no more", "number"),
    Field("touched", "1: in which a person decided or edited something; 0: in which nobody did",
          choices=SWITCH),
    Field("include", f"some of {', '.join(INCLUDES)}, which stay out otherwise"),
    Field("dedupe", "0: equal conversations as often as they are there", choices=SWITCH),
    Field("images", "1: keep the pictures of users", choices=SWITCH),
    Field("split", "the share of conversations that are for validation", "number"),
    Field("seed", "another split of the same size", "integer"),
    Field("part", "the part of the split; both if it is not said", choices=get_args(Part)),
)  # fmt: skip
_WAYS = (
    Field("report", "1: what was found in the lines, and counts, as JSON", choices=SWITCH),
    Field("manifest", "1: what the file is, as JSON", choices=SWITCH),
    Field("progress", "1: lines that begin with # say how far it is, and end with the manifest",
          choices=SWITCH),
)  # fmt: skip
QUERY = (*_FILTERS, *_WAYS)
_KNOWN = frozenset(field.name for field in QUERY)


class ExportEndpoints:
    """Answers with training data."""

    def __init__(self, store: Store, redactor: Redactor = NOTHING_KNOWN) -> None:
        """`redactor`: takes out secrets, what is configured besides."""
        self._store = store
        self._redactor = redactor

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/export/dataset",
                self.dataset,
                "Export all sessions as training data.",
                query=QUERY,
                answers="lines",
                or_object=True,
            ),
            Endpoint(
                "GET",
                "/api/sessions/{id}/export",
                self.session,
                "Export one session as training data.",
                query=QUERY,
                answers="lines",
                or_object=True,
            ),
        )

    async def dataset(self, request: Request, params: Params) -> Response:
        """Answer with lines, or with `report=1` or `manifest=1` with what is to be said of them."""
        return await self._answer(request, None)

    async def session(self, request: Request, params: Params) -> Response:
        """The same of one session; it may have failed, since it was asked for by name."""
        row = await self._store.read_session(params["id"])
        if row is None:
            raise NotFound(f"There is no session {shorten(params['id'])!r}.")
        return await self._answer(request, row)

    async def _answer(self, request: Request, row: SessionRow | None) -> Response:
        asked = read_params(request, _KNOWN)
        wanted = read_wanted(asked, None if row is None else row.session)
        wanted = replace(wanted, redactor=self._redactor)
        wants_report, wants_manifest = _flag(asked, "report"), _flag(asked, "manifest")
        if wants_report and wants_manifest:
            raise BadRequest("Ask for report=1 or manifest=1, one at a time.", param="manifest")
        if wants_manifest:
            return json_response(await _manifest(self._store, wanted))
        if wants_report:
            return Response(200, list(_JSON_HEADERS), _report(self._store, wanted))
        total: int | None = None
        if _flag(asked, "progress"):
            total = (await self._store.read_totals())["sessions"] if row is None else row.steps
        headers: list[Pair] = [
            (b"content-type", b"application/jsonl"),
            (b"content-disposition", f'attachment; filename="{file_name(wanted)}"'.encode()),
            (b"cache-control", b"no-store"),
        ]
        return Response(200, headers, _data(self._store, wanted, total))


_JSON_HEADERS: tuple[Pair, ...] = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
)


def file_name(wanted: Wanted) -> str:
    """Return a name for the file that is safe in a header and in any folder.

    The part of a split stands where `datasets` looks for it.
    """
    name = "agentstate"
    if wanted.session is not None:
        name = plain_name(wanted.session)
    part = f".{wanted.part}" if wanted.part else ""
    return f"{name}-{wanted.format}{part}.jsonl"


def plain_name(session: str) -> str:
    """Return a session's name as one of a file."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", session).strip("-")
    return plain[:FILE_NAME_CHARS_MAX].strip("-") or "session"


# --- what is sent ---------------------------------------------------------------------------------


async def _data(store: Store, wanted: Wanted, total: int | None) -> AsyncGenerator[bytes]:
    """Yield the file; `total` sessions, or steps of the one, are gone through. None = nobody asks
    how far it is."""
    tally = Tally(wanted)
    waiting: list[bytes] = []
    waiting_bytes, done, part, told_s = 0, 0, None, monotonic_s()
    async with aclosing(_lines(store, wanted, tally)) as found:
        async for line in found:
            if not line.is_taken:
                continue
            tally.add(line)
            done = tally.sessions if wanted.session is None else max(done, line.index + 1)
            if total is not None and line.part != part:
                part = line.part
                waiting.append(_told({"part": part}))
            if line.text is not None:
                waiting.append(line.text)
                waiting_bytes += len(line.text)
            is_due = total is not None and monotonic_s() - told_s >= PROGRESS_S
            if is_due:
                told_s = monotonic_s()
                waiting.append(_told({"done": done, "of": total}))
            if is_due or waiting_bytes >= WRITE_BYTES:
                yield b"".join(waiting)
                waiting.clear()
                waiting_bytes = 0
    if total is not None:
        waiting.append(_told({"manifest": tally.manifest()}))
    if waiting:
        yield b"".join(waiting)


def _told(value: JSON) -> bytes:
    return b"#" + encode(value) + b"\n"


async def _manifest(store: Store, wanted: Wanted) -> dict[str, JSON]:
    tally = Tally(wanted)
    async with aclosing(lines(store, wanted, tally.not_taken)) as found:
        async for line in found:
            tally.add(line)
    return tally.manifest()


async def _report(store: Store, wanted: Wanted) -> AsyncGenerator[bytes]:
    """Yield a report as JSON: the lines in which something was found, then the counts."""
    tally = Tally(wanted)
    head = {"format": wanted.format, "filters": filters_json(wanted)}
    yield encode(cast(JSON, head))[:-1] + b',"lines":['
    before, told_s = b"", monotonic_s()
    async with aclosing(_lines(store, wanted, tally)) as found:
        async for line in found:
            tally.add(line)
            if line.findings or line.secrets:
                number = None if line.text is None else tally.lines
                yield before + encode(line_json(line, number))
                before = b","
            elif monotonic_s() - told_s < HEARTBEAT_S:
                continue
            else:
                yield b"\n"
            told_s = monotonic_s()
    yield b'],"counts":' + encode(tally.counts()) + b"}"


async def _lines(store: Store, wanted: Wanted, tally: Tally) -> AsyncGenerator[Line]:
    """Yield the lines to an answer whose head is out."""
    try:
        async with aclosing(lines(store, wanted, tally.not_taken)) as found:
            async for line in found:
                yield line
    except StoreError as error:
        raise Abort from error


# --- what is asked --------------------------------------------------------------------------------


def read_wanted(asked: Mapping[str, str], session: str | None) -> Wanted:
    """Read the parameters of a request for training data.

    Raises:
        BadRequest: one of them is not what it should be.
    """
    params = dict(asked)
    includes = _read_includes(params)
    wanted = Wanted(
        format=cast(Format, read_one_of(params, "format", FORMATS) or "openai"),
        session=session,
        status=read_one_of(params, "status", get_args(SessionStatus)),
        tags=read_tags(params),
        search=params.get("search"),
        parent=params.get("parent"),
        forked_from=params.get("forked_from"),
        since_ms=_read_moment(params, "since"),
        until_ms=_read_moment(params, "until"),
        model=_read_glob(params, "model", "models"),
        tool=_read_glob(params, "tool", "tool names"),
        cost_max_microusd=_read_cost(params),
        touched=None if "touched" not in params else _flag(params, "touched"),
        include_failed="failed" in includes or session is not None,
        include_cut="cut" in includes,
        include_rolled_back="rolled_back" in includes,
        include_replaced="replaced" in includes,
        dedupe=_flag(params, "dedupe", otherwise=True),
        images=_flag(params, "images"),
    )
    return replace(wanted, split=_read_split(params), part=_read_part(params))


def _flag(params: Mapping[str, str], name: str, *, otherwise: bool = False) -> bool:
    value = params.get(name)
    if value is None:
        return otherwise
    if value not in SWITCH:
        raise BadRequest(f"{name} must be 0 or 1; found {shorten(value)!r}.", param=name)
    return value == "1"


def _read_includes(params: Mapping[str, str]) -> frozenset[str]:
    names = [name for name in params.get("include", "").split(",") if name]
    for name in names:
        if name not in INCLUDES:
            raise BadRequest(
                f"include must name some of {', '.join(INCLUDES)}, with commas between; found "
                f"{shorten(name)!r}.",
                param="include",
            )
    return frozenset(names)


def _read_moment(params: Mapping[str, str], name: str) -> int | None:
    """Read a time: milliseconds since 1970, or a date, or date and time; without a zone in UTC."""
    text = params.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) > 8:  # 20261130 is a date
        return min(int(text[:16]), 2**53)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(
            f"{name} must be a date as 2026-11-30, date and time as 2026-11-30T12:00:00Z, or "
            f"milliseconds since 1970; found {shorten(text)!r}.",
            param=name,
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _read_glob(params: Mapping[str, str], name: str, of: str) -> str | None:
    text = params.get(name)
    if text is not None:
        try:
            check_glob(text, of)
        except SettingError as error:
            raise BadRequest(f"{name}: {error.message}", param=name) from error
    return text


def _read_cost(params: Mapping[str, str]) -> int | None:
    text = params.get("cost_max_usd")
    if text is None:
        return None
    try:
        cost = Decimal(text)
        is_known = cost.is_finite() and 0 <= cost <= COUNT_MAX // MICRO
    except InvalidOperation:
        is_known = False
    if not is_known:
        raise BadRequest(
            f"cost_max_usd must be an amount as 0.25; found {shorten(text)!r}.",
            param="cost_max_usd",
        )
    return int(cost * MICRO)


def _read_split(params: Mapping[str, str]) -> tuple[float, int] | None:
    text = params.get("split")
    if text is None:
        for name in ("seed", "part"):
            if name in params:
                raise BadRequest(f"{name} goes with split, as in split=0.1.", param=name)
        return None
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise BadRequest(
            f"split must be the share of validation, between 0 and 1; found {shorten(text)!r}.",
            param="split",
        )
    seed = params.get("seed", str(DEFAULT_SEED))
    if not (seed.isascii() and seed.isdigit() and int(seed[:20]) <= SEED_MAX):
        raise BadRequest(f"seed must be an integer from 0; found {shorten(seed)!r}.", param="seed")
    return share, int(seed)


def _read_part(params: Mapping[str, str]) -> Part | None:
    return cast(Part | None, read_one_of(dict(params), "part", get_args(Part)))
