"""The timeline and conversations: what the dashboard reads of a run."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.canonical import JSON, parse
from agentstate.ground.chat import ToolCall
from agentstate.ground.records import RecordedAnswer, RequestRecord
from tests.helpers.desk import Desk
from tests.store.contract import answer_of, attempt_of, checkpoint_of, claim_of, part
from tests.store.contract_control import run_of

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 1.0}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
CHAT: list[JSON] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Look."}, PICTURE]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"found": []}'},
]
BODY = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    ],
}


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


def get(desk: Desk, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(desk.url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def read(desk: Desk, path: str) -> Any:
    status, found = get(desk, path)
    assert status == 200, found
    return found


def put(
    desk: Desk, envelope: dict[str, JSON], list_key: str, items: list[JSON], **changes: Any
) -> None:
    """Put a step with this request on record, answered with `BODY`."""
    record = RequestRecord(
        {**envelope, list_key: None} if list_key else envelope,
        (),
        list_key,
        tuple(part(item) for item in items),
    )
    claimed = desk.run(desk.store.claim_step(claim_of(repr(items), request=record, **changes)))
    checkpoint = checkpoint_of(claimed.step_id, answer=answer_of(json.dumps(BODY).encode()))
    desk.run(desk.store.record_answer(checkpoint))


# --- the timeline ---------------------------------------------------------------------------------


def test_steps_come_by_index_with_their_marks(desk: Desk) -> None:
    desk.run(run_of(desk.store, 5))
    claimed = desk.run(desk.store.claim_step(claim_of("last")))
    fell = attempt_of(status=500, error_code="upstream_error")
    calls = ((0, ToolCall(0, "c", "find", "{}")),)
    checkpoint = checkpoint_of(
        claimed.step_id, attempts=(fell, attempt_of(model="b")), tool_calls=calls
    )
    desk.run(desk.store.record_answer(checkpoint))

    found = read(desk, "/api/sessions/s/timeline?from=4&limit=2")

    assert found["session"]["steps"] == 6
    assert [step["index"] for step in found["steps"]] == [4, 5]
    last = found["steps"][1]
    assert (last["attempts"], last["asked_of"]) == (2, "openai/gpt-4o-mini")
    assert (last["tools"], last["tool_calls"]) == (["find"], 1)
    assert last["cost_microusd"] == 25
    assert read(desk, "/api/sessions/s/timeline?from=99")["steps"] == []


def test_steps_of_one_state_are_found(desk: Desk) -> None:
    desk.run(run_of(desk.store, 3))
    claimed = desk.run(desk.store.claim_step(claim_of("f")))
    desk.run(desk.store.record_failure(claimed.step_id, (), failed_ms=1))

    found = read(desk, "/api/sessions/s/timeline?state=failed")

    assert [step["index"] for step in found["steps"]] == [3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("from=-1", "from must be an index from 0"),
        ("from=x", "from must be an index from 0"),
        ("from=99999999999999999999", "from must be an index from 0"),
        ("limit=0", "limit must be an integer from 1"),
        ("state=odd", "state must be one of in_flight"),
        ("form=1", "known are from, limit, state"),
    ],
)
def test_an_odd_query_is_refused(desk: Desk, query: str, message: str) -> None:
    desk.run(run_of(desk.store, 1))
    status, found = get(desk, f"/api/sessions/s/timeline?{query}")
    assert status == 400
    assert message in found["error"]["message"]


def test_what_is_not_there_is_said(desk: Desk) -> None:
    desk.run(run_of(desk.store, 1))
    for path in ("/api/sessions/x/timeline", "/api/sessions/s/steps/7/conversation"):
        assert get(desk, path)[0] == 404


# --- a step as a conversation ---------------------------------------------------------------------


def test_a_chat_is_read_as_turns(desk: Desk) -> None:
    put(desk, {"model": "gpt-5", "temperature": parse(b"0.5"), "odd": 1}, "messages", CHAT[:2])
    put(desk, {"model": "gpt-5"}, "messages", CHAT)

    first = read(desk, "/api/sessions/s/steps/0/conversation")
    second = read(desk, "/api/sessions/s/steps/1/conversation")

    assert [turn["role"] for turn in first["turns"]] == ["system", "user"]
    assert first["turns"][1]["items"] == [
        {"kind": "text", "text": "Look."},
        {"kind": "image", "data": "aGk=", "media_type": "image/png", "url": None},
    ]
    assert first["known"] == 0
    assert first["wishes"] == {"temperature": 0.5}
    assert first["unsaid"] == ["odd"]
    assert second["known"] == 3  # the call before had them, or answered them
    assert second["turns"][2]["items"] == [
        {"kind": "call", "id": "c1", "name": "find", "arguments": '{"n": 1.0}', "is_custom": False}
    ]
    (result,) = second["turns"][3]["items"]
    assert (result["kind"], result["id"]) == ("result", "c1")
    assert result["items"] == [{"kind": "text", "text": '{"found": []}'}]
    (choice,) = second["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hi", "stop")
    assert second["delivered"] is None
    (attempt,) = second["step"]["attempts_made"]
    assert attempt["ok"]


def test_other_dialects_are_read_alike(desk: Desk) -> None:
    put(
        desk,
        {"model": "c", "max_tokens": 9, "system": "Be brief."},
        "messages",
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        dialect="anthropic_messages",
    )
    put(
        desk,
        {"model": "g", "instructions": "Be brief."},
        "input",
        [{"role": "user", "content": "Hello"}],
        dialect="openai_responses",
    )
    for index in (0, 1):
        turns = read(desk, f"/api/sessions/s/steps/{index}/conversation")["turns"]
        assert [(turn["role"], turn["items"][0]["text"]) for turn in turns] == [
            ("system", "Be brief."),
            ("user", "Hello"),
        ]


def test_what_is_no_conversation_comes_as_it_was_sent(desk: Desk) -> None:
    body: dict[str, JSON] = {"model": "e", "input": "text"}
    put(desk, body, "", [], dialect="openai_embeddings")
    put(desk, {"model": "e", "messages": 7}, "", [])

    for index, sent in enumerate((body, {"model": "e", "messages": 7})):
        found = read(desk, f"/api/sessions/s/steps/{index}/conversation")
        assert (found["turns"], found["request"]) == (None, sent)


def test_what_the_agent_got_instead_stands_beside_the_answer(desk: Desk) -> None:
    put(desk, {"model": "gpt-5"}, "messages", CHAT[:2])
    edited = json.dumps(BODY).replace('"Hi"', '"Edited"').encode()
    desk.run(desk.store.record_delivered(1, RecordedAnswer(200, (), "body", edited)))

    found = read(desk, "/api/sessions/s/steps/0/conversation")

    assert [found[name][0]["text"] for name in ("choices", "delivered")] == ["Hi", "Edited"]


def test_an_answer_that_was_taken_back_is_still_shown(desk: Desk) -> None:
    put(desk, {"model": "gpt-5"}, "messages", CHAT[:2])
    desk.run(desk.store.record_failure(1, (), failed_ms=1))

    found = read(desk, "/api/sessions/s/steps/0/conversation")

    assert found["step"]["state"] == "failed"
    assert found["choices"][0]["text"] == "Hi"


def test_a_step_in_flight_has_no_answer(desk: Desk) -> None:
    record = replace(claim_of("x").request, chain=(part({"role": "user", "content": "x"}),))
    desk.run(desk.store.claim_step(claim_of("x", request=record)))
    found = read(desk, "/api/sessions/s/steps/0/conversation")
    assert (found["choices"], found["approvals"], found["releases"]) == (None, [], [])
