"""What the benchmark makes of an agent that is killed again and again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.chat import Usage
from agentstate.house.bench_crash import GUARDED, KILLS, Life, Outcome, Thinker, compare, read_usage
from agentstate.house.bench_stand import BenchFailed
from agentstate.house.bench_table import Table
from agentstate.house.demo_agent import SEARCH
from agentstate.house.demo_peers import Said

LATENCY_MS = 40


def answer(step: int, replay: str | None) -> dict[str, Any]:
    return {"step": step, "replay": replay, "input_tokens": 100, "output_tokens": 10}


def life(steps: int, replayed: int, back_s: float = 1.0) -> Life:
    answers = [answer(step, "exact" if step < replayed else None) for step in range(steps)]
    return Life(back_s, 2.0, answers, [(1, GUARDED)] if steps > 1 else [])


def outcome(replayed: int, *, held: frozenset[int] = frozenset(), paid: Usage) -> Outcome:
    lives = [life(3, 0), *(life(3, replayed, 0.25) for _ in range(KILLS - 1)), life(4, replayed)]
    return Outcome(tuple(lives), paid, held, len(held))


WITHOUT = outcome(0, paid=Usage(KILLS * 300 + 400, KILLS * 30 + 40))
WITH = outcome(3, held=frozenset({1}), paid=Usage(400, 40))


def figures(table: Table, what: str) -> dict[str, float]:
    [line] = [line for line in table.lines if what in line.what]
    return dict(line.figures)


def test_the_guarded_tool_is_the_one_of_the_agent() -> None:
    assert SEARCH["function"]["name"] == GUARDED


def test_what_was_paid_again_is_all_that_one_life_does_not_need() -> None:
    table = compare(WITHOUT, WITH, LATENCY_MS)
    assert figures(table, "tokens paid again") == {"direct_tokens": 330.0, "ours_tokens": 0.0}
    money = figures(table, "money")
    # 300 tokens in and 30 out at the list price of gpt-4o: 2.50 and 10 dollars a million.
    assert money == {"direct_usd": pytest.approx(0.00105), "ours_usd": 0.0}


def test_a_kill_is_survived_where_no_answered_step_is_asked_again() -> None:
    table = compare(WITHOUT, WITH, LATENCY_MS)
    assert figures(table, "survived") == {"direct_kills": 0, "ours_kills": KILLS}
    forgetful = replace(WITH, lives=(*WITH.lives[:-1], life(4, 2)))
    assert figures(compare(WITHOUT, forgetful, LATENCY_MS), "survived")["ours_kills"] == KILLS - 1


def test_a_call_that_came_unasked_is_not_counted_as_held() -> None:
    assert figures(compare(WITHOUT, WITH, LATENCY_MS), "held")["ours_calls"] == 1
    leaky = replace(WITH, held=frozenset())
    table = compare(WITHOUT, leaky, LATENCY_MS)
    assert figures(table, "held")["ours_calls"] == 0
    [line] = [line for line in table.lines if "held" in line.what]
    assert line.is_met is False


def test_recovery_is_the_median_of_the_lives_after_a_kill() -> None:
    assert figures(compare(WITHOUT, WITH, LATENCY_MS), "back")["ours_s"] == 0.25


@pytest.mark.parametrize("streams", [False, True])
def test_the_model_counts_what_its_answers_cost(streams: bool) -> None:
    thinker = Thinker(0.0)
    body: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
    if streams:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    for _ in range(2):
        thinker.reply("/v1/chat/completions", json.dumps(body).encode(), lambda _: "")
    assert thinker.count == 2
    assert thinker.paid.input_tokens > 0
    assert thinker.paid.output_tokens > 0
    assert thinker.paid.output_tokens % 2 == 0


def test_an_answer_without_usage_ends_the_measurement() -> None:
    with pytest.raises(BenchFailed, match="what it cost"):
        read_usage(Said(200, "application/json", (b"{}",)))
