"""Both ends of the benchmark's streams."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentstate.house.bench_load import Upstream
from agentstate.house.bench_load_streams import END, Story, measure_streams, read_story
from agentstate.house.bench_stand import Load, make_request

STORY = Story(chunks=5, interval_s=0.001, pad=3)


def request(story: Story) -> bytes:
    return make_request(Load("s", "new", 1, stream=story.model), 0)


def plan(port: int, count: int, story: Story = STORY, stalled: int = 0) -> dict[str, Any]:
    raw = request(story).decode()
    slow = request(Story(50, 0.0, 100_000)).decode()
    return {"port": port, "requests": [raw] * count, "stagger_s": 0.0, "stalled": [slow] * stalled}


@contextmanager
def upstream() -> Iterator[int]:
    """Run the upstream in a loop of its own thread; yields its port."""
    ready: list[int] = []
    is_ready = threading.Event()
    loop = asyncio.new_event_loop()

    def serve() -> None:
        server = loop.run_until_complete(
            loop.create_server(lambda: Upstream(b"answer"), "127.0.0.1", 0)
        )
        ready.append(server.sockets[0].getsockname()[1])
        is_ready.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert is_ready.wait(30)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


def test_a_stream_is_told_from_the_models_name_and_only_there() -> None:
    raw = bytearray(request(STORY))
    assert read_story(raw, len(raw)) == STORY
    plain = bytearray(make_request(Load("p", "new", 1), 0))
    assert read_story(plain + raw, len(plain)) is None


def test_every_chunk_comes_once_in_order_with_the_time_it_took() -> None:
    with upstream() as port:
        found = measure_streams(plan(port, 3))
    assert (found["chunks"], found["disordered"], found["unfinished"]) == (15, 0, 0)
    assert len(found["first_ms"]) == 3
    assert len(found["delays_ms"]) == 12
    assert all(delay >= 0 for delay in found["delays_ms"])


def test_who_is_not_read_keeps_nobody_waiting() -> None:
    with upstream() as port:
        found = measure_streams(plan(port, 2, stalled=1))
    assert (found["chunks"], found["unfinished"]) == (10, 0)


def serve_once(listener: socket.socket, answer: bytes, size: int) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1 << 16)
        for at in range(0, len(answer), size):
            connection.sendall(answer[at : at + size])


STAMPED = b"".join(b'data: {"content":"@%06d 0.000001 "}\n\n' % number for number in range(4))


@pytest.mark.parametrize(
    ("answer", "chunks", "disordered", "unfinished"),
    [
        (STAMPED + END, 4, 0, 0),
        (STAMPED, 4, 0, 1),
        (STAMPED.replace(b"000001 0", b"000009 0") + END, 4, 1, 0),
        (b"HTTP/1.1 500 No\r\n\r\n", 0, 0, 1),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_is_lost_or_cut_is_noticed_however_it_comes(
    answer: bytes, chunks: int, disordered: int, unfinished: int, size: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener, answer, size))
        thread.start()
        found = measure_streams(plan(listener.getsockname()[1], 1))
        thread.join(30)
    assert found["chunks"] == chunks
    assert (found["disordered"], found["unfinished"]) == (disordered, unfinished)


def test_a_stream_on_the_wire_is_chunked_and_ends() -> None:
    with upstream() as port, socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request(STORY))
        received = b""
        while not received.endswith(b"\r\n0\r\n\r\n"):
            received += client.recv(1 << 16)
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    pieces = re.split(rb"[0-9a-f]+\r\n(?=data|\r\n$)", body)
    assert sum(b"finish_reason" in piece for piece in pieces) == STORY.chunks + 1
