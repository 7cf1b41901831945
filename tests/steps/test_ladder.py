"""What answers a call that looks for itself on record and in the air, rung by rung.

The choices by themselves are in `test_replay.py`; here are the looking up, and who gets what when
several look at once. A clock in a prompt stands for all that masked forgives, a tool result for all
that pinned does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from agentstate.ground.clock import now_ms
from agentstate.ground.meters import Meters
from agentstate.ground.records import Candidate, Checkpoint, Claim, Claimed
from agentstate.ground.settings import ForwardSettings
from agentstate.steps.ladder import MOMENTS_AHEAD_MS_MAX, Ladder
from agentstate.store.base import Key
from agentstate.store.memory import MemoryStore
from agentstate.wire.message import Pair, Response
from tests.steps.scene import FakeExchange, FakeRequest, Scene, body_of, header, play

TOOL_CALL = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
ASKED = {"role": "user", "content": "look"}


def told(minute: int) -> dict[str, Any]:
    """Make a system prompt that tells the time."""
    return {"role": "system", "content": f"It is {datetime.now(UTC):%Y-%m-%d} 10:{minute:02}."}


def found(what: str) -> list[dict[str, Any]]:
    """Make a conversation whose tool has answered."""
    return [ASKED, CALLING, {"role": "tool", "tool_call_id": "t1", "content": what}]


def request(*messages: dict[str, Any], retries: int = 0, **headers: str) -> FakeRequest:
    """Make a call; header names are written with underscores, without `x-agent-`."""
    pairs: list[Pair] = [(b"x-agent-session-id", b"s"), (b"authorization", b"Bearer sk-x")]
    for name, value in headers.items():
        pairs.append((f"x-agent-{name.replace('_', '-')}".encode(), value.encode()))
    if retries:
        pairs.append((b"x-stainless-retry-count", b"%d" % retries))
    return FakeRequest(pairs, json.dumps({"model": "m", "messages": messages}).encode())


class Model:
    """An upstream whose answers a test gives when it likes; calls a tool where it is asked to."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.waiting: list[FakeExchange] = []
        scene.transport.on_call = self._take

    @property
    def calls(self) -> int:
        """How many calls have come."""
        return len(self._scene.transport.calls)

    async def _take(self, number: int) -> FakeExchange:
        exchange = FakeExchange(200, b"application/json")
        body = self._scene.transport.calls[number].body
        assert isinstance(body, bytes)
        if json.loads(body)["messages"][-1] == ASKED:
            message = {**CALLING}
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
            exchange.give(body_of("", choices=[choice]), None)
        else:
            self.waiting.append(exchange)
        return exchange

    def answer(self) -> None:
        """Answer all that waits, each otherwise."""
        for exchange in self.waiting:
            exchange.give(body_of(f"answer to {id(exchange)}"), None)
        self.waiting.clear()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(100):
        await asyncio.sleep(0)


def begin(scene: Scene, asking: FakeRequest) -> asyncio.Task[Response]:
    """Send a call and do not wait for its answer."""
    return scene.tasks.start(scene.ask(asking), "a client")


async def ask(scene: Scene, model: Model, asking: FakeRequest) -> Response:
    """Make a call whose answer comes at once, if it is asked for."""
    sent = begin(scene, asking)
    await settle()
    model.answer()
    return await sent


async def die_waiting(scene: Scene, *asking: FakeRequest) -> None:
    """Send calls, and leave while they are in the air."""
    for each in asking:
        begin(scene, each)
    await settle()
    for each in asking:
        each.leave()
    await settle()


def hits(responses: Iterable[Response]) -> list[str | None]:
    """Return which rungs the responses came from."""
    return [header(each, "x-agentstate-replay") for each in responses]


# --- taken over -----------------------------------------------------------------------------------


def test_a_call_of_a_dead_agent_answers_its_next_lives_whatever_the_clock_says() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        await die_waiting(scene, request(told(1), run_id="a"))

        second = await ask(scene, model, request(told(2), run_id="b"))
        third = await ask(scene, model, request(told(3), run_id="c"))

        assert model.calls == 1
        assert hits([second, third]) == ["joined", "masked"]
        assert second.body == third.body

    play(scenario)


@pytest.mark.parametrize("number", [{}, {"step_number": "4"}], ids=["nothing", "number"])
def test_a_call_of_a_dead_agent_answers_its_next_lives_whatever_the_tool_says(
    number: dict[str, Any],
) -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        await ask(scene, model, request(ASKED, **number))
        await die_waiting(scene, request(*found("one"), **number))

        again = await scene.ask(request(ASKED, **number))
        second = await ask(scene, model, request(*found("two"), **number))
        await scene.ask(request(ASKED, **number))
        third = await ask(scene, model, request(*found("three"), **number))

        assert model.calls == 2
        assert hits([again, second, third]) == ["exact", "joined", "pinned"]
        assert second.body == third.body

    play(scenario)


def test_a_call_somebody_waits_for_is_not_taken_over() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        first = begin(scene, request(told(1), run_id="a"))
        await settle()

        second = await ask(scene, model, request(told(2), run_id="b"))

        assert model.calls == 2
        assert second.body != (await first).body

    play(scenario)


@pytest.mark.parametrize("minute", [1, 2], ids=["equal", "drifted"])
def test_a_retry_of_a_call_that_took_another_over_finds_it(minute: int) -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        await die_waiting(scene, request(told(1), run_id="a", call_id="a1"))
        first = begin(scene, request(told(minute), run_id="b", call_id="b1"))
        await settle()

        retry = begin(scene, request(told(minute), run_id="b", call_id="b1", retries=1))
        await settle()
        model.answer()

        assert hits([await first, await retry]) == ["joined", "joined"]
        assert model.calls == 1
        late = await ask(scene, model, request(told(minute), run_id="b", call_id="b1", retries=2))
        assert late.body == (await first).body
        assert model.calls == 1

    play(scenario)


def test_each_call_in_the_air_answers_one_call_of_a_later_run() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        dying = [request(told(n), run_id="a", call_id=f"a{n}") for n in range(2)]
        await die_waiting(scene, *dying)

        asking = [
            begin(scene, request(told(5), run_id="b", call_id=f"b{number}")) for number in range(3)
        ]
        await settle()
        calls = model.calls
        model.answer()
        answers = [await each for each in asking]

        assert calls == 3
        assert sorted(map(str, hits(answers))) == ["None", "joined", "joined"]
        assert len({each.body for each in answers}) == 3

    play(scenario)


def test_a_step_that_was_taken_over_is_not_given_to_its_run_again_as_it_lands() -> None:
    async def scenario(scene: Scene) -> None:
        model, is_written = Model(scene), asyncio.Event()
        record_answer, find_candidates = scene.store.record_answer, scene.store.find_candidates

        async def record_and_tell(checkpoint: Checkpoint) -> None:
            await record_answer(checkpoint)
            is_written.set()

        async def find_late(session: str, key: Key, value: bytes) -> tuple[Candidate, ...]:
            if key == "exact":
                await is_written.wait()
            return await find_candidates(session, key, value)

        await die_waiting(scene, request(told(1), run_id="a", call_id="a1"))
        over = begin(scene, request(told(1), run_id="b", call_id="b1"))
        await settle()
        # It looks for itself just when the other is there, and before that one has heard of it.
        scene.store.record_answer = record_and_tell  # type: ignore[method-assign]
        scene.store.find_candidates = find_late  # type: ignore[method-assign]
        other = begin(scene, request(told(1), run_id="b", call_id="b2"))
        await settle()
        model.answer()
        first = await over
        model.answer()

        assert first.body != (await other).body
        assert model.calls == 2

    play(scenario)


def test_an_equal_call_in_the_air_goes_before_one_that_is_not_quite() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        sibling = await ask(scene, model, request(told(1), run_id="a", call_id="a1"))
        await die_waiting(scene, request(told(2), run_id="a", call_id="a2"))

        own = begin(scene, request(told(2), run_id="b", call_id="b2"))
        theirs = await ask(scene, model, request(told(1), run_id="b", call_id="b1"))

        assert hits([await own, theirs]) == ["joined", "exact"]
        assert theirs.body == sibling.body
        assert model.calls == 2

    play(scenario)


def test_an_agent_that_died_before_its_call_was_claimed_is_waited_for() -> None:
    async def scenario(scene: Scene) -> None:
        model, may_claim = Model(scene), asyncio.Event()
        claim_step = scene.store.claim_step

        async def claim_late(claim: Claim) -> Claimed:
            await may_claim.wait()
            return await claim_step(claim)

        scene.store.claim_step = claim_late  # type: ignore[method-assign]
        await die_waiting(scene, request(told(1), run_id="a"))
        second = begin(scene, request(told(2), run_id="b"))
        await settle()
        may_claim.set()
        await settle()
        model.answer()

        assert hits([await second]) == ["joined"]
        assert model.calls == 1

    play(scenario)


def test_a_call_counts_from_its_arrival_however_late_it_is_claimed() -> None:
    """Its agent died, and the next life had its first answer before there was a row."""

    async def scenario(scene: Scene) -> None:
        model, may_find = Model(scene), asyncio.Event()
        find_candidates = scene.store.find_candidates

        async def find_late(session: str, key: Key, value: bytes) -> tuple[Candidate, ...]:
            if key == "pinned":
                await may_find.wait()
            return await find_candidates(session, key, value)

        await ask(scene, model, request(ASKED))
        scene.store.find_candidates = find_late  # type: ignore[method-assign]
        await die_waiting(scene, request(*found("one")))
        await scene.ask(request(ASKED))
        second = begin(scene, request(*found("two")))
        await settle()
        may_find.set()
        await settle()
        model.answer()

        assert hits([await second]) == ["joined"]
        assert model.calls == 2

    play(scenario)


def test_two_dead_calls_do_not_wait_for_each_other() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        dying = [request(told(n), run_id="a", call_id=f"a{n}") for n in range(2)]
        asking = [begin(scene, each) for each in dying]
        await asyncio.sleep(0)  # they are on their way and have no rows yet
        for each in dying:
            each.leave()
        await settle()
        model.answer()

        assert {answer.status for answer in await asyncio.gather(*asking)} == {200}

    play(scenario)


# --- who was served -------------------------------------------------------------------------------


def test_lives_that_follow_within_a_millisecond_are_told_apart() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        bodies = set()
        for life in range(20):
            await ask(scene, model, request(ASKED))
            answer = await ask(scene, model, request(*found(f"result {life}")))
            bodies.add(answer.body)

        assert model.calls == 2
        assert len(bodies) == 1

    play(scenario)


def test_a_result_rewritten_after_a_life_that_was_all_replays_is_a_new_call() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        await ask(scene, model, request(ASKED))
        for _ in range(50):  # replays in the same few milliseconds
            await ask(scene, model, request(ASKED))
        first = await ask(scene, model, request(*found("pending")))

        second = await ask(scene, model, request(*found("done")))

        assert hits([first, second]) == [None, None]
        assert first.body != second.body

    play(scenario)


@pytest.mark.parametrize("what", ["one", "two"], ids=["equal", "drifted"])
def test_a_client_that_has_left_is_not_served(what: str) -> None:
    """What a dead agent asked may be looked at after its next life has begun."""

    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        await ask(scene, model, request(ASKED))
        first = await ask(scene, model, request(*found("one")))
        await ask(scene, model, request(ASKED))
        dead = request(*found(what))
        dead.leave()
        await scene.ask(dead)

        alive = await ask(scene, model, request(*found("three")))

        assert hits([alive]) == ["pinned"]
        assert alive.body == first.body

    play(scenario)


@pytest.mark.parametrize("run", [{}, {"run_id": "b"}], ids=["nothing", "run"])
def test_a_retry_finds_what_was_given_before_that_is_on_record(run: dict[str, Any]) -> None:
    async def scenario(scene: Scene) -> None:
        model, may_write = Model(scene), asyncio.Event()
        record_alias = scene.store.record_alias

        async def record_late(session: str, exact: bytes, step_id: int) -> None:
            await may_write.wait()
            await record_alias(session, exact, step_id)

        scene.store.record_alias = record_late  # type: ignore[method-assign]
        before: dict[str, Any] = {"run_id": "a"} if run else {}
        await ask(scene, model, request(ASKED, **before))
        recorded = await ask(scene, model, request(*found("one"), **before))
        await ask(scene, model, request(ASKED, **run))
        first = begin(scene, request(*found("two"), **run))
        await settle()

        retry = begin(scene, request(*found("two"), retries=1, **run))
        await settle()
        may_write.set()

        answers = [await first, await retry]
        assert hits(answers) == ["pinned", "pinned"]
        assert {each.body for each in answers} == {recorded.body}
        assert model.calls == 2

    play(scenario)


def test_a_step_counts_as_given_once_its_retry_would_find_it() -> None:
    """If the process died in between, the retry would be taken for a call that comes after."""

    async def scenario(scene: Scene) -> None:
        model, may_write = Model(scene), asyncio.Event()
        record_alias = scene.store.record_alias

        async def record_late(session: str, exact: bytes, step_id: int) -> None:
            await may_write.wait()
            await record_alias(session, exact, step_id)

        scene.store.record_alias = record_late  # type: ignore[method-assign]
        await ask(scene, model, request(ASKED))
        await ask(scene, model, request(*found("one")))
        await scene.ask(request(ASKED))
        first = begin(scene, request(*found("two")))
        await settle()
        before = await scene.store.find_step("s", 1)
        second = begin(scene, request(*found("three")))
        await settle()
        may_write.set()
        await settle()
        model.answer()
        other = await second
        after = await scene.store.find_step("s", 1)

        assert before is not None
        assert after is not None
        assert (before.replays, after.replays) == (0, 1)
        assert hits([await first, other]) == ["pinned", None]

    play(scenario)


def test_a_client_that_leaves_while_it_is_given_a_step_has_not_got_it() -> None:
    async def scenario(scene: Scene) -> None:
        model, may_write = Model(scene), asyncio.Event()
        record_alias = scene.store.record_alias

        async def record_late(session: str, exact: bytes, step_id: int) -> None:
            await may_write.wait()
            await record_alias(session, exact, step_id)

        scene.store.record_alias = record_late  # type: ignore[method-assign]
        await ask(scene, model, request(ASKED))
        recorded = await ask(scene, model, request(*found("one")))
        await scene.ask(request(ASKED))
        dying = request(*found("two"))
        first = begin(scene, dying)
        await settle()
        dying.leave()
        await scene.ask(request(ASKED))
        second = begin(scene, request(*found("three")))
        await settle()
        may_write.set()

        await first
        assert hits([await second]) == ["pinned"]
        assert (await second).body == recorded.body
        assert model.calls == 2

    play(scenario)


def test_a_step_that_failed_is_not_filled_with_an_answer_that_came_later() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        failing = begin(scene, request(told(1), run_id="a", call_id="a0"))
        await settle()
        model.waiting.pop().give(b"no answer", None)
        assert (await failing).status == 502

        async def sample(run: str, count: int) -> list[Any]:
            return [
                (await ask(scene, model, request(told(1), run_id=run, call_id=f"{run}{n}"))).body
                for n in range(1, count + 1)
            ]

        first = await sample("a", 2)
        second = await sample("b", 3)
        third = await sample("c", 3)

        assert second[:2] == first
        assert third == second

    play(scenario, forward=ForwardSettings(retries=0))


# --- moments --------------------------------------------------------------------------------------


def test_moments_of_a_session_grow_and_stay_near_the_clock() -> None:
    ladder = Ladder(MemoryStore(), Meters())

    few = [ladder.moment("s") for _ in range(MOMENTS_AHEAD_MS_MAX // 2)]
    many = [ladder.moment("s") for _ in range(20 * MOMENTS_AHEAD_MS_MAX)]

    assert few == sorted(set(few))
    assert many == sorted(many)
    assert many[-1] <= now_ms() + MOMENTS_AHEAD_MS_MAX
    assert ladder.moment("other") <= now_ms()
