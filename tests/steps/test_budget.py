"""May a session pay for a call: asked after the record, before the claim, and once for all."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.budget import BudgetChange
from agentstate.ground.chat import Answer, Choice, ToolCall
from agentstate.ground.control import Place
from agentstate.ground.errors import AgentStateError, BadRequest, BudgetReached, StoreError
from agentstate.ground.records import Query
from agentstate.ground.settings import BudgetSettings
from agentstate.steps.budget import Reached
from agentstate.steps.checkpoint import calls_of
from agentstate.steps.identify import Caller
from tests.steps.scene import Scene, header, play, read


def budget(**caps: Any) -> BudgetSettings:
    return BudgetSettings(**caps)


async def paid(scene: Scene, count: int) -> None:
    """Have the session pay for so many answers."""
    for number in range(count):
        response = await scene.ask(scene.request(f"q{number}"))
        assert response.status == 200


async def question(scene: Scene) -> Approval:
    """Wait for the one question that is not decided."""
    asked = scene.store._approvals
    await turns(
        lambda: any(not one.decision and one.step.rolled_back_ms is None for one in asked.values())
    )
    page = await scene.store.list_approvals(Query(status="PENDING"), at_ms=0)
    [row] = page.rows
    return row


async def turns(is_so: Callable[[], bool]) -> None:
    """Let the others run until it is so."""
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come")


def error_of(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(response.body)["error"]
    return found


def test_at_a_cap_that_refuses_nothing_is_sent_and_no_step_is_made() -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 2)
        for stream in (False, True):
            response = await scene.ask(scene.request("new", stream=stream))
            assert response.status == 429
            assert header(response, "x-should-retry") == "false"
            assert header(response, "retry-after") is None
            error = error_of(response)
            assert (error["code"], error["type"]) == ("budget_reached", "insufficient_quota")
            assert "budget.steps of session 's' is reached: 2 of 2 paid steps" in error["message"]
            assert "agentstate sessions budget s --steps N" in error["message"]
        assert len(scene.transport.calls) == 2
        assert await scene.states() == ["complete", "complete"]
        replayed = await scene.ask(scene.request("q1"))
        assert header(replayed, "x-agentstate-replay") == "exact"
        refreshed = await scene.ask(scene.request("q1", replay="refresh"))
        assert refreshed.status == 429  # that would be paid

    play(scenario, budget=budget(steps=2, action="refuse"))


def test_a_join_passes_whatever_is_used() -> None:
    async def scenario(scene: Scene) -> None:
        gate = asyncio.Event()
        plain = scene.transport.on_call

        async def late(number: int) -> Any:
            await gate.wait()
            return await plain(number)

        scene.transport.on_call = late
        calls = [asyncio.create_task(scene.ask(scene.request("same"))) for _ in range(3)]
        other = asyncio.create_task(scene.ask(scene.request("other")))
        await turns(lambda: len(scene.transport.calls) == 2)
        gate.set()
        bodies = {await read(response) for response in await asyncio.gather(*calls)}
        assert len(bodies) == 1
        assert (await other).status == 200  # it was in flight: nobody had counted the first yet
        assert len(scene.transport.calls) == 2
        assert (await scene.ask(scene.request("third"))).status == 429

    play(scenario, budget=budget(steps=1, action="refuse"))


@pytest.mark.parametrize("way", ["approve", "edit", "set"])
def test_held_at_a_cap_a_call_goes_on(way: str) -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 2)
        held = asyncio.create_task(scene.ask(scene.request("new")))
        row = await question(scene)
        assert (row.question.kind, row.question.tool) == ("budget", "budget.steps")
        assert row.question.arguments == '{"more":2}'
        assert row.question.rule == "budget.steps (set in the configuration)"
        assert await scene.states() == ["complete", "complete", "in_flight"]
        assert len(scene.transport.calls) == 2
        if way == "set":
            change = BudgetChange({"steps": 3})
            await scene.pipeline.budgets.set("s", change, by="ann")
        else:
            arguments = '{"more": 1}' if way == "edit" else None
            decision = Decision(True, "ann", arguments=arguments)
            await scene.gate.decide(row.approval_id, decision)
        assert (await held).status == 200
        [limit] = (await scene.pipeline.budgets.standing("s")).limits
        assert (limit.used, limit.left) == (3, 1 if way == "approve" else 0)

    play(scenario, budget=budget(steps=2))


def test_arguments_that_are_no_amount_decide_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 1)
        held = asyncio.create_task(scene.ask(scene.request("new")))
        row = await question(scene)
        for arguments in ('{"more": "all"}', "{}"):
            with pytest.raises(BadRequest, match="how much of steps"):
                await scene.gate.decide(row.approval_id, Decision(True, None, arguments=arguments))
        with pytest.raises(BadRequest, match="no model to tell"):
            await scene.gate.decide(row.approval_id, Decision(False, None, then="continue"))
        await scene.gate.decide(row.approval_id, Decision(True, None))
        assert (await held).status == 200

    play(scenario, budget=budget(steps=1))


def test_a_rejection_stands_for_all_calls_until_the_budget_is_changed() -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 1)
        held = [asyncio.create_task(scene.ask(scene.request(text))) for text in ("x", "y")]
        row = await question(scene)
        await turns(lambda: len(scene.store._steps) == 3)
        await scene.gate.decide(row.approval_id, Decision(False, "ann", "enough"))
        for response in await asyncio.gather(*held):
            assert response.status == 403
            assert error_of(response)["code"] == "human_rejection"
            assert "refused more of budget.steps: enough" in error_of(response)["message"]
        session = await scene.store.read_session("s")
        assert session is not None
        assert (session.status, session.status_by) == ("FAILED", "ann")
        again = await scene.ask(scene.request("z"))
        assert again.status == 403
        assert await scene.states() == ["complete", "failed", "failed"]  # it made no row
        scene.start()
        assert (await scene.ask(scene.request("z"))).status == 403
        await scene.pipeline.budgets.set("s", BudgetChange({"steps": 9}), by=None)
        assert (await scene.ask(scene.request("z"))).status == 200

    play(scenario, budget=budget(steps=1))


def test_a_rollback_of_the_step_that_asks_ends_its_wait() -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 1)
        held = asyncio.create_task(scene.ask(scene.request("new")))
        first = await question(scene)
        await scene.control.roll_back("s", Place(index=1), by=None)
        response = await held
        assert (response.status, error_of(response)["code"]) == (409, "rolled_back")
        again = asyncio.create_task(scene.ask(scene.request("new")))
        row = await question(scene)
        assert row.approval_id != first.approval_id
        await scene.gate.decide(row.approval_id, Decision(True, None))
        assert (await again).status == 200

    play(scenario, budget=budget(steps=1))


def test_each_cap_is_asked_about_in_turn() -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 2)
        held = asyncio.create_task(scene.ask(scene.request("new")))
        for tool in ("budget.steps", "budget.tokens"):
            row = await question(scene)
            assert row.question.tool == tool
            await scene.gate.decide(row.approval_id, Decision(True, None))
        assert (await held).status == 200

    play(scenario, budget=budget(steps=2, tokens=10))


def test_a_header_tightens_and_is_remembered() -> None:
    async def scenario(scene: Scene) -> None:
        first = scene.request("q0", budget="steps=1,action=refuse")
        assert (await scene.ask(first)).status == 200
        scene.start()
        assert (await scene.ask(scene.request("q1"))).status == 429
        looser = scene.request("q1", budget="steps=9")
        assert (await scene.ask(looser)).status == 200
        assert (await scene.ask(scene.request("q2", budget="steps=99"))).status == 200
        tight = scene.request("q3", budget="tokens=1,action=refuse")
        assert (await scene.ask(tight)).status == 429

    play(scenario, budget=budget(steps=4))


def test_without_caps_the_record_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        def fail(*_: Any) -> None:
            raise AssertionError("it was asked")

        monkeypatch.setattr(scene.store, "read_budget", fail)
        await paid(scene, 2)

    play(scenario)


def test_what_cannot_be_put_on_record_cannot_be_asked() -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 1)
        caller = Caller("s", None, None, None, False, "pinned", False)
        budgets = scene.pipeline.budgets
        reached = await budgets.check(caller)
        assert isinstance(reached, Reached)
        with pytest.raises(StoreError, match="could not be put on record"):
            await budgets.ask(caller, reached, None)

    play(scenario, budget=budget(steps=1))


def test_one_more_answer_to_a_step_is_admitted_or_not() -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 1)
        caller = Caller("s", None, None, None, False, "pinned", False)
        budgets = scene.pipeline.budgets
        await budgets.set("s", BudgetChange({"steps": 2}), by=None)
        await budgets.admit(caller, 1)
        await budgets.set("s", BudgetChange({"steps": 1}, "refuse"), by=None)
        with pytest.raises(BudgetReached):
            await budgets.admit(caller, 1)
        await budgets.set("s", BudgetChange(action="hold"), by=None)
        waiting = asyncio.create_task(budgets.admit(caller, 1))
        row = await question(scene)
        assert row.step_id == 1
        await budgets.set("s", BudgetChange(action="refuse"), by=None)
        with pytest.raises(AgentStateError) as refused:
            await waiting
        assert isinstance(refused.value, BudgetReached)

    play(scenario)


def test_a_cap_on_cost_that_cannot_see_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        await paid(scene, 4)  # model "m" has no price

    with caplog.at_level(logging.WARNING, "agentstate.budget"):
        play(scenario, budget=budget(cost_usd=0.000001))
    assert [record.getMessage() for record in caplog.records] == [
        "session 's': the cost of 1 of its answers is not known, so budget.cost_usd does not count "
        "them; a cap on tokens or steps does"
    ]


# --- the same calls -------------------------------------------------------------------------------


def answer_of(*calls: tuple[str, str], **changes: Any) -> Answer:
    made = tuple(
        replace(ToolCall(position, None, name, arguments), **changes)
        for position, (name, arguments) in enumerate(calls)
    )
    return Answer(choices=(Choice(index=0, tool_calls=made),))


def test_calls_are_the_same_whatever_their_order_and_writing() -> None:
    one = calls_of(answer_of(("look", '{"a": 1, "b": 2}')))
    assert one is not None
    same = [
        answer_of(("look", '{"b":2,"a":1}')),
        answer_of(("look", '{"a":1,"b":2}'), ("look", '{"b":2,"a":1}')),
    ]
    assert {calls_of(answer) for answer in same} == {one}
    others = [
        answer_of(("look", '{"a":1}')),
        answer_of(("Look", '{"a":1,"b":2}')),
        answer_of(("look", '{"a":1.0,"b":2}')),
        answer_of(("look", "no json")),
        answer_of(("look", '{"a":1,"b":2}'), ("other", "{}")),
    ]
    assert len({one, *map(calls_of, others)}) == 6
    turned = [("a", "{}"), ("b", "{}")]
    assert calls_of(answer_of(*turned)) == calls_of(answer_of(*turned[::-1]))


def test_large_arguments_are_compared_as_they_came() -> None:
    large = json.dumps({"text": "x" * 40_000, "n": 1})
    assert calls_of(answer_of(("w", large))) == calls_of(answer_of(("w", large)))
    assert calls_of(answer_of(("w", large))) != calls_of(answer_of(("w", large + " ")))


def test_what_asks_the_agent_for_nothing_has_no_calls() -> None:
    assert calls_of(answer_of()) is None
    assert calls_of(answer_of(("web_search", "{}"), runs_upstream=True)) is None
