"""What a client gets of a recorded step: the response, with how it was found. Pure, but for time.

`landed.py` is the counterpart for a call that went upstream.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.dialects.base import Dialect
from agentstate.ground.clock import monotonic_s
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.gate import Hold
from agentstate.steps.ladder import Hit
from agentstate.steps.outcome import is_settled
from agentstate.steps.reply import answer_response, marks, replayed_headers
from agentstate.wire.message import Response


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded step that answers a call."""

    dialect: Dialect
    session: str
    hit: Hit
    hold: Hold | None  # what must be decided before it goes out; None = nothing
    wants_stream: bool
    wants_usage: bool

    def response(self, started_s: float, held_s: float, answer: RecordedAnswer) -> Response:
        """Return the response; `answer` is what goes out of it. The call came at `started_s`, and
        since `held_s` it was held if it was."""
        hold, found = self.hold, self.hit.candidate
        # What a person takes to decide is no time of ours.
        until_s = monotonic_s() if hold is None else held_s
        is_open = hold is not None and not is_settled(hold.approvals)
        own = marks(
            session=self.session,
            step_number=found.step_number,
            hit="joined" if is_open else self.hit.rung,
            provider=found.provider or "",
            model=found.answer_model or found.model,
            attempts=0,
            cost_microusd=0,
            overhead_s=until_s - started_s,
            approval_id=hold.approval_id if hold else None,
        )
        response = answer_response(
            self.dialect, answer, own, wants_stream=self.wants_stream, wants_usage=self.wants_usage
        )
        response.headers = list(replayed_headers(response.headers))
        return response
