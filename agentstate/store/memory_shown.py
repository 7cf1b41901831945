"""How the dictionary store shows sessions and steps: what pages and look-ups return."""

from __future__ import annotations

from agentstate.ground.clock import now_ms
from agentstate.ground.control import TAGS_SOUGHT_MAX
from agentstate.ground.records import Query, SessionRow, StepRow
from agentstate.store.base import readable
from agentstate.store.memory_rows import KeptSession, KeptStep, maybe_readable, paid_in


def step_row(step: KeptStep) -> StepRow:
    """Return a step as pages show it."""
    claim, answer = step.claim, step.shown()
    checkpoint = answer.checkpoint if answer else None
    last = step.attempts[-1] if step.attempts else None
    return StepRow(
        step_id=step.step_id,
        session=step.session.name,
        index=step.index,
        step_number=step.step_number,
        state=step.state,
        fingerprint=claim.identity.exact,
        dialect=claim.dialect,
        path=readable(claim.path),
        model=readable(checkpoint.model if checkpoint else claim.model),
        provider=readable(checkpoint.provider) if checkpoint else None,
        streams=claim.streams,
        run_id=claim.run_id,
        response_id=maybe_readable(checkpoint.response_id) if checkpoint else None,
        finish_reason=maybe_readable(checkpoint.finish_reason) if checkpoint else None,
        prompt=readable(claim.prompt),
        miss=claim.miss,
        text=readable(checkpoint.text) if checkpoint else "",
        usage=answer.usage if answer else None,
        usage_estimated=answer.usage_estimated if answer else False,
        cost_microusd=answer.cost_microusd if answer else None,
        latency_ms=checkpoint.latency_ms if checkpoint else None,
        first_content_ms=checkpoint.first_content_ms if checkpoint else None,
        created_ms=claim.created_ms,
        answered_ms=checkpoint.answered_ms if checkpoint else None,
        replays=step.replays,
        replayed_ms=step.replayed_ms,
        saved_microusd=step.saved_microusd,
        error_code=last.error_code if last else None,
        error=last.error if last else None,
        is_mock=claim.is_mock,
        answer_id=answer.answer_id if answer else None,
        rolled_back_ms=step.rolled_back_ms,
    )


def session_row(session: KeptSession) -> SessionRow:
    """Return a session as pages show it."""
    counted = paid_in(session)
    usages = [answer.usage for answer in counted if answer.usage is not None]
    costs = [answer.cost_microusd for answer in counted if answer.cost_microusd is not None]
    said = session.why(now_ms())
    return SessionRow(
        session=session.name,
        status=session.status(now_ms()),
        created_ms=session.created_ms,
        updated_ms=session.updated_ms,
        steps=len(session.steps),
        last_step_number=max((step.step_number for step in session.active()), default=None),
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cost_microusd=sum(costs),
        unknown_costs=len(counted) - len(costs),
        replays=session.replays,
        saved_microusd=session.saved_microusd,
        name=session.name_shown,
        parent=session.parent,
        tags=tuple(sorted(session.tags.items())),
        pause=session.pause,
        origin=session.origin,
        status_reason=said.reason,
        status_by=said.by,
        status_ms=said.at_ms,
    )


def is_sought(session: KeptSession, query: Query) -> bool:
    """Say whether a listing of sessions has this one."""
    names = (session.name, session.name_shown or "")
    has_tags = all(
        readable(name) in session.tags and value in (None, session.tags[readable(name)])
        for name, value in query.tags[:TAGS_SOUGHT_MAX]
    )
    return (
        has_tags
        and query.parent in (None, session.parent)
        and query.forked_from in (None, session.origin and session.origin.session)
        and (query.search is None or any(_folded(query.search) in _folded(name) for name in names))
    )


def _folded(text: str) -> str:
    """Fold case as SQLite's `like` does: ASCII letters only."""
    return "".join(char.lower() if char.isascii() else char for char in text)
