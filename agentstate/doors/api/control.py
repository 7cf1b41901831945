"""Control over a run: take steps back and bring them back, pause and resume, say how it is called.

Each is a POST or PATCH with a JSON body, which no page of another site can send unasked. The verbs
and who is told of them are in `steps/control.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypedDict, cast, get_args

from agentstate.doors.api.bodies import (
    BY,
    REASON,
    REASON_CHARS_MAX,
    read_body,
    read_by,
    read_flag,
    read_integer,
    read_text,
    unexpected,
)
from agentstate.doors.api.reply import json_response
from agentstate.doors.api.rows import (
    RollbackShown,
    SessionShown,
    WeightShown,
    rollback_json,
    session_json,
    weight_json,
)
from agentstate.ground.canonical import JSON
from agentstate.ground.control import (
    Change,
    Place,
    Rollback,
    SettableStatus,
    Weight,
    count_of,
)
from agentstate.ground.errors import BadRequest, NotFound, shorten
from agentstate.ground.records import SessionRow
from agentstate.ground.tapes import TapedSession
from agentstate.steps.about import check_name, check_tag
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

_RESET = (
    Field("step_number", "take back all steps with this number or a higher one", "integer"),
    Field("index", "or all with this index or a higher one", "integer"),
    Field("dry_run", "true: change nothing, say what it would cost", "boolean"),
    BY,
)
_RESTORE = (
    Field(
        "rollback_id",
        "what is to be undone, of any kind; none = the last change in force that is no restore",
        "integer",
        takes_null=True,
    ),
    BY,
)
_PAUSE = (REASON, BY)
_CHANGE = (
    Field("status", "how it stands, until its next call", choices=get_args(SettableStatus)),
    REASON,
    Field("name", "what people call it; null takes the name away", takes_null=True),
    Field("tags", "an object of texts; null takes a tag away", "object"),
    BY,
)


class Controller(Protocol):
    """The verbs: `steps.control.Control`."""

    async def roll_back(self, session: str, place: Place, *, by: str | None) -> Rollback | None:
        """Take steps back; None = there are none."""
        ...

    async def weigh(self, session: str, place: Place) -> Weight:
        """Return what `roll_back` would take back."""
        ...

    async def restore(self, session: str, rollback_id: int | None, *, by: str | None) -> Rollback:
        """Go back to before a rollback or a restore."""
        ...

    async def pause(self, session: str, *, reason: str | None, by: str | None) -> None:
        """Hold the calls of a session from now on."""
        ...

    async def resume(self, session: str) -> None:
        """Let them go on."""
        ...

    async def change(
        self, session: str, change: Change, *, reason: str | None, by: str | None
    ) -> None:
        """Change what a session is called, or say how it ended."""
        ...

    async def import_sessions(
        self, sessions: tuple[TapedSession, ...], *, at_ms: int, replaces: bool, by: str | None
    ) -> tuple[Rollback, ...]:
        """Write sessions that were recorded elsewhere; return what was rolled back for them."""
        ...


class SessionChangedShown(TypedDict):
    """A session as it is since."""

    session: SessionShown


class RolledBackShown(SessionChangedShown):
    """What a rollback took back; `rollback` null: nothing was, or it was only weighed."""

    rollback: RollbackShown | None
    steps_taken_back: int
    cost_to_rerun: WeightShown


class RestoredShown(SessionChangedShown):
    """What a restore undid."""

    rollback: RollbackShown
    steps_restored: int
    steps_taken_back: int
    cost_to_rerun: WeightShown


class ControlEndpoints:
    """Answers under /api/sessions/{id} that change something."""

    def __init__(self, store: Store, control: Controller) -> None:
        self._store = store
        self._control = control

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "POST",
                "/api/sessions/{id}/reset",
                self.roll_back,
                "Take steps back: they stay visible and no longer replay.",
                body=_RESET,
                shape=RolledBackShown,
            ),
            Endpoint(
                "POST",
                "/api/sessions/{id}/restore",
                self.restore,
                "Undo a rollback, an edit or a rerun: the session is as it was just before it.",
                body=_RESTORE,
                shape=RestoredShown,
                errors=(409,),
            ),
            Endpoint(
                "POST",
                "/api/sessions/{id}/pause",
                self.pause,
                "Hold the calls of a session, from the next one on.",
                body=_PAUSE,
                shape=SessionChangedShown,
            ),
            Endpoint(
                "POST",
                "/api/sessions/{id}/resume",
                self.resume,
                "Let the calls of a session go on.",
                body=(),
                shape=SessionChangedShown,
            ),
            Endpoint(
                "PATCH",
                "/api/sessions/{id}",
                self.change,
                "Change status, name or tags.",
                body=_CHANGE,
                shape=SessionChangedShown,
                errors=(409,),
                needs="agent",
            ),
        )

    async def roll_back(self, request: Request, params: Params) -> Response:
        """Take `{"step_number"}` or `{"index"}`; answer with what was taken back and its price."""
        session = params["id"]
        sent = await read_body(request, "A rollback", _RESET)
        place = _read_place(sent)
        if read_flag(sent, "dry_run"):
            await self._read(session)
            row, weight = None, await self._control.weigh(session, place)
        else:
            row = await self._control.roll_back(session, place, by=read_by(sent))
            weight = Weight() if row is None else row.weight
        return json_response(
            {
                "session": session_json(await self._read(session)),
                "rollback": None if row is None else rollback_json(row),
                "steps_taken_back": weight.steps,
                "cost_to_rerun": weight_json(weight),
            }
        )

    async def restore(self, request: Request, params: Params) -> Response:
        """Take `{"rollback_id"?}`; answer with the row that undoes it. 409: it is already."""
        session = params["id"]
        sent = await read_body(request, "A restore", _RESTORE)
        rollback_id = read_integer(sent, "rollback_id")
        row = await self._control.restore(session, rollback_id, by=read_by(sent))
        return json_response(
            {
                "session": session_json(await self._read(session)),
                "rollback": rollback_json(row),
                "steps_restored": count_of(row.returned),
                "steps_taken_back": row.weight.steps,
                "cost_to_rerun": weight_json(row.weight),
            }
        )

    async def pause(self, request: Request, params: Params) -> Response:
        """Take `{"reason"?, "by"?}`; answer with the session."""
        sent = await read_body(request, "A pause", _PAUSE)
        reason = read_text(sent, "reason", REASON_CHARS_MAX)
        await self._control.pause(params["id"], reason=reason, by=read_by(sent))
        return await self._answer(params["id"])

    async def resume(self, request: Request, params: Params) -> Response:
        """Take `{}`; answer with the session."""
        await read_body(request, "A resume", ())
        await self._control.resume(params["id"])
        return await self._answer(params["id"])

    async def change(self, request: Request, params: Params) -> Response:
        """Take what is to be another; answer with the session."""
        sent = await read_body(request, "A change", _CHANGE)
        change = _read_change(sent)
        reason = read_text(sent, "reason", REASON_CHARS_MAX)
        await self._control.change(params["id"], change, reason=reason, by=read_by(sent))
        return await self._answer(params["id"])

    async def _answer(self, session: str) -> Response:
        return json_response({"session": session_json(await self._read(session))})

    async def _read(self, session: str) -> SessionRow:
        row = await self._store.read_session(session)
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        return row


def _read_place(sent: Mapping[str, JSON]) -> Place:
    place = Place(read_integer(sent, "step_number"), read_integer(sent, "index"))
    if (place.step_number is None) == (place.index is None):
        raise BadRequest(
            'The body must name either "step_number" or "index": all steps from there on are taken '
            "back.",
            param="step_number",
        )
    return place


def _read_change(sent: Mapping[str, JSON]) -> Change:
    status = sent.get("status")
    if status is not None and status not in get_args(SettableStatus):
        raise unexpected("status", f"one of {', '.join(get_args(SettableStatus))}", status)
    name = sent.get("name")
    if not (name is None or isinstance(name, str)):
        raise unexpected("name", "text", name)
    tags = sent.get("tags")
    if not (tags is None or isinstance(tags, dict)):
        raise unexpected("tags", 'an object such as {"team": "ops", "old": null}', tags)
    change = Change(
        status=cast(SettableStatus | None, status),
        name=check_name(name or "", "name") if "name" in sent else None,
        tags=tuple(_read_tag(*tag) for tag in (tags or {}).items()),
    )
    if change == Change():
        raise BadRequest("The body names nothing to change: send status, name or tags.")
    return change


def _read_tag(name: str, value: JSON) -> tuple[str, str | None]:
    if not (value is None or isinstance(value, str)):
        raise unexpected(f"tags.{shorten(name)}", "text or null", value)
    name, text = check_tag(name, value or "", "tags")
    return name, None if value is None else text
