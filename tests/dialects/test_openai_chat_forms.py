"""The other form of a chat answer, held against OpenAI's published schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.openai_chat_forms import DONE_FRAME, body_from_events, events_from_body
from agentstate.dialects.openai_chat_reading import ChatAssembler, read_answer
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.samples import (
    CHAT_DONE,
    CHAT_USAGE,
    SAMPLES,
    call_delta,
    chat_body,
    chat_chunk,
    chat_message,
    chat_usage_chunk,
)
from tests.helpers.openai_schema import check

BODIES = SAMPLES["openai_chat"].bodies
STREAMS = SAMPLES["openai_chat"].streams

steady = settings(derandomize=True, deadline=None, database=None, max_examples=100)
texts = st.sampled_from(("", "a", "b\ud83d", "\ude00"))


def fields(**named: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that lack some of the fields, and have null in others."""
    return st.fixed_dictionaries(
        {}, optional={key: st.one_of(st.none(), value) for key, value in named.items()}
    )


functions = fields(
    name=st.sampled_from(("", "f", "g")), arguments=st.one_of(texts, st.just({"x": 1.5}))
)
whole_calls = st.fixed_dictionaries(
    {"function": functions.map(lambda function: {**function, "name": "f"})},
    optional={"id": st.sampled_from((None, "", "c1", "c2")), "index": st.sampled_from((0, None))},
)
contents = st.one_of(texts, st.just([{"type": "text", "text": "p"}, "odd"]))
messages = fields(
    role=st.just("assistant"), content=contents, refusal=texts, reasoning_content=texts,
    reasoning=texts, tool_calls=st.lists(whole_calls, max_size=3), x=st.just([None, {"y": 1}]),
)  # fmt: skip
deltas = fields(
    role=st.just("assistant"), content=contents, refusal=texts, reasoning=texts,
    tool_calls=st.lists(
        fields(
            index=st.sampled_from((0, 1)), id=st.sampled_from(("", "c1", "c2")),
            type=st.sampled_from(("function", "custom")), function=functions,
        ),
        max_size=2,
    ),
)  # fmt: skip

CUSTOM_CALL = {"id": "call_1", "type": "custom", "custom": {"name": "f", "input": "any text"}}


def chunks_of(body: bytes, *, include_usage: bool = False) -> list[dict[str, Any]]:
    frames = SSEDecoder().feed(b"".join(events_from_body(body, include_usage)))
    assert frames.pop().raw == DONE_FRAME
    return [json.loads(frame.data or b"") for frame in frames]


def merge(*frames: bytes) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(body_from_events(SSEDecoder().feed(b"".join(frames))))
    return made


def merge_message(*deltas: dict[str, Any]) -> dict[str, Any]:
    made = merge(*(chat_chunk(delta) for delta in deltas), chat_chunk({}, "stop"), CHAT_DONE)
    check("CreateChatCompletionResponse", made)
    message: dict[str, Any] = made["choices"][0]["message"]
    return message


@pytest.mark.parametrize("name", BODIES)
def test_made_events_satisfy_the_schema(name: str) -> None:
    for chunk in chunks_of(BODIES[name], include_usage=True):
        check("CreateChatCompletionStreamResponse", chunk)


@pytest.mark.parametrize("name", STREAMS)
def test_a_made_body_satisfies_the_schema(name: str) -> None:
    check("CreateChatCompletionResponse", merge(*STREAMS[name]))


@pytest.mark.parametrize("name", BODIES)
def test_the_sample_bodies_satisfy_the_schema(name: str) -> None:
    check("CreateChatCompletionResponse", json.loads(BODIES[name]))


@given(st.lists(messages, min_size=1, max_size=3))
@steady
def test_events_of_any_body_say_the_same(messages: list[dict[str, Any]]) -> None:
    body = chat_body(*({"message": message, "finish_reason": "stop"} for message in messages))
    assembler = ChatAssembler()
    for frame in SSEDecoder().feed(b"".join(events_from_body(body, True))):
        assembler.feed(frame)

    assert assembler.finish(True) == read_answer(body)


@given(st.lists(st.tuples(deltas, st.sampled_from((0, 1))), max_size=8))
@steady
def test_a_body_of_any_stream_says_the_same(pieces: list[tuple[dict[str, Any], int]]) -> None:
    chunks = [chat_chunk(delta, index=index) for delta, index in pieces]
    ends = [chat_chunk({}, "stop", index=index) for index in (0, 1)]
    frames = SSEDecoder().feed(b"".join((*chunks, *ends)))
    assembler = ChatAssembler(2)
    for frame in frames:
        assembler.feed(frame)

    assert read_answer(body_from_events(frames)) == assembler.finish(True)


def test_a_text_becomes_role_text_and_end() -> None:
    body = chat_body({"message": chat_message(content="Hi"), "finish_reason": "stop"})

    chunks = chunks_of(body, include_usage=True)

    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        [],
    ]
    assert chunks[-1]["usage"] == CHAT_USAGE
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for key in ("id", "created", "model", "system_fingerprint", "service_tier"):
        assert {chunk[key] for chunk in chunks} == {json.loads(body)[key]}


def test_nulls_of_a_body_do_not_become_fields_of_chunks() -> None:
    body = chat_body(
        {"message": chat_message(content="Hi", audio=None), "finish_reason": "stop"},
        system_fingerprint=None,
        moderation=None,
        usage=None,
    )

    for chunk in chunks_of(body, include_usage=True):
        assert "system_fingerprint" not in chunk
        assert "moderation" not in chunk
        assert "audio" not in chunk["choices"][0]["delta"]


def test_reasoning_comes_before_the_text() -> None:
    message = chat_message(content="Hi", reasoning_content="Hm", reasoning="Hm")

    deltas = [
        chunk["choices"][0]["delta"]
        for chunk in chunks_of(chat_body({"message": message, "finish_reason": "stop"}))
    ]

    assert deltas[1:-1] == [{"reasoning_content": "Hm"}, {"reasoning": "Hm"}, {"content": "Hi"}]


def test_each_tool_call_becomes_one_delta_with_its_index() -> None:
    chunks = chunks_of(BODIES["tool calls"])

    calls = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in chunks]
    assert [call[0]["index"] for call in calls if call] == [0, 1]
    assert chunks[0]["choices"][0]["delta"]["content"] is None


def test_a_custom_call_survives_both_ways() -> None:
    # Not held against the stream's schema, which knows no custom calls.
    body = chat_body(
        {"message": chat_message(tool_calls=[CUSTOM_CALL]), "finish_reason": "tool_calls"}
    )

    made = merge(*events_from_body(body, True))

    check("CreateChatCompletionResponse", made)
    assert made == json.loads(body)


def test_the_ends_of_all_choices_come_last() -> None:
    """A client, or an assembler, that knows nothing of n would else stop after the first."""
    assembler = ChatAssembler()
    frames = SSEDecoder().feed(b"".join(events_from_body(BODIES["two choices"], False)))

    for frame in frames[:-2]:
        assembler.feed(frame)
        assert not assembler.snapshot().is_complete


def test_logprobs_go_with_the_text_or_with_the_end() -> None:
    logprobs = {"content": None, "refusal": None}

    with_text = chunks_of(BODIES["logprobs"])
    alone = chunks_of(
        chat_body({"message": chat_message(), "finish_reason": "stop", "logprobs": logprobs})
    )

    assert ["logprobs" in chunk["choices"][0] for chunk in with_text] == [False, True, False]
    assert ["logprobs" in chunk["choices"][0] for chunk in alone] == [False, True]


@pytest.mark.parametrize("text", ["-0.00012345678901234567", "1.50", "1E2", "2512292042121000001"])
def test_numbers_keep_their_text(text: str) -> None:
    raw = chat_body({"message": chat_message(content="a", x=7777), "finish_reason": "stop"})
    body = raw.replace(b"7777", text.encode())

    events = b"".join(events_from_body(body, False))

    assert text.encode() in events
    assert text.encode() in body_from_events(SSEDecoder().feed(events))


def test_logprobs_of_a_refusal_go_with_it() -> None:
    logprobs = {"content": None, "refusal": []}
    message = chat_message(refusal="No.")

    chunks = chunks_of(
        chat_body({"message": message, "finish_reason": "stop", "logprobs": logprobs})
    )

    assert ["logprobs" in chunk["choices"][0] for chunk in chunks] == [False, True, False]


def test_a_choice_without_index_gets_its_place() -> None:
    choice = {"index": None, "message": {"role": None, "content": "a"}, "finish_reason": "stop"}

    chunks = chunks_of(chat_body({**choice, "index": 5}, choice))

    assert [chunk["choices"][0]["index"] for chunk in chunks] == [5, 5, 1, 1, 5, 1]
    assert {chunk["choices"][0]["delta"].get("role") for chunk in chunks} == {"assistant", None}


def test_nan_becomes_null() -> None:
    raw = chat_body({"message": chat_message(content="a", x=7777), "finish_reason": "stop"})

    for constant in (b"NaN", b"-Infinity"):
        chunks = chunks_of(raw.replace(b"7777", b"[" + constant + b"]"))
        assert chunks[0]["choices"][0]["delta"]["x"] == [None]


def test_a_half_surrogate_survives() -> None:
    raw = chat_body({"message": chat_message(content="a\ud83d"), "finish_reason": "stop"})

    assert merge(*events_from_body(raw, False))["choices"][0]["message"]["content"] == "a\ud83d"


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"choices":null}'])
def test_what_is_no_body_makes_no_answer(body: bytes) -> None:
    assert events_from_body(body, True) == [DONE_FRAME]


@pytest.mark.parametrize("reason", [None, "", "error"])
def test_an_unfinished_body_makes_an_unfinished_stream(reason: str | None) -> None:
    body = chat_body({"message": chat_message(content="a"), "finish_reason": reason})
    assembler = ChatAssembler()

    for frame in SSEDecoder().feed(b"".join(events_from_body(body, False))):
        assembler.feed(frame)

    assert not assembler.finish(True).is_complete


def test_an_unfinished_stream_makes_an_unfinished_body() -> None:
    frames = SSEDecoder().feed(chat_chunk({"role": "assistant", "content": "a"}))

    assert not read_answer(body_from_events(frames)).is_complete
    assert not read_answer(body_from_events([])).is_complete


def test_texts_are_joined_and_the_head_is_kept() -> None:
    made = merge(*STREAMS["usage"])

    assert made["object"] == "chat.completion"
    assert (made["id"], made["created"]) == ("chatcmpl-1", 1700000000)
    assert (made["model"], made["system_fingerprint"]) == ("gpt-4o-mini-2024-07-18", "fp_1")
    assert made["service_tier"] == "default"
    assert made["usage"] == CHAT_USAGE
    assert made["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


def test_the_first_head_that_says_something_counts() -> None:
    azure = b'data: {"id":"","object":"","created":0,"model":"","choices":[],"filters":[1]}\n\n'

    made = merge(azure, *STREAMS["text"])

    assert (made["id"], made["created"], made["filters"]) == ("chatcmpl-1", 1700000000, [1])


def test_the_last_usage_counts() -> None:
    early = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
    null = b'data: {"choices":[],"usage":null}\n\n'

    made = merge(early, *STREAMS["text"][:-1], chat_usage_chunk(), null, CHAT_DONE)

    assert made["usage"] == CHAT_USAGE


def test_padding_of_chunks_is_left_out() -> None:
    padded = chat_chunk({"content": "a"}, "stop").replace(b'"id"', b'"obfuscation":"xx","id"')

    assert "obfuscation" not in merge(padded)


def test_tool_calls_are_put_together() -> None:
    message = merge_message(
        {"role": "assistant", "content": ""},
        {"tool_calls": [call_delta(0, "", "call_1", "f")]},
        {"tool_calls": [call_delta(0, '{"a":'), call_delta(1, "{}", "call_2", "g")]},
        {"tool_calls": [{**call_delta(0, "1}"), "id": ""}]},
    )

    assert message == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


def test_what_a_call_carries_besides_is_kept() -> None:
    signature = {"extra_content": {"google": {"thought_signature": "c2ln"}}}

    message = merge_message({"tool_calls": [{**call_delta(0, "{}", "call_1", "f"), **signature}]})

    assert message["tool_calls"][0]["extra_content"] == signature["extra_content"]


def test_an_id_nobody_sent_is_not_invented() -> None:
    made = merge(
        chat_chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
        chat_chunk({}, "tool_calls"),
    )

    assert made["choices"][0]["message"]["tool_calls"] == [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]


def test_a_call_of_unknown_type_gets_no_function() -> None:
    made = merge(chat_chunk({"tool_calls": [{"index": 0, "id": "c", "type": "x", "x": {"a": 1}}]}))

    assert made["choices"][0]["message"]["tool_calls"] == [{"id": "c", "type": "x", "x": {"a": 1}}]


def test_a_legacy_call_is_put_together() -> None:
    message = merge_message(
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": '{"a":'}},
        {"function_call": {"name": "", "arguments": "1}"}},
    )

    assert message["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert "tool_calls" not in message


def test_what_is_no_call_is_left_out() -> None:
    message = merge_message({"tool_calls": ["odd", None], "function_call": "odd"}, {"role": 7},
                            {"tool_calls": "odd", "function_call": {}})  # fmt: skip

    assert message == {"role": "assistant", "content": None, "refusal": None}


def test_a_finish_reason_stays() -> None:
    made = merge(chat_chunk({"content": "a"}, "length"), chat_chunk({}), chat_chunk({}, ""))

    assert made["choices"][0]["finish_reason"] == "length"


def test_choices_without_index_are_told_apart_by_their_place() -> None:
    made = merge(
        b'data: {"choices":[{"delta":{"content":"a"}},null,{"delta":{"content":"b"}}]}\n\n'
    )

    assert [(each["index"], each["message"]["content"]) for each in made["choices"]] == [
        (0, "a"), (2, "b"),
    ]  # fmt: skip


def test_a_refusal_is_no_text() -> None:
    message = merge_message({"content": "", "refusal": "I "}, {"refusal": "can't."})

    assert (message["content"], message["refusal"]) == (None, "I can't.")


@pytest.mark.parametrize(
    ("deltas", "merged"),
    [
        ([{"x": "a"}, {"x": "b"}], "b"),  # a text nobody knows: not joined
        ([{"x": "a"}, {"x": ""}, {"x": None}], "a"),
        ([{"x": None}], None),
        ([{"x": 1}, {"x": 2}], 2),
        ([{"x": False}, {"x": None}], False),
        ([{"x": [1]}, {"x": []}, {"x": [2, 3]}], [1, 2, 3]),
        ([{"x": {"a": 1, "b": {"c": "d"}}}, {"x": {"b": {"e": "f"}}}],
         {"a": 1, "b": {"c": "d", "e": "f"}}),
        ([{"x": {"data": "UklG", "id": "i"}}, {"x": {"data": "Rg=="}}],
         {"data": "UklGRg==", "id": "i"}),
        ([{"x": {"a": 1}}, {"x": 2}], {"a": 1}),
    ],
)  # fmt: skip
def test_unknown_fields_are_merged(deltas: list[dict[str, Any]], merged: Any) -> None:
    assert merge_message(*deltas)["x"] == merged


def test_reasoning_is_joined_under_its_own_name() -> None:
    details = [{"type": "reasoning.text", "text": "x", "signature": "c2ln"}]

    message = merge_message(
        {"reasoning_content": "think "},
        {"reasoning_content": "hard"},
        {"reasoning": "a", "reasoning_details": details},
        {"reasoning": "b", "reasoning_details": details},
    )

    assert (message["reasoning_content"], message["reasoning"]) == ("think hard", "ab")
    assert message["reasoning_details"] == details * 2


def test_content_as_parts_and_as_text_is_joined_as_parts() -> None:
    made = merge(
        chat_chunk({"content": ""}),
        chat_chunk({"content": [{"type": "thinking", "thinking": []}]}),
        chat_chunk({"content": "Hi"}, "stop"),
    )

    assert made["choices"][0]["message"]["content"] == [
        {"type": "thinking", "thinking": []}, {"type": "text", "text": "Hi"},
    ]  # fmt: skip


def test_deep_objects_do_not_exhaust_the_stack() -> None:
    deep = b'{"x":' * 400 + b"1" + b"}" * 400
    frame = b'{"choices":[{"delta":' + deep + b"}]}"

    made = body_from_events([Frame(b"", frame)] * 2)

    assert made.count(b'"x":') == 400


def test_fields_of_choices_and_chunks_are_kept_with_their_last_value() -> None:
    made = merge(
        chat_chunk({"content": "a"}, filters={"hate": "low"}),
        chat_chunk({}, "stop", filters={"hate": "safe"}, native_finish_reason="STOP"),
        b'data: {"choices":[],"citations":["u"]}\n\n',
        b'data: {"choices":[],"citations":["u","v"]}\n\n',
    )

    assert made["choices"][0]["filters"] == {"hate": "safe"}
    assert made["choices"][0]["native_finish_reason"] == "STOP"
    assert made["citations"] == ["u", "v"]


def test_errors_and_junk_between_chunks_are_left_out() -> None:
    junk = b'data: {"error":{"message":"x"}}\n\n: note\n\ndata: {\n\ndata: []\n\ndata: 1\n\n'

    assert merge(junk, *STREAMS["text"]) == merge(*STREAMS["text"])
