"""Calls that wait for a person, from the request to what the agent gets: no sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.errors import (
    AlreadyDecided,
    BadRequest,
    NotFound,
    StoreError,
    UpstreamCut,
)
from agentstate.ground.records import Query
from agentstate.ground.settings import ForwardSettings, GateSettings, RuleSettings, StoreSettings
from agentstate.wire import sse
from agentstate.wire.message import Abort, Response
from tests.steps.scene import (
    DONE,
    HEAD,
    FakeExchange,
    FakeRequest,
    Scene,
    frame,
    header,
    play,
    read,
)

APPROVED = Decision(is_approved=True, by="ada")
FAST = GateSettings(tools=("delete_rows",), heartbeat_s=0.1)
CONTINUE = GateSettings(tools=("delete_rows",), heartbeat_s=0.1, on_reject="continue")


def rejected(then: Any = None, reason: str = "not in office hours") -> Decision:
    return Decision(is_approved=False, by="ada", reason=reason, then=then)


def call(name: str, arguments: str = "{}", call_id: str = "call_1") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


GUARDED = call("delete_rows", '{"table":"users"}')
SAFE = call("get_weather", '{"city":"Oslo"}', "call_0")


def body(*calls: dict[str, Any], text: str | None = None, number: int = 0) -> bytes:
    """Make a whole chat answer with tool calls."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    head = {"id": f"c{number}", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice]}).encode()


def call_frames(*calls: dict[str, Any]) -> list[bytes]:
    """Make the frames of tool calls: each opened, then its arguments."""
    frames: list[bytes] = []
    for index, one in enumerate(calls):
        opened = {**one, "function": {**one["function"], "arguments": ""}}
        frames.append(frame({"tool_calls": [{"index": index, **opened}]}))
        piece = {"index": index, "function": {"arguments": one["function"]["arguments"]}}
        frames.append(frame({"tool_calls": [piece]}))
    return frames


TEXT = frame({"content": "Well. "})
HELD = sse.comment(b"held")
CALLED = frame({}, "tool_calls")


class Model:
    """An upstream that answers each call with the next of its answers."""

    def __init__(self, scene: Scene, *answers: bytes | list[bytes]) -> None:
        self._answers = list(answers)
        self._scene = scene
        scene.transport.on_call = self._answer

    @property
    def calls(self) -> list[Any]:
        """The bodies it was sent."""
        return [json.loads(each.body) for each in self._scene.transport.calls]  # type: ignore[arg-type]

    async def _answer(self, number: int) -> FakeExchange:
        answer = self._answers[number]
        if isinstance(answer, bytes):
            exchange = FakeExchange(200, b"application/json")
            exchange.give(answer, None)
        else:
            exchange = FakeExchange(200, b"text/event-stream")
            exchange.give(*answer, None)
        return exchange


def request(*messages: dict[str, Any], stream: bool = False, **headers: str) -> FakeRequest:
    """Make a call that offers both tools."""
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in
             ("get_weather", "delete_rows")]  # fmt: skip
    asked = list(messages) or [{"role": "user", "content": "go"}]
    sent: dict[str, Any] = {"model": "m", "messages": asked, "tools": tools}
    if stream:
        sent["stream"] = True
    pairs = [(b"x-agent-session-id", b"s"), (b"authorization", b"Bearer sk-x")]
    pairs += [(f"x-agent-{k.replace('_', '-')}".encode(), v.encode()) for k, v in headers.items()]
    return FakeRequest(pairs, json.dumps(sent).encode())


SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}}


async def pending(scene: Scene, count: int = 1) -> list[Approval]:
    """Wait until so many approvals wait for a decision; return them, first asked first."""
    while True:
        page = await scene.store.list_approvals(Query(status="PENDING"), at_ms=0)
        if len(page.rows) >= count:
            assert len(page.rows) == count
            return sorted(page.rows, key=lambda row: (row.index, row.question.position))
        await asyncio.sleep(0)


async def decide(scene: Scene, decision: Decision) -> Approval:
    (approval,) = await pending(scene)
    return await scene.gate.decide(approval.approval_id, decision)


def begin(scene: Scene, asked: FakeRequest) -> asyncio.Task[Response]:
    return asyncio.create_task(scene.ask(asked))


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


def calls_of(raw: bytes | Any) -> list[tuple[str, str]]:
    message = json.loads(raw)["choices"][0]["message"]
    return [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]


def run(test: Callable[[Scene], Any], gate: GateSettings = FAST, **sections: Any) -> None:
    play(test, gate=gate, **sections)


# --- one body -------------------------------------------------------------------------------------


def test_a_guarded_call_is_held_until_a_person_approves_and_then_goes_out_as_it_was() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        waiting = begin(scene, request())
        (approval,) = await pending(scene)
        await settle()
        assert not waiting.done()
        assert approval.question.tool == "delete_rows"
        assert approval.question.arguments == '{"table":"users"}'
        session = await scene.store.read_session("s")
        assert session is not None
        assert session.status == "WAITING"

        await scene.gate.decide(approval.approval_id, APPROVED)
        response = await waiting

        assert response.status == 200
        assert response.body == body(GUARDED)
        assert header(response, "x-agentstate-approval-id") == approval.approval_id
        again = await scene.ask(request())
        assert again.body == response.body
        assert header(again, "x-agentstate-cache-hit") == "true"
        assert len(model.calls) == 1
        session = await scene.store.read_session("s")
        assert session is not None
        assert session.status == "RUNNING"

    run(scenario)


def test_what_a_person_takes_to_decide_is_no_overhead() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED))
        waiting = begin(scene, request())
        await pending(scene)
        await asyncio.sleep(0.3)  # the person thinks; this is what must not be counted
        await decide(scene, APPROVED)
        overhead = header(await waiting, "x-agentstate-overhead-ms")
        assert overhead is not None
        assert float(overhead) < 300

    run(scenario)


def test_other_calls_and_other_answers_go_out_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(SAFE), body(text="delete_rows is dangerous"))
        assert (await scene.ask(request())).body == body(SAFE)
        other = await scene.ask(request({"role": "user", "content": "other"}))
        assert other.body == body(text="delete_rows is dangerous")
        page = await scene.store.list_approvals(Query(), at_ms=0)
        assert not page.rows

    run(scenario)


def test_a_rejection_that_stops_is_a_403_now_and_on_every_retry() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        waiting = begin(scene, request())
        await decide(scene, rejected())
        first, again = await waiting, await scene.ask(request())
        for response in (first, again):
            assert response.status == 403
            error = json.loads(await read(response))["error"]
            assert error["code"] == "human_rejection"
            assert "not in office hours" in error["message"]
            assert "ada" in error["message"]
            assert header(response, "x-should-retry") == "false"
        assert len(model.calls) == 1
        session = await scene.store.read_session("s")
        assert session is not None
        assert session.status == "FAILED"

    run(scenario)


def test_the_first_decision_stands() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED))
        waiting = begin(scene, request())
        approval = await decide(scene, APPROVED)
        with pytest.raises(AlreadyDecided) as raised:
            await scene.gate.decide(approval.approval_id, rejected())
        assert isinstance(raised.value.approval, Approval)
        assert raised.value.approval.decision == APPROVED
        assert (await waiting).status == 200
        with pytest.raises(NotFound):
            await scene.gate.decide("apr_none", APPROVED)

    run(scenario)


def test_a_client_that_left_finds_the_same_approval_when_it_asks_again() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        first = request()
        waiting = begin(scene, first)
        (approval,) = await pending(scene)
        first.leave()
        with pytest.raises(ConnectionError):
            await waiting
        second = begin(scene, request())
        third = begin(scene, request())
        await settle()
        assert await pending(scene) == [approval]
        await scene.gate.decide(approval.approval_id, APPROVED)
        responses = [await second, await third]
        assert [each.body for each in responses] == [body(GUARDED)] * 2
        assert {header(each, "x-agentstate-replay") for each in responses} == {"joined"}
        assert len(model.calls) == 1

    run(scenario)


def test_a_decision_made_while_nobody_is_connected_counts() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        first = request()
        waiting = begin(scene, first)
        await pending(scene)
        first.leave()
        with pytest.raises(ConnectionError):
            await waiting
        await decide(scene, APPROVED)
        assert (await scene.ask(request())).body == body(GUARDED)
        assert len(model.calls) == 1

    run(scenario)


def test_a_client_that_left_before_the_answer_came_still_has_its_call_asked_about() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = FakeExchange(200, b"application/json")

        async def on_call(number: int) -> FakeExchange:
            return exchange

        scene.transport.on_call = on_call
        first = request()
        waiting = begin(scene, first)
        await settle()
        first.leave()
        exchange.give(body(GUARDED), None)
        await decide(scene, APPROVED)
        waiting.cancel()
        assert (await scene.ask(request())).body == body(GUARDED)

    run(scenario)


def test_a_restart_while_held_loses_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        first = request()
        waiting = begin(scene, first)
        (approval,) = await pending(scene)
        scene.gate.park()
        response = await waiting
        assert response.status == 503
        assert header(response, "x-should-retry") is None
        scene.start()
        await scene.gate.decide(approval.approval_id, APPROVED)
        assert (await scene.ask(request())).body == body(GUARDED)
        assert len(model.calls) == 1

    run(scenario)


def test_equal_call_ids_of_other_answers_share_no_decision() -> None:
    """Some models call all their calls `call_0`."""

    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED), body(GUARDED))
        first = begin(scene, request())
        await decide(scene, APPROVED)
        await first
        second = begin(scene, request({"role": "user", "content": "other"}))
        await settle()
        assert not second.done()
        await decide(scene, rejected())
        assert (await second).status == 403

    run(scenario)


def test_a_refreshed_answer_is_asked_about_anew() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED), body(GUARDED, number=1))
        first = begin(scene, request())
        await decide(scene, APPROVED)
        await first
        second = begin(scene, request(replay="refresh"))
        await settle()
        assert not second.done()
        await decide(scene, APPROVED)
        assert (await second).body == body(GUARDED, number=1)

    run(scenario)


# --- time -----------------------------------------------------------------------------------------


def test_nobody_decides_in_time_and_the_same_row_opens_again() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        response = await scene.ask(request(hold_timeout="0.01"))
        assert response.status == 408
        error = json.loads(await read(response))["error"]
        assert error["code"] == "approval_timeout"
        assert header(response, "x-should-retry") == "false"
        (expired,) = await pending(scene)
        assert expired.status(2**60) == "EXPIRED"

        waiting = begin(scene, request())
        for _ in range(5000):
            (reopened,) = await pending(scene)
            if reopened.asked_ms != expired.asked_ms:
                break
            await asyncio.sleep(0.001)
        assert reopened.approval_id == expired.approval_id
        await scene.gate.decide(reopened.approval_id, APPROVED)
        assert (await waiting).body == body(GUARDED)
        assert len(model.calls) == 1

    run(scenario)


def test_a_caller_that_says_how_long_it_waits_is_held_to_that_alone() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        short = begin(scene, request(hold_timeout="0.05"))
        await pending(scene)
        patient = begin(scene, request(hold_timeout="60"))
        assert (await short).status == 408
        await settle()
        assert not patient.done()
        await decide(scene, APPROVED)
        assert (await patient).body == body(GUARDED)
        assert len(model.calls) == 1

    run(scenario)


# --- edits ----------------------------------------------------------------------------------------


def test_edited_arguments_reach_the_agent_under_the_same_id_and_both_are_on_record() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(SAFE, GUARDED))
        waiting = begin(scene, request())
        edited = Decision(is_approved=True, by="ada", arguments='{"table":"tmp"}')
        approval = await decide(scene, edited)
        response = await waiting
        assert calls_of(response.body) == [
            ("get_weather", '{"city":"Oslo"}'),
            ("delete_rows", '{"table":"tmp"}'),
        ]
        assert json.loads(await read(response))["choices"][0]["message"]["tool_calls"][1]["id"] == (
            "call_1"
        )
        assert (await scene.ask(request())).body == response.body
        recorded = await scene.store.read_answer(approval.step_id)
        assert recorded is not None
        assert recorded.content == body(SAFE, GUARDED)

    run(scenario)


@pytest.mark.parametrize("arguments", ['{"table":5}', "[]", "{", '"x"'])
def test_edited_arguments_that_do_not_fit_decide_nothing(arguments: str) -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED))
        waiting = begin(scene, request())
        with pytest.raises(BadRequest):
            await decide(scene, Decision(is_approved=True, by=None, arguments=arguments))
        await settle()
        assert not waiting.done()
        await decide(scene, APPROVED)
        assert (await waiting).body == body(GUARDED)

    run(scenario)


# --- refused, and on ------------------------------------------------------------------------------


def test_a_model_whose_only_call_was_refused_is_told_and_its_next_answer_is_delivered() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED), body(text="I will not."), body(text="next"))
        waiting = begin(scene, request())
        await decide(scene, rejected("continue"))
        response = await waiting
        assert response.status == 200
        assert response.body == body(text="I will not.")

        told = model.calls[1]["messages"]
        assert [each["role"] for each in told] == ["user", "assistant", "tool"]
        assert told[1]["tool_calls"] == [GUARDED]
        assert told[2]["tool_call_id"] == "call_1"
        assert "not in office hours" in told[2]["content"]
        assert (await scene.ask(request())).body == response.body

        # What the agent sends next lacks the call; upstream it is put back.
        said = {"role": "assistant", "content": "I will not."}
        more = {"role": "user", "content": "then what?"}
        user = {"role": "user", "content": "go"}
        after = await scene.ask(request(user, said, more))
        assert after.body == body(text="next")
        sent = model.calls[2]["messages"]
        assert [each["role"] for each in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[1]["tool_calls"] == [GUARDED]
        scene.start()
        assert (await scene.ask(request(user, said, more))).body == after.body
        assert len(model.calls) == 3

    run(scenario)


def test_siblings_that_were_approved_reach_the_agent_without_the_refused_call() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(SAFE, GUARDED), body(text="done"))
        waiting = begin(scene, request())
        await decide(scene, rejected("continue"))
        response = await waiting
        assert calls_of(response.body) == [("get_weather", '{"city":"Oslo"}')]

        user = {"role": "user", "content": "go"}
        said = {"role": "assistant", "content": None, "tool_calls": [SAFE]}
        result = {"role": "tool", "tool_call_id": "call_0", "content": "rain"}
        assert (await scene.ask(request(user, said, result))).body == body(text="done")
        sent = model.calls[1]["messages"]
        assert sent[1]["tool_calls"] == [SAFE, GUARDED]
        results = {each["tool_call_id"]: each["content"] for each in sent[2:]}
        assert results["call_0"] == "rain"
        assert "refused" in results["call_1"]

    run(scenario)


def test_a_history_that_has_no_place_for_a_refusal_says_so_on_its_step() -> None:
    async def scenario(scene: Scene) -> None:
        answers = [body(GUARDED), body(text="I will not."), body(text="next"), body(text="lane")]
        model = Model(scene, *answers)
        waiting = begin(scene, request())
        await decide(scene, rejected("continue"))
        await waiting
        user, more = {"role": "user", "content": "go"}, {"role": "user", "content": "and?"}
        rewritten = {"role": "assistant", "content": "something else"}
        await scene.ask(request(user, rewritten, more))
        assert model.calls[2]["messages"] == [user, rewritten, more]
        step = await scene.store.find_step("s", 1)
        assert step is not None
        (attempt,) = await scene.store.list_attempts(step.step_id)
        assert "no place" in attempt.dropped[0]
        other = await scene.ask(request({"role": "user", "content": "a lane of its own"}))
        assert other.status == 200
        lane = await scene.store.find_step("s", 2)
        assert lane is not None
        (attempt,) = await scene.store.list_attempts(lane.step_id)
        assert attempt.dropped == ()

    run(scenario)


def test_the_same_call_proposed_again_is_refused_without_asking() -> None:
    async def scenario(scene: Scene) -> None:
        again = call("delete_rows", '{ "table": "users" }', "call_9")
        model = Model(scene, body(GUARDED), body(again), body(text="Fine."))
        waiting = begin(scene, request())
        await decide(scene, rejected("continue"))
        assert (await waiting).body == body(text="Fine.")
        assert len(model.calls) == 3
        page = await scene.store.list_approvals(Query(status="REJECTED"), at_ms=0)
        assert sorted(str(row.decision and row.decision.by) for row in page.rows) == ["ada", "rule"]

    run(scenario)


def test_a_model_that_goes_on_asking_is_stopped_after_three_rounds() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, *[body(GUARDED, number=n) for n in range(5)])
        waiting = begin(scene, request())
        await decide(scene, rejected("continue"))
        response = await waiting
        assert response.status == 403
        assert "3 times" in json.loads(await read(response))["error"]["message"]
        assert len(model.calls) == 4
        assert (await scene.ask(request())).status == 403
        assert len(model.calls) == 4

    run(scenario)


def test_many_who_wait_have_the_model_asked_once() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED), body(text="No."))
        waiting = [begin(scene, request()) for _ in range(20)]
        await decide(scene, rejected("continue"))
        assert {(await each).body for each in waiting} == {body(text="No.")}
        assert len(model.calls) == 2

    run(scenario)


def test_the_header_beats_the_setting_and_the_decision_beats_the_header() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED), body(text="No."), body(GUARDED), body(GUARDED))
        first = begin(scene, request())  # as set: continue
        await decide(scene, rejected())
        assert (await first).status == 200
        second = begin(scene, request({"role": "user", "content": "b"}, on_reject="stop"))
        await decide(scene, rejected())
        assert (await second).status == 403
        third = begin(scene, request({"role": "user", "content": "c"}))
        await decide(scene, rejected("stop"))
        assert (await third).status == 403

    run(scenario, CONTINUE)


# --- rules ----------------------------------------------------------------------------------------


def test_a_rule_denies_without_asking_and_says_so() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED))
        response = await scene.ask(request())
        assert response.status == 403
        error = json.loads(await read(response))["error"]
        assert error["code"] == "policy_rejection"
        assert "production is off limits" in error["message"]

    rule = RuleSettings(tool="delete_*", action="deny", reason="production is off limits")
    run(scenario, GateSettings(rules=(rule,)))


def test_a_rule_may_deny_and_have_the_model_go_on() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED), body(text="No."))
        assert (await scene.ask(request())).body == body(text="No.")
        assert "rule refused" in model.calls[1]["messages"][2]["content"]

    run(scenario, GateSettings(rules=(RuleSettings("delete_*", None, "deny", "continue", None),)))


def test_a_condition_on_the_arguments_decides() -> None:
    async def scenario(scene: Scene) -> None:
        small, large = call("pay", '{"amount": 10}'), call("pay", '{"amount": 9000}')
        Model(scene, body(small), body(large))
        assert (await scene.ask(request())).body == body(small)
        waiting = begin(scene, request({"role": "user", "content": "more"}))
        await decide(scene, APPROVED)
        assert (await waiting).body == body(large)

    run(scenario, GateSettings(rules=(RuleSettings("pay", "args.amount > 5000"),)))


# --- the whole request ----------------------------------------------------------------------------


def test_a_request_that_asks_for_approval_is_held_before_it_costs_anything() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(text="hello"))
        waiting = begin(scene, request(require_approval="true"))
        (approval,) = await pending(scene)
        await settle()
        assert not model.calls
        assert approval.question.kind == "request"
        await scene.gate.decide(approval.approval_id, APPROVED)
        assert (await waiting).body == body(text="hello")
        assert (await scene.ask(request(require_approval="true"))).body == body(text="hello")
        assert len(model.calls) == 1

    run(scenario)


def test_a_refused_request_never_goes_upstream() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene)
        waiting = begin(scene, request(require_approval="true"))
        with pytest.raises(BadRequest):
            await decide(scene, rejected("continue"))
        await decide(scene, rejected())
        assert (await waiting).status == 403
        assert (await scene.ask(request(require_approval="true"))).status == 403
        assert not model.calls

    run(scenario)


def test_an_approval_of_a_request_survives_a_restart_and_lets_one_call_out() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(text="hello"), body(text="again"))
        waiting = begin(scene, request(require_approval="true"))
        (approval,) = await pending(scene)
        scene.gate.park()
        assert (await waiting).status == 503
        scene.start()
        await scene.gate.decide(approval.approval_id, APPROVED)
        assert (await scene.ask(request(require_approval="true"))).body == body(text="hello")
        fresh = begin(scene, request(require_approval="true", replay="refresh"))
        (other,) = await pending(scene)
        assert other.approval_id != approval.approval_id
        await scene.gate.decide(other.approval_id, APPROVED)
        assert (await fresh).body == body(text="again")
        assert len(model.calls) == 2

    run(scenario)


# --- re-runs --------------------------------------------------------------------------------------


def test_a_re_run_gets_an_approved_call_again_and_each_release_is_on_record() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(scene, body(GUARDED))
        waiting = begin(scene, request(run_id="one"))
        await decide(scene, APPROVED)
        await waiting
        assert (await scene.ask(request(run_id="two"))).body == body(GUARDED)
        (approval,) = (await scene.store.list_approvals(Query(), at_ms=0)).rows
        assert approval.answer_id is not None
        releases = await scene.store.list_releases(approval.answer_id)
        assert [(each.run_id, each.is_written) for each in releases] == [
            ("one", True),
            ("two", True),
        ]
        assert len(model.calls) == 1

    run(scenario)


def test_a_re_run_may_have_to_ask_again() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED))
        waiting = begin(scene, request(run_id="one"))
        await decide(scene, APPROVED)
        await waiting
        again = begin(scene, request(run_id="two"))
        (approval,) = await pending(scene)
        assert "released to the run one" in approval.question.why
        with pytest.raises(BadRequest):
            await scene.gate.decide(
                approval.approval_id, Decision(True, None, arguments='{"table":"x"}')
            )
        await scene.gate.decide(approval.approval_id, rejected())
        assert (await again).status == 403

    run(scenario, GateSettings(tools=("delete_rows",), rerelease="ask"))


# --- streams --------------------------------------------------------------------------------------


class Reader:
    """Reads a streamed response piece by piece, beside the test."""

    def __init__(self, response: Response) -> None:
        assert not isinstance(response.body, bytes)
        self.pieces: list[bytes] = []
        self.heartbeat = asyncio.Event()  # one has come
        self.task = asyncio.create_task(self._read(response.body))

    @property
    def content(self) -> bytes:
        """What has come, without heartbeats."""
        return b"".join(self.pieces).replace(HELD, b"")

    async def _read(self, pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            self.pieces.append(piece)
            if piece == HELD:
                self.heartbeat.set()


def test_text_flows_and_frames_are_kept_from_the_guarded_call_on() -> None:
    async def scenario(scene: Scene) -> None:
        frames = [HEAD, TEXT, TEXT, *call_frames(GUARDED), CALLED, DONE]
        model = Model(scene, frames)
        reader = Reader(await scene.ask(request(stream=True)))
        (approval,) = await pending(scene)
        await reader.heartbeat.wait()
        assert reader.content == HEAD + TEXT + TEXT
        await scene.gate.decide(approval.approval_id, APPROVED)
        await reader.task
        assert reader.content == b"".join(frames)
        again = await scene.ask(request(stream=True))
        assert await read(again) == b"".join(frames)
        assert len(model.calls) == 1

    run(scenario)


def test_calls_no_rule_names_go_out_at_once_unless_an_earlier_one_is_held() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = FakeExchange(200, b"text/event-stream")

        async def on_call(number: int) -> FakeExchange:
            return exchange

        scene.transport.on_call = on_call
        frames = call_frames(SAFE, GUARDED, {**SAFE, "id": "call_2"})
        exchange.give(HEAD, *frames[:2])
        reader = Reader(await scene.ask(request(stream=True)))
        await settle()
        assert reader.content == HEAD + b"".join(frames[:2])
        exchange.give(*frames[2:])
        await settle()
        assert reader.content == HEAD + b"".join(frames[:2])
        exchange.give(CALLED, DONE, None)
        await decide(scene, APPROVED)
        await reader.task
        assert reader.content == b"".join([HEAD, *frames, CALLED, DONE])

    run(scenario)


def test_a_stream_that_has_begun_ends_in_an_error_and_the_retry_is_a_real_403() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, [HEAD, TEXT, *call_frames(GUARDED), CALLED, DONE])
        reader = Reader(await scene.ask(request(stream=True)))
        await decide(scene, rejected())
        with pytest.raises(Abort):
            await reader.task
        assert reader.content.startswith(HEAD + TEXT + b"data: ")
        event = json.loads(reader.content[len(HEAD + TEXT) :].removeprefix(b"data: "))
        assert event["error"]["code"] == "human_rejection"
        assert b"delete_rows" not in reader.content[: len(HEAD + TEXT)]
        assert (await scene.ask(request(stream=True))).status == 403

    run(scenario)


def test_a_refused_stream_goes_on_with_the_models_next_answer() -> None:
    async def scenario(scene: Scene) -> None:
        model = Model(
            scene,
            [HEAD, TEXT, *call_frames(GUARDED), CALLED, DONE],
            body(text="I will not.", number=1),
            body(text="next"),
        )
        reader = Reader(await scene.ask(request(stream=True)))
        await decide(scene, rejected("continue"))
        await reader.task
        assert reader.content.startswith(HEAD + TEXT)
        assert reader.content.endswith(DONE)
        again = await scene.ask(request())
        said = json.loads(await read(again))["choices"][0]["message"]
        assert said["content"] == "Well. \n\nI will not."
        assert not said.get("tool_calls")
        assert await read(await scene.ask(request(stream=True))) == reader.content

        user, more = {"role": "user", "content": "go"}, {"role": "user", "content": "and?"}
        mine = {"role": "assistant", "content": "Well. \n\nI will not."}
        await scene.ask(request(user, mine, more))
        sent = model.calls[2]["messages"]
        assert [each["role"] for each in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[3]["content"] == "I will not."

    run(scenario)


def test_a_stream_held_before_it_began_hears_heartbeats_under_a_head_of_our_own() -> None:
    async def scenario(scene: Scene) -> None:
        frames = [HEAD, TEXT, frame({}, "stop"), DONE]
        Model(scene, frames)
        response = await scene.ask(request(stream=True, require_approval="true"))
        assert response.status == 200
        assert header(response, "content-type") == "text/event-stream; charset=utf-8"
        reader = Reader(response)
        await reader.heartbeat.wait()
        await decide(scene, APPROVED)
        await reader.task
        assert reader.content == b"".join(frames)

    run(scenario)


def test_a_stream_held_before_it_began_and_refused_ends_in_an_error_event() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene)
        reader = Reader(await scene.ask(request(stream=True, require_approval="true")))
        await decide(scene, rejected())
        with pytest.raises(Abort):
            await reader.task
        assert b"human_rejection" in reader.content

    run(scenario)


def test_a_call_the_text_spells_is_held_where_the_request_names_the_tool() -> None:
    async def scenario(scene: Scene) -> None:
        spelled = [
            HEAD,
            frame({"content": "Thought: delete them.\nAct"}),
            frame({"content": "ion: delete_rows\nAction Input: {}"}),
            frame({}, "stop"),
            DONE,
        ]
        model = Model(scene, spelled, body(text="Final Answer: no"))
        reader = Reader(await scene.ask(request(stream=True)))
        (approval,) = await pending(scene)
        assert approval.question.kind == "text"
        await settle()
        assert b"delete_rows" not in reader.content
        with pytest.raises(BadRequest):
            await scene.gate.decide(approval.approval_id, Decision(True, None, arguments="{}"))
        await scene.gate.decide(approval.approval_id, rejected("continue"))
        await reader.task
        assert b"delete_rows" not in reader.content
        assert b"Final Answer: no" in reader.content
        told = model.calls[1]["messages"]
        assert told[1]["role"] == "assistant"
        assert "Action: delete_rows" in told[1]["content"]
        assert told[2]["role"] == "user"
        assert told[2]["content"].startswith("Observation:")

    run(scenario)


# --- ways around ----------------------------------------------------------------------------------


def stream_of(*pieces: bytes | None) -> FakeExchange:
    exchange = FakeExchange(200, b"text/event-stream")
    exchange.give(*pieces)
    return exchange


def answer_with(scene: Scene, exchange: FakeExchange) -> None:
    async def on_call(number: int) -> FakeExchange:
        return exchange

    scene.transport.on_call = on_call


def test_a_call_that_comes_after_the_completing_frame_is_held_like_any_other() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = stream_of(HEAD, TEXT, CALLED)
        answer_with(scene, exchange)
        reader = Reader(await scene.ask(request(stream=True)))
        await settle()
        exchange.give(*call_frames(GUARDED), DONE, None)
        await pending(scene)
        await settle()
        assert b"users" not in reader.content
        await decide(scene, APPROVED)
        await reader.task
        assert reader.content == b"".join([HEAD, TEXT, CALLED, *call_frames(GUARDED), DONE])

    run(scenario)


def test_a_second_call_in_the_tail_does_not_ride_on_the_first_ones_approval() -> None:
    async def scenario(scene: Scene) -> None:
        first = call("delete_rows", '{"table":"one"}', "call_1")
        second = call("delete_rows", '{"table":"two"}', "call_2")
        opening, arguments = call_frames(first, second)[2:]
        exchange = stream_of(HEAD, *call_frames(first), CALLED)
        answer_with(scene, exchange)
        reader = Reader(await scene.ask(request(stream=True)))
        await settle()
        exchange.give(opening, arguments, DONE, None)
        one, two = await pending(scene, 2)
        await scene.gate.decide(one.approval_id, APPROVED)
        await settle()
        assert b"call_" not in reader.content
        await scene.gate.decide(two.approval_id, APPROVED)
        await reader.task
        assert b"two" in reader.content

    run(scenario)


@pytest.mark.parametrize("place", ["choice", "top", "event"])
def test_an_error_event_with_a_guarded_call_in_it_is_not_passed_on(place: str) -> None:
    async def scenario(scene: Scene) -> None:
        choice: dict[str, Any] = {
            "index": 0,
            "delta": {"tool_calls": [{"index": 0, **GUARDED}]},
            "finish_reason": "tool_calls",
        }
        chunk: dict[str, Any] = {"id": "c1", "object": "chat.completion.chunk", "choices": [choice]}
        if place == "choice":
            choice["error"] = {"message": "overloaded", "code": 502}
        elif place == "top":
            chunk["error"] = {"message": "overloaded"}
        name = b"event: error\n" if place == "event" else b""
        bad = name + b"data: " + json.dumps(chunk).encode() + b"\n\n"
        answer_with(scene, stream_of(HEAD, TEXT, bad, None))
        reader = Reader(await scene.ask(request(stream=True)))
        with pytest.raises(Abort):
            await reader.task
        assert reader.content.startswith(HEAD + TEXT)
        assert b"delete_rows" not in reader.content
        assert b"error" in reader.content

    run(scenario)


def test_a_question_is_asked_only_once_the_answer_cannot_be_taken_back() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = stream_of(HEAD, *call_frames(GUARDED), CALLED, UpstreamCut("cut"))
        answer_with(scene, exchange)
        response = await scene.ask(request(stream=True, on_disconnect="cancel"))
        with suppress(Abort):
            await read(response)
        await settle()
        states = await scene.states()
        page = await scene.store.list_approvals(Query(), at_ms=0)
        assert (states, len(page.rows)) in ((["failed"], 0), (["complete"], 1))

    run(scenario)


@pytest.mark.parametrize("said", ["rejected", "edited"])
def test_a_decision_stands_when_the_policy_no_longer_asks(said: str) -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED))
        waiting = begin(scene, request())
        edited = Decision(is_approved=True, by="ada", arguments='{"table":"tmp"}')
        await decide(scene, rejected() if said == "rejected" else edited)
        first = await waiting
        scene.settings = replace(scene.settings, gate=GateSettings(tools=()))
        scene.start()
        again = await scene.ask(request())
        assert again.status == first.status
        if said == "edited":
            assert again.body == first.body

    run(scenario)


def test_a_stricter_policy_asks_about_what_was_recorded_and_cannot_change_what_is_out() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(SAFE, GUARDED))
        waiting = begin(scene, request())
        await decide(scene, APPROVED)
        await waiting
        stricter = GateSettings(tools=("delete_rows", "get_weather"), heartbeat_s=0.1)
        scene.settings = replace(scene.settings, gate=stricter)
        scene.start()
        again = begin(scene, request())
        (approval,) = await pending(scene)
        assert approval.question.tool == "get_weather"
        await scene.gate.decide(approval.approval_id, rejected("continue"))
        assert (await again).status == 403

    run(scenario)


def test_a_rule_that_stops_an_answer_closes_what_else_was_asked_of_it() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(call("wipe"), GUARDED))
        assert (await scene.ask(request())).status == 403
        rows = (await scene.store.list_approvals(Query(), at_ms=0)).rows
        assert [row.decision is not None for row in rows] == [True, True]
        session = await scene.store.read_session("s")
        assert session is not None
        assert session.status == "FAILED"

    deny = RuleSettings(tool="wipe", action="deny")
    run(scenario, GateSettings(tools=("delete_rows",), rules=(deny,)))


def test_a_drifted_replay_looks_for_spelled_calls_as_the_recorded_call_did() -> None:
    async def scenario(scene: Scene) -> None:
        look = call("look", "{}", "call_0")
        spelled = body(text="Action: delete_rows\nAction Input: {}")
        model = Model(scene, body(look), spelled)

        def asked(result: str, run_id: str) -> FakeRequest:
            messages = [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": None, "tool_calls": [look]},
                {"role": "tool", "tool_call_id": "call_0", "content": result},
            ]
            raw = json.dumps({"model": "m", "messages": messages}).encode()
            pairs = [(b"x-agent-session-id", b"s"), (b"x-agent-run-id", run_id.encode())]
            return FakeRequest([*pairs, (b"authorization", b"Bearer sk-x")], raw)

        def begun(run_id: str) -> FakeRequest:
            raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "go"}]})
            pairs = [(b"x-agent-session-id", b"s"), (b"x-agent-run-id", run_id.encode())]
            return FakeRequest([*pairs, (b"authorization", b"Bearer sk-x")], raw.encode())

        await scene.ask(begun("one"))
        first = begin(scene, asked("use delete_rows", "one"))
        await decide(scene, rejected())
        assert (await first).status == 403
        scene.start()
        await scene.ask(begun("two"))
        again = await scene.ask(asked("use nothing", "two"))
        assert again.status == 403
        assert len(model.calls) == 2

    run(scenario)


def test_two_runs_that_ask_again_share_no_decision() -> None:
    async def scenario(scene: Scene) -> None:
        Model(scene, body(GUARDED))
        waiting = begin(scene, request(run_id="one"))
        await decide(scene, APPROVED)
        await waiting
        begin_two, begin_three = (begin(scene, request(run_id=run)) for run in ("two", "three"))
        rows = await pending(scene, 2)
        await scene.gate.decide(rows[0].approval_id, APPROVED)
        await scene.gate.decide(rows[1].approval_id, rejected())
        statuses = sorted([(await begin_two).status, (await begin_three).status])
        assert statuses == [200, 403]

    run(scenario, GateSettings(tools=("delete_rows",), rerelease="ask"))


# --- when the record fails ------------------------------------------------------------------------


def test_a_question_that_cannot_be_written_keeps_the_call_back() -> None:
    async def scenario(scene: Scene) -> None:
        async def fail(*args: object, **kwargs: object) -> Any:
            raise StoreError("the disk is full")

        open_approvals = scene.store.open_approvals
        scene.store.open_approvals = fail  # type: ignore[method-assign]
        frames = [HEAD, TEXT, *call_frames(GUARDED), CALLED, DONE]
        model = Model(scene, frames, body(GUARDED))
        reader = Reader(await scene.ask(request(stream=True)))
        with pytest.raises(Abort):
            await reader.task
        assert b"delete_rows" not in reader.content
        assert b"store_unavailable" in reader.content
        plain = await scene.ask(request({"role": "user", "content": "plain"}))
        assert plain.status == 503
        assert b"delete_rows" not in await read(plain)

        scene.store.open_approvals = open_approvals  # type: ignore[method-assign]
        waiting = begin(scene, request({"role": "user", "content": "plain"}))
        await decide(scene, APPROVED)
        assert (await waiting).body == body(GUARDED)
        assert len(model.calls) == 2

    run(scenario)


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
def test_an_unrecorded_answer_with_a_guarded_call_is_refused(stream: bool, retries: int) -> None:
    async def scenario(scene: Scene) -> None:
        async def fail(*args: object, **kwargs: object) -> Any:
            raise StoreError("the disk is full")

        scene.store.claim_step = fail  # type: ignore[method-assign]
        Model(scene, [HEAD, *call_frames(GUARDED), CALLED, DONE] if stream else body(GUARDED))
        response = await scene.ask(request(stream=stream))
        if stream and not retries:
            reader = Reader(response)
            with pytest.raises(Abort):
                await reader.task
            assert b"users" not in reader.content
            assert b"store_unavailable" in reader.content
        else:
            # With something left to try nothing goes out before the first content.
            assert response.status == 503
            assert b"users" not in await read(response)

    run(
        scenario,
        store=StoreSettings(on_failure="forward"),
        forward=ForwardSettings(retries=retries),
    )
