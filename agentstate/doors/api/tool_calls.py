"""The tool calls of a session, to read: each with its arguments, decision and result.

A row is of a call that a model made; `kind` says of which form. What durable calls are is said by
who keeps them: they join these rows with a kind of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypedDict, cast, get_args

from agentstate.doors.api.approvals import DecisionShown, decision_shown, read_arguments
from agentstate.doors.api.reply import (
    PAGE,
    json_response,
    next_headers,
    read_one_of,
    read_page,
    read_params,
)
from agentstate.doors.api.shapes import Anything, as_json
from agentstate.ground.approvals import Approval, ApprovalStatus
from agentstate.ground.calls import CallState
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest, NotFound, shorten
from agentstate.steps.tool_calls import Decided, Made, Sought, list_made
from agentstate.steps.tool_results import Came
from agentstate.store.base import LIST_LIMIT_MAX, Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

RESULT_CHARS_MAX = 4000  # of a result in a list; the step shows it whole
OTHERS_MAX = 10  # results that differ from the first one and are shown

_STEP_DIGITS_MAX = 9
_FILTERS = (
    Field("tool", "calls of tools that this glob matches, whatever their prefix"),
    Field("step", "calls of the step with this index", "integer"),
    Field("state", "calls whose answer stands so", choices=get_args(CallState)),
    Field("decision", "calls of which this was decided", choices=get_args(Decided)),
    Field("answered", "1: of which a result is on record; 0: of which none is", choices=("0", "1")),
)


class ToolCallEndpoints:
    """Answers to GET under /api/sessions/{id}/tool-calls."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/sessions/{id}/tool-calls",
                self.list,
                "List the tool calls that models made, by step: arguments, decision, result.",
                query=(*PAGE, *_FILTERS),
                answers="array",
                shape=ToolCallShown,
            ),
        )

    async def list(self, request: Request, params: Params) -> Response:
        """Answer with an array of calls; `x-next-cursor` names the next page. With a filter a page
        may be short, or empty, and not be the last."""
        names = (field.name for field in (*PAGE, *_FILTERS))
        asked = read_params(request, frozenset(names))
        if await self._store.read_session(params["id"]) is None:
            raise NotFound(f"There is no session {shorten(params['id'])!r}.")
        page = read_page({key: asked[key] for key in ("limit", "after") if key in asked})
        answered = read_one_of(asked, "answered", ("0", "1"))
        sought = Sought(
            session=params["id"],
            tool=asked.get("tool"),
            index=_read_step(asked),
            state=cast(CallState | None, read_one_of(asked, "state", get_args(CallState))),
            decided=cast(Decided | None, read_one_of(asked, "decision", get_args(Decided))),
            answered=None if answered is None else answered == "1",
            after=page.after,
            limit=page.limit,
        )
        at_ms = now_ms()
        found = await list_made(self._store, sought, at_ms=at_ms)
        return await asyncio.to_thread(
            lambda: json_response(
                calls_json(found.rows, at_ms, chars_max=RESULT_CHARS_MAX),
                headers=next_headers(found.next_cursor),
            )
        )


async def calls_of_step(store: Store, session: str, index: int, at_ms: int) -> tuple[Made, ...]:
    """Return the calls of one step, of all its answers."""
    sought = Sought(session=session, index=index, limit=LIST_LIMIT_MAX)
    return (await list_made(store, sought, at_ms=at_ms)).rows


class CallApprovalShown(DecisionShown):
    """What was asked about a tool call."""

    approval_id: str
    status: ApprovalStatus
    rule: str
    why: str
    asked_ms: int
    deadline_ms: int | None
    decided_ms: int | None
    edited_arguments_json: Anything


class CallResultShown(TypedDict):
    """What a later request says came of a tool call."""

    content: Anything
    is_cut: bool
    is_error: bool | None
    index: int
    step_number: int


class ToolCallShown(TypedDict):
    """A tool call that a model made, and what became of it."""

    session: str
    index: int
    step_number: int
    answer_id: int
    round: int
    choice: int
    position: int
    call_id: str | None
    name: str
    kind: str
    runs_upstream: bool
    arguments: str
    arguments_json: Anything
    dialect: str
    model: str
    called_ms: int
    state: CallState
    decision: Decided
    approval: CallApprovalShown | None
    answered: bool
    result: CallResultShown | None
    other_results: list[CallResultShown]
    results: int


def calls_json(rows: Iterable[Made], at_ms: int, *, chars_max: int | None = None) -> list[JSON]:
    """Render calls; results of more than `chars_max` characters are cut. None = none is."""
    return [_call_json(row, at_ms, chars_max) for row in rows]


def _call_json(row: Made, at_ms: int, chars_max: int | None) -> dict[str, JSON]:
    calling, call = row.calling, row.call
    parsed, _ = read_arguments(call.arguments)
    results = [_result_json(came, chars_max) for came in row.results]
    shown: ToolCallShown = {
        "session": calling.session,
        "index": calling.index,
        "step_number": calling.step_number,
        "answer_id": calling.answer_id,
        "round": calling.number,
        "choice": row.choice,
        "position": call.position,
        "call_id": call.call_id,
        "name": call.name,
        "kind": call.kind,
        "runs_upstream": row.runs_upstream,
        "arguments": call.arguments,
        "arguments_json": parsed,
        "dialect": calling.dialect,
        "model": calling.model,
        "called_ms": calling.answered_ms,
        "state": calling.state,
        "decision": row.decided,
        "approval": None if row.approval is None else _approval_json(row.approval, at_ms),
        "answered": bool(results),
        "result": results[0] if results else None,
        "other_results": results[1 : 1 + OTHERS_MAX],
        "results": len(results),
    }
    return as_json(shown)


def _approval_json(approval: Approval, at_ms: int) -> CallApprovalShown:
    question, decision = approval.question, approval.decision
    edited = None if decision is None else decision.arguments
    return {
        "approval_id": approval.approval_id,
        "status": approval.status(at_ms),
        "rule": question.rule,
        "why": question.why,
        "asked_ms": approval.asked_ms,
        "deadline_ms": question.deadline_ms,
        "decided_ms": approval.decided_ms,
        **decision_shown(decision),
        "edited_arguments_json": None if edited is None else read_arguments(edited)[0],
    }


def _result_json(came: Came, chars_max: int | None) -> CallResultShown:
    content, is_cut = came.content, False
    if chars_max is not None and content is not None:
        text = content if isinstance(content, str) else encode(content).decode("utf-8")
        is_cut = len(text) > chars_max
        content = text[:chars_max] if is_cut else content
    return {
        "content": content,
        "is_cut": is_cut,
        "is_error": came.is_error,
        "index": came.index,
        "step_number": came.step_number,
    }


def _read_step(asked: dict[str, str]) -> int | None:
    text = asked.get("step")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _STEP_DIGITS_MAX):
        raise BadRequest(
            f"step must be the index of a step, from 0; found {shorten(text)!r}.", param="step"
        )
    return int(text)
