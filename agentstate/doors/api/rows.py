"""Rows of the record as the API shows them: sessions, changes, steps, answers, attempts.

Each is a shape (`shapes.py`) and the function that makes it. The shapes keep the first version's
names (`step_number`, `request_hash`, `prompt`, `response`, `token_cost`, `latency`) and add ours.
Money: `token_cost` in US dollars, `cost_microusd` exact; `latency` in milliseconds. None means not
known, never zero.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from agentstate.doors.api.shapes import Anything, as_json
from agentstate.ground.approvals import Release
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Choice, Usage
from agentstate.ground.control import Place, Rollback, Weight, count_of
from agentstate.ground.forks import Origin
from agentstate.ground.records import (
    Attempt,
    RecordedAnswer,
    SessionRow,
    SessionStatus,
    StepRow,
    StepState,
)
from agentstate.ground.revisions import AnswerRow

EXCERPT_CHARS_MAX = 500


class PauseShown(TypedDict):
    """Why calls of a session are held."""

    since_ms: int
    reason: str | None
    by: str | None


class OriginShown(TypedDict):
    """Where a fork comes from."""

    session: str
    made_ms: int
    by: str | None
    step_number: int | None
    index: int | None
    shared_steps: int


class SessionShown(TypedDict):
    """A session."""

    session: str
    session_id: str
    status: SessionStatus
    created_ms: int
    updated_ms: int
    steps: int
    last_step_number: int | None
    input_tokens: int
    output_tokens: int
    cost_microusd: int
    unknown_costs: int
    replays: int
    saved_microusd: int
    name: str | None
    parent: str | None
    tags: dict[str, str]
    pause: PauseShown | None
    status_reason: str | None
    status_by: str | None
    status_ms: int | None
    forked_from: OriginShown | None


def session_json(row: SessionRow) -> dict[str, JSON]:
    """Render a session for a list."""
    shown: SessionShown = {
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
        "forked_from": None if row.origin is None else _origin(row.origin),
    }
    return as_json(shown)


def _origin(origin: Origin) -> OriginShown:
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


class WeightShown(TypedDict):
    """What steps have cost."""

    steps: int
    input_tokens: int
    output_tokens: int
    cost_microusd: int
    unknown_costs: int


# `from` is a word of the language.
SwapShown = TypedDict("SwapShown", {"index": int, "from": int, "to": int})


class RollbackShown(TypedDict):
    """A change of what replays."""

    rollback_id: int
    kind: Literal["rollback", "edit", "rerun", "restore"]
    made_ms: int
    by: str | None
    step_number: int | None
    index: int | None
    undoes: int | None
    answers: list[SwapShown]
    steps_taken_back: int
    steps_restored: int
    cost_to_rerun: WeightShown
    undone_ms: int | None
    undone_by: int | None


def rollback_json(row: Rollback) -> dict[str, JSON]:
    """Render a change of what replays, and what undid it."""
    place = row.place or Place()
    shown: RollbackShown = {
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
        "cost_to_rerun": _weight(row.weight),
        "undone_ms": row.undone_ms,
        "undone_by": row.undone_by,
    }
    return as_json(shown)


def weight_json(weight: Weight) -> dict[str, JSON]:
    """Render what steps have cost, so about what running them again would cost."""
    return as_json(_weight(weight))


def _weight(weight: Weight) -> WeightShown:
    return {
        "steps": weight.steps,
        "input_tokens": weight.input_tokens,
        "output_tokens": weight.output_tokens,
        "cost_microusd": weight.cost_microusd,
        "unknown_costs": weight.unknown_costs,
    }


class UsageShown(TypedDict):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    is_estimate: bool


class StepShown(TypedDict):
    """A step of a session."""

    step_number: int
    index: int
    request_hash: str
    prompt: str
    response: str
    token_cost: float | None
    latency: int | None
    state: StepState
    dialect: str
    path: str
    model: str
    provider: str | None
    streams: bool
    run_id: str | None
    response_id: str | None
    finish_reason: str | None
    usage: UsageShown | None
    cost_microusd: int | None
    first_content_ms: int | None
    created_ms: int
    answered_ms: int | None
    replays: int
    replayed_ms: int | None
    saved_microusd: int
    error_code: str | None
    error: str | None
    is_mock: bool
    rolled_back_ms: int | None
    answer_id: int | None
    miss: Anything


def step_json(row: StepRow) -> dict[str, JSON]:
    """Render a step for a list."""
    shown: StepShown = {
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
        "usage": _usage(row.usage, is_estimate=row.usage_estimated),
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
    return as_json(shown)


def _usage(usage: Usage | None, *, is_estimate: bool) -> UsageShown | None:
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


class CallShown(TypedDict):
    """A tool call as a model made it."""

    id: str | None
    kind: str
    name: str
    arguments: str
    runs_upstream: bool


class ChoiceShown(TypedDict):
    """One alternative of an answer."""

    index: int
    text: str
    refusal: str | None
    reasoning: str | None
    finish_reason: str | None
    tool_calls: list[CallShown]


def choice_json(choice: Choice) -> dict[str, JSON]:
    """Render one alternative of an answer."""
    shown: ChoiceShown = {
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
    return as_json(shown)


class AnswerShown(TypedDict):
    """One of the answers that a step has had."""

    answer_id: int
    kind: Literal["recorded", "edit", "rerun"]
    stands: bool
    is_taken_back: bool
    replaces: int | None
    by: str | None
    reason: str | None
    asked_otherwise: bool
    answered_ms: int
    provider: str
    model: str
    finish_reason: str | None
    response: str
    usage: UsageShown | None
    cost_microusd: int | None


def answer_row_json(row: AnswerRow) -> dict[str, JSON]:
    """Render one of the answers that a step has had; `kind` says where it came from."""
    revision = row.revision
    shown: AnswerShown = {
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
        "usage": _usage(row.usage, is_estimate=row.usage_estimated),
        "cost_microusd": row.cost_microusd,
    }
    return as_json(shown)


class AttemptShown(TypedDict):
    """One try at one target."""

    provider: str
    model: str
    started_ms: int
    ended_ms: int
    first_byte_ms: int | None
    status: int | None
    ok: bool
    error_code: str | None
    error: str | None
    excerpt: str | None
    dropped: list[str]


def attempt_json(attempt: Attempt) -> dict[str, JSON]:
    """Render one try at one target."""
    excerpt = attempt.excerpt.decode("utf-8", errors="replace")[:EXCERPT_CHARS_MAX]
    shown: AttemptShown = {
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
    return as_json(shown)


class RecordedShown(TypedDict):
    """The bytes of an answer, as text."""

    status: int
    form: Literal["body", "events"]
    headers: list[list[str]]
    content: str


def maybe_answer_json(answer: RecordedAnswer | None) -> JSON:
    """Render the recorded bytes for a person."""
    if answer is None:
        return None
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in answer.headers]
    shown: RecordedShown = {
        "status": answer.status,
        "form": answer.form,
        "headers": headers,
        "content": answer.content.decode("utf-8", errors="replace"),
    }
    return as_json(shown)


class ReleaseShown(TypedDict):
    """That approved calls of an answer went out."""

    run_id: str | None
    released_ms: int
    is_written: bool


def release_json(release: Release) -> dict[str, JSON]:
    """Render that approved calls of an answer went out."""
    shown: ReleaseShown = {
        "run_id": release.run_id,
        "released_ms": release.released_ms,
        "is_written": release.is_written,
    }
    return as_json(shown)
