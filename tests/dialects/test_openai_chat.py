"""The chat dialect's requests, and that a variant can be built on it."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects.base import Dialect
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.errors import BadRequest

CHAT = OpenAIChat()
HI: JSON = [{"role": "user", "content": "hi"}]


def ask(**fields: Any) -> dict[str, JSON]:
    return {"model": "m", "messages": HI, **fields}


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        (None, None, "must be a JSON object; found null"),
        ([], None, "must be a JSON object; found a list"),
        ("x", None, "must be a JSON object; found a string"),
        ({"messages": HI}, "model", "found null or nothing"),
        ({"model": "", "messages": HI}, "model", "found an empty string"),
        ({"model": 7, "messages": HI}, "model", "found the number 7"),
        ({"model": "m"}, "messages", "found null or nothing"),
        ({"model": "m", "messages": []}, "messages", "found an empty list"),
        ({"model": "m", "messages": "hi"}, "messages", "found a string"),
        ({"model": "m", "messages": {}}, "messages", "found an object"),
        ({"model": "m", "messages": [{}, "hi"]}, "messages[1]", "found a string"),
        (ask(stream=1), "stream", "found the number 1"),
        (ask(stream="true"), "stream", "found a string"),
        (ask(stream=[]), "stream", "found a list"),
    ],
)
def test_what_is_no_request_is_refused_by_name(body: JSON, param: str | None, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        CHAT.read_ask(body)

    assert caught.value.param == param
    assert says in caught.value.message


def test_a_message_never_holds_a_value_of_the_prompt() -> None:
    with pytest.raises(BadRequest) as caught:
        CHAT.read_ask({"model": "m", "messages": "my secret"})

    assert "secret" not in caught.value.message


@pytest.mark.parametrize(("sent", "streams"), [(None, False), (False, False), (True, True)])
def test_a_null_stream_is_none(sent: bool | None, streams: bool) -> None:
    assert CHAT.read_ask(ask(stream=sent)).streams is streams


@pytest.mark.parametrize(
    ("n", "choices"),
    [("1", 1), ("3", 3), ("3.0", 3), ("null", 1), ("0", 1), ("-2", 1), ("true", 1), ('"3"', 1),
     ("2.5", 1), ("1e400", 1), ("[3]", 1)],
)  # fmt: skip
def test_n_says_how_many_choices_to_wait_for(n: str, choices: int) -> None:
    body = parse(f'{{"model":"m","messages":[{{"role":"user"}}],"n":{n}}}'.encode())

    assert CHAT.read_ask(body).choices == choices


def test_n_counts_for_the_fingerprint() -> None:
    assert CHAT.read_ask(ask(n=2)).envelope == {"model": "m", "n": 2}


@pytest.mark.parametrize(
    ("options", "wants"),
    [({"include_usage": True}, True), ({"include_usage": False}, False), ({}, False),
     ({"include_usage": 1}, False), (None, False), ("x", False)],
)  # fmt: skip
def test_usage_is_wanted_only_by_true(options: JSON, wants: bool) -> None:
    assert CHAT.read_ask(ask(stream=True, stream_options=options)).wants_usage is wants


@pytest.mark.parametrize("role", ["tool", "function"])
def test_both_forms_of_a_tool_result_are_blanked(role: str) -> None:
    message: JSON = {"role": role, "tool_call_id": "c", "name": "f", "content": [{"text": "x"}]}

    assert CHAT.tool_result_blank(message) == {"role": role, "tool_call_id": "c", "name": "f"}


@pytest.mark.parametrize(
    "message", [{"role": "user", "content": "x"}, {"role": ["tool"]}, {}, "tool", None, 1]
)
def test_what_is_no_tool_result_is_not_blanked(message: JSON) -> None:
    assert CHAT.tool_result_blank(message) is None


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    ("content", "masked"),
    [
        ("now 12:01", "NOW 12:01"),
        ([{"type": "text", "text": "now"}, {"type": "image_url"}, "now", {"text": 1}],
         [{"type": "text", "text": "NOW"}, {"type": "image_url"}, "now", {"text": 1}]),
        (None, None),
    ],
)  # fmt: skip
def test_the_text_of_system_messages_is_masked(role: str, content: JSON, masked: JSON) -> None:
    message: JSON = {"role": role, "name": "now", "content": content}

    assert CHAT.masked(message, str.upper) == {"role": role, "name": "now", "content": masked}


@pytest.mark.parametrize("message", [{"role": "user", "content": "x"}, {}, "system", None])
def test_other_messages_are_not_masked(message: JSON) -> None:
    assert CHAT.masked(message, str.upper) is None


def test_the_envelope_holds_no_system_text() -> None:
    assert CHAT.mask_envelope({"model": "m"}, str.upper) is None


def test_a_variant_says_what_differs() -> None:
    variant: Dialect = OpenAIChat(
        "groq_chat", provider="groq", paths=("/groq",), counted_headers=(b"x-beta",)
    )

    assert (variant.name, variant.provider, variant.paths) == ("groq_chat", "groq", ("/groq",))
    assert variant.counted_headers == (b"x-beta",)
    assert variant.list_key == CHAT.list_key
    assert repr(variant) == "OpenAIChat('groq_chat')"


def test_the_end_of_a_stream_is_done() -> None:
    assert CHAT.done_frame() == b"data: [DONE]\n\n"
