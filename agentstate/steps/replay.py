"""Which recorded step answers this call? The ladder of DESIGN section 5, as pure choices.

The store says which steps share a key with the call; the functions here say which of them, if any,
may answer it. They ask nothing and change nothing; `ladder.py` does the looking up.

Two things keep a step from answering twice or wrongly. *Served*: under a run id each recorded step
answers one call of that run. *Evidence*: a tool result that differs is forgiven only if the agent
demonstrably started over, since otherwise a result that was rewritten in place ("pending" → "done")
would get the old answer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentstate.ground.records import Candidate, Emitter, Served
from agentstate.steps.identify import Caller


@dataclass(frozen=True, slots=True)
class ToolResult:
    """One tool result in a request."""

    call_id: str  # '' where the wire form has none
    digest: bytes  # over its content
    position: int  # index of its message


def choose_exact(
    candidates: Sequence[Candidate],
    caller: Caller,
    served: Mapping[int, Served],
    *,
    goes_to_mock: bool,
) -> Candidate | None:
    """Return the step that answers the call exactly, or None.

    `candidates` share the call's fingerprint, by index. `served` are this run's, by step; empty
    without a run id.

    1. No run id: the first replayable step at the caller's place.
    2. A call this run has made before (equal call id; or, without one, a retry, or an answer that
       was not fully delivered): the step it got then.
    3. Else the earliest step this run has not been served.
    """
    fit = [each for each in candidates if is_replayable(each, goes_to_mock=goes_to_mock)]
    if caller.run_id is None:
        return next((each for each in fit if is_same_place(each, caller)), None)
    again = same_call(candidates, caller, served)
    if again is not None:
        return again if again in fit else None
    return next((each for each in fit if each.step_id not in served), None)


def choose_last(
    candidates: Iterable[Candidate], caller: Caller, *, goes_to_mock: bool
) -> Candidate | None:
    """Return the last step at the caller's place that may answer, whoever got it; None = none."""
    fit = (
        each
        for each in candidates
        if is_replayable(each, goes_to_mock=goes_to_mock) and is_same_place(each, caller)
    )
    return max(fit, key=lambda each: each.index, default=None)


def choose_repeated(
    candidates: Sequence[Candidate], caller: Caller, *, goes_to_mock: bool
) -> Candidate | None:
    """Return the step that a call which does not look (`refresh`, `off`) made before, or None.

    Only an equal call id says that it is the same call.
    """
    if caller.call_id is None:
        return None
    return next(
        (
            each
            for each in reversed(candidates)
            if each.call_id == caller.call_id
            and each.run_id == caller.run_id
            and is_replayable(each, goes_to_mock=goes_to_mock)
        ),
        None,
    )


def same_call(
    candidates: Iterable[Candidate], caller: Caller, served: Mapping[int, Served]
) -> Candidate | None:
    """Return the step this very call of this run got before, or None if it is a new one."""
    before = [each for each in candidates if each.step_id in served]
    if caller.call_id is not None:
        return next(
            (each for each in before if served[each.step_id].call_id == caller.call_id), None
        )
    if not before:
        return None
    last = max(before, key=lambda each: (served[each.step_id].at_ms, each.index))
    if caller.is_retry or not served[last.step_id].is_delivered:
        return last
    return None


def choose_pinned(
    candidates: Sequence[Candidate],
    caller: Caller,
    served: Mapping[int, Served],
    differing: Mapping[int, Sequence[ToolResult]],
    emitters: Mapping[str, Sequence[Emitter]],
    *,
    goes_to_mock: bool,
    deserted: Container[int] = (),
) -> Candidate | None:
    """Return the earliest step that answers the call but for its tool results, or None.

    `differing`: per candidate the results whose content is not the recorded one. `emitters`: per
    call id the steps whose answers made that tool call. `deserted`: see `will_answer`.
    """
    for candidate in candidates:
        results = differing.get(candidate.step_id)
        if results is None or not will_answer(candidate, deserted, goes_to_mock=goes_to_mock):
            continue
        if not is_same_place(candidate, caller) or candidate.step_id in served:
            continue
        if is_rerun(candidate, caller, results, emitters):
            return candidate
    return None


def choose_masked(
    candidates: Sequence[Candidate],
    caller: Caller,
    served: Mapping[int, Served],
    differing: Mapping[int, Sequence[ToolResult]],
    emitters: Mapping[str, Sequence[Emitter]],
    *,
    highest_step_number: int | None,
    steps_at_number: int,
    goes_to_mock: bool,
    deserted: Container[int] = (),
) -> Candidate | None:
    """Return the step that answers the call but for clocks and tool results, or None.

    1. Under a run id: the earliest step of an earlier run that this run has not been served.
    2. With a step number below the highest of the session, where exactly one step stands: that one.
    3. Else none: a fresh prompt that tells the time is a fresh prompt.
    """
    if caller.run_id is not None:
        fit = [each for each in candidates if each.run_id not in (None, caller.run_id)]
    elif (
        caller.step_number is not None
        and highest_step_number is not None
        and caller.step_number < highest_step_number
        and steps_at_number == 1
    ):
        fit = [each for each in candidates if each.step_number == caller.step_number]
    else:
        return None
    for candidate in fit:
        results = differing.get(candidate.step_id)
        if (
            results is not None
            and candidate.step_id not in served
            and will_answer(candidate, deserted, goes_to_mock=goes_to_mock)
            and (not results or is_rerun(candidate, caller, results, emitters))
        ):
            return candidate
    return None


def is_replayable(candidate: Candidate, *, goes_to_mock: bool) -> bool:
    """Say whether the step has an answer that may be given again.

    An answer of the mock provider stands only while the call would go to the mock; one out of which
    a key was taken is not what the agent saw.
    """
    return (
        candidate.state == "complete"
        and candidate.answer_id is not None
        and not candidate.is_censored
        and (goes_to_mock or not candidate.is_mock)
    )


def will_answer(candidate: Candidate, deserted: Container[int], *, goes_to_mock: bool) -> bool:
    """Say whether the step has an answer that may be given again, or will have one before long.

    `deserted`: steps in the air whose clients have all left. An agent that died while it waited
    starts over and asks again. If it paid for a second answer then, the record would hold two of
    one step, and the next life might be given the one that this life never saw.
    """
    if candidate.step_id in deserted:
        return goes_to_mock or not candidate.is_mock
    return is_replayable(candidate, goes_to_mock=goes_to_mock)


def is_same_place(candidate: Candidate, caller: Caller) -> bool:
    """Say whether the step stands where the caller says it is.

    1. With a run id a step number is a label: any place.
    2. With a number alone: that number.
    3. With neither: any place.
    """
    if caller.run_id is not None or caller.step_number is None:
        return True
    return candidate.step_number == caller.step_number


def is_rerun(
    candidate: Candidate,
    caller: Caller,
    results: Sequence[ToolResult],
    emitters: Mapping[str, Sequence[Emitter]],
) -> bool:
    """Say whether the agent demonstrably started over since the candidate was recorded.

    Every result that differs must answer a tool call on record. Under a run id, another run is the
    evidence. Without one: the answer that made each such call was replayed after the candidate was
    claimed, and the candidate was not served since. (Claimed, not answered: an agent mostly dies
    while it waits, and may be back before the answer is.)
    """
    if not results:
        return False
    made_by = [_emitter_of(result, emitters) for result in results]
    if any(emitter is None for emitter in made_by):
        return False
    if caller.run_id is not None:
        return candidate.run_id != caller.run_id
    replayed = [emitter.replayed_ms or 0 for emitter in made_by if emitter is not None]
    return max(candidate.created_ms, candidate.replayed_ms or 0) < min(replayed)


def differing_results(
    theirs: Sequence[ToolResult], recorded: Sequence[ToolResult]
) -> tuple[ToolResult, ...] | None:
    """Return the caller's results whose content is not the recorded one; None if the two requests
    do not have the same results at the same places."""
    if len(theirs) != len(recorded):
        return None
    differing = []
    for mine, old in zip(theirs, recorded, strict=True):
        if (mine.call_id, mine.position) != (old.call_id, old.position):
            return None
        if mine.digest != old.digest:
            differing.append(mine)
    return tuple(differing)


def reusable_row(
    candidates: Sequence[Candidate], caller: Caller, served: Mapping[int, Served]
) -> int | None:
    """Return the row of an earlier try of this very call that gave no answer, or None.

    So a step that failed five times is one row with five attempts, not five rows. `refresh` takes
    the row of the answer it replaces. Under a run id a row before one that the run has got stays
    as it is: an answer there would come before the others when they are replayed in order.
    """
    states = ["failed", "interrupted"]
    if caller.replay == "refresh":
        states.append("complete")
    fit = [each for each in candidates if each.state in states and is_same_place(each, caller)]
    if caller.run_id is not None:
        again = same_call(fit, caller, served)
        if again is not None:
            return again.step_id
        last = max((each.index for each in candidates if each.step_id in served), default=-1)
        fit = [each for each in fit if each.index > last]
    return fit[0].step_id if fit else None


def _emitter_of(result: ToolResult, emitters: Mapping[str, Sequence[Emitter]]) -> Emitter | None:
    """Return the step that made the call: some models repeat ids, so the latest one before the
    result's place in the conversation."""
    before = [each for each in emitters.get(result.call_id, ()) if each.depth < result.position]
    return max(before, key=lambda each: each.depth, default=None)
