"""What a Responses request must have, and what of it counts, repeats, is pinned and is masked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.ground.errors import BadRequest, UpstreamCut
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.samples_responses import (
    APPLY_PATCH,
    COMPUTER,
    CUSTOM_CALL,
    LOCAL_SHELL,
    SHELL,
    call,
    event,
    response,
)
from tests.helpers.openai_schema import check

RESPONSES = OpenAIResponses()
USER = {"role": "user", "content": "hi"}


def frame_of(raw: bytes) -> Frame:
    (frame,) = SSEDecoder().feed(raw)
    return frame


def mask(text: str) -> str:
    return text.replace("12:01", "CLOCK")


# --- requests -------------------------------------------------------------------------------------


def test_a_text_reads_as_the_message_it_stands_for() -> None:
    as_text = RESPONSES.read_ask({"model": "m", "input": "hi"})
    as_list = RESPONSES.read_ask({"model": "m", "input": [USER]})

    assert as_text.messages == as_list.messages == (USER,)
    assert as_text.envelope == as_list.envelope == {"model": "m"}
    assert as_text.body["input"] == "hi"


def test_store_counts_since_later_calls_may_refer_to_what_was_stored() -> None:
    plain = RESPONSES.read_ask({"model": "m", "input": "hi"})
    unstored = RESPONSES.read_ask({"model": "m", "input": "hi", "store": False})

    assert plain.envelope != unstored.envelope


@pytest.mark.parametrize(
    ("context", "goes_on_from"),
    [
        ({"previous_response_id": "resp_0"}, "resp_0"),
        ({"conversation": "conv_0"}, "conv_0"),
        ({"conversation": {"id": "conv_0"}}, "conv_0"),
        ({"prompt": {"id": "pmpt_0"}}, None),
    ],
)
@pytest.mark.parametrize("given", [{}, {"input": None}, {"input": ""}, {"input": []}])
def test_what_the_upstream_knows_need_not_be_sent(
    context: dict[str, Any], goes_on_from: str | None, given: dict[str, Any]
) -> None:
    body = {**context, **given}

    ask = RESPONSES.read_ask(body)

    assert (ask.model, ask.messages, ask.goes_on_from) == ("", (), goes_on_from)
    assert ask.envelope == body  # so that no two of them get one fingerprint


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "hi"}, "model"),
        ({"model": "", "input": "hi", "prompt": {"id": "p"}}, "model"),
        ({"model": 1, "input": "hi"}, "model"),
        ({"model": "m"}, "input"),
        ({"model": "m", "input": []}, "input"),
        ({"model": "m", "input": ""}, "input"),
        ({"model": "m", "input": {"role": "user"}}, "input"),
        ({"model": "m", "input": 1, "prompt": {"id": "p"}}, "input"),
        ({"model": "m", "input": [USER, "hi"]}, "input[1]"),
        ({"model": "m", "input": "hi", "stream": "yes"}, "stream"),
    ],
)
def test_a_refusal_names_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        RESPONSES.read_ask(body)

    assert caught.value.param == param


def test_only_a_background_request_passes_through() -> None:
    body = {"model": "m", "input": "hi"}

    assert RESPONSES.read_ask({**body, "background": True}).passes_through
    for value in (False, None, "true", 1):
        assert not RESPONSES.read_ask({**body, "background": value}).passes_through


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("previous_response_id", "resp_1"),
        ("conversation", {"id": "conv_1"}),
        ("prompt", {"id": "pmpt_1", "version": "2"}),
    ],
)
def test_what_is_kept_upstream_is_a_hidden_part(key: str, value: Any) -> None:
    body = {"model": "m", "input": "hi"}

    assert RESPONSES.read_ask({**body, key: value}).has_hidden_part
    assert not RESPONSES.read_ask({**body, key: None}).has_hidden_part
    assert not RESPONSES.read_ask(body).has_hidden_part


# --- tool results ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "shell_call_output",
    ],
)
def test_the_output_of_a_tool_is_its_result(kind: str) -> None:
    item = {"type": kind, "call_id": "call_1", "output": [{"x": 1}], "status": "completed"}

    assert RESPONSES.tool_results(item) == (("call_1", [{"x": 1}]),)
    assert RESPONSES.tool_result_blank(item) == {
        "type": kind,
        "call_id": "call_1",
        "status": "completed",
    }


def test_whether_a_patch_was_applied_is_part_of_its_result() -> None:
    item = {"type": "apply_patch_call_output", "call_id": "call_1", "status": "failed"}

    assert RESPONSES.tool_results(item) == (("call_1", {"status": "failed"}),)
    assert RESPONSES.tool_result_blank(item) == {
        "type": "apply_patch_call_output",
        "call_id": "call_1",
    }


def test_a_result_without_a_call_id_is_known_by_its_own() -> None:
    item = {"type": "local_shell_call_output", "id": "lsh_1", "output": "x"}

    assert RESPONSES.tool_results(item) == (("lsh_1", "x"),)


@pytest.mark.parametrize(
    "item",
    [
        USER,
        call(),
        CUSTOM_CALL,
        LOCAL_SHELL,
        SHELL,
        APPLY_PATCH,
        COMPUTER,
        # A person's consent is no result of a tool: it must not be forgiven if it differs.
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "mcp_call", "id": "mcp_1", "name": "f", "arguments": "{}", "output": "x"},
        {"type": ["function_call_output"], "output": "x"},
        {},
    ],
)
def test_other_items_are_no_tool_results(item: dict[str, Any]) -> None:
    assert RESPONSES.tool_results(item) == ()
    assert RESPONSES.tool_result_blank(item) is None


# --- system text ----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_messages_are_masked_in_either_form(role: str) -> None:
    image = {"type": "input_image", "image_url": "12:01"}
    parts = [{"type": "input_text", "text": "It is 12:01."}, image]

    assert RESPONSES.masked({"role": role, "content": "It is 12:01."}, mask) == {
        "role": role,
        "content": "It is CLOCK.",
    }
    assert RESPONSES.masked({"role": role, "content": parts}, mask) == {
        "role": role,
        "content": [{"type": "input_text", "text": "It is CLOCK."}, image],
    }
    assert RESPONSES.masked({"role": role}, mask) == {"role": role}


def test_what_others_say_is_not_masked() -> None:
    assert RESPONSES.masked({"role": "user", "content": "12:01"}, mask) is None
    assert RESPONSES.masked(call(), mask) is None


def test_an_envelope_without_instructions_has_nothing_to_mask() -> None:
    assert RESPONSES.mask_envelope({"model": "12:01"}, mask) is None
    assert RESPONSES.mask_envelope({"instructions": None}, mask) is None


# --- errors ---------------------------------------------------------------------------------------


def test_our_error_event_is_the_one_openai_documents() -> None:
    error = UpstreamCut("The answer stopped.", provider="openai", hint="Ask again.")
    assembler = RESPONSES.assembler()

    first = RESPONSES.error_event(error)
    for number in (0, 1, 7):
        assembler.feed(frame_of(event("response.in_progress", number, response={})))
    later = assembler.error_event(error)

    assert first.startswith(b"event: error\ndata: ")
    for raw, number in ((first, 0), (later, 8)):
        value = json.loads(frame_of(raw).data or b"")
        check("ResponseStreamEvent", value)
        assert value["message"] == "The answer stopped. Ask again."
        assert (value["code"], value["sequence_number"]) == (error.code, number)


@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m"},
         "rate_limit_exceeded", 429),
        ({"type": "error", "error": {"code": "server_error", "message": "m"}}, "server_error", 500),
        ({"type": "error", "response": {"error": {"code": "server_error", "message": "m"}}},
         "server_error", 500),
        ({"type": "response.failed", "response": {"error": {"code": "server_error",
                                                            "message": "m"}}}, "server_error", 500),
        (response(status="failed", error={"code": "server_error", "message": "m"}),
         "server_error", 500),
        ({"error": {"code": "model_not_found", "message": "m"}}, "model_not_found", 404),
    ],
)  # fmt: skip
def test_an_error_is_read_wherever_it_stands(body: dict[str, Any], code: str, status: int) -> None:
    facts = RESPONSES.read_error(json.dumps(body).encode())

    assert facts is not None
    assert (facts.message, facts.code, facts.status) == ("m", code, status)


@pytest.mark.parametrize(
    "body",
    [
        response(),
        response(status="incomplete", incomplete_details={"reason": "content_filter"}),
        {"type": "response.incomplete", "response": response(status="incomplete")},
    ],
)
def test_a_response_that_failed_at_nothing_is_no_error(body: dict[str, Any]) -> None:
    assert RESPONSES.read_error(json.dumps(body).encode()) is None
