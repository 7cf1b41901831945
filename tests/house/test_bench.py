"""The benchmark: its requests, its load, its verdicts, and a short run for real."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentstate.house.bench import (
    ANSWER,
    LOADS,
    Figure,
    Load,
    compare,
    make_request,
    read_sqlite_version,
    render,
    run,
)
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


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_request_is_whole_and_as_long_as_its_load_says(load: Load) -> None:
    head, _, body = make_request(load, 3).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert abs(len(body) - load.body_bytes) < 16
    assert json.loads(body)["messages"][0]["role"] == "user"
    assert (NONCE in body) == (load.kind == "new")


def test_clients_of_new_calls_have_sessions_of_their_own() -> None:
    new, replay = Load("n", "new", 2), Load("r", "replay", 2)
    assert make_request(new, 0) != make_request(new, 1)
    assert make_request(replay, 0) == make_request(replay, 1)


def figures(p50_ms: float, rate: float) -> dict[str, tuple[Figure, Figure]]:
    bare = Figure(0.1, 0.2, 10_000)
    return {load.name: (Figure(p50_ms, p50_ms * 2, rate), bare) for load in LOADS}


@pytest.mark.parametrize(
    ("p50_ms", "rate", "met"),
    [
        (0.25, 4000, [True, True, True, True, True]),
        (0.31, 4000, [False, True, True, True, True]),
        (0.25, 3999, [True, False, True, True, True]),
        (1.51, 4000, [False, True, False, True, True]),
        (0.25, 1499, [True, False, True, False, True]),
        (6.01, 4000, [False, True, False, True, False]),
    ],
)
def test_goals_are_met_or_missed_at_their_bounds(
    p50_ms: float, rate: float, met: list[bool]
) -> None:
    lines = compare(figures(p50_ms, rate), fsync_ms=0.5)
    assert [line.is_met for line in lines] == met


def test_the_table_says_goal_figures_ratio_and_verdict() -> None:
    shown = render({"machine": "2 cores"}, compare(figures(0.31, 5000), fsync_ms=0.5))
    assert "machine     2 cores" in shown
    [line] = [line for line in shown.splitlines() if line.startswith("replay, 1 KB, 1 client")]
    assert re.search(
        r"<= 0\.30 ms or <= 2\.5 x bare +0\.310 ms .* 0\.100 ms .* 3\.10 +MISSED", line
    )


def test_the_sqlite_version_is_read_from_the_databases_header(tmp_path: Path) -> None:
    header = bytearray(100)
    header[96:100] = (3_045_001).to_bytes(4, "big")
    (tmp_path / "x.db").write_bytes(header)
    assert read_sqlite_version(tmp_path / "x.db") == "3.45.1"


@pytest.mark.slow
def test_a_quick_run_measures_every_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(json_output=True, quick=True) == 0
    found = json.loads(capfd.readouterr().out)
    assert len(found["lines"]) == 5
    assert all(line["ratio"] > 0 for line in found["lines"])
    assert re.fullmatch(r"3\.\d+\.\d+", found["about"]["sqlite"])
    assert json.loads(ANSWER)["choices"]
