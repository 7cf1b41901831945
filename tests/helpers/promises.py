"""What must hold of an agent that died and lived again, and what did not.

What can be promised depends on how the agent names its calls: without a run id a prompt that tells
the time is a new prompt (but for step numbers, within limits that have their own tests), and an
equal body is the same call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tests.helpers.agents import Agent, Drift, Ledger, Place, Sighting
from tests.helpers.proxy import Proxy

Kind = Literal["wrong", "lost", "double bill"]
# wrong  an answer came to a question that it was not paid for
# lost   an answer that was seen to its end did not come again
# double bill  something was paid that was on record, or more often than it was asked


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not happen."""

    kind: Kind
    session: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}, {self.session}: {self.text}"


def keeps_promises(agent: Agent) -> bool:
    """Say whether every finished step of this agent can be found again."""
    return agent.ways.run_id or not (agent.drift.clock or agent.drift.ids)


def faults_of(agent: Agent, ledger: Ledger, proxy: Proxy, *, proxy_dies: bool) -> list[Fault]:
    """Return what went wrong with one agent. `proxy_dies`: what was in flight then may be asked
    again, so it may have been paid more often than it was asked."""
    wanted = wanted_answers(agent)

    def found() -> Iterator[tuple[Kind, str]]:
        for text in _strays(agent, ledger):
            yield "wrong", text
        # Within one life no question that was asked once gets two answers, whatever drifts.
        for text in _unsteady(agent.sightings, lambda seen: (seen.life, *_asker(seen))):
            yield "lost", text
        if not keeps_promises(agent):
            return
        for text in _changes(agent, wanted):
            yield "lost", text
        for text in _late_bills(agent, ledger, wanted):
            yield "double bill", text
        for text in _wrong_counts(agent, ledger, proxy, wanted, proxy_dies=proxy_dies):
            yield "double bill", text

    return [Fault(kind, agent.plan.session, text) for kind, text in found()]


def wanted_answers(agent: Agent) -> Counter[Place]:
    """Return how many answers belong at each place, over all lives."""
    askers = agent.plan.askers()
    return askers if agent.ways.tells_repeats else Counter(dict.fromkeys(askers, 1))


def _asker(sighting: Sighting) -> tuple[object, ...]:
    return sighting.place, sighting.sample, sighting.branch


def _strays(agent: Agent, ledger: Ledger) -> Iterator[str]:
    paid = {each.name: each for each in ledger.paid_by(agent.plan.session)}
    for sighting in agent.sightings:
        bill = paid.get(sighting.name)
        if bill is None or not bill.is_answer or bill.place != sighting.place:
            yield f"{sighting} got the answer to {bill}"
        elif agent.drift == Drift() and bill.digest != sighting.digest:
            yield f"{sighting} got the answer to other words: {bill}"


def _unsteady(
    sightings: Iterable[Sighting], asker: Callable[[Sighting], tuple[object, ...]]
) -> Iterator[str]:
    seen: defaultdict[tuple[object, ...], list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        seen[asker(sighting)].append(sighting)
    for who, found in seen.items():
        if len({each.name for each in found}) > 1:
            yield f"{who} got several answers: {[(e.life, e.name, e.hit) for e in found]}"


def _changes(agent: Agent, wanted: Counter[Place]) -> Iterator[str]:
    """Twins under a run id may swap answers: their calls arrive in any order."""
    names = Counter(branch.name for branch in agent.plan.branches)
    is_twin = {name: count > 1 and agent.ways.run_id for name, count in names.items()}
    alone = [each for each in agent.sightings if not is_twin[each.place.branch]]
    yield from _unsteady(alone, _asker)
    several: defaultdict[Place, set[str]] = defaultdict(set)
    for sighting in agent.sightings:
        several[sighting.place].add(sighting.name)
    for place, count in wanted.items():
        if len(several[place]) > count:
            yield f"{place} got {len(several[place])} different answers, asked {count} times"


def _late_bills(agent: Agent, ledger: Ledger, wanted: Counter[Place]) -> Iterator[str]:
    for bill in ledger.paid_by(agent.plan.session):
        seen = {
            each.name
            for each in agent.sightings
            if each.place == bill.place and each.at_s < bill.at_s
        }
        if len(seen) >= wanted[bill.place]:
            yield f"{bill} was paid although {seen} had been seen"


def _wrong_counts(
    agent: Agent, ledger: Ledger, proxy: Proxy, wanted: Counter[Place], *, proxy_dies: bool
) -> Iterator[str]:
    paid = Counter(each.place for each in ledger.paid_by(agent.plan.session))
    recorded = _recorded(agent, ledger, proxy)
    for place, count in wanted.items():
        if not proxy_dies and paid[place] != count:
            yield f"{place} was paid {paid[place]} times, asked {count} times"
        if recorded[place] != count:
            yield f"{place} has {recorded[place]} answers on record, not {count}"


def _recorded(agent: Agent, ledger: Ledger, proxy: Proxy) -> Counter[Place]:
    """Count the answers on record by place, those that another one replaced included."""
    paid = {each.name: each for each in ledger.paid_by(agent.plan.session)}
    found: Counter[Place] = Counter()
    for step in proxy.settled_steps(agent.plan.session):
        if step["state"] == "complete":
            name = step["response_id"].removeprefix("chatcmpl-")
            found[paid[name].place] += sum(attempt["ok"] for attempt in step["attempts"])
    return found
