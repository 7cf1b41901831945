"""Agents that die and start over: what was paid comes again, and nothing comes that should not.

First at random: agents live through the real proxy before a model that never answers twice alike
(`Ledger`), in each way of naming calls, while agents, and then agents and proxy, are killed at
random points. What must hold is what the way of naming can promise: see `promises.py`. Then by
example: what is a new question although it looks like an old one, and what is not.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.agents import (
    ALL_WAYS,
    CONSTANT_NUMBER,
    NOTHING,
    RUN_AND_CALL_IDS,
    RUN_IDS,
    STEP_NUMBERS,
    TOOL,
    Agent,
    Drift,
    Heard,
    Ledger,
    Ways,
    call_model,
    haunted,
    random_plan,
    request_bytes,
)
from tests.helpers.promises import faults_of
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection
from tests.helpers.upstream import Gate

pytestmark = pytest.mark.slow

SEED = 87
AGENTS_PER_DRIFT = 2
LIVES_MAX = 4
DEATHS_MAX = 4  # of the proxy, in one test

DRIFTS = (
    Drift(),
    Drift(clock=True),
    Drift(tools=True),
    Drift(clock=True, tools=True, ids=True),
)


# --- lives ----------------------------------------------------------------------------------------


def draw_agents(proxy: Proxy, ways: Ways, chance: random.Random) -> list[Agent]:
    """Draw some agents for each way in which an agent may drift."""
    agents = []
    for drift in DRIFTS:
        for number in range(AGENTS_PER_DRIFT):
            session = f"{ways.name}-{drift.name}-{number}"
            plan = random_plan(chance, session, ways, drift)
            agents.append(Agent(proxy.address, plan, ways, drift, chance.getrandbits(32)))
    return agents


async def live_and_die(agents: Sequence[Agent], chance: random.Random) -> None:
    """Have each agent die at random moments, and then live through once."""

    async def fate(agent: Agent, lives: Sequence[float]) -> None:
        for dies_after_s in lives:
            await agent.live(dies_after_s=dies_after_s)
        assert await agent.live()

    await asyncio.gather(
        *(
            fate(agent, [chance.uniform(0.02, 0.4) for _ in range(chance.randrange(1, LIVES_MAX))])
            for agent in agents
        )
    )


async def live_once_more(agents: Sequence[Agent]) -> None:
    """Have all agents live through to the end of their plans."""
    await asyncio.gather(*(agent.live() for agent in agents))


@pytest.mark.parametrize("ways", ALL_WAYS, ids=lambda ways: ways.name)
def test_agents_that_die_pay_no_step_twice(ways: Ways, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} {ways.name}")
    with (
        Ledger(SEED, thinking_s=0.03) as ledger,
        Proxy(upstream_url=ledger.url, db=tmp_path / "record.db") as proxy,
    ):
        agents = draw_agents(proxy, ways, chance)
        asyncio.run(live_and_die(agents, chance))
        asyncio.run(live_once_more(agents))

        faults = [
            str(fault)
            for agent in agents
            for fault in faults_of(agent, ledger, proxy, proxy_dies=False)
        ]
    assert faults == [], "\n".join(faults)


@pytest.mark.parametrize("ways", ALL_WAYS, ids=lambda ways: ways.name)
def test_agents_and_a_proxy_that_die_pay_no_finished_step_twice(ways: Ways, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} {ways.name} haunted")

    async def live(proxy: Proxy, ledger: Ledger, agents: list[Agent]) -> int:
        async with haunted(proxy, chance, ledger=ledger, deaths_max=DEATHS_MAX) as deaths:
            await live_and_die(agents, chance)
        await live_once_more(agents)
        return len(deaths)

    with (
        Ledger(SEED, thinking_s=0.03, faults=0.05) as ledger,
        Proxy(upstream_url=ledger.url, db=tmp_path / "record.db") as proxy,
    ):
        agents = draw_agents(proxy, ways, chance)
        deaths = asyncio.run(live(proxy, ledger, agents))
        faults = [
            str(fault)
            for agent in agents
            for fault in faults_of(agent, ledger, proxy, proxy_dies=True)
        ]
    assert deaths > 0
    assert faults == [], "\n".join(faults)


# --- by example -----------------------------------------------------------------------------------

SUB_AGENTS = 30
SYSTEM = {"role": "system", "content": "You are terse."}


class House:
    """A proxy before a ledger, and calls through it."""

    def __init__(self, ledger: Ledger, proxy: Proxy) -> None:
        self.ledger = ledger
        self.proxy = proxy
        self._calls = itertools.count()

    def request(
        self,
        session: str,
        messages: Sequence[dict[str, Any]],
        ways: Ways = NOTHING,
        *,
        life: str = "first",
        number: int = 0,
        **body: Any,
    ) -> bytes:
        """Make a request with the headers that this way of naming calls sends."""
        named: dict[str, str] = {}
        if ways.run_id:
            named["run-id"] = life
        if ways.call_id:
            named["call-id"] = f"call-{next(self._calls)}"
        if ways.number:
            named["step-number"] = str(number if ways.number == "each" else 1)
        return request_bytes(self.proxy.address, session, messages, named, **body)

    def ask(
        self, session: str, messages: Sequence[dict[str, Any]], ways: Ways = NOTHING, **how: Any
    ) -> Heard:
        """Ask something and get an answer; `how` as in `request`."""
        request = self.request(session, messages, ways, **how)
        return call_model(self.proxy.address, request)

    def paid_count(self, session: str) -> int:
        """Return how many requests of a session have reached the model."""
        return len(self.ledger.paid_by(session))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One proxy for all examples: each has a session of its own."""
    folder = tmp_path_factory.mktemp("house")
    with (
        Ledger(SEED, thinking_s=0.0, chunk_s=0.0) as ledger,
        Proxy(upstream_url=ledger.url, db=folder / "record.db") as proxy,
    ):
        yield House(ledger, proxy)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """Name a session after its test."""
    return str(request.node.name)


def question(session: str, text: str = "what now?") -> dict[str, Any]:
    """Make a question that tells the ledger whose it is."""
    return {"role": "user", "content": f"{session}/main: {text}"}


def result(heard: Heard, content: str) -> list[dict[str, Any]]:
    """Answer the tool call of an answer."""
    (made,) = heard.message["tool_calls"]
    return [heard.message, {"role": "tool", "tool_call_id": made["id"], "content": content}]


by_ways = pytest.mark.parametrize("ways", ALL_WAYS, ids=lambda ways: ways.name)


@by_ways
@pytest.mark.parametrize("what", ["uuid", "time"])
@pytest.mark.parametrize("where", ["system", "question"])
def test_sub_agents_that_differ_in_a_word_get_their_own_answers(
    house: House, session: str, ways: Ways, what: str, where: str
) -> None:
    now = datetime.now(UTC)

    def begin(number: int) -> list[dict[str, Any]]:
        own = str(uuid.UUID(int=number)) if what == "uuid" else str(now - timedelta(minutes=number))
        if where == "question":
            return [SYSTEM, question(session, f"Work on {own}.")]
        return [{"role": "system", "content": f"Your task is {own}."}, question(session)]

    def work(number: int) -> list[Heard]:
        messages = begin(number)
        heard = []
        for step in range(2):
            heard.append(house.ask(session, messages, ways, number=step))
            messages += [heard[-1].message, question(session, "and then?")]
        return heard

    before = len(house.ledger.received)
    house.ledger.gate = Gate()  # all are in the air at once
    with ThreadPoolExecutor(SUB_AGENTS) as pool:
        working = pool.map(work, range(SUB_AGENTS))
        house.ledger.wait_for_requests(before + SUB_AGENTS)
        house.ledger.gate.open(2 * SUB_AGENTS)
        heard = [each for both in working for each in both]
    house.ledger.gate = None

    assert len({each.name for each in heard}) == 2 * SUB_AGENTS
    assert {each.hit for each in heard} == {None}
    assert house.paid_count(session) == 2 * SUB_AGENTS


def test_a_late_sub_agent_is_not_taken_for_the_one_that_is_done(house: House, session: str) -> None:
    """Each numbers its own steps, so a number below the highest says little."""
    now = datetime.now(UTC)

    def begin(number: int) -> list[dict[str, Any]]:
        told = {"role": "system", "content": f"It is {now - timedelta(minutes=number)}."}
        return [told, question(session)]

    before = len(house.ledger.received)
    house.ledger.gate = gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(house.ask, session, begin(0), STEP_NUMBERS, number=0)
        house.ledger.wait_for_requests(before + 1)
        house.ledger.gate = None
        fast = house.ask(session, begin(1), STEP_NUMBERS, number=0)
        house.ask(session, [*begin(1), fast.message, question(session)], STEP_NUMBERS, number=1)

        late = house.ask(session, begin(2), STEP_NUMBERS, number=0)

        gate.open()
    assert late.hit is None
    assert len({slow.result().name, fast.name, late.name}) == 3


@by_ways
def test_a_tool_result_rewritten_in_place_is_a_new_call(
    house: House, session: str, ways: Ways
) -> None:
    messages = [SYSTEM, question(session)]
    called = house.ask(session, messages, ways, number=0, tools=[TOOL])

    heard = [
        house.ask(session, messages + result(called, status), ways, number=1, tools=[TOOL])
        for status in ("pending", "working", "done")
    ]

    assert [each.hit for each in heard] == [None, None, None]
    assert len({each.name for each in heard}) == 3


@by_ways
def test_a_poller_whose_conversation_grows_gets_fresh_answers(
    house: House, session: str, ways: Ways
) -> None:
    messages = [SYSTEM, question(session, "Wait until it is done.")]
    names = set()
    for step in range(5):
        heard = house.ask(session, messages, ways, number=2 * step, tools=[TOOL])
        messages += result(heard, "pending")
        said = house.ask(session, messages, ways, number=2 * step + 1, tools=[TOOL])
        messages += [said.message, question(session, "Go on.")]
        names |= {heard.name, said.name}

    assert len(names) == 10


SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
BODY: dict[str, Any] = {"temperature": 0.5, "tools": [TOOL], "seed": 1}
CHANGES: dict[str, dict[str, Any]] = {
    "model": {"model": "m2"},
    "temperature": {"temperature": 0.25},
    "tools": {"tools": [{**TOOL, "function": {**TOOL["function"], "strict": True}}]},
    "tool-choice": {"tool_choice": "none"},
    "schema": {"response_format": SCHEMA},
    "number-form": {"seed": 1.0},
    "unknown-field": {"vendor_field": {"a": 1}},
}
PRESENTATION: dict[str, dict[str, Any]] = {
    "stream": {"stream": True, "stream_options": {"include_usage": True}},
    "user": {"user": "somebody", "metadata": {"trace": "1"}, "safety_identifier": "x"},
    "routing": {"service_tier": "flex", "prompt_cache_key": "x", "store": True},
}


@by_ways
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_an_answer_makes_a_new_call(
    house: House, session: str, ways: Ways, change: str
) -> None:
    messages = [SYSTEM, question(session)]
    first = house.ask(session, messages, ways, **BODY)

    other = house.ask(session, messages, ways, life="second", **{**BODY, **CHANGES[change]})

    assert other.hit is None
    assert other.name != first.name
    assert house.ask(session, messages, ways, life="third", **BODY).name == first.name


@by_ways
@pytest.mark.parametrize("change", PRESENTATION)
def test_what_changes_no_answer_is_the_same_call(
    house: House, session: str, ways: Ways, change: str
) -> None:
    messages = [SYSTEM, question(session)]
    first = house.ask(session, messages, ways, **BODY)

    again = house.ask(session, messages, ways, life="second", **{**BODY, **PRESENTATION[change]})

    assert (again.hit, again.name) == ("exact", first.name)


@pytest.mark.parametrize("ways", [RUN_AND_CALL_IDS, RUN_IDS, STEP_NUMBERS], ids=lambda w: w.name)
def test_the_same_question_three_times_gets_three_answers_and_the_same_three_again(
    house: House, session: str, ways: Ways
) -> None:
    messages = [SYSTEM, question(session)]

    def sample(life: str, numbers: Iterable[int]) -> list[Heard]:
        return [
            house.ask(session, messages, ways, life=life, number=number, stream=number == 1)
            for number in numbers
        ]

    first = sample("first", range(3))
    again = sample("second", range(2))
    # That they were delivered is written behind; what is written after it is on the disk.
    house.ask(session, [*messages, question(session, "something else")])
    house.proxy.restart()  # the second life has had two: that must not be forgotten
    again += sample("second", range(2, 4))

    names = [each.name for each in first]
    assert len(set(names)) == 3
    assert [each.name for each in again[:3]] == names
    assert [each.hit for each in again] == ["exact", "exact", "exact", None]
    assert again[3].name not in names


def test_an_answer_tried_again_later_keeps_the_order_of_those_before(
    house: House, session: str
) -> None:
    """A row that failed comes before the others; an answer put there would be replayed first."""
    messages = [SYSTEM, question(session)]

    def sample(life: str, count: int) -> list[str]:
        heard = [house.ask(session, messages, RUN_AND_CALL_IDS, life=life) for _ in range(count)]
        return [each.name for each in heard]

    house.ledger.refusals = 3  # as often as it is tried
    with Connection(house.proxy.address) as connection:
        connection.send(house.request(session, messages, RUN_AND_CALL_IDS))
        assert connection.receive().status == 503
    first = sample("first", 2)
    second = sample("second", 3)

    third = sample("third", 3)

    assert second[:2] == first
    assert third == second


@by_ways
def test_parallel_calls_in_another_order_get_their_own_answers(
    house: House, session: str, ways: Ways
) -> None:
    def ask(number: int, life: str) -> Heard:
        messages = [SYSTEM, question(session, f"part {number}")]
        return house.ask(session, messages, ways, life=life, number=number)

    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(lambda number: ask(number, "first"), range(8)))
        again = list(pool.map(lambda number: ask(number, "second"), reversed(range(8))))

    assert [each.name for each in reversed(again)] == [each.name for each in first]
    assert {each.hit for each in again} == {"exact"}
    assert house.paid_count(session) == 8


def test_numbers_forgive_a_clock_below_the_highest_where_one_step_stands(
    house: House, session: str
) -> None:
    def ask(number: int, minute: int, text: str = "") -> Heard:
        told = {"role": "system", "content": f"It is {datetime.now(UTC):%Y-%m-%d} 10:{minute:02}."}
        asked = question(session, f"step {number}{text}")
        return house.ask(session, [told, asked], STEP_NUMBERS, number=number)

    first = [ask(number, 1) for number in range(4)]
    ask(1, 1, " of another agent")
    again = [ask(number, 2) for number in range(4)]

    assert [each.hit for each in again] == ["masked", None, "masked", None]
    assert [each.name for each in again][::2] == [each.name for each in first][::2]
    assert again[1].miss == "step 1 differs at messages[0].content"


@pytest.mark.parametrize(
    ("ways", "drift"),
    [
        (RUN_AND_CALL_IDS, Drift(clock=True)),
        (RUN_AND_CALL_IDS, Drift(tools=True)),
        (RUN_IDS, Drift(clock=True, tools=True)),
        (STEP_NUMBERS, Drift(tools=True)),
        (CONSTANT_NUMBER, Drift(tools=True)),
        (NOTHING, Drift(tools=True)),
    ],
    ids=lambda value: value.name,
)
def test_an_agent_that_dies_while_it_waits_is_given_that_answer(
    house: House, session: str, ways: Ways, drift: Drift
) -> None:
    """It starts over before the answer is there, and what it sends has drifted."""

    def begin(life: int) -> list[dict[str, Any]]:
        clock = f" It is {datetime.now(UTC):%Y-%m-%d} 10:0{life}." if drift.clock else ""
        return [{"role": "system", "content": f"You are terse.{clock}"}, question(session)]

    def go_on(life: int) -> bytes:
        messages = begin(life)
        called = house.ask(session, messages, ways, life=f"{life}", number=0, tools=[TOOL])
        messages += result(called, f"found {life if drift.tools else 0}")
        return house.request(session, messages, ways, life=f"{life}", number=1, tools=[TOOL])

    waiting = go_on(0)
    before = len(house.ledger.received)
    house.ledger.gate = gate = Gate()
    with Connection(house.proxy.address) as dying:
        dying.send(waiting)
        house.ledger.wait_for_requests(before + 1)
    house.ledger.gate = None
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(call_model, house.proxy.address, go_on(1))
        gate.open()
    third = call_model(house.proxy.address, go_on(2))

    assert second.result().hit in ("joined", "pinned", "masked")
    assert third.name == second.result().name
    assert house.paid_count(session) == 2
