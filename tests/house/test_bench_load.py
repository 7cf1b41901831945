"""The load of the benchmark, and its upstream."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agentstate.house.bench_load import NONCE, LoadFailed, Plan, Upstream, measure

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-hit: true\r\n\r\nok"


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Serve one connection: what `answer` makes of each request; yields port and requests."""
    seen: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while piece := connection.recv(1 << 16):
                seen.append(piece)
                connection.sendall(answer(piece))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], seen
        thread.join(10)
        assert not thread.is_alive()


def plan(port: int, request: bytes = b"GET / HTTP/1.1\r\n\r\n", expect: bytes = b"") -> Plan:
    return Plan(port, [request], expect, count_max=5, seconds_max=5.0)


def test_the_load_asks_as_often_as_planned_and_times_each_answer() -> None:
    with answering(lambda _: GOOD) as (port, seen):
        result = measure(plan(port))
    assert len(seen) == len(result["latencies_ms"]) == 5
    assert result["latencies_ms"] == sorted(result["latencies_ms"])
    assert 0 < result["seconds"] * 1000 >= sum(result["latencies_ms"]) * 0.99


def test_what_the_answers_say_of_their_overhead_is_collected() -> None:
    named = GOOD.replace(b"x-hit: true", b"x-agentstate-overhead-ms: 0.125\r\nx-hit: true")
    with answering(lambda _: named) as (port, _):
        result = measure(plan(port))
    assert result["inside_ms"] == [0.125] * 5


def test_an_answer_in_chunks_is_whole_with_its_last_one() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    with answering(lambda _: chunked) as (port, seen):
        measure(plan(port))
    assert len(seen) == 5


def test_the_load_stops_at_its_time() -> None:
    with answering(lambda _: GOOD) as (port, seen):
        measure(Plan(port, [b"GET / HTTP/1.1\r\n\r\n"], b"", count_max=10**6, seconds_max=0.0))
    assert len(seen) == 1


def test_each_new_call_differs_and_goes_on_where_the_last_plan_ended() -> None:
    with answering(lambda _: GOOD) as (port, seen):
        result = measure(plan(port, b"POST / HTTP/1.1\r\n\r\n" + NONCE))
    assert len(set(seen)) == 5
    assert len({len(raw) for raw in seen}) == 1
    assert result["nonce"] == 5


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (GOOD.replace(b"200 OK", b"500 No"), "not as expected"),
        (GOOD.replace(b"true", b"false"), "not as expected"),
        (GOOD.replace(b"Content-Length: 2\r\n", b""), "not as expected"),
    ],
)
def test_an_answer_that_is_not_as_expected_ends_the_measurement(answer: bytes, words: str) -> None:
    with (
        answering(lambda _: answer) as (port, _),
        pytest.raises(LoadFailed, match=words),
    ):
        measure(plan(port, expect=b"x-hit: true\r\n"))


def test_a_connection_that_closes_early_ends_the_measurement() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=close)
        thread.start()
        with pytest.raises((LoadFailed, ConnectionError)):
            measure(plan(listener.getsockname()[1]))
        thread.join()


class Transport:
    """Collects what a protocol writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_upstream_answers_each_whole_request_once_however_it_is_cut(size: int) -> None:
    upstream, transport = Upstream(b"answer"), Transport()
    upstream._transport = transport  # type: ignore[assignment]
    raw = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello" * 3 + b"GET / HTTP/1.1\r\n\r\n"
    for at in range(0, len(raw), size):
        upstream.data_received(raw[at : at + size])
    assert transport.written == [b"answer"] * 4
