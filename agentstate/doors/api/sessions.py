"""Sessions and their steps, to read; `control.py` is the counterpart that changes them.

The shapes keep the first version's names (`step_number`, `request_hash`, `prompt`, `response`,
`token_cost`, `latency`) and add ours. Money: `token_cost` in US dollars, `cost_microusd` exact;
`latency` in milliseconds. None means not known, never zero.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast, get_args

from agentstate.dialects import dialect_by_name
from agentstate.doors.api.approvals import approval_json
from agentstate.doors.api.reply import (
    OF_TAGS,
    PAGE,
    json_response,
    next_headers,
    read_page,
    read_params,
    read_tags,
)
from agentstate.doors.api.standing import Standings, budget_json
from agentstate.doors.api.tool_calls import calls_json, calls_of_step
from agentstate.ground.approvals import Release
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Choice, Usage
from agentstate.ground.clock import now_ms
from agentstate.ground.control import Place, Rollback, Weight, count_of
from agentstate.ground.errors import BadRequest, NotFound, shorten
from agentstate.ground.forks import Origin
from agentstate.ground.records import (
    Attempt,
    Query,
    RecordedAnswer,
    SessionRow,
    SessionStatus,
    StepRow,
)
from agentstate.ground.revisions import AnswerRow
from agentstate.steps.reading import read_recorded
from agentstate.store.base import LIST_LIMIT_MAX, Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

EXCERPT_CHARS_MAX = 500
ROLLBACKS_SHOWN_MAX = 20  # of a session, the newest

_FILTERS = (
    Field("status", "sessions of this status", choices=get_args(SessionStatus)),
    Field("search", "sessions with this in their id or name"),
    Field("parent", "sessions that this one began"),
    Field("forked_from", "sessions that were forked from this one"),
    OF_TAGS,
)


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
            ),
            Endpoint(
                "GET",
                "/api/sessions/{id}/steps/{index}",
                self.show_step,
                "Show one step whole: request, answers, attempts, approvals.",
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


def session_json(row: SessionRow) -> dict[str, JSON]:
    """Render a session for a list."""
    return {
        "session": row.session,
        "session_id": row.session,
        "status": row.status,
        "created_ms": row.created_ms,
        "updated_ms": row.updated_ms,
        "steps": row.steps,
        "last_step_number": row.last_step_number,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost_microusd": row.cost_microusd,
        "unknown_costs": row.unknown_costs,
        "replays": row.replays,
        "saved_microusd": row.saved_microusd,
        "name": row.name,
        "parent": row.parent,
        "tags": dict(row.tags),
        "pause": None
        if row.pause is None
        else {"since_ms": row.pause.since_ms, "reason": row.pause.reason, "by": row.pause.by},
        "status_reason": row.status_reason,
        "status_by": row.status_by,
        "status_ms": row.status_ms,
        "forked_from": None if row.origin is None else origin_json(row.origin),
    }


def origin_json(origin: Origin) -> JSON:
    """Render where a fork comes from. Steps it shares are in none of its sums."""
    before = origin.before or Place()
    return {
        "session": origin.session,
        "made_ms": origin.made_ms,
        "by": origin.by,
        "step_number": before.step_number,
        "index": before.index,
        "shared_steps": origin.shared_steps,
    }


def rollback_json(row: Rollback) -> JSON:
    """Render a change of what replays, and what undid it."""
    place = row.place or Place()
    return {
        "rollback_id": row.rollback_id,
        "kind": row.kind,
        "made_ms": row.made_ms,
        "by": row.by,
        "step_number": place.step_number,
        "index": place.index,
        "undoes": row.undoes,
        "answers": [
            {"index": swap.index, "from": swap.from_id, "to": swap.to_id} for swap in row.swaps
        ],
        "steps_taken_back": count_of(row.taken),
        "steps_restored": count_of(row.returned),
        "cost_to_rerun": weight_json(row.weight),
        "undone_ms": row.undone_ms,
        "undone_by": row.undone_by,
    }


def weight_json(weight: Weight) -> JSON:
    """Render what steps have cost, so about what running them again would cost."""
    return {
        "steps": weight.steps,
        "input_tokens": weight.input_tokens,
        "output_tokens": weight.output_tokens,
        "cost_microusd": weight.cost_microusd,
        "unknown_costs": weight.unknown_costs,
    }


def step_json(row: StepRow) -> dict[str, JSON]:
    """Render a step for a list."""
    return {
        "step_number": row.step_number,
        "index": row.index,
        "request_hash": row.fingerprint.hex(),
        "prompt": row.prompt,
        "response": row.text,
        "token_cost": None if row.cost_microusd is None else row.cost_microusd / 1_000_000,
        "latency": row.latency_ms,
        "state": row.state,
        "dialect": row.dialect,
        "path": row.path,
        "model": row.model,
        "provider": row.provider,
        "streams": row.streams,
        "run_id": row.run_id,
        "response_id": row.response_id,
        "finish_reason": row.finish_reason,
        "usage": usage_json(row.usage, is_estimate=row.usage_estimated),
        "cost_microusd": row.cost_microusd,
        "first_content_ms": row.first_content_ms,
        "created_ms": row.created_ms,
        "answered_ms": row.answered_ms,
        "replays": row.replays,
        "replayed_ms": row.replayed_ms,
        "saved_microusd": row.saved_microusd,
        "error_code": row.error_code,
        "error": row.error,
        "is_mock": row.is_mock,
        "rolled_back_ms": row.rolled_back_ms,
        "answer_id": row.answer_id,
        "miss": row.miss,
    }


def usage_json(usage: Usage | None, *, is_estimate: bool) -> JSON:
    """Render token counts under the names people know."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "is_estimate": is_estimate,
    }


def choice_json(choice: Choice) -> JSON:
    """Render one alternative of an answer."""
    return {
        "index": choice.index,
        "text": choice.text,
        "refusal": choice.refusal,
        "reasoning": choice.reasoning,
        "finish_reason": choice.finish_reason,
        "tool_calls": [
            {
                "id": call.call_id,
                "kind": call.kind,
                "name": call.name,
                "arguments": call.arguments,
                "runs_upstream": call.runs_upstream,
            }
            for call in choice.tool_calls
        ],
    }


def answer_row_json(row: AnswerRow) -> dict[str, JSON]:
    """Render one of the answers that a step has had; `kind` says where it came from."""
    revision = row.revision
    return {
        "answer_id": row.answer_id,
        "kind": "recorded" if revision is None else revision.kind,
        "stands": row.stands,
        "is_taken_back": row.is_taken_back,
        "replaces": None if revision is None else revision.replaces_id,
        "by": None if revision is None else revision.by,
        "reason": None if revision is None else revision.reason,
        "asked_otherwise": row.has_request,
        "answered_ms": row.answered_ms,
        "provider": row.provider,
        "model": row.model,
        "finish_reason": row.finish_reason,
        "response": row.text,
        "usage": usage_json(row.usage, is_estimate=row.usage_estimated),
        "cost_microusd": row.cost_microusd,
    }


def attempt_json(attempt: Attempt) -> JSON:
    """Render one try at one target."""
    excerpt = attempt.excerpt.decode("utf-8", errors="replace")[:EXCERPT_CHARS_MAX]
    return {
        "provider": attempt.provider,
        "model": attempt.model,
        "started_ms": attempt.started_ms,
        "ended_ms": attempt.ended_ms,
        "first_byte_ms": attempt.first_byte_ms,
        "status": attempt.status,
        "ok": attempt.error_code is None,
        "error_code": attempt.error_code,
        "error": attempt.error,
        "excerpt": excerpt or None,
        "dropped": list(attempt.dropped),
    }


def maybe_answer_json(answer: RecordedAnswer | None) -> JSON:
    """Render the recorded bytes for a person."""
    if answer is None:
        return None
    headers: list[JSON] = [
        [name.decode("latin-1"), value.decode("latin-1")] for name, value in answer.headers
    ]
    return {
        "status": answer.status,
        "form": answer.form,
        "headers": headers,
        "content": answer.content.decode("utf-8", errors="replace"),
    }


def release_json(release: Release) -> JSON:
    """Render that approved calls of an answer went out."""
    return {
        "run_id": release.run_id,
        "released_ms": release.released_ms,
        "is_written": release.is_written,
    }
