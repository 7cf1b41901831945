"""Agents that die and start over, at random: no finished step is paid again, no answer changes.

Random agents live through the real proxy before a model that never answers twice alike (`Ledger`),
one way of naming calls after the other, while agents, and then agents and proxy, are killed at
random points. What must hold is what the way of naming can promise: see `faults_of`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.helpers.agents import (
    ALL_WAYS,
    Agent,
    Drift,
    Ledger,
    Place,
    Sighting,
    Ways,
    haunted,
    random_plan,
)
from tests.helpers.proxy import Proxy

pytestmark = pytest.mark.slow

SEED = 87
AGENTS_PER_DRIFT = 3
LIVES_MAX = 5
DEATHS_MAX = 8  # of the proxy, in one test

DRIFTS = (
    Drift(),
    Drift(clock=True),
    Drift(tools=True),
    Drift(clock=True, tools=True, ids=True),
)


# --- what must hold -------------------------------------------------------------------------------


def keeps_promises(agent: Agent) -> bool:
    """Say whether every finished step of this agent can be found again.

    Without a run id a prompt that tells the time is a new prompt (but for step numbers, which have
    a test of their own).
    """
    return agent.ways.run_id or not (agent.drift.clock or agent.drift.ids)


def faults_of(agent: Agent, ledger: Ledger, proxy: Proxy, *, proxy_dies: bool) -> Iterator[str]:
    """Yield what went wrong with one agent.

    1. An answer was given to a question other than the one it was paid for.
    2. A question that was asked once in a life got two answers in it.
    3. An answer of an earlier life is not the answer now.
    4. Something was paid whose answer an agent had seen.
    5. Something was paid more often than it was asked, and no proxy had died.
    6. The record holds another number of answers than were asked for.
    """
    yield from _strays(agent, ledger)
    yield from _unsteady(agent.sightings, lambda sighting: (sighting.life, *_asker(sighting)))
    if not keeps_promises(agent):
        return
    yield from _changes(agent)
    wanted = _wanted(agent)
    yield from _late_bills(agent, ledger, wanted)
    paid = Counter(each.place for each in ledger.paid if each.place.session == agent.plan.session)
    answered = _recorded(agent, ledger, proxy)
    for place, count in wanted.items():
        if not proxy_dies and paid[place] != count:
            yield f"{place} was paid {paid[place]} times, asked {count} times"
        if answered[place] != count:
            yield f"{place} has {answered[place]} answers on record, not {count}"


def _wanted(agent: Agent) -> Counter[Place]:
    askers = agent.plan.askers()
    return askers if agent.ways.tells_repeats else Counter(dict.fromkeys(askers, 1))


def _asker(sighting: Sighting) -> tuple[object, ...]:
    return sighting.place, sighting.sample, sighting.branch


def _strays(agent: Agent, ledger: Ledger) -> Iterator[str]:
    paid = {each.name: each for each in ledger.paid}
    for sighting in agent.sightings:
        bill = paid.get(sighting.name)
        if bill is None or not bill.is_answer or bill.place != sighting.place:
            yield f"{sighting} got the answer to {bill}"
        elif agent.drift == Drift() and bill.digest != sighting.digest:
            yield f"{sighting} got the answer to other words: {bill}"


def _unsteady(sightings, asker) -> Iterator[str]:
    seen = defaultdict(list)
    for sighting in sightings:
        seen[asker(sighting)].append(sighting)
    for who, found in seen.items():
        if len({each.name for each in found}) > 1:
            yield f"{who} got several answers: {[(e.life, e.name, e.hit) for e in found]}"


def _changes(agent: Agent) -> Iterator[str]:
    """Twins under a run id may swap answers: their calls arrive in any order."""
    names = Counter(branch.name for branch in agent.plan.branches)
    is_twin = {name: count > 1 and agent.ways.run_id for name, count in names.items()}
    alone = [each for each in agent.sightings if not is_twin[each.place.branch]]
    yield from _unsteady(alone, _asker)
    several = defaultdict(set)
    for sighting in agent.sightings:
        several[sighting.place].add(sighting.name)
    for place, count in _wanted(agent).items():
        if len(several[place]) > count:
            yield f"{place} got {len(several[place])} different answers, asked {count} times"


def _late_bills(agent: Agent, ledger: Ledger, wanted: Counter[Place]) -> Iterator[str]:
    for bill in ledger.paid:
        seen = {
            each.name
            for each in agent.sightings
            if each.place == bill.place and each.at_s < bill.at_s
        }
        if bill.place in wanted and len(seen) >= wanted[bill.place]:
            yield f"{bill} was paid although {seen} had been seen"


def _recorded(agent: Agent, ledger: Ledger, proxy: Proxy) -> Counter[Place]:
    """Count the answers on record by place, those that another one replaced included."""
    paid = {each.name: each for each in ledger.paid}
    found: Counter[Place] = Counter()
    for step in proxy.settled_steps(agent.plan.session):
        if step["state"] == "complete":
            name = step["response_id"].removeprefix("chatcmpl-")
            found[paid[name].place] += sum(attempt["ok"] for attempt in step["attempts"])
    return found


# --- lives ----------------------------------------------------------------------------------------


def draw_agents(proxy: Proxy, ways: Ways, chance: random.Random) -> list[Agent]:
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
            f"{agent.plan.session}: {fault}"
            for agent in agents
            for fault in faults_of(agent, ledger, proxy, proxy_dies=False)
        ]
    assert faults == [], "\n".join(faults)


@pytest.mark.parametrize("ways", ALL_WAYS, ids=lambda ways: ways.name)
def test_agents_and_a_proxy_that_die_pay_no_finished_step_twice(ways: Ways, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} {ways.name} haunted")

    async def live(proxy: Proxy, ledger: Ledger, agents: list[Agent]) -> int:
        async with haunted(proxy, ledger, chance, deaths_max=DEATHS_MAX) as deaths:
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
            f"{agent.plan.session}: {fault}"
            for agent in agents
            for fault in faults_of(agent, ledger, proxy, proxy_dies=True)
        ]
    assert deaths > 0
    assert faults == [], "\n".join(faults)
