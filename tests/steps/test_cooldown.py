"""Which targets rest: every state, and what leads out of it.

well ── N failures ──▶ resting ── time ──▶ half-open ── one asks ──▶ probed ──▶ well | resting
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.steps.cooldown import REST_MAX_S, TARGETS_MAX, Cooldowns

AFTER, REST_S = 3, 30.0
T = "target"


def fresh(after: int = AFTER, rest_s: float = REST_S) -> Cooldowns:
    return Cooldowns(after=after, rest_s=rest_s)


def resting(since_s: float = 0.0) -> Cooldowns:
    cooldowns = fresh()
    for _ in range(AFTER):
        cooldowns.note_failure(T, since_s)
    return cooldowns


def probed() -> Cooldowns:
    """Return one whose target is being tried, since it had rested."""
    cooldowns = resting()
    assert cooldowns.may_ask(T, REST_S)
    return cooldowns


def test_one_that_nothing_is_known_of_is_well() -> None:
    assert fresh().may_ask(T, 0)


@pytest.mark.parametrize("after", [1, 2, 5])
def test_it_rests_after_as_many_failures_in_a_row_as_are_set(after: int) -> None:
    cooldowns = fresh(after)
    for _ in range(after - 1):
        cooldowns.note_failure(T, 0)
        assert cooldowns.may_ask(T, 0)

    cooldowns.note_failure(T, 0)

    assert not cooldowns.may_ask(T, 0)


def test_a_success_between_them_begins_the_count_anew() -> None:
    cooldowns = fresh()
    for _ in range(5):
        cooldowns.note_failure(T, 0)
        cooldowns.note_failure(T, 0)
        cooldowns.note_success(T)

    assert cooldowns.may_ask(T, 0)


def test_what_says_nothing_of_it_counts_for_nothing() -> None:
    cooldowns = fresh()
    for _ in range(10):
        cooldowns.note_unknown(T)
    cooldowns.note_failure(T, 0)
    cooldowns.note_failure(T, 0)
    cooldowns.note_unknown(T)
    cooldowns.note_failure(T, 0)

    assert not cooldowns.may_ask(T, 0)


def test_it_rests_for_the_time_that_is_set() -> None:
    cooldowns = resting(since_s=100)

    assert not cooldowns.may_ask(T, 100)
    assert not cooldowns.may_ask(T, 129.9)
    assert cooldowns.may_ask(T, 130)


def test_a_failure_while_it_rests_begins_the_rest_anew() -> None:
    cooldowns = resting()
    cooldowns.note_failure(T, 20)

    assert not cooldowns.may_ask(T, 49.9)
    assert cooldowns.may_ask(T, 50)


def test_then_one_call_alone_may_ask_it() -> None:
    cooldowns = probed()

    assert [cooldowns.may_ask(T, REST_S) for _ in range(5)] == [False] * 5


def test_a_success_of_that_call_ends_the_rest_for_all() -> None:
    cooldowns = probed()
    cooldowns.note_success(T)

    assert [cooldowns.may_ask(T, REST_S) for _ in range(5)] == [True] * 5


def test_a_failure_of_that_call_is_enough_for_another_rest() -> None:
    cooldowns = probed()
    cooldowns.note_failure(T, 40)

    assert not cooldowns.may_ask(T, 69.9)
    assert cooldowns.may_ask(T, 70)
    assert not cooldowns.may_ask(T, 70)


def test_if_that_call_says_nothing_of_it_the_next_one_may_ask() -> None:
    cooldowns = probed()
    cooldowns.note_unknown(T)

    assert cooldowns.may_ask(T, REST_S)
    assert not cooldowns.may_ask(T, REST_S)


def test_a_call_that_never_comes_back_does_not_keep_it_out_for_ever() -> None:
    cooldowns = probed()

    assert not cooldowns.may_ask(T, 2 * REST_S - 0.1)
    assert cooldowns.may_ask(T, 2 * REST_S)


def test_what_says_nothing_of_it_does_not_end_its_rest() -> None:
    cooldowns = resting()
    cooldowns.note_unknown(T)

    assert not cooldowns.may_ask(T, REST_S - 0.1)


def test_targets_rest_each_for_itself() -> None:
    cooldowns = resting()

    assert cooldowns.may_ask("another", 0)
    assert not cooldowns.may_ask(T, 0)


def test_one_that_asks_for_a_rest_gets_it_at_once() -> None:
    cooldowns = fresh()
    cooldowns.note_failure(T, 0, rest_s=100)

    assert not cooldowns.may_ask(T, 99.9)
    assert cooldowns.may_ask(T, 100)


def test_a_rest_that_is_asked_for_is_no_shorter_than_the_one_that_is_set() -> None:
    cooldowns = fresh()
    cooldowns.note_failure(T, 0, rest_s=1)

    assert not cooldowns.may_ask(T, REST_S - 0.1)
    assert cooldowns.may_ask(T, REST_S)


@pytest.mark.parametrize("rest_s", [REST_MAX_S + 1, 1e12, float("inf")])
def test_nobody_rests_for_longer_than_an_hour_by_its_own_word(rest_s: float) -> None:
    cooldowns = fresh()
    cooldowns.note_failure(T, 0, rest_s)

    assert not cooldowns.may_ask(T, REST_MAX_S - 1)
    assert cooldowns.may_ask(T, REST_MAX_S)


def test_with_no_rest_set_all_may_be_asked_always() -> None:
    cooldowns = fresh(after=1, rest_s=0)
    cooldowns.note_failure(T, 5)

    assert cooldowns.may_ask(T, 5)
    assert cooldowns.may_ask(T, 5)


# -- memory


def test_no_more_targets_are_remembered_than_the_limit() -> None:
    cooldowns = fresh(after=1)
    for number in range(TARGETS_MAX + 10):
        cooldowns.note_failure(number, 0)

    resting_ones = [
        number for number in range(TARGETS_MAX + 10) if not cooldowns.may_ask(number, 0)
    ]

    assert resting_ones == list(range(10, TARGETS_MAX + 10))


def test_the_one_that_failed_least_lately_is_forgotten() -> None:
    cooldowns = fresh(after=1)
    for number in range(TARGETS_MAX):
        cooldowns.note_failure(number, 0)
    cooldowns.note_failure(0, 0)
    cooldowns.note_failure("one more", 0)

    assert not cooldowns.may_ask(0, 0)
    assert cooldowns.may_ask(1, 0)


def test_asking_and_succeeding_remember_nobody() -> None:
    """Else targets that are well would push out those that are not."""
    cooldowns = fresh(after=1)
    cooldowns.note_failure(T, 0)
    for number in range(2 * TARGETS_MAX):
        cooldowns.may_ask(number, 0)
        cooldowns.note_success(number)
        cooldowns.note_unknown(number)

    assert not cooldowns.may_ask(T, 0)


# -- any order of events

Act = Callable[[Cooldowns, float], object]
ACTS: dict[str, Act] = {
    "ask": lambda known, now_s: known.may_ask(T, now_s),
    "success": lambda known, now_s: known.note_success(T),
    "failure": lambda known, now_s: known.note_failure(T, now_s),
    "asked rest": lambda known, now_s: known.note_failure(T, now_s, 1e9),
    "unknown": lambda known, now_s: known.note_unknown(T),
}
steps = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.floats(0, 100)), max_size=30)


@given(steps)
def test_whatever_happened_a_target_is_asked_again_after_its_rest(
    events: list[tuple[str, float]],
) -> None:
    cooldowns, now_s = fresh(), 0.0
    for name, pause_s in events:
        now_s += pause_s
        ACTS[name](cooldowns, now_s)

    assert cooldowns.may_ask(T, now_s + REST_MAX_S)


@given(steps)
def test_whatever_happened_a_success_makes_it_well(events: list[tuple[str, float]]) -> None:
    cooldowns, now_s = fresh(), 0.0
    for name, pause_s in events:
        now_s += pause_s
        ACTS[name](cooldowns, now_s)
    cooldowns.note_success(T)

    assert [cooldowns.may_ask(T, now_s) for _ in range(3)] == [True] * 3
