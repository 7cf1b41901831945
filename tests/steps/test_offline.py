"""Offline a call is answered by the record or by nobody, and is told what it came near to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agentstate.dialects import dialect_for_path
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.errors import OfflineMiss
from agentstate.ground.meters import Meters
from agentstate.steps.identify import Caller, Sought, identify, read_scope
from agentstate.steps.ladder import Hit, Ladder, Sky
from agentstate.steps.offline import Nowhere, Offline, Unanswered
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from agentstate.wire.message import Headers
from tests.house.tapes import CHAT, call, chat, said, user


class Alone:
    """A sky with nothing in it."""

    is_awaited = True


SKY = cast(Sky, Alone())


def sought(*messages: JSON, run_id: str | None = "new", **changes: Any) -> Sought:
    fields: dict[str, JSON] = changes.pop("fields", {})
    body: dict[str, JSON] = {"model": "gpt-4o", "messages": list(messages), **fields}
    dialect = dialect_for_path("/chat/completions")
    assert dialect is not None
    ask = dialect.read_ask(parse(encode(body)))
    scope = read_scope(dialect, CHAT, "", None, Headers())
    identity, record = identify(dialect, scope, encode(body), ask, lambda text: text)
    replay = changes.pop("replay", "pinned")
    caller = Caller(
        session=changes.pop("session", "s"),
        step_number=changes.pop("step_number", None),
        run_id=run_id,
        call_id=None,
        is_retry=False,
        replay=replay,
        cancels_on_disconnect=False,
    )
    assert not changes
    chain = tuple(part.digest for part in record.chain)
    return Sought(dialect, caller, identity, ask, chain, goes_to_mock=True)


def play(scenario: Callable[[Store, Offline], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.open()
        await scenario(store, Offline(store, Ladder(store, Meters())))

    asyncio.run(main())


async def told(offline: Offline, asked: Sought) -> str:
    """Ask for what nothing answers; return what is said."""
    found = await offline.answer(asked, SKY)
    assert isinstance(found, Unanswered)
    assert not found.error.retry_helps
    return found.error.message


def test_an_equal_call_gets_the_last_answer_again_and_that_is_counted() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        for text in ("one", "two"):
            await chat(store, user("a"), answer=text, run_id="old")

        found = await offline.answer(sought(user("a")), SKY)

        assert isinstance(found, Hit)
        assert (found.candidate.index, found.rung, offline.repeated_count) == (1, "exact", 1)
        assert offline.missed == []

    play(scenario)


@pytest.mark.parametrize("mode", ["refresh", "off"])
def test_who_asks_anew_is_not_answered_from_the_record(mode: str) -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        await chat(store, user("a"))
        assert f"x-agent-replay is {mode}" in await told(offline, sought(user("a"), replay=mode))

    play(scenario)


def test_the_nearest_step_is_the_one_that_shares_most() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        await chat(store, user("a"), answer="one")
        await chat(store, user("a"), said("one"), user("b"), answer="two")
        await chat(store, user("x"), said("y"), user("z"), answer="three")

        message = await told(offline, sought(user("a"), said("one"), user("B")))

        assert "nearest recorded step is 1, which differs at messages[2].content" in message
        [missed] = offline.missed
        assert missed.near is not None
        assert (missed.near.sent, missed.near.recorded) == ("B", "b")
        assert offline.missed_count == 1

    play(scenario)


def test_a_step_of_another_length_may_be_the_nearest() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        await chat(store, user("a"), answer="one")
        message = await told(offline, sought(user("a"), said("one"), user("more")))
        assert "nearest recorded step is 0, which differs at messages[1]" in message

    play(scenario)


def test_a_clock_and_a_result_are_no_reason_where_something_else_is() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        def asked(hour: int, question: str) -> list[JSON]:
            clock: JSON = {"role": "system", "content": f"It is {hour}:00."}
            result: JSON = {"role": "tool", "tool_call_id": "1", "content": f"at {hour}"}
            return [clock, result, user(question)]

        await chat(store, *asked(11, "a"))
        assert "differs at messages[2].content" in await told(offline, sought(*asked(12, "b")))
        assert "differs at messages[0].content" in await told(offline, sought(*asked(12, "a")))

    play(scenario)


def test_what_was_taken_out_as_a_secret_is_no_difference() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        await chat(store, user("use [secret:openai_key] now"), fields={"n": 1})

        message = await told(offline, sought(user("use sk-1234 now"), fields={"n": 2}))
        assert "differs at n" in message
        # Where nothing else differs it can only be that.
        message = await told(offline, sought(user("use sk-1234 now"), fields={"n": 1}))
        assert "differs at messages[0].content" in message
        assert "sk-1234" not in message

    play(scenario)


def test_a_session_that_is_not_there_is_told_which_are() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        await chat(store, user("a"))
        message = await told(offline, sought(user("a"), session="t"))
        assert "no session 't' on record; there is 's'" in message

    play(scenario)


def test_nothing_like_it_is_said_too() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        body: dict[str, JSON] = {"model": "e", "input": "x"}
        await call(store, body, b'{"data":[{"embedding":[1]}]}', path="/v1/embeddings")
        assert "no recorded step is like it" in await told(offline, sought(user("a")))

    play(scenario)


def test_what_could_only_be_sent_on_is_noted() -> None:
    async def scenario(store: Store, offline: Offline) -> None:
        error = offline.refuse("GET /v1/files", "it is not recorded")
        assert "nothing is sent anywhere, and GET /v1/files would be" in error.message
        assert [each.what for each in offline.missed] == ["GET /v1/files"]

    play(scenario)


def test_the_last_transport_sends_nothing() -> None:
    async def main() -> None:
        nowhere = Nowhere()
        nowhere.warm(cast(Any, None), cast(Any, None))
        with pytest.raises(OfflineMiss):
            await nowhere.send(cast(Any, None), cast(Any, None))
        await nowhere.close()

    asyncio.run(main())
