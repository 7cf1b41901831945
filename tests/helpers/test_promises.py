"""The checks that the random agents rest on: each sees what it is for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tests.helpers.agents import (
    NOTHING,
    RUN_AND_CALL_IDS,
    STEP_NUMBERS,
    Agent,
    Branch,
    Drift,
    Ledger,
    Paid,
    Place,
    Plan,
    Sighting,
    Turn,
    Ways,
)
from tests.helpers.promises import faults_of, wanted_answers
from tests.helpers.proxy import Proxy

PLACE = Place("s", "b", 2)
BILL = Paid("one", PLACE, "asked", at_s=1.0, is_answer=True)
SEEN = Sighting(PLACE, 0, 0, 0, "one", "asked", at_s=2.0, hit=None)


class Record:
    """What a proxy has on record."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def settled_steps(self, session: str) -> list[dict[str, Any]]:
        """Return a complete step for each name."""
        return [
            {"state": "complete", "response_id": f"chatcmpl-{name}", "attempts": [{"ok": True}]}
            for name in self._names
        ]


def kinds(
    bills: list[Paid],
    seen: list[Sighting],
    record: Record,
    *,
    ways: Ways = NOTHING,
    drift: Drift | None = None,
    proxy_dies: bool = False,
) -> set[str]:
    """Return the kinds of faults that are found."""
    plan = Plan("s", (Branch("b", (Turn(),)),))
    agent = Agent(("127.0.0.1", 0), plan, ways, drift or Drift(), seed=0)
    agent.sightings = seen
    ledger = Ledger(0)
    ledger._paid["s"] = bills
    found = faults_of(agent, ledger, cast(Proxy, record), proxy_dies=proxy_dies)
    return {fault.kind for fault in found}


def test_lives_as_they_should_be_have_no_fault() -> None:
    lives = [SEEN, replace(SEEN, life=1, hit="exact")]

    assert kinds([BILL], lives, Record("one")) == set()


def test_an_answer_to_another_question_is_wrong() -> None:
    elsewhere = replace(BILL, place=PLACE._replace(depth=4))

    assert "wrong" in kinds([elsewhere], [SEEN], Record("one"))
    assert "wrong" in kinds([replace(BILL, digest="other")], [SEEN], Record("one"))
    assert "wrong" in kinds([replace(BILL, name="two")], [SEEN], Record("two"))


def test_an_answer_that_does_not_come_again_is_lost() -> None:
    bills = [BILL, replace(BILL, name="two", at_s=1.5)]
    other = replace(SEEN, name="two")

    assert "lost" in kinds(bills, [SEEN, replace(other, life=1)], Record("one"))
    assert "lost" in kinds(bills, [SEEN, other], Record("one"), drift=Drift(clock=True))


def test_what_was_seen_or_recorded_and_is_paid_again_is_a_double_bill() -> None:
    late = [BILL, replace(BILL, name="two", at_s=3.0)]
    early = [BILL, replace(BILL, name="two", at_s=1.5)]

    assert kinds(late, [SEEN], Record("one"), proxy_dies=True) == {"double bill"}
    assert kinds(early, [SEEN], Record("one")) == {"double bill"}
    assert kinds(early, [SEEN], Record("one"), proxy_dies=True) == set()
    assert kinds(early, [SEEN], Record("one", "two"), proxy_dies=True) == {"double bill"}
    assert kinds([BILL], [SEEN], Record()) == {"double bill"}


def test_a_prompt_that_tells_the_time_is_promised_to_runs_alone() -> None:
    bills = [BILL, replace(BILL, name="two", at_s=3.0)]
    lives = [SEEN, replace(SEEN, name="two", life=1)]
    clock = Drift(clock=True)

    assert kinds(bills, lives, Record("one", "two"), drift=clock) == set()
    assert kinds(bills, lives, Record("one", "two"), ways=RUN_AND_CALL_IDS, drift=clock) != set()


def test_repeats_are_answers_of_their_own_only_where_they_can_be_told() -> None:
    plan = Plan("s", (Branch("b", (Turn(samples=3),)), Branch("b", (Turn(),))))

    counts = {
        ways.name: wanted_answers(Agent(("", 0), plan, ways, Drift(), seed=0)).total()
        for ways in (NOTHING, STEP_NUMBERS, RUN_AND_CALL_IDS)
    }

    assert counts == {"nothing": 1, "step-numbers": 4, "run-and-call-ids": 4}
