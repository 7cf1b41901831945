"""What a call tries next: pauses, limits, the next target, and that every plan ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.settings import ForwardSettings
from agentstate.steps.cooldown import Cooldowns
from agentstate.steps.failures import Failure, Kind
from agentstate.steps.plan import PAUSE_FIRST_S, PAUSE_MAX_S, SPREAD, Next, Plan
from agentstate.steps.target import Target
from agentstate.wire.message import Origin

KINDS: tuple[Kind, ...] = get_args(Kind)
SERVER = Failure("server")
PASSING: tuple[Kind, ...] = ("connect", "timeout", "cut", "rate_limit", "server")
ORIGIN = Origin("http", "up.example", 80)


def target(name: str) -> Target:
    return Target(name, "m", ORIGIN, "/v1", False, None)


def make(
    names: str = "a",
    *,
    windows: Mapping[str, int] | None = None,
    cooldowns: Cooldowns | None = None,
    is_own_retry: bool = False,
    chance: float = 1.0,
    **settings: Any,
) -> Plan:
    """Make a plan with one target for each letter."""
    known = windows or {}
    return Plan(
        [target(name) for name in names],
        ForwardSettings(**settings),
        cooldowns or Cooldowns(after=1_000, rest_s=30),
        key_of=lambda target: target.provider,
        window_of=lambda target: known.get(target.provider),
        is_own_retry=is_own_retry,
        chance=lambda: chance,
    )


def play(plan: Plan, *failures: Failure | Kind, at_s: float = 0.0) -> str:
    """Let attempts fail one after the other; return the names of who was asked, in order."""
    asked = plan.first(at_s).target.provider
    for failure in failures:
        following = plan.after(Failure(failure) if isinstance(failure, str) else failure, at_s)
        if following is None:
            return asked + "."
        asked += following.target.provider
    return asked


def resting(*names: str) -> Cooldowns:
    cooldowns = Cooldowns(after=1, rest_s=30)
    for name in names:
        cooldowns.note_failure(name, 0.0)
    return cooldowns


# -- tries at one target


@pytest.mark.parametrize("kind", PASSING)
def test_what_may_pass_is_tried_again_as_often_as_is_set(kind: Kind) -> None:
    assert play(make(), *[kind] * 9) == "aaa."
    assert play(make(retries=5), *[kind] * 9) == "aaaaaa."
    assert play(make(retries=0), kind) == "a."


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(PASSING)))
def test_what_cannot_pass_is_not_tried_again(kind: Kind) -> None:
    assert play(make(), kind) == "a."


def test_a_client_that_repeats_by_itself_gets_one_try_of_each_target() -> None:
    assert play(make("abc", is_own_retry=True), *[SERVER] * 9) == "abc."


@pytest.mark.parametrize(
    ("kind", "says", "asked"),
    [("server", False, "ab"), ("rate_limit", False, "ab"), ("quota", True, "aaab"),
     ("request", True, "aaab"), ("request", False, "a.")],
)  # fmt: skip
def test_the_upstreams_own_word_goes_before(kind: Kind, says: bool, asked: str) -> None:
    failures = [Failure(kind, should_retry=says)] * (len(asked.rstrip(".")) - 1 or 1)

    assert play(make("ab"), *failures) == asked


# -- pauses


@pytest.mark.parametrize("chance", [0.0, 0.25, 1.0])
def test_a_pause_is_anywhere_below_a_limit_that_doubles(chance: float) -> None:
    plan = make(chance=chance, retries=8)
    plan.first(0.0)

    pauses = [following.pause_s for _ in range(8) if (following := plan.after(SERVER, 0.0))]

    limits = [PAUSE_FIRST_S, 1.0, 2.0, 4.0, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S]
    assert pauses == [limit * chance for limit in limits]


def test_the_next_target_begins_with_short_pauses_and_without_one() -> None:
    plan = make("ab", retries=3)
    plan.first(0.0)
    pauses = [following.pause_s for _ in range(7) if (following := plan.after(SERVER, 0.0))]

    assert pauses == [0.5, 1.0, 2.0, 0.0, 0.5, 1.0, 2.0]


@pytest.mark.parametrize(("chance", "pause_s"), [(0.0, 20.0), (0.5, 21.0), (1.0, 22.0)])
def test_a_pause_that_was_asked_for_is_kept_and_a_little_more(
    chance: float, pause_s: float
) -> None:
    plan = make(chance=chance)
    plan.first(0.0)

    following = plan.after(Failure("rate_limit", 20.0), 0.0)

    assert following is not None
    assert following.pause_s == pytest.approx(pause_s)


def test_who_may_be_asked_at_once_is_asked_at_once() -> None:
    plan = make()
    first = plan.first(0.0)

    assert plan.after(Failure("rate_limit", 0.0), 0.0) == Next(first.target, 0, 0.0)


@pytest.mark.parametrize("chance", [0.0, 1.0])
@pytest.mark.parametrize(("asked_s", "asked"), [(30.0, "aa"), (30.1, "ab"), (1e12, "ab"),
                                               (float("inf"), "ab")])  # fmt: skip
def test_of_a_longer_pause_than_is_set_the_next_target_is_tried(
    chance: float, asked_s: float, asked: str
) -> None:
    assert play(make("ab", chance=chance), Failure("rate_limit", asked_s)) == asked


def test_that_no_pause_may_be_asked_for_leaves_those_that_nobody_asked_for() -> None:
    plan = make("ab", retry_after_max_s=0.0)

    assert play(plan, "server", Failure("rate_limit", 0.1), "connect", "connect") == "aabbb"


def test_after_the_whole_time_no_target_is_tried_again_and_the_next_one_still_is() -> None:
    plan = make("ab", retry_total_s=60.0)
    assert plan.first(0.0).target.provider == "a"

    assert plan.after(SERVER, 59.5) == Next(target("a"), 0, 0.5)  # 59.5 + 0.5 is just in time
    following = plan.after(SERVER, 59.5)  # 59.5 + 1.0 is not
    assert following == Next(target("b"), 1, 0.0)
    assert plan.after(SERVER, 61.0) is None


def test_the_whole_time_counts_from_the_first_attempt() -> None:
    """Before it a call may have waited for a person."""
    plan = make(retry_total_s=60.0)
    first = plan.first(1_000.0)

    assert plan.after(SERVER, 1_059.5) == Next(first.target, 0, 0.5)
    assert plan.after(SERVER, 1_060.0) is None


# -- the next target


def test_targets_are_tried_in_their_order_each_as_often_as_is_set() -> None:
    assert play(make("abc", retries=1), *[SERVER] * 9) == "aabbcc."


@pytest.mark.parametrize("kind", ["quota", "context", "allowance"])
def test_what_another_target_may_do_better_goes_to_it_at_once(kind: Kind) -> None:
    assert play(make("ab"), kind) == "ab"


def test_what_is_wrong_with_the_request_is_wrong_everywhere() -> None:
    assert play(make("abc"), "request") == "a."


def test_a_fallback_may_refuse_a_request_for_reasons_of_its_own() -> None:
    assert play(make("abc"), "quota", "request", "request") == "abc."


def test_a_filter_is_final_unless_the_setting_says_otherwise() -> None:
    assert play(make("ab"), "filter") == "a."
    assert play(make("ab", fallback_on_filter=True), "filter", "filter") == "ab."
    assert play(make("abc"), "quota", "filter") == "abc"  # of a fallback it says nothing


def test_only_a_larger_window_helps_a_request_that_does_not_fit() -> None:
    windows = {"a": 8_000, "b": 8_000, "c": 4_000, "d": 128_000, "e": 200_000}

    assert play(make("abcde", windows=windows), "context", "context", "context") == "ade."


def test_a_window_that_is_not_known_may_be_larger() -> None:
    assert play(make("abc", windows={"a": 8_000, "c": 8_000}), "context", "context") == "ab."
    assert play(make("abc", windows={"b": 8_000}), "context", "context") == "abc"


def test_a_request_that_once_did_not_fit_stays_too_long() -> None:
    windows = {"a": 8_000, "b": 128_000, "c": 4_000, "d": 200_000}

    assert play(make("abcd", windows=windows, retries=0), "context", "server") == "abd"


# -- targets that rest


def test_a_target_that_rests_is_passed_by() -> None:
    assert play(make("abc", cooldowns=resting("a"), retries=0), "server") == "bc"
    assert play(make("abc", cooldowns=resting("b"), retries=0), "server") == "ac"


def test_a_target_that_rests_is_tried_when_nothing_else_is_left() -> None:
    plan = make("abc", cooldowns=resting("a"), retries=0)

    assert play(plan, *[SERVER] * 4) == "bca."


def test_if_all_rest_they_are_tried_in_order_all_the_same() -> None:
    plan = make("abc", cooldowns=resting("a", "b", "c"), retries=0)

    assert play(plan, *[SERVER] * 4) == "abc."


def test_a_single_target_is_never_left_out() -> None:
    assert play(make(cooldowns=resting("a")), "server") == "aa"


def test_failures_of_a_target_make_it_rest_for_other_calls() -> None:
    cooldowns = Cooldowns(after=3, rest_s=30)
    for _ in range(2):
        play(make("ab", cooldowns=cooldowns), *[SERVER] * 3)
    assert make("ab", cooldowns=cooldowns).first(1.0).index == 0, "a call counts once"

    play(make("ab", cooldowns=cooldowns), *[SERVER] * 3)
    first = make("ab", cooldowns=cooldowns).first(1.0)
    assert (first.index, [target.provider for target in first.passed_by]) == (1, ["a"])
    assert make("ab", cooldowns=cooldowns).first(30.0).index == 0


@pytest.mark.parametrize("kind", ["context", "allowance", "filter", "request"])
def test_what_is_the_requests_fault_lets_no_target_rest(kind: Kind) -> None:
    cooldowns = Cooldowns(after=1, rest_s=30)
    play(make("ab", cooldowns=cooldowns), kind)

    assert make("ab", cooldowns=cooldowns).first(1.0).index == 0


def test_a_target_that_asks_for_a_long_pause_rests_for_it_at_once() -> None:
    cooldowns = Cooldowns(after=3, rest_s=30)
    play(make("ab", cooldowns=cooldowns), Failure("rate_limit", 100.0))

    assert make("ab", cooldowns=cooldowns).first(99.0).index == 1
    assert make("ab", cooldowns=cooldowns).first(100.0).index == 0


def test_a_short_pause_that_is_asked_for_is_no_reason_to_rest() -> None:
    cooldowns = Cooldowns(after=3, rest_s=30)
    play(make("ab", cooldowns=cooldowns), Failure("rate_limit", 30.0))

    assert make("ab", cooldowns=cooldowns).first(1.0).index == 0


def test_one_call_finds_out_whether_a_target_is_well_again() -> None:
    cooldowns = resting("a")
    finder = make("ab", cooldowns=cooldowns)

    assert finder.first(30.0).index == 0
    assert make("ab", cooldowns=cooldowns).first(30.0).index == 1
    finder.succeeded()
    assert make("ab", cooldowns=cooldowns).first(30.0).index == 0


def test_a_call_that_was_given_up_leaves_the_finding_out_to_the_next() -> None:
    cooldowns = resting("a")
    finder = make("ab", cooldowns=cooldowns)
    assert finder.first(30.0).index == 0

    finder.abandoned()

    assert make("ab", cooldowns=cooldowns).first(30.0).index == 0


# -- what is left


def test_a_plan_knows_whether_anything_is_left() -> None:
    plan = make("ab", retries=1)
    seen: list[tuple[bool, bool]] = []
    plan.first(0.0)
    for _ in range(4):
        seen.append((plan.has_more, plan.has_others))
        plan.after(SERVER, 0.0)

    assert seen == [(True, True), (True, True), (True, False), (False, False)]


def test_another_try_at_the_same_target_is_no_other_target() -> None:
    """An answer that a filter emptied is given up only for the sake of another target."""
    plan = make("a", retries=2, fallback_on_filter=True)
    plan.first(0.0)

    assert plan.has_more
    assert not plan.has_others


# -- any sequence of failures

failures = st.builds(
    Failure,
    st.sampled_from(KINDS),
    st.none() | st.floats(0, 100) | st.just(float("inf")),
    st.none() | st.booleans(),
)


@dataclass(frozen=True)
class World:
    """What a plan is made of, and what happens to it."""

    plan: Plan
    windows: Mapping[str, int]
    retries: int
    cap_s: float
    steps: Sequence[tuple[Failure, float]]  # (why, how long it took), over and over


@st.composite
def worlds(draw: st.DrawFn) -> World:
    names = "abcdefgh"[: draw(st.integers(1, 8))]
    windows = draw(st.dictionaries(st.sampled_from(names), st.integers(1, 5)))
    retries = draw(st.integers(0, 4))
    cap_s = draw(st.sampled_from((0.0, 0.5, 30.0)))
    steps = draw(st.lists(st.tuples(failures, st.floats(0, 40)), min_size=1, max_size=8))
    chances = cycle(draw(st.lists(st.floats(0, 1), min_size=1, max_size=3)))
    plan = Plan(
        [target(name) for name in names],
        ForwardSettings(
            retries=retries,
            retry_after_max_s=cap_s,
            fallback_on_filter=draw(st.booleans()),
        ),
        resting(*draw(st.sets(st.sampled_from(names)))),
        key_of=lambda target: target.provider,
        window_of=lambda target: windows.get(target.provider),
        is_own_retry=draw(st.booleans()),
        chance=lambda: next(chances),
    )
    return World(plan, windows, retries, cap_s, steps)


@given(worlds())
def test_every_plan_ends_within_its_limits(world: World) -> None:
    now_s, plan = 0.0, world.plan
    current: Next | None = plan.first(now_s)
    asked: Counter[int] = Counter()
    runs: list[int] = []  # indexes, one for each target in a row
    too_small = 0  # the largest window the request is known not to fit into
    for failure, took_s in islice(cycle(world.steps), 8 * (4 + 1)):
        if current is None:
            break
        name = current.target.provider
        assert current.target == target("abcdefgh"[current.index])
        assert world.windows.get(name, 99) > too_small or runs[-1] == current.index
        asked[current.index] += 1
        if not runs or runs[-1] != current.index:
            runs.append(current.index)
        if failure.kind == "context":
            too_small = max(too_small, world.windows.get(name, 0))
        now_s += took_s
        had_more = plan.has_more
        following = plan.after(failure, now_s)
        assert had_more or following is None
        if following is not None and following.index == current.index:
            assert failure.may_pass
            assert now_s + following.pause_s <= 60.0
            if failure.retry_after_s is None:
                assert 0 <= following.pause_s <= PAUSE_MAX_S
            else:
                assert failure.retry_after_s <= following.pause_s <= world.cap_s * (1 + SPREAD)
        elif following is not None:
            assert following.pause_s == 0
        now_s += following.pause_s if following else 0.0
        current = following

    assert current is None, "it ended"
    assert max(asked.values()) <= world.retries + 1
    assert len(runs) == len(set(runs)), "each target once in a row"
