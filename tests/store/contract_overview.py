"""What any store must do for the dashboard; see `contract.py`, whose makers it uses.

A backend subclasses `OverviewContract` beside `StoreContract`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.chat import ToolCall, Usage
from agentstate.ground.control import Change, Place
from agentstate.ground.overview import (
    AnswerCount,
    Counts,
    Mark,
    Saving,
    SlotCount,
    Span,
    ToolCount,
)
from agentstate.store.base import Store
from tests.store.contract import (
    START_MS,
    MakeStore,
    answered,
    attempt_of,
    checkpoint_of,
    claim_of,
    note_of,
    run,
    tail_of,
)
from tests.store.contract_gate import question_of

HOUR_MS = 3_600_000
SLOT_MS = START_MS // HOUR_MS * HOUR_MS
DAY = Span(SLOT_MS - 12 * HOUR_MS, SLOT_MS + 12 * HOUR_MS, HOUR_MS)
TOLD_S = 5.0


async def step_of(store: Store, text: str, **changes: Any) -> int:
    """Record a step whose checkpoint is changed; return its id."""
    claimed = await store.claim_step(claim_of(text))
    await store.record_answer(replace(checkpoint_of(claimed.step_id), **changes))
    return claimed.step_id


def call_of(name: str, position: int = 0) -> tuple[int, ToolCall]:
    """Make a call of a tool."""
    return 0, ToolCall(position, f"call_{position}", name, "{}")


class OverviewContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- what changed -----------------------------------------------------------------------

    @pytest.mark.parametrize(
        "verb",
        [
            "claim", "answer", "tail", "failure", "replay", "approval", "decision", "roll back",
            "restore", "pause", "resume", "name", "tag", "no tag", "status",
        ],
    )  # fmt: skip
    def test_who_watches_is_told_of_what_is_written(self, make_store: MakeStore, verb: str) -> None:
        async def scenario(store: Store) -> None:
            other = await answered(store, "x", session="other")
            mine = await answered(store, "a")
            answer_id = await store.record_answer(checkpoint_of(mine.step_id))
            (held,) = await store.open_approvals(
                mine.step_id, answer_id, (question_of(),), at_ms=START_MS
            )
            await store.change_session("s", Change(tags=(("old", "1"),)), at_ms=START_MS)
            await store.roll_back("s", Place(index=1), at_ms=START_MS)
            begun = await store.claim_step(claim_of("b"))
            verbs: dict[str, Callable[[], Awaitable[object]]] = {
                "claim": lambda: store.claim_step(claim_of("c")),
                "answer": lambda: store.record_answer(checkpoint_of(begun.step_id)),
                "tail": lambda: store.append_tail(tail_of(mine.step_id, usage=Usage(1, 2))),
                "failure": lambda: store.record_failure(begun.step_id, (), failed_ms=START_MS),
                "replay": lambda: _replay(store, mine.step_id),
                "approval": lambda: store.open_approvals(
                    begun.step_id, None, (question_of(kind="request"),), at_ms=START_MS
                ),
                "decision": lambda: store.decide(
                    held.approval_id, Decision(True, "ann"), at_ms=START_MS
                ),
                "roll back": lambda: store.roll_back("s", Place(index=0), at_ms=START_MS),
                "restore": lambda: _restored(store),
                "pause": lambda: store.pause("s", at_ms=START_MS),
                "resume": lambda: _resumed(store),
                "name": lambda: store.change_session("s", Change(name="n"), at_ms=START_MS),
                "tag": lambda: store.change_session("s", Change(tags=(("k", "v"),)), at_ms=1),
                "no tag": lambda: store.change_session("s", Change(tags=(("old", None),)), at_ms=1),
                "status": lambda: store.change_session("s", Change("COMPLETED"), at_ms=START_MS),
            }
            await asyncio.sleep(0)  # what was written before has been told
            told: set[str] = set()
            is_told = asyncio.Event()

            def tell(sessions: frozenset[str]) -> None:
                told.update(sessions)
                is_told.set()

            store.watch(tell)
            await verbs[verb]()
            await asyncio.wait_for(is_told.wait(), TOLD_S)
            assert told == {"s"}
            told.clear()
            store.note_replay(note_of(other.step_id, session="other"))
            await store.read_session("other")
            await asyncio.sleep(0)
            assert "other" in told

        run(make_store, scenario)

    # --- marks ------------------------------------------------------------------------------

    def test_a_mark_has_tries_targets_and_tools(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await step_of(store, "a")
            again = attempt_of(error_code="upstream_error", status=500)
            await step_of(store, "b", attempts=(again, again, attempt_of()))
            calls = tuple(call_of(f"tool_{number}", number) for number in range(6))
            fell = (attempt_of(status=500, error_code="upstream_error"), attempt_of(model="rescue"))
            await step_of(store, "c", attempts=fell, tool_calls=calls)
            await store.claim_step(claim_of("d"))

            names = ("tool_0", "tool_1", "tool_2", "tool_3")
            assert await store.list_marks("s", 0, 9) == (
                Mark(0, 1, None, (), 0),
                Mark(1, 3, None, (), 0),
                Mark(2, 2, "openai/gpt-4o-mini", names, 6),
                Mark(3, 0, None, (), 0),
            )
            assert [mark.index for mark in await store.list_marks("s", 1, 2)] == [1, 2]
            assert await store.list_marks("none", 0, 9) == ()

        run(make_store, scenario)

    # --- sums over time ---------------------------------------------------------------------

    def test_nothing_counts_as_nothing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            assert await store.count_between(DAY) == Counts()
            assert await store.find_first() is None

        run(make_store, scenario)

    def test_answers_are_counted_by_slot_model_and_latency(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await step_of(store, "a", latency_ms=951, first_content_ms=203)
            await step_of(
                store, "b", latency_ms=954, cost_microusd=None, tool_calls=(call_of("t"),)
            )
            await step_of(store, "c", answered_ms=SLOT_MS - 1, model="other", usage=None)
            outside = DAY.until_ms
            await step_of(store, "d", answered_ms=outside, tool_calls=(call_of("late"),))
            gone = await store.claim_step(claim_of("e"))
            await store.record_answer(checkpoint_of(gone.step_id))
            await store.record_failure(gone.step_id, (), failed_ms=START_MS)

            found = await store.count_between(DAY)

            before = SLOT_MS - HOUR_MS
            assert found.answers == (
                AnswerCount(before, "openai", "other", 950, 1, 0, 0, 0, 25, 0),
                AnswerCount(SLOT_MS, "openai", "gpt-4o-mini-2024", 950, 2, 20, 8, 4, 25, 1),
            )
            assert found.first_ms == (SlotCount(200, 1),)
            assert found.tools == (ToolCount("t", 1),)
            assert found.failed == (SlotCount(SLOT_MS, 1),)
            assert await store.find_first() == START_MS

        run(make_store, scenario)

    def test_fallbacks_are_steps_with_several_targets(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            fell = attempt_of(error_code="upstream_error", status=500)
            await step_of(store, "a", attempts=(fell, attempt_of()))
            await step_of(
                store, "b", attempts=(fell, attempt_of(provider="x"), attempt_of(model="y"))
            )

            found = await store.count_between(DAY)

            assert found.fallbacks == (SlotCount(SLOT_MS, 1),)

        run(make_store, scenario)

    def test_what_replays_saved_is_summed_by_slot(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            for at_ms in (START_MS, START_MS + HOUR_MS):
                store.note_replay(note_of(claimed.step_id, replayed_ms=at_ms))
                await store.keep_replays()
            store.note_replay(note_of(claimed.step_id, replayed_ms=START_MS + HOUR_MS))
            store.note_replay(note_of(claimed.step_id, replayed_ms=DAY.until_ms))
            await store.keep_replays()

            found = await store.count_between(DAY)

            assert found.savings[0] == Saving(SLOT_MS, 1, 25, 950)

        run(make_store, scenario)

    def test_replays_that_were_only_noted_are_counted(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            store.note_replay(note_of(claimed.step_id, replayed_ms=START_MS))
            store.note_replay(note_of(99, replayed_ms=START_MS, saved_microusd=0))  # of a step gone

            found = await store.count_between(DAY)

            assert found.savings == (Saving(SLOT_MS, 2, 25, 950),)

        run(make_store, scenario)

    def test_the_most_called_tools_come_first(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for number in range(22):
                calls = tuple(call_of(f"t{name:02}", name) for name in range(number + 1))
                await step_of(store, str(number), tool_calls=calls)

            found = (await store.count_between(DAY)).tools

            assert found[:2] == (ToolCount("t00", 22), ToolCount("t01", 21))
            assert len(found) == 20

        run(make_store, scenario)


async def _replay(store: Store, step_id: int) -> None:
    store.note_replay(note_of(step_id))
    await store.keep_replays()


async def _restored(store: Store) -> None:
    await store.roll_back("s", Place(index=0), at_ms=START_MS)
    await store.restore("s", None, at_ms=START_MS)


async def _resumed(store: Store) -> None:
    await store.pause("s", at_ms=START_MS)
    await store.resume("s", at_ms=START_MS)
