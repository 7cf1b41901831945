"""The oracle reads streams as the standard says, so that it can judge others."""

from __future__ import annotations

import pytest

from tests.helpers.reading import read_chat, read_events, read_messages


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_line_end_ends_a_line(end: str) -> None:
    body = f": note{end}data: a{end}data:b{end}id: 1{end}{end}event: x{end}data{end}{end}"

    first, second = read_events(body.encode())

    assert (first.name, first.data, first.has_id) == ("message", "a\nb", True)
    assert (second.name, second.data, second.has_id) == ("x", "", False)


def test_mixed_line_ends_and_odd_separators() -> None:
    body = "data: a\u2028b\x85c\n\r\ndata: d\r\rdata: e\n\ndata: unfinished\n".encode()

    assert [event.data for event in read_events(body)] == ["a\u2028b\x85c", "d", "e"]


def test_calls_are_told_apart_by_id_then_index_then_order() -> None:
    deltas = [
        '{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}',
        '{"index":0,"id":"b","function":{"name":"g","arguments":""}}',
        '{"index":1,"function":{"arguments":"2"}}',
        '{"function":{"arguments":"3"}}',
    ]
    frames = [
        f'data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{d}]}}}}]}}\n\n' for d in deltas
    ]

    read = read_chat("text/event-stream", "".join(frames).encode())

    calls = [(call["id"], call["name"], call["arguments"]) for call in read.first.tool_calls]
    assert calls == [("a", "f", "1"), ("b", "g", "23")]


def test_what_is_no_chat_answer_reads_as_nothing() -> None:
    assert read_chat("text/html", b"<html>").choices == {}
    assert read_chat("application/json", b"[]").choices == {}
    assert read_chat("application/json", b'{"error":{"code":"x"}}').error == {"code": "x"}


def test_messages_read_alike_whole_and_streamed() -> None:
    events = [
        '{"type":"message_start","message":{}}',
        '{"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}',
        '{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}}',
        '{"type":"content_block_start","content_block":{"type":"text","text":""}}',
        '{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}',
        '{"type":"message_stop"}',
    ]
    stream = "".join(f"event: {each[9:].split(chr(34))[0]}\ndata: {each}\n\n" for each in events)
    whole = (
        b'{"type":"message","stop_reason":"end_turn","usage":{"output_tokens":1},"content":'
        b'[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Hi"}]}'
    )

    streamed, plain = read_messages("text/event-stream", stream.encode()), read_messages("", whole)

    assert streamed.choices == plain.choices
    assert (plain.first.text, plain.first.reasoning) == ("Hi", "hm")
    assert (streamed.usage, streamed.done) == (plain.usage, True)


def test_an_error_of_messages_is_read_from_either_form() -> None:
    error = b'{"type":"error","error":{"type":"x"}}'

    assert read_messages("application/json", error).error == {"type": "x"}
    streamed = read_messages("text/event-stream", b"event: error\ndata: " + error + b"\n\n")
    assert (streamed.error, streamed.done) == ({"type": "x"}, False)
