"""What a person may write as a whole answer, in every form, and what is said of what is none."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.ground.errors import BadRequest
from agentstate.steps.answer_check import check_answer
from tests.dialects.test_texts import ANSWERS

FUNCTION = {"name": "f", "arguments": {}}
MESSAGE: dict[str, Any] = {"role": "assistant", "content": "new"}
CHOICE: dict[str, Any] = {"index": 0, "message": MESSAGE, "finish_reason": "stop"}
TEXT = {"index": 0, "text": "new", "finish_reason": "stop"}
CANDIDATE: dict[str, Any] = {
    "content": {"role": "model", "parts": [{"text": "new"}]}, "finishReason": "STOP",
}  # fmt: skip


def chat(**changes: Any) -> dict[str, Any]:
    return {"choices": [CHOICE | {"message": MESSAGE | changes}]}


def choices(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [CHOICE | change for change in changes]}


def texts(**changes: Any) -> dict[str, Any]:
    return {"choices": [TEXT | changes]}


def output(*items: Any) -> dict[str, Any]:
    return {"output": list(items)}


def blocks(*found: Any) -> dict[str, Any]:
    return {"content": list(found)}


def candidate(**changes: Any) -> dict[str, Any]:
    return {"candidates": [CANDIDATE | changes]}


def parts(*found: Any) -> dict[str, Any]:
    return candidate(content={"role": "model", "parts": list(found)})


def check(name: str, body: dict[str, Any]) -> None:
    check_answer(name, body, ANSWERS[name] | body, ())


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("openai_chat", chat(content=5), "choices[0].message.content", "found the number 5"),
    ("openai_chat", chat(content={"a": [1]}), "choices[0].message.content", "found an object"),
    ("openai_chat", chat(content=["x"]), "choices[0].message.content[0]", "an object"),
    ("openai_chat", chat(content=[{"type": "text"}]), "choices[0].message.content[0]", '"text"'),
    ("openai_chat", chat(role="user"), "choices[0].message.role", '"assistant"'),
    ("openai_chat", choices({"message": {"content": "x"}}), "choices[0].message", '"role"'),
    ("openai_chat", chat(tool_calls="x"), "choices[0].message.tool_calls", "a list or null"),
    (
        "openai_chat", chat(tool_calls=[{"id": "c", "type": "function", "function": FUNCTION}]),
        "choices[0].message.tool_calls[0].function.arguments", "expected a string",
    ),
    (
        "openai_chat", chat(tool_calls=[{"id": "c", "function": FUNCTION}]),
        "choices[0].message.tool_calls[0].function.arguments", "expected a string",
    ),
    (
        "openai_chat", chat(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f"}}]),
        "choices[0].message.tool_calls[0].custom", '"input"',
    ),
    ("openai_chat", chat(function_call=FUNCTION), "choices[0].message.function_call.arguments", ""),
    ("openai_chat", choices({"finish_reason": "banana"}), "choices[0].finish_reason", '"stop"'),
    ("openai_chat", choices({"index": "0"}), "choices[0].index", "an integer"),
    ("openai_chat", choices({"index": 3}), "choices", "indexes from 0, each once; found 3."),
    ("openai_chat", choices({}, {}), "choices", "found 0, 0"),
    ("openai_chat", choices(), "choices", "at least 1 items"),
    ("openai_chat", {"usage": 5}, "usage", "an object or null"),
    ("openai_completions", texts(text=5), "choices[0].text", "a string"),
    ("openai_completions", texts(finish_reason="banana"), "choices[0].finish_reason", ""),
    ("openai_completions", texts(index=1), "choices", "found 1"),
    ("openai_responses", {"output": "x"}, "output", "expected a list, found a string"),
    ("openai_responses", output({}), "output[0]", '"type"'),
    ("openai_responses", output({"type": "message"}), "output[0]", '"content"'),
    (
        "openai_responses", output({"type": "message", "role": "user", "content": []}),
        "output[0].role", '"assistant"',
    ),
    (
        "openai_responses",
        output({"type": "message", "content": [{"type": "output_text", "text": 7}]}),
        "output[0].content[0].text", "a string",
    ),
    (
        "openai_responses", output({"type": "function_call", "call_id": "c", **FUNCTION}),
        "output[0].arguments", "found an object",
    ),
    ("openai_responses", {"status": "banana"}, "status", '"completed"'),
    ("anthropic_messages", blocks({"type": "text", "text": 7}), "content[0].text", "a string"),
    ("anthropic_messages", blocks({"type": "text"}), "content[0]", '"text"'),
    ("anthropic_messages", {"content": "x"}, "content", "expected a list, found a string"),
    (
        "anthropic_messages", blocks({"type": "tool_use", "id": "t", "name": "f", "input": "{}"}),
        "content[0].input", "expected an object, found a string",
    ),
    ("anthropic_messages", {"role": "user"}, "role", '"assistant"'),
    ("anthropic_messages", {"stop_reason": "banana"}, "stop_reason", '"end_turn"'),
    ("gemini", parts({"text": 1}), "candidates[0].content.parts[0].text", "a string"),
    (
        "gemini", parts({"functionCall": {"name": "f", "args": "{}"}}),
        "candidates[0].content.parts[0].functionCall.args", "an object or null",
    ),
    ("gemini", candidate(content={"role": "user", "parts": []}), "candidates[0].content.role", ""),
    ("gemini", candidate(finishReason="banana"), "candidates[0].finishReason", '"STOP"'),
    ("gemini", candidate(index=2), "candidates", "found 2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "place", "says"), BAD)
def test_what_clients_could_not_read_is_refused_with_its_place(
    name: str, body: dict[str, Any], place: str, says: str
) -> None:
    with pytest.raises(BadRequest) as refusal:
        check(name, body)
    assert refusal.value.param == f"body.{place}"
    assert says in refusal.value.message


@pytest.mark.parametrize("name", sorted({name for name, *_ in BAD}))
def test_a_body_without_a_part_of_its_form_says_what_there_is(name: str) -> None:
    with pytest.raises(BadRequest, match=f"of the form {name} has; found a, b. What it leaves out"):
        check(name, {"a": 1, "b": 2})
    with pytest.raises(BadRequest, match="found no key"):
        check(name, {})


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai_chat", chat(content=None, tool_calls=None, refusal="no")),
        ("openai_chat", chat(content=[{"type": "text", "text": "x"}, {"type": "thinking"}])),
        (
            "openai_chat",
            chat(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]),
        ),
        ("openai_chat", choices({"index": 1}, {"index": 0})),
        ("openai_responses", output({"type": "tool_search_call", "arguments": {"goal": "x"}})),
        ("openai_responses", output()),
        ("anthropic_messages", {"stop_reason": "model_context_window_exceeded"}),
        ("anthropic_messages", blocks({"type": "container_upload", "file_id": "f"})),
        ("gemini", candidate()),
    ],
)
def test_what_clients_can_read_is_taken(name: str, body: dict[str, Any]) -> None:
    check(name, body)


def test_an_answer_may_end_for_a_reason_that_its_server_gave() -> None:
    body = choices({"finish_reason": "eos"})
    check_answer("openai_chat", body, body, {"eos"})
