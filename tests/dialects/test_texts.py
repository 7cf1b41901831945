"""Another text in the place of an answer, in every form; and put in for agents that are alive."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import DIALECTS, dialect_by_name
from agentstate.dialects.base import CallingDialect, Splice, calls_tools
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.reading import read_recorded

CALL: dict[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "f", "arguments": "{}"},
}
ANSWERS: dict[str, Any] = {
    "openai_chat": {
        "id": "a-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "old", "tool_calls": [CALL]},
                "logprobs": {"content": []},
                "finish_reason": "length",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    },
    "openai_responses": {
        "id": "a-1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "old", "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "f",
                "arguments": "{}",
            },
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    },
    "openai_completions": {
        "id": "a-1",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "text": "old", "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    },
    "anthropic_messages": {
        "id": "a-1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "ol"},
            {"type": "text", "text": "d"},
            {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    },
    "gemini": {
        "responseId": "a-1",
        "modelVersion": "m",
        "candidates": [
            {
                "index": 0,
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "old", "thoughtSignature": "s"},
                        {"functionCall": {"name": "f", "args": {}}},
                    ],
                },
                "finishReason": "MAX_TOKENS",
                "citationMetadata": {},
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3},
    },
}
NAMES = sorted(ANSWERS)


def body_of(name: str) -> bytes:
    return json.dumps(ANSWERS[name]).encode()


def dialect_of(name: str) -> CallingDialect:
    dialect = dialect_by_name(name)
    assert dialect is not None
    assert calls_tools(dialect)
    return dialect


def test_every_form_that_has_a_text_is_here() -> None:
    assert {each.name for each in DIALECTS if calls_tools(each)} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["new words", "", "ø\u2028\n\"'"])
def test_an_answer_says_something_else_and_is_the_same_besides(name: str, text: str) -> None:
    dialect = dialect_of(name)
    before, after = dialect.read_answer(body_of(name)), dialect.with_text(body_of(name), 0, text)
    read = dialect.read_answer(after)
    assert read.is_complete
    assert read.text == text
    assert read.tool_calls == before.tool_calls
    assert (read.response_id, read.model, read.usage) == ("a-1", "m", before.usage)
    assert read.choices[0].reasoning == before.choices[0].reasoning
    assert read.finish_reason not in ("length", "MAX_TOKENS")
    streamed = b"".join(dialect.events_from_body(after, True))
    told = read_recorded(dialect, RecordedAnswer(200, (), "events", streamed))
    assert (told.text, told.tool_calls, told.response_id) == (text, read.tool_calls, "a-1")
    assert told.is_complete


@pytest.mark.parametrize("name", NAMES)
def test_a_choice_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="one choice, 0; found 3"):
        dialect_of(name).with_text(body_of(name), 3, "x")


def test_an_answer_without_a_text_gets_one_before_its_calls() -> None:
    for name, path in (("anthropic_messages", "content"), ("openai_responses", "output")):
        answer = json.loads(body_of(name))
        answer[path] = [part for part in answer[path] if part["type"] not in ("text", "message")]
        after = dialect_of(name).with_text(json.dumps(answer).encode(), 0, "new")
        kinds = [part["type"] for part in json.loads(after)[path]]
        assert kinds[1] in ("text", "message")
        assert dialect_of(name).read_answer(after).text == "new"


REQUESTS: dict[str, Any] = {
    "openai_chat": ("messages", {"role": "user", "content": "q"}),
    "openai_responses": ("input", {"role": "user", "content": "q"}),
    "anthropic_messages": ("messages", {"role": "user", "content": "q"}),
    "gemini": ("contents", {"role": "user", "parts": [{"text": "q"}]}),
}


def history_of(name: str, answer: bytes) -> list[Any]:
    """Return an answer as an agent has it in its history."""
    value = json.loads(answer)
    match name:
        case "openai_chat":
            return [value["choices"][0]["message"]]
        case "openai_responses":
            return list(value["output"])
        case "anthropic_messages":
            return [{"role": "assistant", "content": value["content"]}]
        case _:
            return [value["candidates"][0]["content"]]


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_what_a_person_wrote_takes_the_place_of_what_an_agent_has(name: str) -> None:
    dialect, (key, question) = dialect_of(name), REQUESTS[name]
    old, new = body_of(name), dialect_of(name).with_text(body_of(name), 0, "new words")
    splice = Splice({"model": "m", key: [question]}, (), old, new)
    sent = {"model": "m", key: [question, *history_of(name, old), question]}
    spliced = dialect.spliced(sent, splice)
    assert spliced is not None
    items = spliced[key]
    assert isinstance(items, list)
    assert "new words" in json.dumps(items)
    assert '"old"' not in json.dumps(items)
    assert '"ol"' not in json.dumps(items)
    assert (items[0], items[-1]) == (question, question)
    assert json.dumps(items).count('"f"') == 1  # the call stays
    other = {"model": "m", key: [question, *history_of(name, new), question]}
    assert dialect.spliced(other, splice) in (None, other)


def test_a_prompt_gets_what_a_person_wrote() -> None:
    dialect = dialect_of("openai_completions")
    old, new = (
        body_of("openai_completions"),
        dialect.with_text(body_of("openai_completions"), 0, "new"),
    )
    splice = Splice({"model": "m", "prompt": "q: "}, (), old, new)
    spliced = dialect.spliced({"model": "m", "prompt": "q: old and then"}, splice)
    assert spliced == {"model": "m", "prompt": "q: new and then"}
