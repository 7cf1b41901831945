"""Tool calls on record, and recovery that says what then happens: real agents, real crashes.

The model never answers twice alike, so what comes again comes from the record. Each run is the same
with the proxy stopped, and with it killed, between any two looks.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from agentstate.ground.chat import ToolCall
from agentstate.store.sqlite import SqliteStore
from tests.e2e.test_control import ask, beside
from tests.helpers.callers import (
    AGENTS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    TOOLS,
    TURNS,
    Agent,
    CallingModel,
    Died,
)
from tests.helpers.people import approve, reject, wait_for_pending
from tests.helpers.proxy import Proxy
from tests.store.contract import answer_of, checkpoint_of, claim_of, message, part

pytestmark = [pytest.mark.slow, pytest.mark.clients]

Between = Literal["nothing", "stop", "kill"]
SESSION = "run"
PATH = f"/api/sessions/{SESSION}"


class Rig:
    """The proxy, the model behind it, and who looks."""

    def __init__(self, proxy: Proxy, model: CallingModel, between: Between) -> None:
        self.proxy = proxy
        self.model = model
        self._between = between

    def come_back(self) -> None:
        """Do to the proxy what this run is about."""
        if self._between == "stop":
            self.proxy.stop()
            self.proxy.start()
        elif self._between == "kill":
            self.proxy.restart()

    def look(self, *paths: str) -> list[Any]:
        """Look at things before and after the proxy came back: they must be the same."""
        before = [ask(self.proxy, "GET", f"{PATH}/{path}") for path in paths]
        self.come_back()
        assert [ask(self.proxy, "GET", f"{PATH}/{path}") for path in paths] == before
        return before

    def replays(self) -> int:
        """Return how many calls were answered from the record so far."""
        found = self.proxy.maybe_session(SESSION)
        assert found is not None
        return int(found["session"]["replays"])


@pytest.fixture
def proxy_and_model(tmp_path: Path) -> Iterator[tuple[Proxy, CallingModel]]:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    with CallingModel() as model:
        config = f'[[provider]]\nname = "gemini"\nbase_url = "{model.url}/v1beta/openai"\n'
        (tmp_path / "agentstate.toml").write_text(config, encoding="utf-8")
        env = {"AGENTSTATE_GATE_TOOLS": "guarded", "AGENTSTATE_FORWARD_RETRIES": "0"}
        with Proxy(upstream_url=model.url, db=tmp_path / "record.db", env=env) as proxy:
            yield proxy, model


@pytest.fixture(params=["nothing", "stop", "kill"])
def rig(request: pytest.FixtureRequest, proxy_and_model: tuple[Proxy, CallingModel]) -> Rig:
    return Rig(*proxy_and_model, request.param)


def result_of(row: dict[str, Any]) -> str | None:
    """Return a call's first result as the tool gave it."""
    return None if row["result"] is None else text_of(row["result"]["content"])


def text_of(content: Any) -> str:
    return str(content["response"]["result"] if isinstance(content, dict) else content)


def key_of(row: dict[str, Any]) -> str:
    return str(row["arguments_json"]["key"])


@pytest.mark.parametrize("form", AGENTS)
def test_an_agent_that_dies_after_its_tools_is_told_what_then_happens(rig: Rig, form: str) -> None:
    # Without ids results that drift cannot be forgiven, so there the tools say the same again.
    agent: Agent = AGENTS[form](
        rig.proxy, SESSION, drifts=form in ("chat", "messages", "responses")
    )
    with pytest.raises(Died):
        agent.live(dies_at=2)
    ran = agent.ran

    rows, unanswered, found = rig.look("tool-calls", "tool-calls?answered=0", "recovery")
    assert [(row["index"], row["name"]) for row in rows] == [
        (step, name) for step in range(3) for name in TOOLS
    ]
    assert [key_of(row) for row in rows] == ran
    first_life = " in life 1" if agent.drifts else ""
    told = [f"{name} of {key}{first_life}" for name, key in zip(TOOLS * 3, ran, strict=True)]
    assert [result_of(row) for row in rows] == [*told[:4], None, None]
    assert [row["result"]["index"] for row in rows[:4]] == [1, 1, 2, 2]
    assert unanswered == rows[4:]
    assert found["replay"] == {
        "steps": 3, "answered": 3, "prefix": 3, "asked_again": 0, "open": []
    }  # fmt: skip
    saves = found["saves"]
    assert (saves["input_tokens"], saves["output_tokens"]) == (3 * INPUT_TOKENS, 3 * OUTPUT_TOKENS)
    assert [key_of(row) for row in found["unanswered_calls"]] == ran[4:]
    assert f"{TOOLS[0]} (step 2" in found["advice"][0]

    paid, replays = rig.model.paid, rig.replays()
    end = agent.live()
    assert end.startswith("done")
    assert agent.ran[:6] == ran  # it was given the same calls
    assert rig.model.paid - paid == TURNS + 1 - found["replay"]["answered"]
    assert rig.replays() - replays == found["replay"]["answered"]

    rows, found = rig.look("tool-calls", "recovery")
    assert [key_of(row) for row in rows] == agent.ran
    assert all(row["answered"] for row in rows)
    last_life = " in life 2" if agent.drifts else ""
    assert [result_of(row) for row in rows[4:]] == [
        f"{name} of {key}{last_life}" for name, key in zip(TOOLS * 2, agent.ran[4:], strict=True)
    ]
    # What was told first stands first; the new life told otherwise.
    assert [result_of(row) for row in rows[:4]] == told[:4]
    assert [row["results"] for row in rows[:4]] == [2 if agent.drifts else 1] * 4
    if agent.drifts:
        other = rows[0]["other_results"][0]
        assert text_of(other["content"]) == f"{TOOLS[0]} of {agent.ran[0]} in life 2"
        assert other["index"] == 3
    assert (found["unanswered_calls"], found["replay"]["answered"]) == ([], TURNS + 1)


@pytest.mark.parametrize(
    ("form", "point"),
    [
        ("chat", "sent"), ("chat", "before_commit"), ("chat", "after_commit"),
        ("responses", "sent"), ("chained", "after_commit"), ("messages", "before_commit"),
        ("gemini", "after_commit"),
    ],
)  # fmt: skip
def test_a_proxy_that_dies_in_a_call_says_what_is_paid_again(
    proxy_and_model: tuple[Proxy, CallingModel], form: str, point: str
) -> None:
    proxy, model = proxy_and_model
    rig = Rig(proxy, model, "kill")
    agent: Agent = AGENTS[form](proxy, SESSION)
    proxy.stop()
    proxy.start(crash_at=f"{point}:3")
    with pytest.raises(Exception):  # noqa: B017, PT011 - each client has its own
        agent.live()
    proxy.wait_for_crash()
    proxy.start()

    (found,) = rig.look("recovery")
    replay = found["replay"]
    is_safe = point == "after_commit"
    assert (replay["steps"], replay["answered"], replay["asked_again"]) == (
        3, 3 if is_safe else 2, 0 if is_safe else 1
    )  # fmt: skip
    assert [each["state"] for each in replay["open"]] == ([] if is_safe else ["interrupted"])
    # Of the third answer the agent has seen nothing; where it stands it is given again.
    assert len(found["unanswered_calls"]) == (2 if is_safe else 0)

    paid, replays = model.paid, rig.replays()
    agent.live()
    assert rig.replays() - replays == replay["answered"]
    assert model.paid - paid == replay["asked_again"] + (TURNS + 1 - replay["steps"])
    rows, found = rig.look("tool-calls", "recovery")
    assert [key_of(row) for row in rows] == agent.ran
    assert all(row["answered"] and row["state"] == "active" for row in rows)
    assert found["replay"]["asked_again"] == 0


@pytest.mark.parametrize("form", ["chat", "messages"])
def test_rolled_back_calls_are_told_from_those_that_came_after(rig: Rig, form: str) -> None:
    agent: Agent = AGENTS[form](rig.proxy, SESSION)
    agent.live()
    first = agent.ran
    ask(rig.proxy, "POST", f"{PATH}/reset", {"index": 1})
    (found,) = rig.look("recovery")
    assert (found["replay"]["answered"], found["last_step"]["index"]) == (1, 0)
    # A request goes on from it that was taken back: what its calls came to is known.
    assert found["unanswered_calls"] == []
    paid = rig.model.paid
    agent.live()
    assert rig.model.paid - paid == TURNS
    rows, only_taken = rig.look("tool-calls", "tool-calls?state=rolled_back")
    active = [row for row in rows if row["state"] == "active"]
    taken = [row for row in rows if row["state"] == "rolled_back"]
    assert [key_of(row) for row in active] == agent.ran
    assert [key_of(row) for row in taken] == first[2:]
    assert only_taken == taken
    for row in rows:
        assert result_of(row) == f"{row['name']} of {key_of(row)}"
    assert {row["result"]["index"] for row in active[2:]} == {6, 7, 8}


@pytest.mark.parametrize("form", ["chat", "messages", "responses"])
@pytest.mark.parametrize("between", ["nothing", "kill"])
def test_what_a_person_decides_is_on_the_call(tmp_path: Path, form: str, between: Between) -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    env = {"AGENTSTATE_GATE_TOOLS": TOOLS[1], "AGENTSTATE_GATE_HEARTBEAT_S": "0.2"}
    with (
        CallingModel(turns=1) as model,
        Proxy(upstream_url=model.url, db=tmp_path / "record.db", env=env) as proxy,
    ):
        rig = Rig(proxy, model, between)
        agent: Agent = AGENTS[form](proxy, SESSION)

        def live() -> Any:
            try:
                return agent.live()
            except Exception as error:
                return error

        with beside(live) as told:
            (pending,) = wait_for_pending(proxy, 1)
            (row,), found = rig.look("tool-calls?decision=pending", "recovery")
            assert (row["name"], row["result"]) == (TOOLS[1], None)
            assert [one["tool"] for one in found["holds"]["approvals"]] == [TOOLS[1]]
            assert pending["approval_id"] in found["advice"][0]
            edit = json.dumps({"key": "edited"})
            approve(proxy, arguments=edit, by="ann")
        if between == "kill":
            assert isinstance(told[0], Exception)  # its connection was cut
            assert isinstance(live(), str)
        assert agent.ran[1] == "edited"
        (rows,) = rig.look("tool-calls")
        assert [row["decision"] for row in rows] == ["none", "edited"]
        assert rows[1]["arguments_json"] == {"key": "call_0_1"}
        assert rows[1]["approval"]["edited_arguments_json"] == {"key": "edited"}
        assert result_of(rows[1]) == f"{TOOLS[1]} of edited"
        assert model.paid == 2

        ask(proxy, "POST", f"{PATH}/reset", {"index": 0})
        with beside(live) as told:
            reject(proxy, reason="no", by="bob")
        assert isinstance(told[0], Exception)
        rows, found = rig.look("tool-calls?decision=rejected", "recovery")
        assert [one["decided_by"] for one in found["refusals"]] == ["bob"]
        assert f"`agentstate sessions rollback {SESSION} " in found["advice"][0]
        assert [(row["name"], row["result"], row["state"]) for row in rows] == [
            (TOOLS[1], None, "active")
        ]


def test_a_session_of_ten_thousand_steps_is_shown_in_a_moment(tmp_path: Path) -> None:
    """The goal is 100 ms each; what is asserted leaves room for a busy machine."""
    count, db = 10_000, tmp_path / "record.db"
    arguments = '{"city": "Bern, the old town"}'

    async def fill() -> None:
        store = SqliteStore(db, durability="normal")
        await store.open()
        chain = [part(message("go"))]
        for number in range(count):
            # Conversations of 101 steps: longer ones take minutes to make.
            chain = chain if number % 101 else [part(message(f"go {number}"))]
            call = {"id": f"call_{number}", "type": "function",
                    "function": {"name": "get_weather", "arguments": arguments}}  # fmt: skip
            said = {"role": "assistant", "content": None, "tool_calls": [call]}
            request = claim_of().request
            claim = claim_of(
                str(number),
                request=type(request)(request.envelope, (), "messages", tuple(chain)),
            )
            claimed = await store.claim_step(claim)
            choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
            body = json.dumps({"id": f"c{number}", "choices": [choice]}).encode()
            checkpoint = checkpoint_of(
                claimed.step_id,
                answer=answer_of(body),
                tool_calls=((0, ToolCall(0, f"call_{number}", "get_weather", arguments)),),
            )
            await store.record_answer(checkpoint)
            told = {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number} C"}
            chain += [part(said), part(told)]
        await store.close()

    asyncio.run(fill())
    took: dict[str, float] = {}
    with Proxy(upstream_url="http://127.0.0.1:9", db=db) as proxy:

        def look(name: str, path: str) -> Any:
            began_s = time.perf_counter()
            found = ask(proxy, "GET", f"/api/sessions/s{path}")
            took[name] = round((time.perf_counter() - began_s) * 1000, 1)
            return found

        for _ in range(2):  # the second look, with the file in memory, is what stays
            rows = look("first calls", "/tool-calls")
            assert [result_of(row) for row in rows] == [f"{number} C" for number in range(100)]
            look("one step", "/steps/5000")
            look("calls of a step", "/tool-calls?step=5000")
            found = look("recovery", "/recovery")
            assert found["replay"]["answered"] == count
            look("steps", "?limit=200")
            look("steps in detail", "?limit=100&detail=1")
    print(took)
    assert max(took.values()) < 1500
