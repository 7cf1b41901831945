"""What a person writes in place of an answer: what is taken, and what is said of what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import calls_tools
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.edits import Edit, edited
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


def test_a_body_that_clients_could_not_read_is_refused_with_its_place() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": 5}, "finish_reason": "stop"}
    with pytest.raises(BadRequest) as refusal:
        result_of(Edit(body={"choices": [choice]}))
    assert refusal.value.param == "body.choices[0].message.content"
    assert refusal.value.message == (
        "The new answer would be none of the form openai_chat: at body.choices[0].message.content "
        "expected a string or a list or null, found the number 5."
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_what_an_answer_says_already_is_no_edit(name: str) -> None:
    dialect = dialect_by_name(name)
    assert dialect is not None
    if calls_tools(dialect):
        with pytest.raises(BadRequest, match="says that already"):
            result_of(Edit(body=json.loads(body_of(name))), name)
        with pytest.raises(BadRequest, match=r"must have one of .*; found a"):
            result_of(Edit(body={"a": 1}), name)


def test_an_answer_may_end_for_the_reason_of_the_one_it_replaces() -> None:
    def ended(reason: str, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}

    dialect = dialect_by_name("openai_chat")
    assert dialect is not None
    recorded = RecordedAnswer(200, (), "body", json.dumps(ended("eos", "old")).encode())
    new, _ = edited(dialect, recorded, {}, Edit(body=ended("eos", "new")))
    assert json.loads(new.content) == ended("eos", "new")
    with pytest.raises(BadRequest, match="finish_reason expected one of"):
        edited(dialect, recorded, {}, Edit(body=ended("banana", "new")))


def test_what_has_no_text_is_refused() -> None:
    dialect = dialect_by_name("openai_embeddings")
    assert dialect is not None
    with pytest.raises(BadRequest, match="openai_embeddings has no text"):
        edited(dialect, RecordedAnswer(200, (), "body", b"{}"), {}, Edit(text="a"))
