"""Asking the model again, where it was another vendor's that answered."""

from __future__ import annotations

import asyncio
import json

from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.records import Query
from agentstate.ground.settings import ForwardSettings, GateSettings
from tests.steps.far import far_body, far_exchange, far_request, settle_far
from tests.steps.legs import busy
from tests.steps.scene import FakeExchange, Scene, play, read

RESPONSES = "/v1/responses"
TOOL = {"type": "function", "name": "delete_rows", "strict": False,
        "parameters": {"type": "object", "properties": {}}}  # fmt: skip
FIRST = {
    "id": "resp_first", "object": "response", "created_at": 1, "status": "completed", "model": "m",
    "output": [{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "hello", "annotations": []}]}],
}  # fmt: skip


async def pending(scene: Scene) -> Approval:
    while True:
        page = await scene.store.list_approvals(Query(status="PENDING"), at_ms=0)
        if page.rows:
            return page.rows[0]
        await asyncio.sleep(0)


def test_a_fallback_that_knows_nothing_of_what_went_before_is_told_all_of_it_again() -> None:
    async def scenario(scene: Scene) -> None:
        settle_far(scene)

        async def answer(number: int) -> FakeExchange:
            if number == 0:
                return far_exchange(json.dumps(FIRST).encode(), None, kind=b"application/json")
            if scene.transport.calls[-1].origin.host != "claude.example":
                return busy()
            calls = {"type": "tool_use", "id": "toolu_1", "name": "delete_rows", "input": {}}
            is_told = number > 2
            body = far_body() if is_told else far_body(calls, stop="tool_use")
            return far_exchange(body, None, kind=b"application/json")

        scene.transport.on_call = answer
        await scene.ask(far_request({"model": "m", "input": "hi"}), RESPONSES)
        follow = {"model": "m", "input": "go on", "tools": [TOOL],
                  "previous_response_id": "resp_first"}  # fmt: skip
        asked = far_request(follow, fallback_model="anthropic/claude-x")
        task = asyncio.create_task(scene.ask(asked, RESPONSES))
        approval = await pending(scene)
        await scene.gate.decide(approval.approval_id, Decision(is_approved=False, by="ada"))
        response = await task

        assert response.status == 200, await read(response)
        assert b'"text":"done"' in await read(response)
        last = scene.transport.calls[-1]
        assert last.origin.host == "claude.example"
        assert isinstance(last.body, bytes)
        roles = [turn["role"] for turn in json.loads(last.body)["messages"]]
        assert roles == ["user", "assistant", "user", "assistant", "user"]

    play(
        scenario,
        forward=ForwardSettings(retries=0),
        gate=GateSettings(tools=("delete_rows",), heartbeat_s=0.1, on_reject="continue"),
    )
