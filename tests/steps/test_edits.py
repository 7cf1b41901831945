"""What a person writes in place of an answer: what is taken, and what is said of what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.dialects.answer_schemas import ANSWER_SCHEMAS
from agentstate.dialects.base import calls_tools
from agentstate.ground.canonical import parse
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.edits import Edit, edited
from agentstate.steps.schema import check_value
from tests.dialects.test_texts import ANSWERS, body_of

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "q"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
}


def result_of(edit: Edit, name: str = "openai_chat", **request: Any) -> dict[str, Any]:
    dialect = dialect_by_name(name)
    assert dialect is not None
    headers = ((b"content-type", b"text/event-stream"), (b"x-request-id", b"7"))
    content = b"".join(dialect.events_from_body(body_of(name), True))
    recorded = RecordedAnswer(200, headers, "events", content)
    new, answer = edited(dialect, recorded, REQUEST | request, edit)
    assert answer == dialect.read_answer(new.content)
    assert new.form == "body"
    assert new.headers == ((b"content-type", b"application/json"), headers[1])
    found: dict[str, Any] = json.loads(new.content)
    return found


def call_in(found: dict[str, Any]) -> str:
    arguments: str = found["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    return arguments


@pytest.mark.parametrize("names", [{}, {"call_id": "call_1"}, {"position": 0, "choice": 0}])
def test_the_arguments_of_a_call_are_others(names: dict[str, Any]) -> None:
    assert call_in(result_of(Edit(arguments='{"city": "Oslo"}', **names))) == '{"city": "Oslo"}'


def test_a_whole_answer_keeps_the_id_and_what_it_does_not_say() -> None:
    message = {"role": "assistant", "content": "new"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    found = result_of(Edit(body={"id": "mine", "choices": choices}))
    assert (found["id"], found["model"]) == ("a-1", "m")
    assert found["usage"] == ANSWERS["openai_chat"]["usage"]
    assert found["choices"] == choices


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit(), "exactly one"),
        (Edit(text="a", arguments="{}"), "exactly one"),
        (Edit(arguments="{"), "JSON"),
        (Edit(arguments='{"city": 1}'), "city"),
        (Edit(arguments="{}", call_id="other"), "none of these"),
        (Edit(arguments="{}", position=4), "call_1"),
        (Edit(body={"choices": []}), "openai_chat"),
        (Edit(body=[1]), "object"),
        (Edit(text="x", choice=2), "choice"),
    ],
)
def test_what_does_not_fit_is_refused(edit: Edit, why: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        result_of(edit)
    assert why in refusal.value.message


def without_call(**changes: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "new", **changes}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


CHOICE: dict[str, Any] = without_call()["choices"][0]
FUNCTION = {"name": "f", "arguments": {}}


@pytest.mark.parametrize(
    ("name", "body", "where"),
    [
        ("openai_chat", without_call(content=5), "at body.choices[0].message.content"),
        ("openai_chat", without_call(content={"a": [1]}), "choices[0].message.content"),
        ("openai_chat", without_call(role="user"), "choices[0].message.role"),
        ("openai_chat", without_call(tool_calls="x"), "choices[0].message.tool_calls"),
        (
            "openai_chat",
            without_call(tool_calls=[{"id": "c", "type": "function", "function": FUNCTION}]),
            "choices[0].message.tool_calls[0].function.arguments",
        ),
        ("openai_chat", {"choices": [CHOICE | {"finish_reason": "banana"}]}, "finish_reason"),
        ("openai_chat", {"choices": [CHOICE | {"index": 3}]}, "indexes from 0"),
        ("openai_chat", {"choices": [CHOICE, CHOICE]}, "found 0, 0"),
        ("anthropic_messages", {"content": [{"type": "text", "text": 7}]}, "content[0].text"),
        ("anthropic_messages", {"role": "user"}, "role"),
        ("openai_responses", {"output": "x"}, "output"),
        (
            "openai_responses",
            {"output": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]},
            "output[0].arguments",
        ),
        (
            "gemini",
            {"candidates": [{"content": {"parts": [{"text": 1}]}, "finishReason": "STOP"}]},
            "parts[0].text",
        ),
    ],
)
def test_a_body_that_clients_could_not_read_is_refused(
    name: str, body: dict[str, Any], where: str
) -> None:
    with pytest.raises(BadRequest) as refusal:
        result_of(Edit(body=body), name)
    assert where in refusal.value.message


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_of_a_model_is_one_that_a_person_may_write(name: str) -> None:
    dialect = dialect_by_name(name)
    assert dialect is not None
    if calls_tools(dialect):
        assert name in ANSWER_SCHEMAS
        check_value(parse(body_of(name)), ANSWER_SCHEMAS[name], "", "body")
        with pytest.raises(BadRequest, match="says that already"):
            result_of(Edit(body={"a": 1}), name)


def test_what_has_no_text_is_refused() -> None:
    dialect = dialect_by_name("openai_embeddings")
    assert dialect is not None
    with pytest.raises(BadRequest, match="openai_embeddings has no text"):
        edited(dialect, RecordedAnswer(200, (), "body", b"{}"), {}, Edit(text="a"))
