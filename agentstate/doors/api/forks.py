"""Runs that begin as another one stood, and runs that are deleted for good.

As in `control.py` each takes a JSON body, which no page of another site can send unasked. What is
shared and what is gone is said in `store/base_forks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypedDict

from agentstate.doors.api.bodies import (
    BY_CHARS_MAX,
    read_body,
    read_by,
    read_flag,
    read_integer,
)
from agentstate.doors.api.control import SessionChangedShown
from agentstate.doors.api.reply import json_response
from agentstate.doors.api.rows import WeightShown, session_json, weight_json
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.control import Place
from agentstate.ground.errors import BadRequest, NotFound, shorten
from agentstate.ground.forks import Deletion, ForkAsk
from agentstate.ground.records import SessionRow
from agentstate.steps.about import check_name
from agentstate.steps.identify import check_session
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

_BY = Field("by", f"who does it; at most {BY_CHARS_MAX} characters", takes_null=True)
_FORK = (
    Field(
        "step_number",
        "share the steps with a lower number; without it and index all of them",
        "integer",
        takes_null=True,
    ),
    Field("index", "or those with a lower index", "integer", takes_null=True),
    Field("session", "the id of the new session; none = one is made", takes_null=True),
    Field("name", "what people call it; none = as the other, '' = no name", takes_null=True),
    Field(
        "inherit_decisions",
        "true: what was approved or refused counts there as well, so nobody is asked again",
        "boolean",
    ),
    _BY,
)
_DELETE = (
    Field("dry_run", "true: delete nothing, say what would go", "boolean"),
    _BY,
)


class Forker(Protocol):
    """The verbs: `steps.control.Control`."""

    async def fork(self, session: str, ask: ForkAsk) -> str:
        """Make a session that begins as this one stood; return its id."""
        ...

    async def weigh_deletion(self, session: str) -> Deletion:
        """Return what `delete` would delete."""
        ...

    async def delete(self, session: str, *, by: str | None) -> tuple[Deletion, bool]:
        """Have a session be gone; return what went, and whether it is off the disk."""
        ...


class DeletionShown(TypedDict):
    """What went, or would go."""

    session: str
    is_deleted: bool
    is_removed: bool
    spent: WeightShown
    content_bytes: int
    forks: list[str]


class ForkEndpoints:
    """Answers that make a session of another one, or end one for good."""

    def __init__(self, store: Store, control: Forker) -> None:
        self._store = store
        self._control = control

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "POST",
                "/api/sessions/{id}/fork",
                self.fork,
                "Make a new session that shares the steps before a place.",
                body=_FORK,
                shape=SessionChangedShown,
                errors=(409,),
            ),
            Endpoint(
                "DELETE",
                "/api/sessions/{id}",
                self.delete,
                "Delete a session with all that only it refers to. This cannot be undone.",
                body=_DELETE,
                shape=DeletionShown,
            ),
        )

    async def fork(self, request: Request, params: Params) -> Response:
        """Take a place or none; answer with the fork. 409: its id is taken, it would be empty, or
        the place is after the last step.

        What the shared steps have cost was paid in the other session: the fork's sums begin at 0.
        """
        sent = await read_body(request, "A fork", _FORK)
        name = await self._control.fork(params["id"], _read_ask(sent))
        row = await self._read(name)
        return json_response({"session": session_json(row)})

    async def delete(self, request: Request, params: Params) -> Response:
        """Take `{"dry_run"?, "by"?}`; answer with what went, or would go.

        `is_removed` false: it is gone, and what it leaves on the disk is still being removed.
        """
        sent = await read_body(request, "A deletion", _DELETE)
        if read_flag(sent, "dry_run"):
            found, is_deleted, is_removed = (
                await self._control.weigh_deletion(params["id"]),
                False,
                False,
            )
        else:
            found, is_removed = await self._control.delete(params["id"], by=read_by(sent))
            is_deleted = True
        return json_response(
            {
                "session": found.session,
                "is_deleted": is_deleted,
                "is_removed": is_removed,
                "spent": weight_json(found.weight),
                "content_bytes": found.content_bytes,
                "forks": list(found.forks),
            }
        )

    async def _read(self, session: str) -> SessionRow:
        row = await self._store.read_session(session)
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        return row


def _read_ask(sent: Mapping[str, JSON]) -> ForkAsk:
    place = Place(read_integer(sent, "step_number"), read_integer(sent, "index"))
    if place.step_number is not None and place.index is not None:
        raise BadRequest(
            'The body may name "step_number" or "index", not both: the fork shares what is before.',
            param="index",
        )
    session, title = _read_name(sent, "session"), _read_name(sent, "name")
    return ForkAsk(
        before=None if place == Place() else place,
        session=None if session is None else check_session(session, "session"),
        title=None if title is None else check_name(title, "name"),
        by=read_by(sent),
        inherits_decisions=read_flag(sent, "inherit_decisions"),
    )


def _read_name(sent: Mapping[str, JSON], name: str) -> str | None:
    value = sent.get(name)
    if value is None or isinstance(value, str):
        return value
    found = shorten(encode(value).decode("ascii"))
    raise BadRequest(f'"{name}" must be text; found {found}. Nothing was changed.', param=name)
