"""Cassettes over HTTP: a session as a file of lines, and such a file back into the record.

What a cassette is: `house/cassette.py`. A file streams; what it cannot have is found out before its
first byte. If the record cannot be read on the connection is cut, and the file lacks the last line
without which nobody takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypedDict

from agentstate.doors.api.bodies import BY_CHARS_MAX
from agentstate.doors.api.control import Controller
from agentstate.doors.api.export import WRITE_BYTES, plain_name
from agentstate.doors.api.reply import json_response, read_one_of, read_params
from agentstate.doors.api.rows import SessionShown, session_json
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest, NotFound, StoreError, shorten
from agentstate.house.cassette import CASSETTE_BYTES_MAX, MEDIA_TYPE
from agentstate.house.cassette_export import Cassette, TapeOrder
from agentstate.house.cassette_import import read_sessions
from agentstate.steps.identify import check_session
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Abort, Request, Response

SWITCH = ("0", "1")
_TAKES = (MEDIA_TYPE.decode(), "application/jsonl", "application/json")
_EXPORT = (
    Field("secrets", "keep: leave answers as they came, secrets included", choices=("keep",)),
    Field("timing", "1: how long answers took, and how fast streams came", choices=SWITCH),
)
_IMPORT = (
    Field("as", "what its one session is to be called here"),
    Field("replace", "1: roll back the steps of a session that is there", choices=SWITCH),
    Field("by", f"who does it; at most {BY_CHARS_MAX} characters"),
)


class ImportedShown(TypedDict):
    """What came in with a cassette, as it is on record now."""

    sessions: list[SessionShown]
    steps_imported: int
    steps_taken_back: int


class CassetteEndpoints:
    """Answers with cassettes, and takes them."""

    def __init__(
        self, store: Store, control: Controller, keys: Callable[[], tuple[str, ...]] = tuple
    ) -> None:
        """`keys`: known secrets, which are taken out whatever their form."""
        self._store = store
        self._control = control
        self._keys = keys

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/sessions/{id}/cassette",
                self.export,
                "Export a session as a cassette: what replays, without secrets.",
                query=_EXPORT,
                answers="lines",
                media_type=_TAKES[0],
                errors=(409,),
            ),
            Endpoint(
                "POST",
                "/api/cassettes",
                self.take,
                "Import a cassette: JSON lines, all of its sessions or none.",
                query=_IMPORT,
                takes=_TAKES,
                shape=ImportedShown,
                errors=(409, 413),
            ),
        )

    async def export(self, request: Request, params: Params) -> Response:
        """Answer with the file. 409: secrets can neither be taken out nor left in unasked."""
        asked = read_params(request, frozenset(field.name for field in _EXPORT))
        order = TapeOrder(
            keeps_secrets=read_one_of(asked, "secrets", ("keep",)) is not None,
            has_timing=read_one_of(asked, "timing", SWITCH) == "1",
            keys=self._keys(),
        )
        cassette = Cassette(self._store, (params["id"],), order)
        await cassette.look()
        name = plain_name(params["id"]).encode("ascii")
        headers = [
            (b"content-type", MEDIA_TYPE),
            (b"content-disposition", b'attachment; filename="%s.jsonl"' % name),
            (b"cache-control", b"no-store"),
        ]
        return Response(200, headers, _file(cassette))

    async def take(self, request: Request, params: Params) -> Response:
        """Take a file; answer with its sessions as they are on record now."""
        asked = read_params(request, frozenset(field.name for field in _IMPORT))
        _check_type(request)
        renamed = asked.get("as")
        if renamed is not None:
            renamed = check_session(renamed, "as")
        by = asked.get("by", "").strip() or None
        if by is not None and len(by) > BY_CHARS_MAX:
            raise BadRequest(f"by has at most {BY_CHARS_MAX} characters.", param="by")
        replaces = read_one_of(asked, "replace", SWITCH) == "1"
        raw = await request.body(CASSETTE_BYTES_MAX)
        at_ms = now_ms()
        found = await asyncio.to_thread(read_sessions, raw, at_ms=at_ms, renamed=renamed)
        turned = await self._control.import_sessions(
            found.sessions, at_ms=at_ms, replaces=replaces, by=by
        )
        rows = [await self._store.read_session(each.session) for each in found.sessions]
        sessions: list[JSON] = [session_json(row) for row in rows if row is not None]
        return json_response(
            {
                "sessions": sessions,
                "steps_imported": found.steps,
                "steps_taken_back": sum(row.weight.steps for row in turned),
            }
        )


async def _file(cassette: Cassette) -> AsyncGenerator[bytes]:
    """Yield a file; small lines go out together."""
    waiting: list[bytes] = []
    size = 0
    try:
        async with aclosing(cassette.lines()) as lines:
            async for line in lines:
                waiting.append(line)
                size += len(line)
                if size >= WRITE_BYTES:
                    yield b"".join(waiting)
                    waiting.clear()
                    size = 0
    except (StoreError, NotFound) as error:
        raise Abort from error
    yield b"".join(waiting)


def _check_type(request: Request) -> None:
    """Refuse what a page of another site could send unasked."""
    value = request.headers.text(b"content-type") or ""
    if value.partition(";")[0].strip().lower() not in _TAKES:
        raise BadRequest(
            f"A cassette must be sent as content-type: {_TAKES[0]}; found {shorten(value)!r}.",
            param="content-type",
        )
