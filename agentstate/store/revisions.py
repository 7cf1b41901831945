"""What both backends say where a step's answer cannot be changed. Pure."""

from __future__ import annotations

from agentstate.ground.errors import Conflict
from agentstate.ground.records import StepState


def not_standing(index: int, state: StepState, *, is_rolled_back: bool) -> Conflict:
    """Return why there is no answer of a step that another one could be put in place of."""
    if is_rolled_back:
        why = "was rolled back. Restore it first."
    elif state == "in_flight":
        why = "is in flight. Wait for its answer."
    else:
        why = "has no answer on record. Let its agent ask first."
    return Conflict(f"Step {index} {why} Nothing was changed.")
