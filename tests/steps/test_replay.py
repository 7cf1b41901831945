"""Which recorded step answers: every rung, and what must never be answered from the record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.records import Candidate, Emitter, Identity, Served
from agentstate.steps.identify import Caller
from agentstate.steps.replay import (
    ToolResult,
    choose_exact,
    choose_masked,
    choose_pinned,
    differing_results,
    is_replayable,
    reusable_row,
)

IDENTITY = Identity(b"r" * 32, b"e" * 32, b"p" * 32, b"m" * 32)


def caller(**changes: Any) -> Caller:
    plain = Caller("s", None, None, None, False, "pinned", False)
    return replace(plain, **changes)


def step(step_id: int, **changes: Any) -> Candidate:
    plain = Candidate(
        step_id=step_id,
        answer_id=step_id,
        index=step_id,
        step_number=step_id,
        state="complete",
        run_id=None,
        call_id=None,
        occurrence=0,
        model="m",
        streams=False,
        identity=IDENTITY,
        is_mock=False,
        created_ms=100,
        answered_ms=110,
        replayed_ms=None,
        cost_microusd=None,
        provider="openai",
    )
    return replace(plain, **changes)


def served(*steps: int, call_id: str | None = None, delivered: bool = True) -> dict[int, Served]:
    return {each: Served(each, call_id, each, delivered) for each in steps}


def exact(candidates: list[Candidate], who: Caller, got: dict[int, Served] | None = None) -> Any:
    found = choose_exact(candidates, who, got or {}, goes_to_mock=False)
    return None if found is None else found.step_id


# --- exact ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["in_flight", "failed", "interrupted"])
def test_only_a_complete_answer_replays(state: Any) -> None:
    assert exact([step(1, state=state)], caller()) is None
    assert exact([step(1, answer_id=None)], caller()) is None


def test_a_mock_answer_stands_only_while_the_call_would_go_to_the_mock() -> None:
    mock = step(1, is_mock=True)
    assert not is_replayable(mock, goes_to_mock=False)
    assert is_replayable(mock, goes_to_mock=True)
    assert is_replayable(step(1), goes_to_mock=True)


def test_a_number_names_the_place_and_no_number_any_place() -> None:
    both = [step(1, step_number=7), step(2, step_number=8)]
    assert exact(both, caller(step_number=8)) == 2
    assert exact(both, caller(step_number=9)) is None
    assert exact(both, caller()) == 1


def test_a_run_gets_each_recorded_occurrence_once_and_in_order() -> None:
    three = [step(1), step(2), step(3)]
    run = caller(run_id="b", step_number=99)
    assert exact(three, run) == 1
    assert exact(three, run, served(1)) == 2
    assert exact(three, run, served(1, 2, 3)) is None


def test_the_same_call_id_gets_the_same_step_again() -> None:
    run = caller(run_id="b", call_id="c1")
    assert exact([step(1), step(2)], run, served(1, call_id="c1")) == 1
    assert exact([step(1), step(2)], run, served(1, call_id="c0")) == 2


def test_without_a_call_id_a_retry_or_an_undelivered_answer_is_the_same_call() -> None:
    two = [step(1), step(2)]
    assert exact(two, caller(run_id="b", is_retry=True), served(1)) == 1
    assert exact(two, caller(run_id="b"), served(1, delivered=False)) == 1
    assert exact(two, caller(run_id="b"), served(1)) == 2


def test_a_retry_of_a_call_that_failed_is_no_replay_of_another() -> None:
    failed = step(1, state="failed", answer_id=None)
    run = caller(run_id="b", call_id="c1")
    assert exact([failed, step(2)], run, served(1, call_id="c1")) is None


# --- pinned --------------------------------------------------------------------------------------

DIFFERS = (ToolResult("c1", b"new", 2),)


def pinned(
    candidate: Candidate,
    who: Caller,
    emitter: Emitter | None,
    *,
    got: dict[int, Served] | None = None,
    results: tuple[ToolResult, ...] = DIFFERS,
) -> bool:
    emitters = {"c1": (emitter,)} if emitter else {}
    return (
        choose_pinned(
            [candidate], who, got or {}, {candidate.step_id: results}, emitters, goes_to_mock=False
        )
        is not None
    )


def test_a_tool_that_was_run_again_after_a_crash_keeps_the_recorded_decision() -> None:
    assert pinned(step(2), caller(), Emitter(1, depth=1, replayed_ms=200))
    assert pinned(step(2, step_number=5), caller(step_number=5), Emitter(1, 1, 200))
    assert pinned(step(2, run_id="a"), caller(run_id="b"), Emitter(1, 1, None))


def test_a_result_rewritten_in_place_in_the_first_run_is_a_new_call() -> None:
    assert not pinned(step(2), caller(), Emitter(1, depth=1, replayed_ms=None))
    assert not pinned(step(2), caller(), Emitter(1, depth=1, replayed_ms=95))
    assert not pinned(step(2, run_id="a"), caller(run_id="a"), Emitter(1, 1, None))


def test_a_result_of_a_call_we_never_saw_is_a_new_call() -> None:
    assert not pinned(step(2), caller(), None)
    assert not pinned(step(2, run_id="a"), caller(run_id="b"), None)


def test_a_step_served_since_the_agent_started_over_is_not_served_again() -> None:
    emitter = Emitter(1, depth=1, replayed_ms=200)
    assert not pinned(step(2, replayed_ms=210), caller(), emitter)
    assert pinned(step(2, replayed_ms=150), caller(), emitter)
    assert not pinned(step(2, run_id="a"), caller(run_id="b"), emitter, got=served(2))


def test_another_place_is_another_call() -> None:
    assert not pinned(step(2, step_number=5), caller(step_number=6), Emitter(1, 1, 200))


def test_a_repeated_call_id_means_the_latest_call_before_the_result() -> None:
    early, late = Emitter(1, depth=1, replayed_ms=200), Emitter(3, depth=3, replayed_ms=None)
    for position, hits in ((2, True), (4, False)):
        found = choose_pinned(
            [step(2)],
            caller(),
            {},
            {2: (ToolResult("c1", b"new", position),)},
            {"c1": (early, late)},
            goes_to_mock=False,
        )
        assert (found is not None) is hits


def test_only_results_at_the_same_places_are_compared() -> None:
    one, two = ToolResult("c1", b"a", 2), ToolResult("c1", b"b", 2)
    assert differing_results((one,), (one,)) == ()
    assert differing_results((two,), (one,)) == (two,)
    assert differing_results((one,), ()) is None
    assert differing_results((replace(one, position=4),), (one,)) is None
    assert differing_results((replace(one, call_id="c2"),), (one,)) is None


# --- masked --------------------------------------------------------------------------------------


def masked(
    candidates: list[Candidate],
    who: Caller,
    *,
    highest: int | None = 9,
    at_number: int = 1,
    got: dict[int, Served] | None = None,
) -> Any:
    found = choose_masked(
        candidates,
        who,
        got or {},
        {each.step_id: () for each in candidates},
        {},
        highest_step_number=highest,
        steps_at_number=at_number,
        goes_to_mock=False,
    )
    return None if found is None else found.step_id


def test_a_later_run_forgives_clocks_of_earlier_runs_once_each() -> None:
    two = [step(1, run_id="a"), step(2, run_id="a")]
    run = caller(run_id="b")
    assert masked(two, run) == 1
    assert masked(two, run, got=served(1)) == 2
    assert masked(two, run, got=served(1, 2)) is None
    assert masked(two, caller(run_id="a")) is None


def test_a_number_forgives_clocks_only_below_the_highest_and_where_one_step_stands() -> None:
    one = [step(1, step_number=3)]
    assert masked(one, caller(step_number=3)) == 1
    assert masked(one, caller(step_number=3), highest=3) is None
    assert masked(one, caller(step_number=3), at_number=2) is None
    assert masked(one, caller(step_number=4)) is None
    assert masked(one, caller()) is None


# --- rows ----------------------------------------------------------------------------------------


def test_a_failed_step_is_tried_again_on_its_own_row() -> None:
    failed = step(1, state="failed", answer_id=None, step_number=4)
    assert reusable_row([failed], caller(step_number=4), {}) == 1
    assert reusable_row([failed], caller(step_number=5), {}) is None
    assert reusable_row([step(2)], caller(), {}) is None


def test_refresh_takes_the_row_of_the_answer_it_replaces() -> None:
    assert reusable_row([step(2)], caller(replay="refresh"), {}) == 2


def test_a_run_reuses_the_row_of_its_own_failed_call_before_another_ones() -> None:
    rows = [step(each, state="failed", answer_id=None) for each in (1, 2)]
    run = caller(run_id="b", call_id="c2")
    assert reusable_row(rows, run, served(2, call_id="c2")) == 2
    assert reusable_row(rows, caller(run_id="b", call_id="c3"), served(1, 2)) is None
