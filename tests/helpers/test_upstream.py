"""The scripted upstream does exactly what its script says, and the raw client sees it all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.raw_client import Connection, Reception, ask, render_request
from tests.helpers.reading import read_chat, read_events
from tests.helpers.upstream import (
    CountingUpstream,
    Gate,
    Reply,
    Upstream,
    json_reply,
    sse_reply,
)

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def get(upstream: Upstream) -> Reception:
    """Ask it for something."""
    return ask(("127.0.0.1", upstream.port), "POST", "/v1/x?y=%2F", ((b"X-A", b"\xc3\xa9"),), BODY)


def test_it_plays_its_script_in_order_and_keeps_what_came() -> None:
    with Upstream([json_reply({"n": 1}), json_reply({"n": 2}, status=429)]) as upstream:
        first, second, third = get(upstream), get(upstream), get(upstream)

        assert [(r.status, r.body) for r in (first, second)] == [
            (200, b'{"n": 1}'),
            (429, b'{"n": 2}'),
        ]
        assert third.status == 599
        assert len(upstream.unscripted) == 1
        call = upstream.received[0]
        assert (call.method, call.target, call.body) == ("POST", "/v1/x?y=%2F", BODY)
        assert (b"X-A", b"\xc3\xa9") in call.headers
        assert call.outcome == "answered"


def test_chunks_keep_their_cuts() -> None:
    with Upstream([sse_reply([b"data: a\n\n", b"data: b\n\n"])]) as upstream:
        got = get(upstream)

    assert [piece.data for piece in got.pieces] == [b"data: a\n\n", b"data: b\n\n"]
    assert got.ending == "complete"


def test_a_body_can_be_cut_into_single_bytes() -> None:
    reply = Reply(chunks=(b"abc",), framing="chunked", write_size=1)
    with Upstream([reply]) as upstream:
        assert [piece.data for piece in get(upstream).pieces] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("reply", "ending"),
    [
        (Reply(chunks=(b"abc",), framing="chunked", end="eof_no_terminator"), "cut"),
        (Reply(chunks=(b"abc",), content_length=9, end="eof_no_terminator"), "cut"),
        (Reply(chunks=(b"abc",), content_length=9, end="reset"), "reset"),
        (Reply(chunks=(b"abc",), framing="close"), "complete"),
        (Reply(chunks=(b"abc",)), "complete"),
    ],
)
def test_every_end_is_seen_as_it_is(reply: Reply, ending: str) -> None:
    with Upstream([reply]) as upstream:
        got = get(upstream)

    assert (got.body, got.ending) == (b"abc", ending)


def test_a_stalled_answer_never_ends_and_our_leaving_is_noted() -> None:
    with Upstream([Reply(chunks=(b"abc",), framing="chunked", end="stall")]) as upstream:
        got = ask(("127.0.0.1", upstream.port), "GET", "/", timeout_s=0.2)
        upstream.wait_for(lambda received: received[0].outcome == "left")

    assert (got.body, got.ending) == (b"abc", "timeout")


def test_a_gate_lets_one_chunk_out_per_permit() -> None:
    gate = Gate()
    seen: list[int] = []

    def on_piece(got: Reception) -> bool:
        seen.append(len(got.pieces))
        gate.open()
        return False

    with Upstream([sse_reply([b"data: 1\n\n"] * 3, gate=gate)]) as upstream:
        gate.open()
        got = ask(("127.0.0.1", upstream.port), "GET", "/", until=on_piece)

    assert seen == [1, 2, 3]
    assert len(read_events(got.body)) == 3


def test_a_connection_that_gave_up_swallows_the_next_request() -> None:
    tired = Reply(chunks=(b"one",), close_idle_after_s=0.01, swallow_next=True)
    with Upstream([tired, Reply(chunks=(b"two",))]) as upstream:
        address = ("127.0.0.1", upstream.port)
        with Connection(address) as connection:
            connection.send(render_request("GET", "/", address, ()))
            assert connection.receive().body == b"one"
            connection.send(render_request("GET", "/", address, ()))
            assert connection.receive().status is None
        assert get(upstream).body == b"two"
        assert upstream.swallowed == 1


def test_a_reader_that_does_not_read_is_noticed() -> None:
    with Upstream([Reply(chunks=(b"x" * 64_000,) * 200, framing="chunked")]) as upstream:
        address = ("127.0.0.1", upstream.port)
        with Connection(address, receive_bytes=8192) as connection:
            connection.send(render_request("GET", "/", address, ()))
            upstream.wait_for(lambda received: bool(received) and received[0].was_blocked)
        upstream.wait_for(lambda received: received[0].outcome == "left")


@pytest.mark.parametrize("streams", [False, True])
def test_the_model_answers_from_the_request_alone(streams: bool, tmp_path: Path) -> None:
    def answer(upstream: Upstream, content: str) -> str:
        ask_for = {"messages": [{"role": "user", "content": content}], "stream": streams}
        address = ("127.0.0.1", upstream.port)
        got = ask(address, "POST", "/v1/chat/completions", (), json.dumps(ask_for).encode())
        read = read_chat(got.header("content-type"), got.body)
        assert read.first.finish_reason == "stop"
        assert read.done is streams
        return read.first.text

    log = tmp_path / "log"
    with CountingUpstream(log_path=log) as upstream:
        one, two, again = answer(upstream, "1"), answer(upstream, "2"), answer(upstream, "1")
        assert sorted(upstream.counts.values()) == [1, 2]
        upstream.wait_for(lambda received: all(r.outcome == "answered" for r in received))

    assert one == again != two
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["what"] for line in lines].count("received") == 3


@pytest.mark.parametrize("streams", [False, True])
def test_the_model_calls_a_tool_it_is_given_and_then_speaks(streams: bool) -> None:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
    messages: list[dict[str, object]] = [{"role": "user", "content": "hi"}]
    with CountingUpstream() as upstream:
        address = ("127.0.0.1", upstream.port)
        reads = []
        for _ in range(2):
            ask_for = {"messages": messages, "tools": [tool], "stream": streams}
            got = ask(address, "POST", "/v1/chat/completions", (), json.dumps(ask_for).encode())
            reads.append(read_chat(got.header("content-type"), got.body).first)
            messages.append({"role": "tool", "content": "found"})

    assert [read.finish_reason for read in reads] == ["tool_calls", "stop"]
    (call,) = reads[0].tool_calls
    assert call["name"] == "look_up"
    assert json.loads(call["arguments"])["big"] == 2512292042121000001
