"""The events of calls, for people who want to be told: that a fallback answered, that none did.

Pure, but for ids and time. They are written in the transaction of their cause (`recording.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import shorten
from agentstate.ground.events import Event, EventKind, new_event_id
from agentstate.ground.records import Claimed
from agentstate.ground.redaction import Redactor
from agentstate.steps.leg import Failed
from agentstate.steps.target import Target

WHY_CHARS_MAX = 500  # a line or two for a message
SESSIONS_MAX = 1_024  # of which it is known what people were told last
AGAIN_S = 900.0  # an outage that lasts is told of again


class FallbackNews:
    """Whether people know already that a session's calls are answered by another target: in an
    outage every call of an agent would tell them. In memory: after a restart they are told again.
    """

    def __init__(self) -> None:
        self._told: OrderedDict[str, tuple[str, str, float]] = OrderedDict()

    def is_news(self, session: str, asked: Target, answered: Target, now_s: float) -> bool:
        """Say whether it is to be told, and take it as told."""
        known = self._told.pop(session, None)
        said = (asked.label, answered.label)
        is_known = known is not None and known[:2] == said and now_s - known[2] < AGAIN_S
        self._told[session] = known if is_known and known else (*said, now_s)
        if len(self._told) > SESSIONS_MAX:
            self._told.popitem(last=False)
        return not is_known


def fallback_used(
    session: str, claimed: Claimed, targets: Sequence[Target], answered: Target,
    failures: Sequence[tuple[Target, Failed]], redactor: Redactor,
) -> Event:  # fmt: skip
    """Make the event that a target answered which was not the first."""
    asked = targets[0]
    own = [failed for target, failed in failures if target == asked]
    why = own[-1].error.message if own else f"{asked.label} rests after failures"
    return _event(
        "fallback.used",
        session,
        claimed,
        {
            "from_model": asked.model,
            "from_provider": asked.provider,
            "to_model": answered.model,
            "to_provider": answered.provider,
            "attempts": len(failures) + 1,
            "why": shorten(redactor.text(why), WHY_CHARS_MAX),
        },
    )


def call_failed(session: str, claimed: Claimed, asked: Target, failed: Failed,
                tried: Sequence[str], redactor: Redactor) -> Event:  # fmt: skip
    """Make the event that a call came to nothing, so that its session cannot go on."""
    return _event(
        "session.failed",
        session,
        claimed,
        {
            "status": "FAILED",
            "why": shorten(redactor.text(failed.error.message), WHY_CHARS_MAX),
            "model": asked.model,
            "provider": asked.provider,
            "tried": shorten("; ".join(tried), WHY_CHARS_MAX),
        },
    )


def _event(kind: EventKind, session: str, claimed: Claimed, facts: dict[str, JSON]) -> Event:
    return Event(
        event_id=new_event_id(),
        kind=kind,
        session=session,
        created_ms=now_ms(),
        step_number=claimed.step_number,
        index=claimed.index,
        facts=facts,
    )
