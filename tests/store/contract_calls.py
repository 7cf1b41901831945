"""What any store must do for tool calls on record and recovery; see `contract.py`, whose makers it
uses.

A backend subclasses `CallContract` beside `StoreContract`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentstate.ground.calls import Calling, Standing
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import Place, Weight
from agentstate.ground.records import RequestRecord
from agentstate.store.base import Store
from tests.store.contract import (
    START_MS,
    MakeStore,
    answer_of,
    answered,
    checkpoint_of,
    claim_of,
    message,
    request_of,
    run,
)
from tests.store.contract_gate import MENDED, ODD, question_of, rejection_of

LATEST = (2**62, 2**62)
LONG = json.dumps({"text": "a text that is long enough to be quoted from the answer"})


def calls_of(*names: str, arguments: str = "{}") -> tuple[tuple[int, ToolCall], ...]:
    """Make calls of the first choice."""
    return tuple(
        (0, ToolCall(at, f"call_{name}", name, arguments)) for at, name in enumerate(names)
    )


async def called(store: Store, text: str = "hi", *names: str, **changes: Any) -> tuple[int, int]:
    """Record a step whose answer calls these tools; return the ids of step and answer."""
    made = changes.pop("tool_calls", None) or calls_of(*(names or ("send",)))
    content = json.dumps({"calls": [call.arguments for _, call in made]}).encode()
    claimed = await store.claim_step(claim_of(text, **changes))
    checkpoint = checkpoint_of(claimed.step_id, tool_calls=made, answer=answer_of(content))
    return claimed.step_id, await store.record_answer(checkpoint)


async def callings_of(store: Store, session: str = "s") -> tuple[Calling, ...]:
    """Read all of a session."""
    return await store.list_callings(session, (0, 0), 1000)


class CallContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    def test_a_new_record_has_no_calls(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            assert await callings_of(store) == ()
            assert await store.list_callings("s", LATEST, 9, newest_first=True) == ()
            assert (await store.read_growth("s", (1,), -1, 9)).is_all
            assert await store.list_requests("s", "openai_chat", -1, 9) == ()
            assert await store.read_standing("s", 9) == Standing(0, 0, 0, None, (), Weight())

        run(make_store, scenario)

    # --- answers that call ------------------------------------------------------------------

    def test_an_answer_is_listed_with_its_calls(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "nothing")
            made = (
                (0, ToolCall(0, None, "a", LONG)),
                (0, ToolCall(1, ODD, "b", "\ud83d", "custom")),
                (2, ToolCall(0, "c", "d", "")),
            )
            step_id, answer_id = await called(
                store, "x", tool_calls=made, step_number=7, dialect="anthropic_messages"
            )
            (row,) = await callings_of(store)
            assert replace(row, place=1) == Calling(
                session="s",
                step_id=step_id,
                index=1,
                step_number=7,
                dialect="anthropic_messages",
                model="gpt-4o-mini-2024",
                answer_id=answer_id,
                answered_ms=START_MS + 1000,
                response_id="chatcmpl-1",
                root_id=answer_id,
                number=0,
                state="active",
                place=1,
                calls=(made[0], (0, replace(made[1][1], call_id=MENDED)), made[2]),
                approvals=(),
            )
            assert await store.read_messages((row.place,)) == (message("x"),)

        run(make_store, scenario)

    def test_answers_come_in_pages_both_ways(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for text in "abcd":
                await called(store, text)
                await answered(store, f"after {text}")
            await called(store, "other", session="other")
            first = await store.list_callings("s", (0, 0), 2)
            start = (first[-1].index, first[-1].answer_id)
            rest = await store.list_callings("s", (start[0], start[1] + 1), 9)
            assert [[row.index for row in rows] for rows in (first, rest)] == [[0, 2], [4, 6]]
            assert await store.list_callings("s", start, 1) == first[1:]
            back = await store.list_callings("s", start, 9, newest_first=True)
            assert back == first[::-1]
            last = await store.list_callings("s", LATEST, 1, newest_first=True)
            assert last == rest[1:]
            assert await store.list_callings("s", (1, 0), 9, last=2) == first[1:]
            assert await store.list_callings("s", (1, 0), 9, last=1) == ()
            down = await store.list_callings("s", LATEST, 9, last=4, newest_first=True)
            assert down == rest[::-1]

        run(make_store, scenario)

    def test_an_answer_says_how_it_stands(self, make_store: MakeStore) -> None:
        async def states(store: Store) -> list[str]:
            return [row.state for row in await callings_of(store)]

        async def scenario(store: Store) -> None:
            step_id, _ = await called(store)
            await store.claim_step(claim_of(step_id=step_id))
            assert await states(store) == ["active"]
            await store.record_answer(checkpoint_of(step_id, tool_calls=calls_of("read")))
            assert await states(store) == ["replaced", "active"]
            await store.record_failure(step_id, (), failed_ms=START_MS)
            assert await states(store) == ["active", "taken_back"]
            await store.roll_back("s", Place(index=0), at_ms=START_MS)
            assert await states(store) == ["rolled_back", "rolled_back"]

        run(make_store, scenario)

    def test_a_round_stands_and_falls_with_its_root(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await called(store)
            checkpoint = checkpoint_of(step_id, tool_calls=calls_of("read"), response_id="r1")
            round_id = await store.record_round(checkpoint, root_id, 1)
            rows = await callings_of(store)
            assert [(row.answer_id, row.root_id, row.number) for row in rows] == [
                (root_id, root_id, 0), (round_id, root_id, 1)
            ]  # fmt: skip
            assert (rows[1].response_id, rows[1].state) == ("r1", "active")
            await store.claim_step(claim_of(step_id=step_id))
            await store.record_answer(checkpoint_of(step_id))
            assert [row.state for row in await callings_of(store)] == ["replaced", "replaced"]

        run(make_store, scenario)

    def test_questions_come_with_their_answer(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, answer_id = await called(store)
            (one,) = await store.open_approvals(
                step_id, answer_id, (question_of(),), at_ms=START_MS
            )
            decided = await store.decide(one.approval_id, rejection_of(), at_ms=START_MS)
            # Of an answer that calls nothing but in its text.
            spelling = await answered(store, "text")
            row = await store.find_step("s", spelling.index)
            assert row is not None
            asked = question_of(kind="text", tool="send", arguments="ann", position=2)
            await store.open_approvals(row.step_id, row.answer_id, (asked,), at_ms=START_MS)
            native, spelled = await callings_of(store)
            assert native.approvals == (decided,)
            assert spelled.calls == ()
            assert spelled.all_calls() == ((0, ToolCall(2, None, "send", "ann", "text")),)
            assert spelled.approval_of(*spelled.all_calls()[0]) == spelled.approvals[0]

        run(make_store, scenario)

    # --- how requests grow ------------------------------------------------------------------

    def test_requests_grow_out_of_one_another(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for texts in ("a", "abc", "ab", "abd", "x"):
                await called(store, texts, request=request_of(*map(message, texts)))
            rows = await callings_of(store)
            growth = await store.read_growth("s", (rows[0].place,), 0, 9)

            async def below(place: int) -> list[str]:
                read = await store.read_messages(tuple(growth.below.get(place, ())))
                return sorted(str(each["content"]) for each in read)  # type: ignore[index, call-overload]

            a, abc, ab, abd, x = (row.place for row in rows)
            assert await below(a) == ["b"]
            assert await below(ab) == ["c", "d"]
            assert (await below(abc), growth.above[abc], growth.above[abd]) == ([], ab, ab)
            assert growth.asked == {a: [0], abc: [1], ab: [2], abd: [3], x: [4]}
            assert growth.numbers == dict(enumerate(range(5)))
            assert growth.first_after(ab, 0) == 2
            assert growth.first_after(ab, 2) == 3
            assert growth.first_after(abd, 3) is None

        run(make_store, scenario)

    def test_growth_is_read_as_far_as_it_is_asked_for(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for texts in ("a", "ab", "a", "abc", "ax"):
                await called(store, texts, request=request_of(*map(message, texts)))
            place = (await callings_of(store))[0].place
            growth = await store.read_growth("s", (place,), 0, 2)
            assert growth.asked[place] == [0, 2]  # also those asked at the place before
            assert (len(growth.below[place]), growth.is_all) == (1, False)
            whole = await store.read_growth("s", (place,), 2, 3)
            assert (len(whole.below[place]), whole.is_all) == (2, True)

        run(make_store, scenario)

    def test_a_long_way_down_is_found(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            texts = [str(number) for number in range(200)]
            await called(store, "top", request=request_of(message("0")))
            await called(store, "deep", request=request_of(*map(message, texts)))
            for number in range(100):  # more than are walked up together
                await called(store, f"b{number}", request=request_of(message(f"b{number}")))
            place = (await callings_of(store))[0].place
            growth = await store.read_growth("s", (place,), 0, 1000)
            for _ in range(199):
                (place,) = growth.below[place]
            assert growth.asked[place] == [1]

        run(make_store, scenario)

    def test_a_request_without_a_list_grows_from_the_first_messages(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            bare = RequestRecord({"model": "m", "input": "hi"}, (), "", ())
            await called(store, "bare", request=bare)
            await called(store, "a", request=request_of(message("a")))
            first, row = await callings_of(store)
            growth = await store.read_growth("s", (0,), 0, 9)
            assert (first.place, growth.below[0]) == (0, [row.place])
            assert growth.asked == {row.place: [1]}

        run(make_store, scenario)

    def test_requests_of_a_dialect_are_listed(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await store.claim_step(claim_of("a", dialect="openai_responses", step_number=4))
            await answered(store, "b")
            bare = RequestRecord({"input": "x", "previous_response_id": "r"}, (), "", ())
            await answered(store, "c", dialect="openai_responses", request=bare)
            first, last = await store.list_requests("s", "openai_responses", -1, 9)
            envelope: JSON = {"model": "gpt-4o-mini", "messages": None}
            assert (first.index, first.step_number, first.envelope) == (0, 4, envelope)
            assert await store.read_messages((first.place,)) == (message("a"),)
            assert (last.index, last.place, last.envelope) == (2, 0, bare.envelope)
            assert await store.list_requests("s", "openai_responses", 0, 1) == (last,)

        run(make_store, scenario)

    # --- where a session stands -------------------------------------------------------------

    def test_a_session_stands_where_its_first_step_without_an_answer_is(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            for text in "ab":
                await answered(store, text)
            failing = await store.claim_step(claim_of("c"))
            await store.record_failure(failing.step_id, (), failed_ms=START_MS)
            await answered(store, "d")
            await store.claim_step(claim_of("e", step_number=9))
            await answered(store, "elsewhere", session="other")
            standing = await store.read_standing("s", 9)
            assert standing == Standing(
                steps=5,
                answered=3,
                prefix=2,
                last_index=3,
                open=((2, 2, "failed"), (4, 9, "in_flight")),
                saves=Weight(3, 30, 12, 75, 0),
            )
            assert (await store.read_standing("s", 1)).open == standing.open[:1]

        run(make_store, scenario)

    def test_what_was_rolled_back_or_taken_back_saves_nothing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            first, second = [await answered(store, text) for text in "ab"]
            await answered(store, "c")
            await store.roll_back("s", Place(index=2), at_ms=START_MS)
            await store.record_failure(second.step_id, (), failed_ms=START_MS)
            standing = await store.read_standing("s", 9)
            assert (standing.steps, standing.answered, standing.last_index) == (2, 1, 0)
            assert standing.open == ((1, 1, "failed"),)
            assert standing.saves == Weight(1, 10, 4, 25, 0)
            # A refresh in flight: the answer before it stands.
            await store.claim_step(claim_of("a", step_id=first.step_id))
            standing = await store.read_standing("s", 9)
            assert (standing.answered, standing.open[0][0]) == (1, 1)

        run(make_store, scenario)

    def test_rounds_and_unknown_prices_count(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await called(store)
            asked = (question_of(), question_of(position=1))
            for one in await store.open_approvals(step_id, root_id, asked, at_ms=START_MS):
                await store.decide(one.approval_id, rejection_of(), at_ms=START_MS)
            for number, cost in ((1, 25), (2, None)):
                checkpoint = checkpoint_of(step_id, cost_microusd=cost)
                await store.record_round(checkpoint, root_id, number)
            assert (await store.read_standing("s", 9)).saves == Weight(1, 30, 12, 50, 1)
            await store.claim_step(claim_of(step_id=step_id))
            await store.record_answer(checkpoint_of(step_id))
            assert (await store.read_standing("s", 9)).saves == Weight(1, 10, 4, 25, 0)

        run(make_store, scenario)
