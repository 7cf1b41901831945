"""The checks of requests as they went upstream, and of answers that came back in another form.

One function for each sentence a case says of a request; the tables at the end are the index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.cases.playing import Play, sending_of
from tests.cases.sentences import Check, same_sentence
from tests.cases.staging import reply_of
from tests.helpers.raw_client import Reception

JSONObject = dict[str, Any]

EPHEMERAL = {"type": "ephemeral"}


def check_request(playing: Play, wanted: list[str]) -> None:
    """Check each sentence of a case about the request that went upstream."""
    assert len(playing.upstream.received) == 1
    for sentence in wanted:
        _REQUEST[sentence](playing)


def _sent(playing: Play) -> JSONObject:
    """Return the body of the first request, as it went upstream."""
    found: JSONObject = playing.upstream.received[0].json()
    return found


def _asked(playing: Play) -> JSONObject:
    """Return the body of the first request, as the client sent it."""
    found: JSONObject = playing.case.client["body"]
    return found


def _ask_changed(playing: Play, messages: list[JSONObject]) -> Reception:
    """Ask with other messages; the upstream answers as it did."""
    playing.upstream.extend([reply_of(playing.case.upstream[0], 1.0)])
    body = {**json.loads(playing.sending.body), "messages": messages}
    return playing.ask(sending_of({"body": body}, playing.session, playing.sending))


# --- the same form ------------------------------------------------------------------------


def _is_untouched(playing: Play) -> None:
    assert playing.upstream.received[0].body == playing.sending.body


def _is_same_history(playing: Play) -> None:
    """Equal bytes say it; this says what is in them."""
    assert _sent(playing)["messages"] == _asked(playing)["messages"]


def _has_beta(playing: Play) -> None:
    beta = dict(playing.sending.headers)[b"anthropic-beta"].decode()
    assert playing.upstream.received[0].header("anthropic-beta") == beta


# --- chat → messages ----------------------------------------------------------------------


def _roles_of_three(playing: Play) -> None:
    assert [m["role"] for m in _sent(playing)["messages"]] == ["user", "assistant", "user"]


def _results_then_text(playing: Play) -> None:
    """In whichever order; each with its own text."""
    *results, text = _sent(playing)["messages"][2]["content"]
    assert {block["type"] for block in results} == {"tool_result"}
    assert {block["tool_use_id"]: _text_of(block["content"]) for block in results} == {
        "call_1": "5C", "call_2": "6C", "call_3": "7C"
    }  # fmt: skip
    assert len(results) == 3
    assert text == {"type": "text", "text": "and?"}


def _ids_are_safe(playing: Play) -> None:
    calls, results = _ids(_sent(playing))
    assert calls + results
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) for call_id in calls + results)


def _ids_still_match(playing: Play) -> None:
    calls, results = _ids(_sent(playing))
    assert len(set(calls)) == 3
    assert results == calls


def _ids_are_steady(playing: Play) -> None:
    """A history that grows by a turn keeps its ids."""
    grown = [*_asked(playing)["messages"], {"role": "user", "content": "and?"}]
    assert _ask_changed(playing, grown).status == 200
    again = playing.upstream.received[-1].json()
    assert again["messages"][:2] == _sent(playing)["messages"][:2]
    assert _ids(again) == _ids(_sent(playing))


def _ids(sent: JSONObject) -> tuple[list[str], list[str]]:
    blocks = list(_blocks(sent))
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return calls, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def _blocks(sent: JSONObject) -> Iterator[JSONObject]:
    for message in sent["messages"]:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _empty_is_an_object(playing: Play) -> None:
    """And what is no JSON at all is refused, by the name of its message, before it is sent."""
    assert _sent(playing)["messages"][1]["content"][0]["input"] == {}
    before = len(playing.upstream.received)
    first, called, result = _asked(playing)["messages"]
    (call,) = called["tool_calls"]
    for broken in ('{"city":', "[1]", "Oslo"):
        bad = {**call, "function": {**call["function"], "arguments": broken}}
        got = _ask_changed(playing, [first, {**called, "tool_calls": [bad]}, result])
        assert got.status == 400, got.body
        error = got.json()["error"]
        assert "messages[1]" in f"{error['param']} {error['message']}", error
        assert error["type"] == "invalid_request_error"
    assert len(playing.upstream.received) == before, "it was sent all the same"


def _system_keeps_markers(playing: Play) -> None:
    assert _sent(playing)["system"] == [
        {"type": "text", "text": "static", "cache_control": EPHEMERAL},
        {"type": "text", "text": "dynamic"},
    ]


def _text_keeps_marker(playing: Play) -> None:
    (block,) = _sent(playing)["messages"][0]["content"]
    assert block["text"] == "q"
    assert block["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def _result_keeps_marker(playing: Play) -> None:
    (block,) = (each for each in _blocks(_sent(playing)) if each["type"] == "tool_result")
    assert block["cache_control"] == EPHEMERAL


def _system_texts(sent: JSONObject) -> list[str]:
    system = sent["system"]
    return [system] if isinstance(system, str) else [block["text"] for block in system]


def _leading_system(playing: Play) -> None:
    texts = _system_texts(_sent(playing))
    assert texts.index("A") < texts.index("B")


def _later_system(playing: Play) -> None:
    """The rule is to put it behind the others: this form has one place for it."""
    assert _system_texts(_sent(playing)) == ["A", "B", "C"]


def _no_system_role(playing: Play) -> None:
    assert {m["role"] for m in _sent(playing)["messages"]} <= {"user", "assistant"}


def _alternates(playing: Play) -> None:
    messages = _sent(playing)["messages"]
    assert messages[0]["role"] == "user"
    assert all(one["role"] != next_one["role"] for one, next_one in pairwise(messages))
    assert [block["text"] for block in _blocks(_sent(playing))] == ["q", "q2"]


def _schema_is_sent(playing: Play) -> None:
    wanted = _asked(playing)["response_format"]["json_schema"]["schema"]
    assert _sent(playing)["output_config"]["format"] == {"type": "json_schema", "schema": wanted}


def _tools_work_beside(playing: Play) -> None:
    sent = _sent(playing)
    assert [(tool["name"], tool["input_schema"]) for tool in sent["tools"]] == [
        (tool["function"]["name"], tool["function"]["parameters"])
        for tool in _asked(playing)["tools"]
    ]
    assert sent.get("tool_choice", {"type": "auto"})["type"] == "auto"


# --- messages → chat ----------------------------------------------------------------------

_IMAGE_DATA = "iVBORw0KGgo="
_IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_IMAGE_DATA}"}}


def _user_image(playing: Play) -> None:
    first = _sent(playing)["messages"][0]
    assert first["role"] == "user"
    assert first["content"] == [{"type": "text", "text": "look"}, _IMAGE]


def _tool_follows_calls(playing: Play) -> None:
    messages = _sent(playing)["messages"]
    (at,) = (place for place, m in enumerate(messages) if m["role"] == "tool")
    (call,) = messages[at - 1]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("toolu_1", "shot")
    assert json.loads(call["function"]["arguments"]) == {}
    assert messages[at]["tool_call_id"] == call["id"]
    assert "done" in _text_of(messages[at]["content"])


def _image_of_result(playing: Play) -> None:
    messages = _sent(playing)["messages"]
    (at,) = (place for place, m in enumerate(messages) if m["role"] == "tool")
    after = [m for m in messages[at:] if m["role"] in ("tool", "user")]
    parts = [part for m in after if isinstance(m["content"], list) for part in m["content"]]
    assert parts.count(_IMAGE) == 1


def _no_base64_in_text(playing: Play) -> None:
    for message in _sent(playing)["messages"]:
        assert _IMAGE_DATA not in _text_of(message["content"])


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or () if part["type"] == "text")


def _stops_at_end(playing: Play) -> None:
    assert _sent(playing)["stop"] == ["END"]


# --- either -------------------------------------------------------------------------------


def _is_ordinary(playing: Play) -> None:
    """The question, the model, the most it may answer, and nothing else."""
    sent = _sent(playing)
    (message,) = sent.pop("messages")
    assert (message["role"], _text_of(message["content"])) == ("user", "q")
    assert sent.pop("model") == _asked(playing)["model"]
    limit = {sent.pop(name) for name in ("max_tokens", "max_completion_tokens") if name in sent}
    assert len(limit) == 1, "Messages wants a limit, and the chat client's was sent on"
    assert _asked(playing).get("max_tokens") in (None, *limit)
    assert sent == {}


# --- chat → Gemini ------------------------------------------------------------------------

_NOT_GEMINIS = {
    "$schema", "$ref", "$defs", "$comment", "additionalProperties", "exclusiveMinimum",
    "uniqueItems", "const",
}  # fmt: skip


def _parameters(playing: Play) -> JSONObject:
    (tool,) = _sent(playing)["tools"]
    (declared,) = tool["functionDeclarations"]
    assert declared["name"] == "f"
    found: JSONObject = declared["parameters"]
    return found


def _schemas(schema: JSONObject) -> Iterator[JSONObject]:
    yield schema
    for inner in schema.get("properties", {}).values():
        yield from _schemas(inner)
    if "items" in schema:
        yield from _schemas(schema["items"])


def _no_foreign_words(playing: Play) -> None:
    for schema in _schemas(_parameters(playing)):
        assert not _NOT_GEMINIS & schema.keys(), schema
    # What had to be left out is said, and what can be said in other words is.
    assert "uniqueItems" in (playing.first.header("x-agentstate-dropped") or "")
    properties = _parameters(playing)["properties"]
    assert properties["n"]["minimum"] == 1
    assert properties["e"]["enum"] == ["x"]


def _types_are_single(playing: Play) -> None:
    for schema in _schemas(_parameters(playing)):
        assert schema["type"].upper() in ("OBJECT", "INTEGER", "STRING", "ARRAY")
        assert "nullable" not in schema or schema["nullable"] is True
    number = _parameters(playing)["properties"]["n"]
    assert (number["type"].upper(), number["nullable"]) == ("INTEGER", True)


def _references_are_inlined(playing: Play) -> None:
    assert _parameters(playing)["properties"]["u"]["items"]["type"].upper() == "STRING"


def _required_exist(playing: Play) -> None:
    assert _parameters(playing)["required"] == ["n"]


def _no_stream_options(playing: Play) -> None:
    assert b"stream" not in playing.upstream.received[0].body.lower()


# --- what the client got ------------------------------------------------------------------


def _client_tool_calls(playing: Play, wanted: list[JSONObject]) -> None:
    got = playing.first_read.first.tool_calls
    assert len(got) == len(wanted)
    assert len({call["id"] for call in got}) == len(got)
    for call, expected in zip(got, wanted, strict=True):
        assert expected.keys() == {"id", "name", "arguments_json"}
        assert expected["id"] == "any non-empty, unique"
        assert call["id"]
        assert call["name"] == expected["name"]
        # Compared as text: a reader of JSON may round a number as large as one of these.
        assert call["arguments"].replace(" ", "") == _compact(expected["arguments_json"])


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _body_shape(playing: Play) -> None:
    body = playing.first.json()
    assert body.keys() == {
        "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"
    }  # fmt: skip
    assert (body["type"], body["role"]) == ("message", "assistant")
    assert re.fullmatch(r"msg_\w+", body["id"])
    assert body["usage"].keys() >= {"input_tokens", "output_tokens"}
    assert body["content"], "a turn without content is refused when it is sent back"


def _stop_field(name: str) -> Check:
    def check(playing: Play, wanted: str) -> None:
        _body_shape(playing)
        assert playing.first.json()[name] == wanted

    return check


# --- the tables of checks -------------------------------------------------------------------------

TRANSLATED_CLIENT: dict[str, Check] = {
    "tool_calls": _client_tool_calls,
    "body_shape": same_sentence("anthropic message", _body_shape),
    "stop_reason": _stop_field("stop_reason"),
    "stop_sequence": _stop_field("stop_sequence"),
}

_REQUEST: dict[str, Callable[[Play], None]] = {
    "request body equals client body byte for byte (same protocol)": _is_untouched,
    "signatures, redacted data, order and empty thinking text unchanged": _is_same_history,
    "anthropic-beta forwarded": _has_beta,
    "roles alternate: user, assistant, user": _roles_of_three,
    "messages[2].content starts with 3 tool_result blocks for call_1..3, then the text 'and?'": (
        _results_then_text
    ),
    "every tool_use.id and tool_use_id matches ^[a-zA-Z0-9_-]+$": _ids_are_safe,
    "three distinct ids, pairs still match": _ids_still_match,
    "mapping is deterministic across requests": _ids_are_steady,
    "messages[1].content[0].input == {}": _empty_is_an_object,
    "system == two text blocks, only the first has cache_control": _system_keeps_markers,
    "user text block keeps cache_control with ttl": _text_keeps_marker,
    "tool_result block has cache_control": _result_keeps_marker,
    "leading A and B both in system, in order": _leading_system,
    "C is not lost: hoisted into system or kept in place by a documented rule": _later_system,
    "no role system/developer in messages when the model does not take it": _no_system_role,
    "consecutive user messages merged or alternation kept valid": _alternates,
    "user image becomes image_url with a data: URL": _user_image,
    "tool message directly follows the assistant tool_calls": _tool_follows_calls,
    "image of the tool result reaches the model as an image part (in the tool message, or in a "
    "user message after all tool messages)": _image_of_result,
    "no base64 inside a text part": _no_base64_in_text,
    "stop == ['END']": _stops_at_end,
    "schema reaches the upstream: native structured output, or a forced tool whose call is turned "
    "back into content": _schema_is_sent,
    "client's own tools keep working beside it": _tools_work_beside,
    "ordinary request": _is_ordinary,
    "no $schema, $ref, $defs, $comment, additionalProperties, exclusiveMinimum, uniqueItems, const "
    "in parameters (or parametersJsonSchema used)": _no_foreign_words,
    "type is a single enum, null -> nullable": _types_are_single,
    "$ref inlined": _references_are_inlined,
    "required lists only existing properties": _required_exist,
    "no stream_options in generationConfig": _no_stream_options,
}
