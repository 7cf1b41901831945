"""Is this call on record? The ladder of DESIGN section 5, as a pure choice among candidates.

The store says which recorded steps share a key with the call; `choose` says which of them, if any,
answers it. What it never does is ask an upstream or change anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentstate.ground.records import Candidate
from agentstate.steps.identify import Caller


def choose(
    candidates: Iterable[Candidate],
    caller: Caller,
    consumed: frozenset[int],
    *,
    goes_to_mock: bool,
) -> Candidate | None:
    """Return the candidate that answers the call exactly, or None.

    `candidates` share the call's fingerprint, in order of index. `consumed` are the steps this run
    has been served or has made itself; empty without a run id.
    """
    for candidate in candidates:
        if (
            is_replayable(candidate, goes_to_mock=goes_to_mock)
            and candidate.step_id not in consumed
            and is_same_place(candidate, caller)
        ):
            return candidate
    return None


def is_replayable(candidate: Candidate, *, goes_to_mock: bool) -> bool:
    """Say whether the step has an answer that may be given again.

    An answer of the mock provider stands only while the call would go to the mock.
    """
    return (
        candidate.state == "complete"
        and candidate.answer_id is not None
        and (goes_to_mock or not candidate.is_mock)
    )


def is_same_place(candidate: Candidate, caller: Caller) -> bool:
    """Say whether the step stands where the caller says it is.

    1. With a run id a step number is a label: any place.
    2. With a number alone: that number.
    3. With neither: any place.
    """
    if caller.run_id is not None or caller.step_number is None:
        return True
    return candidate.step_number == caller.step_number


def reusable_row(candidates: Iterable[Candidate], caller: Caller) -> int | None:
    """Return the row of an earlier try of this very call that gave no answer, or None.

    So a step that failed five times is one row with five attempts, not five rows.
    """
    for candidate in candidates:
        if candidate.state in ("failed", "interrupted") and is_same_place(candidate, caller):
            return candidate.step_id
    return None
