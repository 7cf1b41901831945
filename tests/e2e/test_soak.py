"""The soak: random agents under load, the proxy killed every few seconds; nothing is lost.

Agents are born, die a few deaths, live through their plans and once more, and make room for others,
while `kill -9` hits the proxy. At the end it is asked what the record holds, and all counts are
printed. What was in flight at a kill and had to be asked again is counted apart: nobody can know
what became of it.

The short form is part of every run; ten minutes of it with `--long`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers.agents import ALL_WAYS, Agent, Drift, Ledger, haunted, random_plan
from tests.helpers.promises import Fault, faults_of, keeps_promises, wanted_answers
from tests.helpers.proxy import Proxy

pytestmark = pytest.mark.slow

SEED = 4711
SHORT_S = 8.0
LONG_S = 600.0
KILLED_EVERY_S = (1.0, 4.0)
AGENTS = 10  # alive at once
DEATHS_MAX = 3  # of one agent
FAULTS = 0.02  # of the model
LAST_LIVES = 200  # agents that live once more after the last kill

DRIFTS = (Drift(), Drift(clock=True), Drift(tools=True), Drift(clock=True, tools=True, ids=True))


@dataclass(slots=True)
class Soak:
    """What has happened."""

    agents: list[Agent] = field(default_factory=list)
    deaths: int = 0  # of agents
    kills: int = 0  # of the proxy
    faults: list[Fault] = field(default_factory=list)
    paid: int = 0
    spoiled: int = 0  # refused or cut by the model on purpose
    wanted: int = 0  # answers

    def __str__(self) -> str:
        """Render the counts that the soak is for."""
        kinds = Counter(fault.kind for fault in self.faults)
        seen = sum(len(agent.sightings) for agent in self.agents)
        return (
            f"{self.kills} kills of the proxy, {self.deaths} deaths of {len(self.agents)} agents; "
            f"{seen} answers seen, {self.paid} upstream requests for {self.wanted} answers; "
            f"lost {kinds['lost']}, wrong {kinds['wrong']}, double bills {kinds['double bill']}; "
            f"interrupted and asked again {self.paid - self.spoiled - self.wanted}, "
            f"failed by the model and asked again {self.spoiled}"
        )


def draw_agent(proxy: Proxy, chance: random.Random, number: int) -> Agent:
    """Draw an agent whose every finished step can be found again."""
    while True:
        ways, drift = chance.choice(ALL_WAYS), chance.choice(DRIFTS)
        plan = random_plan(chance, f"agent-{number}-{ways.name}-{drift.name}", ways, drift)
        agent = Agent(proxy.address, plan, ways, drift, chance.getrandbits(32))
        if keeps_promises(agent):
            return agent


async def keep_living(soak: Soak, proxy: Proxy, chance: random.Random, until_s: float) -> None:
    """Let agents follow one another until the time is over; the last one may finish."""
    loop = asyncio.get_running_loop()
    numbers = itertools.count()

    async def follow() -> None:
        while loop.time() < until_s:
            agent = draw_agent(proxy, chance, next(numbers))
            soak.agents.append(agent)
            for _ in range(chance.randint(0, DEATHS_MAX)):
                has_died = not await agent.live(dies_after_s=chance.uniform(0.02, 0.5))
                soak.deaths += has_died
            for _ in range(2):
                assert await agent.live()

    await asyncio.gather(*(follow() for _ in range(AGENTS)))


def soak_for(seconds: float, folder: Path) -> Soak:
    """Run the soak and look at what it left."""
    chance = random.Random(SEED)
    soak = Soak()

    async def live(proxy: Proxy) -> None:
        until_s = asyncio.get_running_loop().time() + seconds
        async with haunted(proxy, chance, every_s=KILLED_EVERY_S) as deaths:
            await keep_living(soak, proxy, chance, until_s)
        soak.kills = len(deaths)
        last = chance.sample(soak.agents, min(LAST_LIVES, len(soak.agents)))
        for start in range(0, len(last), AGENTS):
            await asyncio.gather(*(agent.live() for agent in last[start : start + AGENTS]))

    with (
        Ledger(SEED, thinking_s=0.03, faults=FAULTS) as ledger,
        Proxy(upstream_url=ledger.url, db=folder / "record.db") as proxy,
    ):
        asyncio.run(live(proxy))
        for agent in soak.agents:
            bills = ledger.paid_by(agent.plan.session)
            soak.paid += len(bills)
            soak.spoiled += sum(not bill.is_answer for bill in bills)
            soak.wanted += wanted_answers(agent).total()
            soak.faults += faults_of(agent, ledger, proxy, proxy_dies=True)
    return soak


def check(soak: Soak, capsys: pytest.CaptureFixture[str]) -> None:
    """Print the counts, and fail if there is anything that must not be."""
    with capsys.disabled():
        print(f"\nsoak: {soak}")
    assert soak.kills > 0
    assert soak.deaths > 0
    assert soak.faults == [], "\n".join(map(str, soak.faults))


def test_a_short_soak_loses_nothing_and_pays_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(soak_for(SHORT_S, tmp_path), capsys)


@pytest.mark.long
def test_a_soak_of_ten_minutes_loses_nothing_and_pays_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(soak_for(LONG_S, tmp_path), capsys)
