"""The other form of a Messages answer: what we make is held against the SDK's types and merging."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.anthropic_messages_forms import (
    DONE_FRAME,
    body_from_events,
    events_from_body,
)
from agentstate.dialects.anthropic_messages_reading import MessagesAssembler, read_answer
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.samples_anthropic import (
    BODIES,
    CALL,
    CITATION,
    PING,
    STOP,
    STREAMS,
    USAGE,
    block,
    body,
    call_block,
    end,
    event,
    start,
    text_block,
    thinking_block,
)
from tests.helpers.anthropic_types import check, check_stream
from tests.helpers.reading import read_events

# What the SDK's types know; of the rest, blocks of the beta and fields nobody knows.
KNOWN = tuple(sorted(BODIES.keys() - {"calls of others", "unknown fields"}))


def merge(*events: bytes) -> dict[str, Any]:
    """Make the body of a stream."""
    made: dict[str, Any] = json.loads(body_from_events(SSEDecoder().feed(b"".join(events))))
    return made


def merge_blocks(*events: bytes, reason: str = "end_turn") -> list[Any]:
    """Make the content of a stream with these blocks."""
    content: list[Any] = merge(start(), *events, end(reason), STOP)["content"]
    return content


def made_of(raw: bytes) -> list[dict[str, Any]]:
    """Make the events of a body and return their data."""
    return [json.loads(each.data) for each in read_events(b"".join(events_from_body(raw)))]


def accumulated(stream: bytes, *, is_beta: bool = False) -> Any:
    """Put a stream together as the SDK's own client does."""
    pytest.importorskip("anthropic")
    from anthropic.lib.streaming import _beta_messages, _messages

    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for each in read_events(stream):
        if each.name != "ping":
            beta: Any = {"request_headers": {}} if is_beta else {}
            accumulate: Any = (_beta_messages if is_beta else _messages).accumulate_event
            snapshot = accumulate(
                event=json.loads(each.data), current_snapshot=snapshot, json_bufs=buffers, **beta
            )
    return snapshot


# Events from a body


@pytest.mark.parametrize("name", KNOWN)
def test_made_events_satisfy_the_types(name: str) -> None:
    stream = b"".join(events_from_body(BODIES[name]))

    check_stream("RawMessageStreamEvent", stream)
    check_stream("BetaRawMessageStreamEvent", stream)


def test_made_events_of_the_beta_satisfy_its_types() -> None:
    stream = b"".join(events_from_body(BODIES["calls of others"]))

    check_stream("BetaRawMessageStreamEvent", stream)


@pytest.mark.parametrize("name", [*KNOWN, "calls of others"])
def test_the_sdk_puts_made_events_together_to_the_body(name: str) -> None:
    whole = json.loads(BODIES[name])

    snapshot = accumulated(b"".join(events_from_body(BODIES[name])), is_beta=True)

    got = snapshot.to_dict(mode="json")
    assert {key: got[key] for key in whole} == whole


def test_a_message_becomes_the_events_the_api_would_send() -> None:
    raw = body(
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "a", "citations": [CITATION]},
        CALL,
        reason="tool_use",
        usage={**USAGE, "cache_read_input_tokens": None},
    )

    first, *rest = made_of(raw)

    assert first["message"]["content"] == []
    assert first["message"]["stop_reason"] is None
    assert first["message"]["usage"] == {
        **USAGE, "cache_read_input_tokens": None, "output_tokens": 0
    }  # fmt: skip
    assert [
        each.get("content_block") or each.get("delta") or each["type"] for each in rest
    ] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "c2ln"},
        "content_block_stop",
        {"type": "text", "text": "", "citations": []},
        {"type": "text_delta", "text": "a"},
        {"type": "citations_delta", "citation": CITATION},
        "content_block_stop",
        {**CALL, "input": {}},
        {"type": "input_json_delta", "partial_json": '{"city":"Oslo","id":2512292042121000001}'},
        "content_block_stop",
        {"stop_reason": "tool_use", "stop_sequence": None},
        "message_stop",
    ]  # fmt: skip
    assert [each["index"] for each in rest[:-2]] == [0] * 4 + [1] * 4 + [2] * 3
    assert rest[-2]["usage"] == {
        "output_tokens": 7,
        "input_tokens": 12,
        "cache_creation_input_tokens": 3,
    }


def test_numbers_and_repeated_keys_keep_their_text() -> None:
    raw = body({**CALL, "input": {"a": 7777, "b": 1}})

    for number in (b"1.50", b"1E2", b"2512292042121000001"):
        stream = b"".join(events_from_body(raw.replace(b"7777", number)))
        assert b'{\\"a\\":' + number in stream
        assert b'"a":' + number in body_from_events(SSEDecoder().feed(stream))
    stream = b"".join(events_from_body(raw.replace(b'"b"', b'"a"')))
    assert b'{\\"a\\":7777,\\"a\\":1}' in stream


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None, "output_tokens": None}, []])
def test_a_body_without_counts_gives_events_that_the_sdk_can_read(usage: Any) -> None:
    stream = b"".join(events_from_body(body({"type": "text", "text": "a"}, usage=usage)))

    assert accumulated(stream).usage.output_tokens == 0


def test_odd_blocks_stay_as_they_are() -> None:
    odd = [
        {"type": "text", "text": None},
        {"type": "text"},
        {"type": "thinking", "thinking": 7, "signature": None},
        {**CALL, "input": "odd"},
        {"type": "tool_use", "name": "f"},
    ]

    opened = [each["content_block"] for each in made_of(body(*odd)) if "content_block" in each]

    assert opened == odd
    assert made_of(body("odd"))[1]["type"] == "message_delta"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b"{", b"{}", b'{"type":"error","error":{"message":"m"}}']
)
def test_what_is_no_message_makes_no_answer(raw: bytes) -> None:
    assert events_from_body(raw) == [DONE_FRAME] == [STOP]


@pytest.mark.parametrize("reason", [None, "", "error"])
def test_an_unfinished_body_makes_an_unfinished_stream(reason: str | None) -> None:
    assembler = MessagesAssembler()

    for frame in SSEDecoder().feed(b"".join(events_from_body(body(reason=reason)))):
        assembler.feed(frame)

    assert not assembler.finish(True).is_complete


# A body from events


@pytest.mark.parametrize("name", sorted(STREAMS.keys() - {"calls of others", "unknown fields"}))
def test_a_made_body_satisfies_the_types(name: str) -> None:
    made = body_from_events(SSEDecoder().feed(b"".join(STREAMS[name])))

    check("Message", made)
    check("BetaMessage", made)


# The SDK takes no pieces of a type it does not know.
@pytest.mark.parametrize("name", sorted(STREAMS.keys() - {"unknown fields"}))
def test_a_made_body_is_what_the_sdk_puts_together(name: str) -> None:
    stream = b"".join(STREAMS[name])

    made = merge(stream)

    got = accumulated(stream, is_beta=True).to_dict(mode="json")
    assert {key: got[key] for key in made} == made


def test_the_head_and_the_end_are_kept() -> None:
    made = merge(*STREAMS["stop sequence"])

    assert made == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-6",
        "content": [{"type": "text", "text": "a"}],
        "stop_reason": "stop_sequence",
        "stop_sequence": "\n\nHuman:",
        "usage": USAGE,
    }


def test_thoughts_keep_their_signatures() -> None:
    assert merge(*STREAMS["thinking"])["content"] == [
        {"type": "thinking", "thinking": "hm \u2028 so", "signature": "EqRk/+=="},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "thinking", "thinking": "", "signature": "ZW1wdHk="},
        {"type": "text", "text": "ok"},
    ]


def test_a_signature_replaces_the_one_before() -> None:
    """As in the SDK: what an agent sends back must be one that was issued."""
    second = {"type": "signature_delta", "signature": "Yg=="}
    first, *rest = thinking_block(0, "a", signature="YQ==")
    late = event("content_block_delta", index=0, delta=second)

    assert merge_blocks(first, *rest[:-1], late, rest[-1])[0]["signature"] == "Yg=="


def test_citations_are_collected() -> None:
    opened = {"type": "text", "text": "", "citations": None}
    cited = {"type": "citations_delta", "citation": CITATION}

    assert merge_blocks(*block(0, opened, cited, cited))[0]["citations"] == [CITATION, CITATION]


def test_arguments_become_an_object() -> None:
    content = merge_blocks(
        *call_block(0, '{"id": 2512292042121000001', ', "a": "\\ud83d', '\\ude00"}'),
        *call_block(1, ""),
        *block(2, CALL),
    )

    assert [each["input"] for each in content] == [
        {"id": 2512292042121000001, "a": "\U0001f600"}, {}, CALL["input"],
    ]  # fmt: skip


@pytest.mark.parametrize("text", ['{"city":"Os', "[1]", '"x"', "null", '{"a":' * 5000])
def test_arguments_that_are_no_object_are_kept_in_one(text: str) -> None:
    made = merge(start(), *call_block(0, text), end("max_tokens"), STOP)

    check("Message", json.dumps(made))
    assert made["content"][0]["input"] == {"INVALID_JSON": text}


def test_half_a_character_in_arguments_stays_half() -> None:
    content = merge_blocks(*call_block(0, '{"a":"', "\ud83d", '"}'))

    assert content[0]["input"] == {"a": "\ud83d"}


def test_pieces_of_unknown_types_are_merged() -> None:
    def piece(**fields: Any) -> dict[str, Any]:
        return {"type": "x_delta", **fields}

    content = merge_blocks(
        *block(0, {"type": "x_block", "x": "a"}, piece(x="b"), piece(x="c")),
        *block(1, {"type": "x_block"}, piece(y="b"), piece(y="c"), piece(y=None)),
        *block(2, {"type": "x_block", "y": [1]}, piece(y=[2]), piece(y=[3])),
        *block(3, {"type": "compaction", "content": None},
               {"type": "compaction_delta", "content": "a", "encrypted_content": None}),
        *block(4, {"type": "text", "text": ""},
               {"type": "text_delta", "text": "a", "x": "b"}, {"type": "text_delta", "x": "c"}),
    )  # fmt: skip

    assert content == [
        {"type": "x_block", "x": "abc"},
        {"type": "x_block", "y": "c"},
        {"type": "x_block", "y": [1, 2, 3]},
        {"type": "compaction", "content": "a", "encrypted_content": None},
        {"type": "text", "text": "a", "x": "c"},
    ]


def test_what_stands_beside_the_end_goes_into_the_message() -> None:
    made = merge(*STREAMS["unknown fields"])

    assert made["context_management"] == {"applied_edits": []}
    assert made["x_unknown"] == 1.50


def test_null_at_the_end_says_nothing_of_what_is_known() -> None:
    container = {"id": "container_1", "expires_at": "2026-11-30T10:00:00Z"}

    made = merge(
        start(container=container),
        end(container=None, usage={"output_tokens": 9, "input_tokens": None}),
        STOP,
    )

    assert made["container"] == container
    assert made["usage"] == {**USAGE, "output_tokens": 9}


def test_the_model_is_the_one_that_went_on() -> None:
    fallback = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "claude-b"}}

    made = merge(start(), *block(0, fallback), end(), STOP)

    assert (made["model"], made["content"]) == ("claude-b", [fallback])


def test_errors_pings_and_junk_between_events_are_left_out() -> None:
    junk = b'data: {"error":{"message":"x"}}\n\n: note\n\ndata: {\n\ndata: []\n\ndata: [DONE]\n\n'

    assert merge(junk, PING, *STREAMS["text"], start(id="msg_2")) == merge(*STREAMS["text"])


def test_an_unfinished_stream_makes_an_unfinished_body() -> None:
    for events in ((), (start(), *text_block(0, "a")), (*text_block(0, "a"), end(), STOP)):
        raw = body_from_events(SSEDecoder().feed(b"".join(events)))
        assert not read_answer(raw).is_complete


def test_pieces_without_a_start_or_an_index_are_merged() -> None:
    alone = event("content_block_delta", delta={"type": "text_delta", "text": "a"})

    assert merge_blocks(alone, alone) == [{"type": "text", "text": "aa"}]


def test_a_long_answer_is_merged_in_one_pass() -> None:
    pieces = [{"type": "text_delta", "text": "x" * 10}] * 20_000
    frames = SSEDecoder().feed(b"".join((start(), *block(0, {"type": "text"}, *pieces), end())))

    assert len(json.loads(body_from_events(frames))["content"][0]["text"]) == 200_000


def test_frames_without_data_are_passed_over() -> None:
    assert body_from_events([Frame(b": x\n", None)]) == body_from_events([])


@pytest.mark.parametrize("message", [{}, {"id": "msg_1"}, {"type": "other"}, None])
def test_a_gateway_s_stream_makes_a_message_whatever_its_start_leaves_out(message: Any) -> None:
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    stream = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)

    made = json.loads(body_from_events(SSEDecoder().feed(stream)))

    assert (made["type"], made["role"]) == ("message", "assistant")
    assert made["content"] == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    "delta",
    [
        b'{"type":"x_delta","name":"send_email"}',
        b'{"type":"name_delta","name":"send_email"}',
        b'{"type":"x_delta","type":"input_delta","input":{"usd":9000}}',
        b'{"type":"text_delta","input":{"usd":9000}}',
    ],
)
def test_a_piece_that_readers_pass_over_changes_no_call(delta: bytes) -> None:
    made = made_of_pieces(b'{"type":"input_json_delta","partial_json":"{\\"usd\\":1}"}', delta)

    assert (made["name"], made["input"]) == ("pay", {"usd": 1})


def test_of_a_piece_that_comes_twice_in_an_event_the_last_counts() -> None:
    twice = (
        b'{"type":"input_json_delta","partial_json":"{\\"usd\\":9000,\\"usd\\":",'
        b'"partial_json":"{\\"usd\\":1}"}'
    )

    assert made_of_pieces(twice)["input"] == {"usd": 1}


def made_of_pieces(*deltas: bytes) -> dict[str, Any]:
    """Return the block that a tool call's start and these pieces make."""
    events = [
        b'{"type":"message_start","message":{"id":"m","role":"assistant","content":[]}}',
        b'{"type":"content_block_start","index":0,"content_block":'
        b'{"type":"tool_use","id":"t","name":"pay","input":{}}}',
        *(b'{"type":"content_block_delta","index":0,"delta":%b}' % delta for delta in deltas),
        b'{"type":"message_delta","delta":{"stop_reason":"tool_use"}}',
    ]
    stream = b"".join(b"data: %b\n\n" % event for event in events)
    [block] = json.loads(body_from_events(SSEDecoder().feed(stream)))["content"]
    found: dict[str, Any] = block
    return found
