"""The answers of a step: those it has had, one that a person writes, one that is asked for again.

The verbs and who is told of them are in `steps/revisions.py`; what they take back is a row beside
the rollbacks, which `POST /api/sessions/{id}/restore` undoes (`control.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, TypedDict, cast

from agentstate.dialects import dialect_by_name
from agentstate.doors.api.bodies import (
    BY,
    REASON,
    REASON_CHARS_MAX,
    read_body,
    read_by,
    read_integer,
    read_text,
    unexpected,
)
from agentstate.doors.api.reply import json_response, read_params
from agentstate.doors.api.rows import (
    AnswerShown,
    ChoiceShown,
    RecordedShown,
    RollbackShown,
    SessionShown,
    StepShown,
    WeightShown,
    answer_row_json,
    choice_json,
    maybe_answer_json,
    rollback_json,
    session_json,
    step_json,
    weight_json,
)
from agentstate.doors.api.shapes import Anything
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.records import StepRow
from agentstate.steps.edits import Edit
from agentstate.steps.reading import read_recorded
from agentstate.steps.reruns import Rerun
from agentstate.steps.revisions import Made, Maker
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

BODY_BYTES_MAX = 32 * 1024 * 1024  # a whole request with its pictures; what most vendors take
TEXT_CHARS_MAX = 16 * 1024 * 1024
INDEX_DIGITS_MAX = 9

_SEEN = Field("answer_id", "the answer that is to be replaced; 409 if another stands", "integer")
_EDIT = (
    Field("text", "what the answer is to say"),
    Field("arguments", "or the arguments of one call: an object, or its JSON as text", "object"),
    Field("body", "or the answer as the API gives it whole; what it lacks stays", "object"),
    Field("call_id", "which call, by the provider's id"),
    Field("position", "or by its place in the choice, from 0", "integer"),
    Field("choice", "which choice, from 0", "integer"),
    _SEEN,
    REASON,
    BY,
)
_RERUN = (
    Field("model", "another model, as an agent would name it"),
    Field("request", "another request, whole", "object"),
    _SEEN,
    REASON,
    BY,
)


class Reviser(Protocol):
    """The verbs: `steps.revisions.Revisions`."""

    async def edit(self, session: str, index: int, edit: Edit, maker: Maker) -> Made:
        """Have a step answer what a person wrote."""
        ...

    async def rerun(self, session: str, index: int, rerun: Rerun, maker: Maker) -> Made:
        """Ask the model again for a step, and have the step answer that."""
        ...


class RevisedShown(TypedDict):
    """A step as it is since its answer is another."""

    session: SessionShown
    step: StepShown
    answer_id: int
    text: str
    cost_microusd: int | None
    attempts: int
    rollback: RollbackShown
    steps_taken_back: int
    cost_to_rerun: WeightShown


class AnswerWholeShown(AnswerShown):
    """Everything on record about an answer."""

    choices: list[ChoiceShown] | None
    answer: RecordedShown | None
    delivered: RecordedShown | None
    request: Anything


class RevisionEndpoints:
    """Answers under /api/sessions/{id}/steps/{index} about its answers."""

    def __init__(self, store: Store, reviser: Reviser) -> None:
        self._store = store
        self._reviser = reviser

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "POST",
                "/api/sessions/{id}/steps/{index}/edit",
                self.edit,
                "Write another answer of a step: it replays from now on.",
                body=_EDIT,
                shape=RevisedShown,
                errors=(409,),
            ),
            Endpoint(
                "POST",
                "/api/sessions/{id}/steps/{index}/rerun",
                self.rerun,
                "Ask the model again for a step: that answer replays from now on.",
                body=_RERUN,
                shape=RevisedShown,
                errors=(409, 502, 504),
                passes_errors=True,
            ),
            Endpoint(
                "GET",
                "/api/sessions/{id}/steps/{index}/answers/{answer_id}",
                self.show,
                "Show one of the answers that a step has had, whole.",
                shape=AnswerWholeShown,
            ),
        )

    async def edit(self, request: Request, params: Params) -> Response:
        """Take `{"text" | "arguments" | "body", ...}`; answer with the step as it is since."""
        index = _read_index(params)
        sent = await read_body(request, "An edit", _EDIT, BODY_BYTES_MAX)
        edit = Edit(
            text=_read_text(sent, "text"),
            arguments=_read_arguments(sent),
            body=_read_object(sent, "body"),
            choice=read_integer(sent, "choice"),
            position=read_integer(sent, "position"),
            call_id=_read_text(sent, "call_id"),
        )
        made = await self._reviser.edit(params["id"], index, edit, _read_maker(sent))
        return await self._answer(params["id"], made)

    async def rerun(self, request: Request, params: Params) -> Response:
        """Take `{"model"?, "request"?}`; answer with the step as it is since."""
        index = _read_index(params)
        sent = await read_body(request, "A rerun", _RERUN, BODY_BYTES_MAX)
        rerun = Rerun(model=_read_text(sent, "model"), request=_read_object(sent, "request"))
        if rerun.model is not None and not rerun.model.strip():
            raise unexpected("model", "the name of a model, or nothing for the same", rerun.model)
        made = await self._reviser.rerun(params["id"], index, rerun, _read_maker(sent))
        return await self._answer(params["id"], made)

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with one answer: its bytes, what they say, and what its model was asked."""
        read_params(request, frozenset())
        step = await self._find(params["id"], _read_index(params))
        wanted = params["answer_id"]
        rows = await self._store.answers_of(step.step_id)
        row = next((each for each in rows if str(each.answer_id) == wanted), None)
        if row is None:
            have = ", ".join(str(each.answer_id) for each in rows) or "none"
            raise NotFound(f"Step {step.index} has the answers {have}; found {shorten(wanted)!r}.")
        answer = await self._store.read_answer_by_id(row.answer_id)
        delivered = await self._store.read_delivered(row.answer_id)
        revision = await self._store.read_revision(row.answer_id)
        dialect = dialect_by_name(step.dialect)

        def render() -> Response:
            read = None if dialect is None or answer is None else read_recorded(dialect, answer)
            found = {
                **answer_row_json(row),
                "choices": None if read is None else [choice_json(each) for each in read.choices],
                "answer": maybe_answer_json(answer),
                "delivered": maybe_answer_json(delivered),
                "request": None if revision is None else revision.request,
            }
            return json_response(cast(JSON, found))

        return await asyncio.to_thread(render)  # each of these may be megabytes

    async def _find(self, session: str, index: int) -> StepRow:
        step = await self._store.find_step(session, index)
        if step is None:
            raise NotFound(f"Session {shorten(session)!r} has no step {index}.")
        return step

    async def _answer(self, session: str, made: Made) -> Response:
        row = await self._store.read_session(session)
        assert row is not None, "one of its steps was just changed"
        step, change = made.step, made.change
        return json_response(
            {
                "session": session_json(row),
                "step": step_json(step),
                "answer_id": made.answer_id,
                "text": step.text,
                "cost_microusd": step.cost_microusd,
                "attempts": made.attempts,
                "rollback": rollback_json(change),
                "steps_taken_back": change.weight.steps,
                "cost_to_rerun": weight_json(change.weight),
            }
        )


def _read_index(params: Params) -> int:
    text = params["index"]
    if text.isascii() and text.isdigit() and len(text) <= INDEX_DIGITS_MAX:
        return int(text)
    raise NotFound(f"Steps are named by their index, from 0; found {shorten(text)!r}.")


def _read_maker(sent: Mapping[str, JSON]) -> Maker:
    return Maker(
        by=read_by(sent),
        reason=read_text(sent, "reason", REASON_CHARS_MAX),
        seen_id=read_integer(sent, "answer_id"),
    )


def _read_text(sent: Mapping[str, JSON], name: str) -> str | None:
    """Read a text as it is: white space at its ends may be meant."""
    value = sent.get(name)
    if value is None or isinstance(value, str):
        return value
    raise unexpected(name, "text", value)


def _read_arguments(sent: Mapping[str, JSON]) -> str | None:
    value = sent.get("arguments")
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        return encode(value).decode("ascii")
    raise unexpected("arguments", "an object, or its JSON as text", value)


def _read_object(sent: Mapping[str, JSON], name: str) -> dict[str, JSON] | None:
    value = sent.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise unexpected(name, "an object", value)
