"""Tools that must not act twice: an agent that dies anywhere, a proxy that dies anywhere.

The agent is a process with the real decorator; what its tool does is a line in a file, so what
happened is known whatever the record says.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest

from tests.e2e.test_control import ask, beside
from tests.helpers.people import decide, list_pending, wait_for_pending
from tests.helpers.proxy import ROOT, Proxy
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

AGENT = ROOT / "tests/e2e/agents/durable_agent.py"
SESSION = "orders/1"
PATH = f"/api/sessions/{quote(SESSION, safe='')}"
LIFE_S = 120.0  # far more than any life needs
Between = Literal["nothing", "stop", "kill"]


class Rig:
    """A proxy, and lives of an agent that charges orders."""

    def __init__(self, proxy: Proxy, folder: Path) -> None:
        self.proxy = proxy
        self.effects = folder / "effects"
        self.between: Between = "nothing"

    def come_back(self) -> None:
        """Do to the proxy what this run is about."""
        if self.between == "stop":
            self.proxy.stop()
            self.proxy.start()
        elif self.between == "kill":
            self.proxy.restart()

    def begin_life(
        self, calls: int, die_at: str = "", wait_s: float = 0.0, tool: str = "charge"
    ) -> subprocess.Popen[bytes]:
        """Start the agent."""
        command: Sequence[str] = (
            sys.executable, str(AGENT), self.proxy.url, SESSION, str(calls), str(self.effects),
            die_at, str(wait_s), tool,
        )  # fmt: skip
        return subprocess.Popen(
            command, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )

    def end_life(self, life: subprocess.Popen[bytes]) -> tuple[int, list[dict[str, Any]]]:
        """Wait for its end; return its exit code and what it said."""
        printed, _ = life.communicate(timeout=LIFE_S)
        return life.returncode, [json.loads(line) for line in printed.splitlines()]

    def live(self, *args: Any, **kwargs: Any) -> tuple[int, list[dict[str, Any]]]:
        """Let the agent live once."""
        return self.end_life(self.begin_life(*args, **kwargs))

    def acts(self) -> Counter[str]:
        """How often each order was really charged."""
        if not self.effects.exists():
            return Counter()
        lines = self.effects.read_text("utf-8").splitlines()
        return Counter(line.rpartition(" ")[0] for line in lines)

    def calls(self, state: str = "") -> list[dict[str, Any]]:
        """The durable calls on record, in order."""
        query = f"&state={state}" if state else ""
        found: list[dict[str, Any]] = ask(self.proxy, "GET", f"/api/tool-calls?limit=999{query}")
        return found[::-1]

    def settle(self, call: str, outcome: str, **more: Any) -> dict[str, Any]:
        """Say whether a call happened."""
        found = ask(
            self.proxy, "POST", f"{PATH}/tool-calls/{call}/settle", {"outcome": outcome, **more}
        )
        self.come_back()
        assert isinstance(found, dict)
        return found

    def wait_for(self, state: str, life: subprocess.Popen[bytes]) -> dict[str, Any] | None:
        """Return the one call in a state once there is one; None = the agent ended first."""
        until_s = time.perf_counter() + LIFE_S
        while not (found := self.calls(state)):
            if life.poll() is not None:
                return None
            assert time.perf_counter() < until_s, f"no call became {state}"
            time.sleep(0.02)
        (row,) = found
        return row


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with (
        CountingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        yield Rig(proxy, tmp_path)


def test_an_agent_that_is_killed_twenty_times_acts_once_for_each_call(rig: Rig) -> None:
    """Each unknown call is listed, and a person who looks settles it as it is."""
    calls, deaths = 24, 20
    chance = random.Random(7)
    settled = Counter[str]()
    for number in range(deaths):
        before = rig.acts()
        life = rig.begin_life(calls, chance.choice(("before_act", "after_act")), wait_s=LIFE_S)
        row = rig.wait_for("unknown", life)
        assert (row is None) == (number == 0), "a death leaves a call that nobody is sure of"
        if row is not None:
            # The person looks: an equal call before it has its own line.
            order = row["arguments"]["order"]
            has_happened = before[order] > row["occurrence"]
            outcome = "happened" if has_happened else "not_happened"
            value = {"result": {"receipt": "seen"}} if has_happened else {}
            rig.settle(row["call"], outcome, **value)
            settled[outcome] += 1
        code, _ = rig.end_life(life)
        assert code == -signal.SIGKILL
        assert max(rig.acts().values(), default=0) <= 2, "each order is charged twice at most"

    life = rig.begin_life(calls, wait_s=LIFE_S)
    row = rig.wait_for("unknown", life)
    assert row is not None
    has_happened = rig.acts()[row["arguments"]["order"]] > row["occurrence"]
    rig.settle(row["call"], "happened" if has_happened else "not_happened")
    code, said = rig.end_life(life)

    assert code == 0
    assert said[-1] == {"done": True}
    assert rig.acts() == {f"order {number}": 2 for number in range(calls // 2)}
    assert [row["state"] for row in rig.calls()] == ["done"] * calls
    assert min(settled["happened"], settled["not_happened"]) > 0, "both were tried"


@pytest.mark.parametrize("between", ["nothing", "stop", "kill"])
@pytest.mark.parametrize(("die_at", "outcome"), [
    ("before_act", "not_happened"), ("after_act", "happened"),
])  # fmt: skip
def test_what_a_killed_agent_left_is_settled_before_its_next_life(
    rig: Rig, between: Between, die_at: str, outcome: str
) -> None:
    rig.between = between
    code, _ = rig.live(1, die_at)
    assert code == -signal.SIGKILL
    found = ask(rig.proxy, "GET", f"{PATH}/recovery")
    (unknown,) = found["unknown_calls"]
    assert (unknown["state"], unknown["lease_ms"]) == ("running", None)
    assert [row["call"] for row in rig.calls("running")] == [unknown["call_id"]]
    assert any(
        f"({unknown['call_id']})" in each and "agentstate tools settle" in each
        for each in found["advice"]
    )
    value = {"result": {"receipt": "seen"}} if outcome == "happened" else {}

    rig.settle(unknown["call_id"], outcome, **value)

    assert ask(rig.proxy, "GET", f"{PATH}/recovery")["unknown_calls"] == []
    code, said = rig.live(1)
    assert (code, said[-1]) == (0, {"done": True})
    assert rig.acts() == {"order 0": 1}


def test_an_agent_that_lives_after_all_is_told_what_a_person_said(rig: Rig) -> None:
    owner = {"owner": "one"}
    begin = {"name": "charge", "arguments": {"order": "order 0"}}
    for number, outcome in enumerate(("not_happened", "happened", "skip")):
        told = ask(rig.proxy, "POST", f"{PATH}/tool-calls", begin | owner | {"key": str(number)})
        rig.settle(told["call"], outcome, by="ann")
        report = f"{PATH}/tool-calls/{told['call']}/result"
        if outcome == "not_happened":
            row = ask(rig.proxy, "POST", report, {"result": 7} | owner)
            assert (row["state"], row["outcome"]) == ("done", "result")
        else:
            with pytest.raises(AssertionError, match=f"settled as {outcome} by 'ann'"):
                ask(rig.proxy, "POST", report, {"result": 7} | owner)


@pytest.mark.parametrize("point", ["tool_begin", "tool_begun", "tool_report", "tool_reported"])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_proxy_that_is_killed_at_any_point_costs_no_act(
    rig: Rig, point: str, passes: int
) -> None:
    rig.proxy.restart(crash_at=f"{point}:{passes}")
    life = rig.begin_life(4)
    rig.proxy.wait_for_crash()
    rig.proxy.start()

    code, said = rig.end_life(life)

    assert (code, said[-1]) == (0, {"done": True})
    assert rig.acts() == {"order 0": 2, "order 1": 2}
    assert [(row["state"], row["runs"]) for row in rig.calls()] == [("done", 1)] * 4

    code, said = rig.live(4)

    assert (code, said[-1]) == (0, {"done": True})
    assert rig.acts() == {"order 0": 2, "order 1": 2}, "the whole run again acts no more"


@pytest.mark.parametrize("between", ["nothing", "stop", "kill"])
def test_each_verb_lets_the_agent_go_on_as_it_says(rig: Rig, between: Between) -> None:
    rig.between = between

    assert rig.live(4, "after_act")[0] == -signal.SIGKILL
    rig.come_back()
    code, said = rig.live(4)
    unknown = said[-1]["unknown"]
    assert code == 3
    rig.come_back()
    assert [row["call"] for row in rig.calls("unknown")] == [unknown]
    rig.settle(unknown, "happened", result={"receipt": "by hand"}, by="ann")

    assert rig.live(4, "before_act")[0] == -signal.SIGKILL
    rig.come_back()
    second = rig.live(4)[1][-1]["unknown"]
    rig.come_back()
    rig.settle(second, "not_happened")

    assert rig.live(4, "before_act")[0] == -signal.SIGKILL
    rig.come_back()
    code, said = rig.live(4)
    assert (code, said[-1]) == (3, {"unknown": second}), "it was run again, and not reported"
    rig.settle(second, "skip", reason="enough")

    code, said = rig.live(4)
    receipts = [line["receipt"] for line in said if "receipt" in line]
    assert (code, said[-1]) == (0, {"done": True})
    assert receipts[0] == {"receipt": "by hand"}
    assert receipts[1] == {"skipped": True, "reason": "enough"}
    assert rig.acts() == {"order 0": 1, "order 1": 2}

    ask(rig.proxy, "POST", f"{PATH}/tool-calls/{second}/forget", {"by": "ann"})
    rig.come_back()
    assert rig.live(4)[0] == 0
    assert rig.acts() == {"order 0": 2, "order 1": 2}
    assert rig.live(4)[0] == 0
    assert rig.acts() == {"order 0": 2, "order 1": 2}


@pytest.mark.parametrize("between", ["nothing", "stop", "kill"])
def test_a_guarded_tool_asks_once_and_waits_for_a_person(rig: Rig, between: Between) -> None:
    rig.between = between
    life = rig.begin_life(3, wait_s=LIFE_S, tool="stripe_charge")
    (first,) = wait_for_pending(rig.proxy, session=SESSION, timeout_s=LIFE_S)
    rig.come_back()
    edit = {"order": "order 0", "cents": 50}
    assert decide(rig.proxy, first["approval_id"], arguments=edit)[0] == 200
    (second,) = wait_for_pending(rig.proxy, session=SESSION, timeout_s=LIFE_S)
    rig.come_back()
    refusal = {"action": "REJECTED", "reason": "twice is too much", "then": "continue"}
    assert decide(rig.proxy, second["approval_id"], **refusal)[0] == 200
    (third,) = wait_for_pending(rig.proxy, session=SESSION, timeout_s=LIFE_S)
    rig.come_back()
    assert decide(rig.proxy, third["approval_id"])[0] == 200

    code, said = rig.end_life(life)
    rig.come_back()
    code_again, said_again = rig.live(3, tool="stripe_charge")

    assert (code, code_again) == (0, 0)
    assert said_again == said, "what was decided stands"
    assert "twice is too much" in said[3]["receipt"]
    assert rig.effects.read_text("utf-8") == "order 0 50\norder 1 100\n"


def test_a_paused_session_and_a_rollback_keep_what_was_done(rig: Rig) -> None:
    assert rig.live(2)[0] == 0
    ask(rig.proxy, "POST", f"{PATH}/pause", {})
    ask(rig.proxy, "POST", f"{PATH}/reset", {"step_number": 0})
    begin = {"name": "charge", "arguments": {"order": "order 0", "cents": 100}, "owner": "x"}

    held = ask(rig.proxy, "POST", f"{PATH}/tool-calls", begin)

    assert held == {"call": None, "state": "held", "held_by": "pause"}
    ask(rig.proxy, "POST", f"{PATH}/resume", {})
    assert rig.live(2)[0] == 0
    assert rig.acts() == {"order 0": 2}


def test_what_a_person_approved_for_the_model_is_not_asked_again_of_the_tool(
    tmp_path: Path,
) -> None:
    """The agent gets the model's call after a decision, and its tool begins that very call."""
    tool = {"name": "send_email", "parameters": {"type": "object", "properties": {}}}
    body = {
        "model": "mock/m",
        "messages": [{"role": "user", "content": "Call send_email now."}],
        "tools": [{"type": "function", "function": tool}],
    }
    with Proxy(
        upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db", flags=["--mock"]
    ) as proxy:

        def ask_model() -> Any:
            return ask(proxy, "POST", f"/s/{quote(SESSION, safe='')}/v1/chat/completions", body)

        with beside(ask_model) as answers:
            (held,) = wait_for_pending(proxy, session=SESSION)
            assert decide(proxy, held["approval_id"])[0] == 200
        (call,) = answers[0]["choices"][0]["message"]["tool_calls"]
        begin = {
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "call_id": call["id"],
            "owner": "one",
            "begin_id": "1",
        }
        proxy.restart()

        begun = ask(proxy, "POST", f"{PATH}/tool-calls", begin)
        assert begun["state"] == "run"
        ask(proxy, "POST", f"{PATH}/tool-calls/{begun['call']}/result", {"result": "sent"})
        again = ask(proxy, "POST", f"{PATH}/tool-calls", begin | {"owner": "two"})
        further = ask(proxy, "POST", f"{PATH}/tool-calls", begin | {"begin_id": "2"})

        assert (again["state"], again["result"]) == ("replay", "sent")
        assert (further["state"], further["held_by"]) == ("held", "approval")
        assert [row["step_number"] for row in list_pending(proxy)] == [None]


def test_two_agents_at_once_never_both_act(rig: Rig) -> None:
    """With a lease the second waits for the first, and gets what came of it."""
    begin = {"name": "charge", "arguments": {"order": "x"}, "lease_s": 60, "wait_s": 30}
    first = ask(rig.proxy, "POST", f"{PATH}/tool-calls", begin | {"owner": "one"})

    def wait() -> Any:
        return ask(rig.proxy, "POST", f"{PATH}/tool-calls", begin | {"owner": "two"})

    with beside(wait) as answers:
        held = ask(rig.proxy, "POST", f"{PATH}/tool-calls", begin | {"owner": "three", "wait_s": 0})
        ask(rig.proxy, "POST", f"{PATH}/tool-calls/{first['call']}/result", {"result": 7})

    assert (first["state"], held["state"], held["held_by"]) == ("run", "held", "running")
    assert (answers[0]["state"], answers[0]["result"]) == ("replay", 7)
