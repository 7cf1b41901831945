"""How a conversation in the Messages form goes on; where it goes on is in `test_turns.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.anthropic_messages_turns import CONVERSATION
from agentstate.dialects.base import Round, Splice
from agentstate.dialects.turns import Form
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest
from tests.dialects import samples_anthropic as sample
from tests.dialects.samples_anthropic import CALL, body
from tests.helpers import anthropic_types

MESSAGES = AnthropicMessages()
HI: dict[str, Any] = {"type": "text", "text": "Hi"}
THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "Hm.", "signature": "EqRk/+=="}
SEARCH: dict[str, Any] = {
    "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"},
}  # fmt: skip
FOUND: dict[str, Any] = {
    "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [],
}  # fmt: skip
REQUEST: dict[str, JSON] = {
    "model": sample.MODEL,
    "max_tokens": 64,
    "stream": True,
    "messages": [{"role": "user", "content": "Mail them."}],
    "thinking": {"type": "adaptive"},
}


def on(raw: bytes, *told: str, **fields: JSON) -> Any:
    """Return the request that tells the model what became of its calls, by their positions."""
    asked = Round(raw, dict(enumerate(told)))
    return MESSAGES.go_on({**REQUEST, **fields}, asked)


def test_it_is_a_form() -> None:
    form: Form = CONVERSATION
    assert form.answers_in_order is False


def test_the_model_gets_its_answer_as_it_was_and_results_that_are_errors() -> None:
    two = {**CALL, "id": "call_2", "x": 1}
    request = on(body(THOUGHT, HI, CALL, two, reason="tool_use"), "no 1", "no 2")

    assert request == {
        **{key: value for key, value in REQUEST.items() if key != "stream"},
        "messages": [
            {"role": "user", "content": "Mail them."},
            {"role": "assistant", "content": [THOUGHT, HI, CALL, two]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "no 1",
                 "is_error": True},
                {"type": "tool_result", "tool_use_id": "call_2", "content": "no 2",
                 "is_error": True},
            ]},
        ],
    }  # fmt: skip
    assert list(request) == [key for key in REQUEST if key != "stream"]
    for message in request["messages"]:
        anthropic_types.check("MessageParam", json.dumps(message))
    for result in request["messages"][-1]["content"]:
        anthropic_types.check("ToolResultBlockParam", json.dumps(result))


def test_numbers_go_back_as_they_came() -> None:
    raw = body(CALL, reason="tool_use").replace(b'"Oslo"', b"1.50")
    assert b'"input":{"city":1.50,"id":2512292042121000001}' in encode(on(raw, "no"))


def test_a_second_round_goes_on_from_the_first() -> None:
    first = on(body(CALL), "no 1")
    second: Any = MESSAGES.go_on(first, Round(body({**CALL, "id": "call_2"}), {0: "no 2"}))
    assert [each["role"] for each in second["messages"]] == [
        "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "freed"),
    [
        ({"type": "any"}, {"type": "auto"}),
        ({"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
         {"type": "auto", "disable_parallel_tool_use": True}),
        ({"type": "auto"}, {"type": "auto"}),
        ({"type": "none"}, {"type": "none"}),
        ({"type": "x"}, {"type": "x"}),
        (None, None),
    ],
)  # fmt: skip
def test_a_model_that_was_made_to_call_a_tool_is_free(choice: JSON, freed: JSON) -> None:
    assert on(body(CALL), "no", tool_choice=choice)["tool_choice"] == freed


def test_texts_with_nothing_in_them_are_not_sent_back() -> None:
    empty, blank = {"type": "text", "text": ""}, {"type": "text", "text": " \n"}
    request = on(body(empty, CALL, blank), "no")
    assert request["messages"][1]["content"] == [CALL]


def test_calls_that_ran_upstream_have_their_results_already() -> None:
    request: Any = MESSAGES.go_on(REQUEST, Round(body(SEARCH, FOUND, CALL), {1: "no"}))
    said, told = request["messages"][-2:]
    assert said["content"] == [SEARCH, FOUND, CALL]
    assert [each["tool_use_id"] for each in told["content"]] == ["call_1"]
    with pytest.raises(BadRequest):
        on(body(SEARCH, FOUND), "no")


def test_a_toolset_is_named_again() -> None:
    click = {**CALL, "name": "left_click", "toolset_name": "computer"}
    (result,) = on(body(click), "no")["messages"][-1]["content"]
    assert result["toolset_name"] == "computer"


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({}, "container_1"),
        ({"container": None}, "container_1"),
        ({"container": "container_0"}, "container_1"),
        ({"container": {"skills": []}}, {"skills": [], "id": "container_1"}),
    ],
)
def test_code_that_waits_for_a_call_is_found_by_its_container(
    wanted: dict[str, JSON], named: JSON
) -> None:
    called = {**CALL, "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}
    container = {"id": "container_1", "expires_at": "2026-11-30T10:00:00Z"}
    assert on(body(called, container=container), "no", **wanted)["container"] == named
    assert "container" not in on(body(called), "no")


def test_a_container_nobody_waits_in_is_not_named() -> None:
    direct = {**CALL, "caller": {"type": "direct"}}
    assert "container" not in on(body(direct, container={"id": "container_1"}), "no")


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", body({key: CALL[key] for key in ("type", "name", "input")})],
    ids=["nothing", "a list", "no content", "a call without an id"],
)
def test_what_has_no_form_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        on(raw, "no")


def test_cache_marks_and_forms_of_results_do_not_count() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}

    def result(content: JSON, **fields: JSON) -> JSON:
        return {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": content, **fields},
        ]}  # fmt: skip

    def said(message: JSON) -> list[tuple[str, JSON]]:
        return [(piece.kind, piece.value) for piece in CONVERSATION.read(message)[1]]

    assert said(result("a")) == said(result([{"type": "text", "text": "a", **mark}], **mark))
    assert said(result("a")) == said(result("a", is_error=False))
    assert said(result("a")) != said(result("a", is_error=True))
    assert said(result([image])) == said(result([{**image, **mark}]))
    assert said(result([image])) != said(result([{**image, "source": {}}]))
    assert said({"role": "user", "content": [image]}) == said(
        {"role": "user", "content": [{**image, **mark}, "", {"type": "text", "text": ""}]}
    )[:1]  # fmt: skip
    assert said(result(None)) == [("result", [None, False])]


def test_a_later_request_keeps_everything_but_its_messages() -> None:
    raw = body(HI, CALL, {**CALL, "id": "call_2"}, reason="tool_use")
    delivered = MESSAGES.changed_body(raw, {(0, 0): None})
    splice = Splice(REQUEST, (Round(raw, {0: "no"}),), delivered, None)
    content = json.loads(delivered)["content"]
    result = {"type": "tool_result", "tool_use_id": "call_2", "content": "done"}
    later: dict[str, JSON] = {
        **REQUEST,
        "messages": [
            {"role": "user", "content": "Mail them."},
            {"role": "assistant", "content": content},
            {"role": "user", "content": [result]},
        ],
        "temperature": 0,
    }

    made: Any = MESSAGES.spliced(later, splice)

    assert made is not None
    assert list(made) == list(later)
    assert {**made, "messages": None} == {**later, "messages": None}
    last = made["messages"][-1]["content"]
    assert [each["tool_use_id"] for each in last] == ["call_1", "call_2"]
    assert MESSAGES.spliced({**later, "messages": "x"}, splice) is None
