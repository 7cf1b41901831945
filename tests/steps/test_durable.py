"""What a tool is told, by the policy, by people, by a pause; and how it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.chat import ToolCall
from agentstate.ground.clock import now_ms
from agentstate.ground.durable import Begun, DurableCall, Report, Settlement
from agentstate.ground.errors import AlreadyDecided, BadRequest, Conflict
from agentstate.ground.records import Query
from agentstate.ground.settings import GateSettings, RuleSettings, Settings, ToolSettings
from agentstate.steps.durable import Durables, Wanted
from agentstate.steps.gate import Gate
from agentstate.steps.policy import Policy
from agentstate.store.memory import MemoryStore
from tests.store.contract import checkpoint_of, claim_of
from tests.store.contract_events import wants
from tests.store.contract_gate import FAR_MS, question_of

WAIT_S = 20.0
RULES = (
    RuleSettings(tool="drop_*", action="deny", reason="never", then="continue"),
    RuleSettings(tool="charge", when="args.cents > 100", action="ask"),
)


class Room:
    """A store, a gate, and what takes begins."""

    def __init__(self, **changes: Any) -> None:
        self.store = MemoryStore()
        settings = replace(Settings(), gate=GateSettings(rules=RULES, timeout_s=60.0), **changes)
        self.points: list[str] = []
        self.rings = 0
        self.gate = Gate(self.store, settings.gate, Policy(settings.gate))
        self.gate.on_event = self._ring
        self.durables = Durables(self.store, self.gate, settings, self.points.append)

    def _ring(self) -> None:
        self.rings += 1

    async def begin(self, tool: str = "look", arguments: str = "{}", **said: Any) -> Begun:
        wait_s = said.pop("wait_s", 0.0)
        is_gone = said.pop("is_gone", lambda: False)
        wanted = replace(Wanted("s", tool, arguments, owner="a"), **said)
        return await self.durables.begin(wanted, wait_s=wait_s, is_gone=is_gone)

    async def begun(self, *args: Any, **said: Any) -> DurableCall:
        found = await self.begin(*args, **said)
        assert found.state == "run"
        assert found.call is not None
        return found.call

    async def decide_next(self, decision: Decision) -> None:
        page = await self.store.list_approvals(Query(status="PENDING"), at_ms=now_ms())
        await self.gate.decide(page.rows[0].approval_id, decision)


def play(test: Callable[[Room], Awaitable[None]], **changes: Any) -> None:
    async def main() -> None:
        room = Room(**changes)
        await room.store.open()
        async with asyncio.timeout(WAIT_S):
            await test(room)

    asyncio.run(main())


async def turns() -> None:
    """Let whoever waits get to where it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


# --- equal calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ("", "{}", True),
        ('{"a": 1}', '{"a": 1.0}', False),
        ('{"a": 1}', '{"a": true}', False),
        ("free text", "free text", True),
        ("free text", "Free text", False),
        ('{"a": "\\ud83d"}', '{"a": "\\ud83d"}', True),
    ],
)
def test_calls_are_equal_by_what_their_arguments_mean(one: str, other: str, is_equal: bool) -> None:
    async def scenario(room: Room) -> None:
        first = await room.begun("look", one)
        second = (await room.begin("look", other)).call
        assert second is not None
        assert (second.call == first.call) is is_equal

    play(scenario)


def test_a_key_and_a_name_tell_calls_apart() -> None:
    async def scenario(room: Room) -> None:
        names = {
            (await room.begun()).call,
            (await room.begun("see")).call,
            (await room.begun(key="k")).call,
            (await room.begun(key="l")).call,
        }
        assert len(names) == 4

    play(scenario)


def test_the_points_at_which_a_test_kills_are_passed_in_order() -> None:
    async def scenario(room: Room) -> None:
        row = await room.begun()
        await room.durables.report("s", row.call, Report("result", "1"))
        assert room.points == ["tool_begin", "tool_begun", "tool_report", "tool_reported"]

    play(scenario)


# --- the policy -----------------------------------------------------------------------------------


def test_a_call_that_no_rule_names_runs_and_one_that_is_guarded_is_asked_about() -> None:
    async def scenario(room: Room) -> None:
        assert (await room.begin("charge", '{"cents": 100}')).state == "run"

        held = await room.begin("charge", '{"cents": 101}')

        assert (held.state, held.held_by, room.rings) == ("held", "approval", 1)
        assert held.approval is not None
        question = held.approval.question
        assert (question.kind, question.tool) == ("durable", "charge")
        assert question.rule == "gate.rule 2: charge when args.cents > 100"
        assert question.deadline_ms is not None
        assert 0 < question.deadline_ms - now_ms() <= 60_000

    play(scenario)


def test_what_a_rule_denies_is_refused_with_nobody_told() -> None:
    async def scenario(room: Room) -> None:
        room.store.subscribe((wants("a"),))
        told = await room.begin("drop_tables")

        assert told.state == "refused"
        assert told.call is not None
        assert told.call.reason == "never"
        words = await room.durables.refusal_of(told.call)
        assert words.startswith("A rule refused this call of drop_tables")
        assert (await room.begin("drop_tables", owner="b")).state == "refused"
        assert await room.store.claim_deliveries(at_ms=FAR_MS, lease_ms=1, limit=9) == ()

    play(scenario)


def test_arguments_that_readers_differ_on_are_asked_about() -> None:
    async def scenario(room: Room) -> None:
        assert (await room.begin("charge", '{"cents": 1, "cents": 2}')).state == "held"

    play(scenario)


def test_edited_arguments_must_be_an_object() -> None:
    async def scenario(room: Room) -> None:
        await room.begin("send_email")
        with pytest.raises(BadRequest, match="JSON object is expected"):
            await room.decide_next(Decision(True, "ann", arguments="[]"))
        await room.decide_next(Decision(True, "ann", arguments='{"to": "b"}'))
        assert (await room.begun("send_email")).edited == '{"to": "b"}'

    play(scenario)


@pytest.mark.parametrize("then", ["stop", "continue"])
def test_a_rejection_is_a_refusal_whatever_follows(then: Any) -> None:
    async def scenario(room: Room) -> None:
        held = await room.begin("send_email", on_reject=then)
        await room.decide_next(Decision(False, "ann", "no"))
        told = await room.begin("send_email")
        assert held.approval is not None
        assert told.state == "refused"
        assert told.call is not None
        assert "Reason: no." in await room.durables.refusal_of(told.call)
        session = await room.store.read_session("s")
        assert session is not None
        assert session.status == ("FAILED" if then == "stop" else "RUNNING")

    play(scenario)


async def let_out(room: Room, arguments: str, edited: str | None = None) -> str:
    """Have a person approve the model's own call, and an agent get it; return the approval."""
    claimed = await room.store.claim_step(claim_of("hi"))
    call = (0, ToolCall(0, "call_7", "send_email", arguments))
    answer_id = await room.store.record_answer(checkpoint_of(claimed.step_id, tool_calls=(call,)))
    digest = room.gate.policy.digest_of("send_email", arguments)
    question = question_of(arguments=arguments, digest=digest, call_id="call_7")
    (asked,) = await room.store.open_approvals(claimed.step_id, answer_id, (question,), at_ms=1)
    decision = Decision(True, "ann", arguments=edited)
    await room.store.decide(asked.approval_id, decision, at_ms=2)
    await room.store.record_release(answer_id, None, at_ms=3)
    return asked.approval_id


@pytest.mark.parametrize(
    ("edited", "arguments", "said", "state"),
    [
        (None, '{ "to": "a" }', {}, "run"),
        (None, '{"to": "a"}', {"call_id": "call_7"}, "run"),
        (None, '{"to": "a"}', {"call_id": "call_8"}, "held"),
        (None, '{"to": "b"}', {}, "held"),
        ('{"to": "b"}', '{"to": "b"}', {}, "run"),
        ('{"to": "b"}', '{"to": "a"}', {}, "held"),
    ],
)
def test_the_models_own_call_is_not_asked_about_twice(
    edited: str | None, arguments: str, said: dict[str, str], state: str
) -> None:
    async def scenario(room: Room) -> None:
        approval_id = await let_out(room, '{"to": "a"}', edited)

        told = await room.begin("send_email", arguments, **said, begin_id="1")

        assert told.state == state
        assert told.call is not None
        assert (told.call.approval_id == approval_id) is (state == "run")
        second = await room.begin("send_email", arguments, **said, begin_id="2")
        assert second.state == "held", "it stands for one call"

    play(scenario)


# --- pauses, deaths, people -----------------------------------------------------------------------


def test_a_paused_session_holds_each_begin_and_takes_reports() -> None:
    async def scenario(room: Room) -> None:
        row = await room.begun()
        await room.store.pause("s", at_ms=1)

        held = await room.begin("see")

        assert (held.state, held.held_by, held.call) == ("held", "pause", None)
        await room.durables.report("s", row.call, Report("result", "1"))
        assert len((await room.store.list_durables(Query())).rows) == 1

    play(scenario)


@pytest.mark.parametrize(
    ("setting", "option", "state"),
    [("ask", None, "unknown"), ("run", None, "run"), ("skip", None, "replay"),
     ("run", "ask", "unknown"), ("ask", "skip", "replay")],
)  # fmt: skip
def test_what_nobody_knows_goes_by_the_setting_or_by_the_call(
    setting: Any, option: Any, state: str
) -> None:
    async def scenario(room: Room) -> None:
        await room.begun()
        assert (await room.begin(owner="b", on_unknown=option)).state == state

    play(scenario, tools=ToolSettings(unknown=setting))


def test_whoever_waits_goes_on_once_it_is_reported_settled_decided_or_resumed() -> None:
    async def scenario(room: Room) -> None:
        async def waiting(*args: Any, **said: Any) -> asyncio.Task[Begun]:
            task = asyncio.ensure_future(room.begin(*args, **said, wait_s=WAIT_S))
            await turns()
            assert not task.done()
            return task

        row = await room.begun(lease_s=60.0)
        task = await waiting(owner="b")
        await room.durables.report("s", row.call, Report("result", "1"))
        assert (await task).state == "replay"

        row = await room.begun("see")
        task = await waiting("see", owner="b")
        await room.durables.settle("s", row.call, Settlement("not_happened"))
        assert (await task).state == "run"

        task = await waiting("send_email")
        await room.decide_next(Decision(True, "ann"))
        assert (await task).state == "run"

        await room.store.pause("s", at_ms=1)
        task = await waiting("peek")
        await room.store.resume("s", at_ms=2)
        room.durables.ring("s")
        assert (await task).state == "run"

    play(scenario)


def test_a_lease_that_ends_while_somebody_waits_makes_it_unknown() -> None:
    async def scenario(room: Room) -> None:
        await room.begun(lease_s=0.05)
        held = await room.begin(owner="b")
        later = asyncio.ensure_future(room.begin(owner="b", wait_s=0.5))
        assert (held.state, (await later).state) == ("held", "unknown")

    play(scenario)


def test_a_wait_ends_by_itself_and_by_a_stop_of_the_proxy() -> None:
    async def scenario(room: Room) -> None:
        assert (await room.begin("send_email", wait_s=0.01)).state == "held"
        task = asyncio.ensure_future(room.begin("send_email", wait_s=WAIT_S))
        await turns()
        room.durables.park()
        assert (await task).state == "held"
        assert (await room.begin("send_email", wait_s=WAIT_S)).state == "held"

    play(scenario)


def test_nothing_is_begun_for_a_client_that_has_left() -> None:
    async def scenario(room: Room) -> None:
        left: list[int] = []
        task = asyncio.ensure_future(
            room.begin("send_email", wait_s=WAIT_S, is_gone=lambda: bool(left))
        )
        await turns()
        left.append(1)
        await room.decide_next(Decision(True, "ann"))
        with pytest.raises(ConnectionResetError):
            await task
        (row,) = (await room.store.list_durables(Query())).rows
        assert (row.state, row.runs) == ("asked", 0)

    play(scenario)


def test_a_call_is_forgotten_once_and_decided_once() -> None:
    async def scenario(room: Room) -> None:
        row = await room.begun()
        await room.durables.report("s", row.call, Report("result", "1"))
        await room.durables.forget("s", row.call, by="ann", reason=None)
        with pytest.raises(Conflict):
            await room.durables.forget("s", row.call, by="ann", reason=None)
        held = await room.begin("send_email")
        assert held.approval is not None
        await room.gate.decide(held.approval.approval_id, Decision(True, "ann"))
        with pytest.raises(AlreadyDecided):
            await room.gate.decide(held.approval.approval_id, Decision(False, "bo"))

    play(scenario)
