"""The overview: sums that add up, slots without gaps, and one count for many pages."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agentstate.doors.api.overview import MODELS_MAX, overview_json
from agentstate.ground.clock import now_ms
from agentstate.ground.overview import (
    AnswerCount,
    Counts,
    Saving,
    SlotCount,
    Span,
    ToolCount,
)
from tests.helpers.desk import Desk
from tests.store.contract import checkpoint_of, claim_of

SPAN = Span(1000, 3001, 1000)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


def get(desk: Desk, query: str = "") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(desk.url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", f"/api/overview{query}")
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def answers(slot_ms: int, latency_ms: int, count: int, model: str = "m") -> AnswerCount:
    return AnswerCount(slot_ms, "p", model, latency_ms, count, 10 * count, count, 0, 5 * count, 0)


def test_sums_slots_and_percentiles() -> None:
    counts = Counts(
        answers=(answers(1000, 100, 9), answers(1000, 900, 1), answers(3000, 200, 10)),
        failed=(SlotCount(2000, 2),),
        fallbacks=(SlotCount(3000, 1),),
        first_ms=(SlotCount(30, 3), SlotCount(70, 1)),
        savings=(Saving(2000, 4, 40, 400),),
        tools=(ToolCount("find", 7),),
    )

    found: Any = overview_json(SPAN, counts)

    totals = found["totals"]
    assert (totals["calls"], totals["input_tokens"], totals["cost_microusd"]) == (20, 200, 100)
    assert (totals["latency_p50_ms"], totals["latency_p99_ms"]) == (200, 900)
    assert (totals["first_content_p50_ms"], totals["first_content_p95_ms"]) == (30, 70)
    assert (totals["failed"], totals["fallbacks"], totals["saved_ms"]) == (2, 1, 400)
    slots = found["slots"]
    assert [slot["at_ms"] for slot in slots] == [1000, 2000, 3000]
    assert [slot["calls"] for slot in slots] == [10, 0, 10]
    assert [slot["latency_p50_ms"] for slot in slots] == [100, None, 200]
    assert [slot["failed"] for slot in slots] == [0, 2, 0]
    assert [slot["replays"] for slot in slots] == [0, 4, 0]
    assert found["tools"] == [{"name": "find", "calls": 7}]


def test_models_beyond_a_number_are_one_row() -> None:
    rows = tuple(answers(1000, 1, 100 - number, f"m{number}") for number in range(MODELS_MAX + 2))
    found: Any = overview_json(SPAN, Counts(answers=rows))
    models = found["models"]
    assert [row["model"] for row in models[:2]] == ["m0", "m1"]
    assert len(models) == MODELS_MAX + 1
    assert (models[-1]["model"], models[-1]["provider"]) == (None, None)
    assert sum(row["calls"] for row in models) == found["totals"]["calls"]


@pytest.mark.parametrize("name", ["1h", "24h", "7d", "30d", "all"])
def test_each_range_ends_now_and_sees_what_just_came(desk: Desk, name: str) -> None:
    at_ms = now_ms()
    claimed = desk.run(desk.store.claim_step(claim_of("a", created_ms=at_ms)))
    desk.run(desk.store.record_answer(replace(checkpoint_of(claimed.step_id), answered_ms=at_ms)))

    status, found = get(desk, f"?range={name}")

    assert status == 200
    assert (found["range"], found["totals"]["calls"]) == (name, 1)
    assert found["slots"][-1]["calls"] == 1
    assert found["slots"][0]["at_ms"] == found["since_ms"]


def test_a_record_with_nothing_on_it_has_an_overview(desk: Desk) -> None:
    status, found = get(desk, "?range=all")
    assert status == 200
    assert found["totals"]["calls"] == 0
    assert found["totals"]["latency_p50_ms"] is None


def test_an_odd_range_is_refused(desk: Desk) -> None:
    status, found = get(desk, "?range=year")
    assert status == 400
    assert "range must be one of 1h, 24h, 7d, 30d, all" in found["error"]["message"]


def test_the_same_question_soon_after_is_not_counted_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    count = desk.store.count_between

    async def counting(span: Span) -> Counts:
        counted.append(span)
        return await count(span)

    monkeypatch.setattr(desk.store, "count_between", counting)
    for _ in range(3):
        get(desk, "?range=7d")
    get(desk, "?range=1h")
    assert len(counted) == 2
