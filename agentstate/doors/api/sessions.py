"""Sessions and their steps, to read; `control.py` is the counterpart that changes them.

What rows look like is said in `rows.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NotRequired, TypedDict, cast, get_args

from agentstate.dialects import dialect_by_name
from agentstate.doors.api.approvals import ApprovalShown, approval_json
from agentstate.doors.api.reply import (
    OF_TAGS,
    PAGE,
    json_response,
    next_headers,
    read_page,
    read_params,
    read_tags,
)
from agentstate.doors.api.rows import (
    AnswerShown,
    AttemptShown,
    ChoiceShown,
    RecordedShown,
    ReleaseShown,
    RollbackShown,
    SessionShown,
    StepShown,
    answer_row_json,
    attempt_json,
    choice_json,
    maybe_answer_json,
    release_json,
    rollback_json,
    session_json,
    step_json,
)
from agentstate.doors.api.shapes import Anything
from agentstate.doors.api.standing import BudgetShown, Standings, budget_json
from agentstate.doors.api.tool_calls import ToolCallShown, calls_json, calls_of_step
from agentstate.ground.approvals import Release
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest, NotFound, shorten
from agentstate.ground.records import (
    Query,
    SessionRow,
    SessionStatus,
    StepRow,
)
from agentstate.steps.reading import read_recorded
from agentstate.store.base import LIST_LIMIT_MAX, Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

ROLLBACKS_SHOWN_MAX = 20  # of a session, the newest

_FILTERS = (
    Field("status", "sessions of this status", choices=get_args(SessionStatus)),
    Field("search", "sessions with this in their id or name"),
    Field("parent", "sessions that this one began"),
    Field("forked_from", "sessions that were forked from this one"),
    OF_TAGS,
)


class StepWithAttemptsShown(StepShown):
    """A step with what was tried for it."""

    attempts: NotRequired[list[AttemptShown]]
    answers: NotRequired[list[AnswerShown]]
    choices: NotRequired[list[ChoiceShown] | None]


class GoesOnFromShown(TypedDict):
    """What a chained request goes on from."""

    id: str
    index: int | None


class StepWholeShown(StepWithAttemptsShown):
    """Everything on record about a step."""

    request: Anything
    goes_on_from: GoesOnFromShown | None
    answer: RecordedShown | None
    delivered: RecordedShown | None
    approvals: list[ApprovalShown]
    tool_calls: list[ToolCallShown]
    releases: list[ReleaseShown]


class SessionPageShown(TypedDict):
    """A session with a page of its steps."""

    session: SessionShown
    steps: list[StepWithAttemptsShown]
    next_cursor: str | None
    rollbacks: list[RollbackShown]
    budget: BudgetShown


class SessionEndpoints:
    """Answers under /api/sessions."""

    def __init__(self, store: Store, budgets: Standings) -> None:
        self._store = store
        self._budgets = budgets

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/sessions",
                self.list,
                "List sessions, the last active one first.",
                query=(*PAGE, *_FILTERS),
                answers="array",
                shape=SessionShown,
            ),
            Endpoint(
                "GET",
                "/api/sessions/{id}",
                self.show,
                "Show a session, its budget, a page of its steps, and its last changes.",
                query=(
                    *PAGE,
                    Field("detail", "1 adds choices, attempts and answers", choices=("1",)),
                ),
                shape=SessionPageShown,
            ),
            Endpoint(
                "GET",
                "/api/sessions/{id}/steps/{index}",
                self.show_step,
                "Show one step whole: request, answers, attempts, approvals.",
                shape=StepWholeShown,
            ),
        )

    async def list(self, request: Request, params: Params) -> Response:
        """Answer with an array of sessions; `x-next-cursor` names the next page."""
        names = ("limit", "after", "status", "search", "parent", "forked_from", "tag")
        asked = read_params(request, frozenset(names))
        query = replace(
            read_page(asked),
            parent=asked.get("parent"),
            forked_from=asked.get("forked_from"),
            tags=read_tags(asked),
        )
        page = await self._store.list_sessions(query)
        return json_response(
            [session_json(row) for row in page.rows], headers=next_headers(page.next_cursor)
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with a session and a page of steps; `detail=1` adds choices and attempts."""
        asked = read_params(request, frozenset(("limit", "after", "detail")))
        row = await self._read(params["id"])
        query = replace(read_page(asked, limit=200), session=row.session, newest_first=False)
        page = await self._store.list_steps(query)
        wants_detail = asked.get("detail") == "1"
        steps: list[JSON] = [await self._step(step, whole=wants_detail) for step in page.rows]
        rollbacks = await self._store.list_rollbacks(row.session, limit=ROLLBACKS_SHOWN_MAX)
        return json_response(
            {
                "session": session_json(row),
                "steps": steps,
                "next_cursor": page.next_cursor,
                "rollbacks": [rollback_json(each) for each in rollbacks],
                "budget": budget_json(await self._budgets.standing(row.session)),
            },
            headers=next_headers(page.next_cursor),
        )

    async def show_step(self, request: Request, params: Params) -> Response:
        """Answer with everything on record about one step.

        `delivered` is what the agent got where that is not `answer`; null = the answer itself, or
        nothing yet. `approvals` are the first thousand, by the time they were asked.
        `goes_on_from` is, where the upstream keeps what came before, the id of that response or
        conversation, and the index of the step that recorded it; null = not on record.
        `tool_calls` are those of all its answers, with their results.
        """
        read_params(request, frozenset())
        row = await self._read(params["id"])
        step = await self._find_step(row, params["index"])
        found = await self._step(step, whole=True)
        answer = await self._store.read_answer(step.step_id)
        request_body = await self._store.read_request(step.step_id)
        before = await self._find_before(step, request_body)
        at_ms = now_ms()
        of_step = Query(
            session=step.session, step_id=step.step_id, limit=LIST_LIMIT_MAX, newest_first=False
        )
        approvals = (await self._store.list_approvals(of_step, at_ms=at_ms)).rows
        calls = await calls_of_step(self._store, step.session, step.index, at_ms)
        delivered, releases = None, tuple[Release, ...]()
        if step.answer_id is not None:
            delivered = await self._store.read_delivered(step.answer_id)
            releases = await self._store.list_releases(step.answer_id)

        def render() -> Response:
            found["request"] = request_body
            found["goes_on_from"] = before
            found["answer"] = maybe_answer_json(answer)
            found["delivered"] = maybe_answer_json(delivered)
            found["approvals"] = [approval_json(approval, at_ms) for approval in approvals]
            found["tool_calls"] = calls_json(calls, at_ms)
            found["releases"] = [release_json(release) for release in releases]
            return json_response(cast(JSON, found))

        return await asyncio.to_thread(render)  # each of these may be megabytes

    async def _read(self, session: str) -> SessionRow:
        row = await self._store.read_session(session)
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        return row

    async def _find_step(self, row: SessionRow, index: str) -> StepRow:
        if index.isascii() and index.isdigit() and len(index) <= 9:
            step = await self._store.find_step(row.session, int(index))
            if step is not None:
                return step
        raise NotFound(
            f"Session {shorten(row.session)!r} has {row.steps} steps, by index from 0; found "
            f"{shorten(index)!r}."
        )

    async def _find_before(self, step: StepRow, request_body: JSON) -> JSON:
        """Return what a chained request goes on from, and the step that recorded it."""
        dialect = dialect_by_name(step.dialect)
        try:
            ask = None if dialect is None else dialect.read_ask(request_body)
        except BadRequest:
            return None  # what was fetched by its id has no request
        if ask is None or ask.goes_on_from is None:
            return None
        recorded = await self._store.find_response(step.session, ask.goes_on_from)
        index = None if recorded is None else recorded.index
        return {"id": ask.goes_on_from, "index": index}

    async def _step(self, row: StepRow, *, whole: bool) -> dict[str, JSON]:
        found = step_json(row)
        if whole:
            attempts = await self._store.list_attempts(row.step_id)
            found["attempts"] = [attempt_json(attempt) for attempt in attempts]
            if row.provider is None and attempts:
                found["provider"] = attempts[-1].provider
            answers = await self._store.answers_of(row.step_id)
            found["answers"] = [answer_row_json(each) for each in answers]
            answer = await self._store.read_answer(row.step_id)
            found["choices"] = None
            dialect = dialect_by_name(row.dialect)
            if answer is not None and dialect is not None:
                read = await asyncio.to_thread(read_recorded, dialect, answer)
                found["choices"] = [choice_json(choice) for choice in read.choices]
        return found
