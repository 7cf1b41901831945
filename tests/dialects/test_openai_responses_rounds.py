"""What a model is told of calls that were refused, in the Responses form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentstate.dialects.base import Round
from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.ground.canonical import Number, canonical, encode
from agentstate.ground.errors import BadRequest
from tests.dialects import samples_responses as sample
from tests.dialects.samples_responses import (
    body,
    call,
    message,
    part,
    reasoning,
)

RESPONSES = OpenAIResponses()
USER: dict[str, Any] = {"role": "user", "content": "Mail them."}
ASKED: dict[str, Any] = {"model": "m", "input": [USER]}
A = call(1, arguments='{"a":1}')
B = call(2, name="send_email", arguments='{"b":2}')
HI = message(part("Hi"))
THOUGHT = reasoning("Hm.", encrypted_content="gAAAA")
BARE = reasoning("Hm.")
SEARCH: dict[str, Any] = sample.WEB_SEARCH


def result(number: int, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": output}


def answer(*output: dict[str, Any]) -> bytes:
    return body(*output)


def go_on(request: Mapping[str, Any], *output: dict[str, Any], **told: str) -> dict[str, Any]:
    positions = {int(key[1:]): text for key, text in told.items()}
    before = canonical(dict(request))
    after: dict[str, Any] = RESPONSES.go_on(request, Round(answer(*output), positions))
    assert canonical(dict(request)) == before, "what was asked is left alone"
    return after


def without(item: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in keys}


def test_the_answer_goes_back_whole_and_each_call_is_answered() -> None:
    asked = {
        **ASKED,
        "stream": True,
        "stream_options": {},
        "tool_choice": "auto",
        "x": Number("1.50"),
    }

    after = go_on(asked, THOUGHT, HI, A, SEARCH, B, p0="no", p2="no, too")

    assert after == {
        "model": "m",
        "input": [USER, THOUGHT, HI, A, SEARCH, B, result(1, "no"), result(2, "no, too")],
        "tool_choice": "auto",
        "x": Number("1.50"),
    }


def test_a_text_that_was_asked_becomes_a_message() -> None:
    after = go_on({"model": "m", "input": "Mail them."}, A, p0="no")

    assert after["input"] == [USER, A, result(1, "no")]


def test_what_the_upstream_knows_is_not_sent() -> None:
    assert go_on({"previous_response_id": "resp_0"}, A, p0="no") == {
        "previous_response_id": "resp_0",
        "input": [A, result(1, "no")],
    }
    # A conversation has got what was asked and answered.
    for named in ("conv_1", {"id": "conv_1"}):
        asked = {**ASKED, "conversation": named}
        assert go_on(asked, A, p0="no")["input"] == [result(1, "no")]


def test_numbers_in_the_answer_keep_their_text() -> None:
    raw = answer(A).replace(b'"status": "completed"}', b'"x": 1.50}')
    assert b"1.50" in raw

    after = RESPONSES.go_on(ASKED, Round(raw, {0: "no"}))

    assert b'"x":1.50' in encode(after)


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (A, result(1, "no")),
        (
            {**A, "caller": {"type": "program", "caller_id": "p"}},
            {**result(1, "no"), "caller": {"type": "program", "caller_id": "p"}},
        ),
        (
            sample.CUSTOM_CALL,
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "no"},
        ),
        (
            sample.MCP_APPROVAL,
            {
                "type": "mcp_approval_response",
                "approval_request_id": "mcpr_1",
                "approve": False,
                "reason": "no",
            },
        ),
        (
            sample.LOCAL_SHELL,
            {"type": "local_shell_call_output", "call_id": "call_1", "output": "no"},
        ),
        (
            sample.SHELL,
            {
                "type": "shell_call_output",
                "call_id": "call_1",
                "output": [
                    {"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}
                ],
            },
        ),
        (
            sample.APPLY_PATCH,
            {
                "type": "apply_patch_call_output",
                "call_id": "call_1",
                "output": "no",
                "status": "failed",
            },
        ),
    ],
)
def test_each_kind_of_call_is_answered_in_its_own_form(
    item: dict[str, Any], told: dict[str, Any]
) -> None:
    assert go_on(ASKED, item, p0="no")["input"] == [USER, item, told]


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (sample.COMPUTER, "computer_call"),
        ({"type": "tool_search_call", "call_id": "c", "arguments": {}}, "tool_search_call"),
        ({"type": "some_future_call", "call_id": "c"}, "some_future_call"),
        (without(A, "call_id"), "'get_weather' has no id"),
        (without(sample.MCP_APPROVAL, "id"), "'drop_table' has no id"),
    ],
)
def test_a_call_that_cannot_be_answered_is_told(item: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        go_on(ASKED, item, p0="no")


def test_a_call_that_was_not_refused_waits_for_its_result() -> None:
    with pytest.raises(BadRequest, match="'send_email' beside the refused ones"):
        go_on(ASKED, A, B, p0="no")


def test_an_observation_comes_last() -> None:
    made = RESPONSES.go_on(ASKED, Round(answer(HI), {}, "a person refused it."))

    assert made["input"] == [
        USER,
        HI,
        {"role": "user", "content": "Observation: a person refused it."},
    ]


@pytest.mark.parametrize(
    ("choice", "after"),
    [
        ("required", "auto"),
        ("auto", "auto"),
        ("none", "none"),
        (None, None),
        ({"type": "function", "name": "send_email"}, "auto"),
        ({"type": "mcp", "server_label": "crm"}, "auto"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}]},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "shell"}]},
        ),
    ],
)
def test_the_model_is_not_forced_to_call_again(choice: Any, after: Any) -> None:
    assert go_on({**ASKED, "tool_choice": choice}, A, p0="no")["tool_choice"] == after


def test_a_thought_that_nobody_can_read_stays_out_and_no_id_promises_it() -> None:
    """The API: "provided without its required 'reasoning' item"."""
    unstored = {**ASKED, "store": False}

    sealed = go_on(unstored, THOUGHT, HI, A, p0="no")
    bare = go_on(unstored, BARE, HI, A, sample.MCP_APPROVAL, p0="no", p1="no")

    assert sealed["input"][1:4] == [THOUGHT, HI, A]
    assert bare["input"][1:4] == [without(HI, "id"), without(A, "id"), sample.MCP_APPROVAL]
    assert go_on(ASKED, BARE, A, p0="no")["input"][1:3] == [BARE, A]


def test_an_answer_that_cannot_be_read_is_told() -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        RESPONSES.go_on(ASKED, Round(b"{", {}))
