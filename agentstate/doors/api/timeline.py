"""A session as a timeline, and one step as a conversation: what the dashboard shows of a run.

The same record as in `sessions.py`, whose shapes it adds to: marks for a list that is scrolled
through by index, and requests of every dialect in one form to read. Raw JSON is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import cast

from agentstate.dialects import dialect_by_name
from agentstate.dialects.lenient import Unreadable
from agentstate.dialects.neutral import (
    Asked,
    Audio,
    Called,
    Document,
    Image,
    Item,
    Refused,
    Result,
    Text,
    Turn,
    translates,
)
from agentstate.doors.api.approvals import approval_json
from agentstate.doors.api.reply import LIMIT_MAX, json_response, read_page, read_params
from agentstate.doors.api.rows import (
    choice_json,
    release_json,
    rollback_json,
    session_json,
    step_json,
)
from agentstate.doors.api.sessions import ROLLBACKS_SHOWN_MAX, SessionEndpoints
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import AgentStateError, BadRequest, shorten
from agentstate.ground.overview import Mark
from agentstate.ground.records import Query, RecordedAnswer, StepRow
from agentstate.steps.reading import read_recorded
from agentstate.store.base import LIST_LIMIT_MAX, make_cursor
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

FROM_MAX = 10**9  # an index; far more than a session has steps
_STATES = ("in_flight", "complete", "failed", "interrupted")
_NO_MARK = Mark(0, 0, None, (), 0)
# What a request says besides its turns and tools, as far as people ask for it.
_WISHES = (
    "output_tokens_max", "temperature", "top_p", "top_k", "seed", "presence_penalty",
    "frequency_penalty", "stop", "effort", "verbosity", "choices", "calls_in_parallel", "user",
)  # fmt: skip


class TimelineEndpoints(SessionEndpoints):
    """Answers what the dashboard asks under /api/sessions."""

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/sessions/{id}/timeline",
                self.timeline,
                "Show a session and some of its steps by index, with attempts and tools.",
                query=(
                    Field("from", "the index of the first step", "integer"),
                    Field("limit", f"how many steps, at most {LIMIT_MAX}", "integer"),
                    Field("state", "only steps of this state", choices=_STATES),
                ),
            ),
            Endpoint(
                "GET",
                "/api/sessions/{id}/steps/{index}/conversation",
                self.conversation,
                "Show what a step was asked and answered, in one form for all dialects.",
            ),
        )

    async def timeline(self, request: Request, params: Params) -> Response:
        """Answer with the session, how many steps it has, and those from an index on. `gaps`: at
        which indexes a fork has no step, as [first, last]."""
        asked = read_params(request, frozenset(("from", "limit", "state")))
        state = asked.get("state")
        if state not in (None, *_STATES):
            raise BadRequest(
                f"state must be one of {', '.join(_STATES)}; found {shorten(state)!r}.",
                param="state",
            )
        first = _read_from(asked)
        limit = read_page({"limit": asked.get("limit", "100")}).limit
        row = await self._read(params["id"])
        query = Query(
            session=row.session,
            state=state,
            after=make_cursor(first - 1),
            limit=limit,
            newest_first=False,
        )
        page = await self._store.list_steps(query)
        marks: dict[int, Mark] = {}
        if page.rows:
            span = (page.rows[0].index, page.rows[-1].index)
            marks = {mark.index: mark for mark in await self._store.list_marks(row.session, *span)}
        rollbacks = await self._store.list_rollbacks(row.session, limit=ROLLBACKS_SHOWN_MAX)
        gaps = () if row.origin is None else await self._store.list_gaps(row.session)
        return json_response(
            {
                "session": session_json(row),
                "rollbacks": [rollback_json(each) for each in rollbacks],
                "gaps": [list(gap) for gap in gaps],
                "steps": [marked_json(step, marks.get(step.index)) for step in page.rows],
            }
        )

    async def conversation(self, request: Request, params: Params) -> Response:
        """Answer with turns, of which the first `known` were there in the call before; choices of
        the answer and, where it differs, of what the agent got; all answers it has had, attempts,
        approvals, releases.

        `turns` null: it cannot be read as a conversation, and `request` is what was sent.
        """
        read_params(request, frozenset())
        row = await self._read(params["id"])
        step = await self._find_step(row, params["index"])
        store = self._store
        marks = await store.list_marks(step.session, step.index, step.index)
        found = marked_json(step, marks[0] if marks else None)
        whole = await self._step(step, whole=True)
        found |= {"attempts_made": whole["attempts"]}
        body = await store.read_request(step.step_id)
        before = await self._find_before(step, body)
        at_ms = now_ms()
        of_step = Query(
            session=step.session, step_id=step.step_id, limit=LIST_LIMIT_MAX, newest_first=False
        )
        approvals = (await store.list_approvals(of_step, at_ms=at_ms)).rows
        answer, delivered, releases = await store.read_answer(step.step_id), None, None
        if step.answer_id is not None:
            answer = answer or await store.read_answer_by_id(step.answer_id)
            delivered = await store.read_delivered(step.answer_id)
            releases = await store.list_releases(step.answer_id)

        def render() -> Response:
            told = {
                "step": found,
                "session": session_json(row),
                "goes_on_from": before,
                "answers": whole["answers"],
                "choices": _choices(step, answer),
                "delivered": _choices(step, delivered),
                "approvals": [approval_json(approval, at_ms) for approval in approvals],
                "releases": [release_json(release) for release in releases or ()],
                **_asked_json(step, body),
            }
            return json_response(cast(JSON, told))

        return await asyncio.to_thread(render)  # requests and answers may be megabytes


def marked_json(step: StepRow, mark: Mark | None) -> dict[str, JSON]:
    """Render a step with its mark."""
    told = asdict(replace(mark or _NO_MARK, index=step.index))
    return step_json(step) | told | {"tools": list(told["tools"])}


def _read_from(asked: dict[str, str]) -> int:
    text = asked.get("from", "0")
    if text.isascii() and text.isdigit() and int(text[:10]) <= FROM_MAX:
        return int(text)
    raise BadRequest(f"from must be an index from 0; found {shorten(text)!r}.", param="from")


def _choices(step: StepRow, answer: RecordedAnswer | None) -> JSON:
    dialect = dialect_by_name(step.dialect)
    if answer is None or dialect is None:
        return None
    return [choice_json(choice) for choice in read_recorded(dialect, answer).choices]


def _asked_json(step: StepRow, body: JSON) -> dict[str, JSON]:
    """Render a request to be read; as it is, where it is no conversation."""
    dialect = dialect_by_name(step.dialect)
    if dialect is None or not translates(dialect) or not isinstance(body, dict):
        return {"turns": None, "request": body}
    try:
        dialect.read_ask(body)  # `read_request` relies on what this checks
        asked = dialect.read_request(body)
    except (AgentStateError, Unreadable):
        return {"turns": None, "request": body}
    wishes = {name: getattr(asked, name) for name in _WISHES}
    return {
        "turns": [turn_json(turn) for turn in asked.turns],
        "known": count_known(asked) if step.index else 0,
        "tools": [
            {"name": tool.name, "description": tool.description, "schema": tool.schema}
            for tool in asked.tools
        ],
        "wishes": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in wishes.items()
            if value not in (None, ()) and (name, value) != ("choices", 1)
        },
        "unsaid": list(asked.unsaid),
    }


def count_known(asked: Asked) -> int:
    """Return how many turns were there when the model was asked before: all up to its last own."""
    own = [number for number, turn in enumerate(asked.turns) if turn.role == "assistant"]
    return own[-1] + 1 if own and own[-1] + 1 < len(asked.turns) else 0


def turn_json(turn: Turn) -> JSON:
    """Render one message."""
    return {"role": turn.role, "name": turn.name, "items": items_json(turn.items)}


def items_json(items: Sequence[Item]) -> list[JSON]:
    """Render what a message or a tool's result is made of."""
    return [_item_json(item) for item in items]


def _item_json(item: Item) -> JSON:
    match item:
        case Text(text):
            return {"kind": "text", "text": text}
        case Image():
            return {
                "kind": "image", "data": item.data, "media_type": item.media_type, "url": item.url,
            }  # fmt: skip
        case Document():
            return {
                "kind": "document", "name": item.name, "media_type": item.media_type,
                "text": item.text, "url": item.url,
                "data_chars": None if item.data is None else len(item.data),
            }  # fmt: skip
        case Audio(data, kind):
            return {"kind": "audio", "format": kind, "data_chars": len(data)}
        case Refused(text):
            return {"kind": "refusal", "text": text}
        case Called():
            return {
                "kind": "call", "id": item.call_id, "name": item.name,
                "arguments": item.arguments, "is_custom": item.is_custom,
            }  # fmt: skip
        case Result():
            return {
                "kind": "result", "id": item.call_id, "name": item.name,
                "is_error": item.is_error, "items": items_json(item.parts),
            }  # fmt: skip
