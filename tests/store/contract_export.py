"""What any store must do for export; see `contract.py`, whose makers it uses.

A backend subclasses `ExportContract` beside `StoreContract`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.canonical import JSON
from agentstate.ground.control import Place
from agentstate.ground.errors import BadRequest
from agentstate.ground.forks import ForkAsk
from agentstate.ground.lineage import PLACES_MAX, Lineage
from agentstate.ground.records import Query, RequestRecord
from agentstate.store.base import LIST_LIMIT_MAX, Store
from tests.store.contract import (
    START_MS,
    MakeStore,
    answered,
    checkpoint_of,
    claim_of,
    message,
    request_of,
    run,
    tail_of,
)
from tests.store.contract_gate import approval_of, decided, question_of, rejection_of
from tests.store.contract_revisions import revised

ODD, MENDED = "resp \ud83d", "resp \ufffd"


async def step_of(store: Store, *texts: str, **changes: Any) -> int:
    """Record a whole step that was asked with these messages; return its id."""
    request = request_of(*map(message, texts))
    claimed = await answered(store, ascii(texts), **({"request": request} | changes))
    return claimed.step_id


async def lineage_of(store: Store, session: str = "s") -> tuple[Lineage, ...]:
    """Read all of a session."""
    return await store.list_lineage(session, -1, 1000)


async def texts_at(store: Store, place: int) -> list[JSON]:
    """Return the messages that a place names."""
    places = (place, *await store.list_places(place, 1000)) if place else ()
    return [each["content"] for each in await store.read_messages(places[::-1])]  # type: ignore[index, call-overload]


class ExportContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- sessions ---------------------------------------------------------------------------

    def test_sessions_come_in_the_order_they_were_seen(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for name in ("b", "a", "c", "b"):
                await answered(store, session=name)
            page = await store.walk_sessions(None, 2)
            assert [row.session for row in page.rows] == ["b", "a"]
            # Whatever becomes active meanwhile.
            await answered(store, "more", session="a", created_ms=START_MS + 999)
            last = await store.walk_sessions(page.next_cursor, 2)
            assert [row.session for row in last.rows] == ["c"]
            assert last.next_cursor is None
            rows = {row.session: row for row in (await store.list_sessions(Query())).rows}
            assert (last.rows[0], rows["b"].steps) == (rows["c"], 2)

        run(make_store, scenario)

    def test_an_odd_page_of_sessions_is_refused(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for after, limit in ((None, 0), (None, LIST_LIMIT_MAX + 1), ("odd", 1)):
                with pytest.raises(BadRequest):
                    await store.walk_sessions(after, limit)

        run(make_store, scenario)

    # --- where steps stand ------------------------------------------------------------------

    def test_a_new_record_has_no_lineage(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            assert (await store.walk_sessions(None, 1)).rows == ()
            assert await lineage_of(store) == ()
            assert await store.list_answers(1) == ()

        run(make_store, scenario)

    def test_a_step_is_listed_with_what_is_known_of_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            shared: dict[str, JSON] = {"tools": [{"name": "t"}]}
            claim = claim_of(
                dialect="anthropic_messages",
                is_mock=True,
                request=request_of(message("a"), shared=shared),
            )
            claimed = await store.claim_step(claim)
            checkpoint = checkpoint_of(claimed.step_id, finish_reason="length", response_id=ODD)
            answer_id = await store.record_answer(checkpoint)
            (row,) = await lineage_of(store)
            assert replace(row, place=1, envelope_id=1) == Lineage(
                step_id=claimed.step_id,
                index=0,
                dialect="anthropic_messages",
                is_mock=True,
                is_rolled_back=False,
                answer_id=answer_id,
                is_taken_back=False,
                provider="openai",
                finish_reason="length",
                cost_microusd=25,
                response_ids=(MENDED,),
                is_waiting=False,
                is_decided=False,
                is_touched=False,
                is_edited=False,
                envelope_id=1,
                envelope={"model": "gpt-4o-mini", "messages": None, "tools": None},
                place=1,
                above=(),
            )
            assert await texts_at(store, row.place) == ["a"]

        run(make_store, scenario)

    def test_steps_come_by_index_in_pages_and_those_without_an_answer_not_at_all(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await step_of(store, "a")
            await store.claim_step(claim_of("in the air"))
            await step_of(store, "b")
            await step_of(store, "c", session="other")
            await step_of(store, "d")
            first = await store.list_lineage("s", -1, 2)
            rest = await store.list_lineage("s", first[-1].index, 2)
            assert [[row.index for row in page] for page in (first, rest)] == [[0, 2], [3]]
            assert await store.list_lineage("s", 3, 2) == ()
            assert await lineage_of(store, "nobody") == ()

        run(make_store, scenario)

    def test_requests_that_begin_alike_share_places(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await step_of(store, "a", "b")
            await step_of(store, "a", "b", "c", "d")
            await step_of(store, "a", "x")
            await step_of(store, "a", "b", session="other")
            one, long, other = await lineage_of(store)
            assert one.above[0] == other.above[0]
            assert one.place != other.place
            assert long.above[1:] == (one.place, *one.above)
            assert await texts_at(store, long.place) == ["a", "b", "c", "d"]
            assert await texts_at(store, long.above[0]) == ["a", "b", "c"]
            (twin,) = await lineage_of(store, "other")
            assert twin.place == one.place

        run(make_store, scenario)

    def test_a_long_way_up_is_read_in_pieces(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await step_of(store, *map(str, range(PLACES_MAX + 5)))
            (row,) = await lineage_of(store)
            assert len(row.above) == PLACES_MAX
            more = await store.list_places(row.above[-1], 3)
            rest = await store.list_places(more[-1], 3)
            assert (len(more), len(rest)) == (3, 1)
            assert await store.list_places(rest[-1], 3) == ()
            assert await store.list_places(row.place, 1000) == (*row.above, *more, *rest)

        run(make_store, scenario)

    def test_a_request_without_a_list_has_no_place(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            request = RequestRecord({"model": "m", "input": "hi"}, (), "", ())
            await answered(store, request=request)
            (row,) = await lineage_of(store)
            assert (row.place, row.above, row.envelope) == (0, (), request.envelope)

        run(make_store, scenario)

    def test_envelopes_are_equal_where_all_but_the_messages_is(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            tools: dict[str, JSON] = {"tools": [1]}
            others: dict[str, JSON] = {"tools": [2]}
            for text, shared in (("a", tools), ("b", tools), ("a", others)):
                await answered(store, request=request_of(message(text), shared=shared))
            one, same, other = [row.envelope_id for row in await lineage_of(store)]
            assert one == same != other

        run(make_store, scenario)

    def test_messages_come_back_as_they_went_in(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await step_of(store, "a")
            # After an answer it is packed with it.
            await step_of(store, "a", "hello \ud83d\u2028")
            _, row = await lineage_of(store)
            read = await store.read_messages((row.place, *row.above, row.place))
            assert read == (message("hello \ud83d\u2028"), message("a"), read[0])
            assert await store.read_messages(()) == ()

        run(make_store, scenario)

    # --- answers ----------------------------------------------------------------------------

    def test_an_answer_that_was_taken_back_is_shown_as_one(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id = await step_of(store, "a")
            await store.record_failure(step_id, (), failed_ms=START_MS)
            (row,) = await lineage_of(store)
            assert row.is_taken_back
            assert await store.list_answers(step_id) == ()

        run(make_store, scenario)

    def test_a_step_that_was_rolled_back_is_shown_as_one(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for text in ("a", "b"):
                await step_of(store, text)
            await store.roll_back("s", Place(index=1), at_ms=START_MS)
            assert [row.is_rolled_back for row in await lineage_of(store)] == [False, True]

        run(make_store, scenario)

    def test_answers_of_a_step_are_listed_without_its_rounds(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            approval = await decided(store, rejection_of())
            root_id, step_id = approval.answer_id, approval.step_id
            assert root_id is not None
            await store.record_round(checkpoint_of(step_id, response_id="r1"), root_id, 1)
            await store.claim_step(claim_of(step_id=step_id))
            new_id = await store.record_answer(checkpoint_of(step_id, response_id="new"))
            assert await store.list_answers(step_id) == (root_id, new_id)
            (row,) = await lineage_of(store)
            assert (row.answer_id, row.response_ids) == (new_id, ("new",))

        run(make_store, scenario)

    def test_the_ids_of_rounds_are_the_steps_too(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            approval = await decided(store, rejection_of())
            assert approval.answer_id is not None
            for number, response_id in ((1, "r1"), (2, None)):
                checkpoint = checkpoint_of(approval.step_id, response_id=response_id)
                await store.record_round(checkpoint, approval.answer_id, number)
            (row,) = await lineage_of(store)
            assert row.response_ids == ("chatcmpl-1", "r1")

        run(make_store, scenario)

    def test_usage_that_came_late_counts(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id = await step_of(store, "a")
            usage = checkpoint_of(step_id).usage
            await store.append_tail(tail_of(step_id, usage=usage, cost_microusd=None))
            (row,) = await lineage_of(store)
            assert row.cost_microusd is None

        run(make_store, scenario)

    # --- decisions --------------------------------------------------------------------------

    def test_what_was_decided_about_an_answer_is_told(self, make_store: MakeStore) -> None:
        async def told(store: Store) -> tuple[bool, bool, bool]:
            row = (await lineage_of(store))[0]
            return row.is_waiting, row.is_decided, row.is_touched

        async def scenario(store: Store) -> None:
            step_id = await step_of(store, "a")
            answer_id = (await lineage_of(store))[0].answer_id

            async def ask(at: int, answer_id: int | None = answer_id, **changes: Any) -> str:
                question = question_of(str(at), position=at, **changes)
                (one,) = await store.open_approvals(step_id, answer_id, (question,), at_ms=START_MS)
                return one.approval_id

            # About a further release, and about a request that has no answer yet: nothing.
            await ask(9, generation=1)
            await ask(0, None, kind="request")
            assert await told(store) == (False, False, False)
            quiet = await ask(1, is_quiet=True)
            assert await told(store) == (True, False, False)
            await store.decide(quiet, rejection_of(by="rule"), at_ms=START_MS)
            assert await told(store) == (False, True, False)
            loud = await ask(2)
            assert await told(store) == (True, True, False)
            await store.decide(loud, approval_of(), at_ms=START_MS)
            assert await told(store) == (False, True, True)

        run(make_store, scenario)

    def test_what_was_decided_about_a_round_is_the_steps_too(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id = await step_of(store, "a")
            answer_id = (await lineage_of(store))[0].answer_id
            round_id = await store.record_round(checkpoint_of(step_id), answer_id, 1)
            await store.open_approvals(step_id, round_id, (question_of(),), at_ms=START_MS)
            (row,) = await lineage_of(store)
            assert (row.is_waiting, row.is_decided) == (True, False)

        run(make_store, scenario)

    def test_an_answer_that_a_person_wrote_is_told_while_it_stands(
        self, make_store: MakeStore
    ) -> None:
        async def told(store: Store, session: str = "s") -> list[bool]:
            return [row.is_edited for row in await lineage_of(store, session)]

        async def scenario(store: Store) -> None:
            for text in ("a", "b"):
                await step_of(store, text)
            await revised(store, "new", 1)
            assert await told(store) == [False, True]
            assert [row.is_touched for row in await lineage_of(store)] == [False, False]
            await store.fork_session("s", ForkAsk(session="t"), at_ms=START_MS)
            assert await told(store, "t") == [False, True]
            await revised(store, "asked again", 1, kind="rerun")
            assert await told(store) == [False, False]
            await store.restore("s", None, at_ms=START_MS)
            assert await told(store) == [False, True]
            assert await told(store, "t") == [False, True]

        run(make_store, scenario)
