"""The crash demo: its verdict on values, its agent beside the mock, and the whole, for real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.chat import Usage
from agentstate.house import demo_agent
from agentstate.house.demo import STEPS_MAX, Step, crash, judge
from agentstate.house.mock import answer

ROOT = Path(__file__).resolve().parents[2]
STEPS = 4
KILLED_AT = 2


def step(number: int, replay: str | None = None, tokens: int = 5) -> Step:
    return Step(number, replay, 1.0, Usage(tokens, 1), 10, "text")


def record(**changes: Any) -> dict[str, Any]:
    """Return what the API says after a good demo, step 1 changed."""
    rows = [
        {"step_number": number, "state": "complete", "replays": int(number <= KILLED_AT)}
        for number in range(STEPS)
    ]
    rows[1] |= changes
    return {"steps": rows}


FIRST = [step(0), step(1)]
SECOND = [step(0, "exact"), step(1, "exact"), step(2, "joined"), step(3)]


def test_a_run_in_which_every_finished_step_replays_is_as_promised() -> None:
    verdict = judge(FIRST, SECOND, record(), STEPS)
    assert verdict.asked_twice == ()
    assert verdict.faults == ()


def test_a_finished_step_that_was_asked_again_is_named() -> None:
    second = [step(0, "exact"), step(1), *SECOND[2:]]
    assert judge(FIRST, second, record(), STEPS).asked_twice == (1,)


def test_the_step_in_flight_may_be_asked_again() -> None:
    second = [*SECOND[:2], step(2), step(3)]
    verdict = judge(FIRST, second, record(), STEPS)
    assert verdict.asked_twice == verdict.faults == ()


@pytest.mark.parametrize(
    ("second", "found", "words"),
    [
        (SECOND[:3], record(), "took 3 steps of 4"),
        (SECOND, record(step_number=0), "each of 4 should be there once"),
        (SECOND, {"steps": record()["steps"] * 2}, "8 steps are on record"),
        (SECOND, record(state="failed"), r"Steps \[1\] are on record without"),
        (SECOND, record(replays=0), r"no replay of steps \[1\]"),
        ([step(0, "exact"), step(1, "exact", 6), *SECOND[2:]], record(), r"steps \[1\] were not"),
    ],
)
def test_whatever_else_is_not_as_promised_is_a_fault(
    second: list[Step], found: dict[str, Any], words: str
) -> None:
    faults = judge(FIRST, second, found, STEPS).faults
    assert any(re.search(words, fault) for fault in faults), faults


@pytest.mark.parametrize(
    ("steps", "kill_at"), [(1, None), (STEPS_MAX + 1, None), (5, 0), (5, 5), (5, -1)]
)
def test_numbers_that_make_no_demo_are_refused(
    steps: int, kill_at: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crash(steps, kill_at) == 2
    assert "Expected 2 to 500 steps" in capsys.readouterr().out


def test_a_record_that_exists_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "mine.db"
    kept.write_bytes(b"mine")
    assert crash(keep=kept) == 2
    assert kept.read_bytes() == b"mine"
    assert "exists already" in capsys.readouterr().out


class MockHandler(BaseHTTPRequestHandler):
    """Answers as a proxy in front of the mock would, without record or replay."""

    protocol_version = "HTTP/1.1"
    fails = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        reply = answer("POST", self.path.encode(), body)
        content = b"".join(reply.pieces)
        self.send_response(500 if self.fails else 200)
        self.send_header("content-length", str(len(content)))
        self.send_header("x-agentstate-replay", "exact")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def mock_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), MockHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_agent_tells_when_it_has_asked_and_when_it_has_the_answer(
    mock_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo_agent.main("127.0.0.1", mock_port, "s", "mock/x", 12) == 0
    lines = told(capsys)
    assert [line["asked"] for line in lines[::2]] == list(range(12))
    done = lines[1::2]
    assert [line["step"] for line in done] == list(range(12))
    assert all(line["replay"] == "exact" and line["ms"] > 0 for line in done)
    assert [line["step"] for line in done if line["streamed"]] == [4, 9]
    # One tool call comes in a stream and one whole; the steps after them answer in text.
    assert [line["step"] for line in done if line["tools"]] == [4, 11]
    tokens = [line["input_tokens"] for line in done]
    assert tokens == sorted(tokens), "each request contains what came before it"
    assert all(line["output_tokens"] > 0 for line in done)


def test_the_agent_asks_the_same_again_in_its_next_life(
    mock_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    lives = []
    for _ in range(2):
        demo_agent.main("127.0.0.1", mock_port, "s", "mock/x", 9)
        lives.append([(line.get("step"), line.get("input_tokens")) for line in told(capsys)])
    assert lives[0] == lives[1]


def test_the_agent_says_which_step_failed_and_stops(
    mock_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MockHandler, "fails", True)
    assert demo_agent.main("127.0.0.1", mock_port, "s", "mock/x", 9) == 1
    assert told(capsys)[-1]["failed"] == 0


def test_the_agent_does_not_take_a_cut_stream_for_an_answer() -> None:
    with pytest.raises(SystemExit):
        demo_agent._read_stream(b'data: {"choices": []}\n\n')


@pytest.mark.slow
def test_the_demo_shows_that_no_finished_step_is_asked_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.db"
    assert crash(steps=12, kill_at=5, keep=kept) == 0
    out = capfd.readouterr().out
    rows = [line.split() for line in out.splitlines() if re.match(r" +\d+ +[12] ", line)]
    assert [int(row[0]) for row in rows] == [*range(5), *range(12)]
    assert [row[2] for row in rows[:5]] == ["model"] * 5
    assert [row[2] for row in rows[5:10]] == ["replay"] * 5
    assert [row[2] for row in rows[11:]] == ["model"] * 6
    assert "Finished steps that were asked twice: 0." in out
    assert "list price of gpt-4o" in out
    assert str(kept) in out
    assert kept.exists()


@pytest.mark.slow
def test_the_demo_fails_where_finished_steps_are_asked_twice(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTSTATE_REPLAY_MODE", "off")
    assert crash(steps=4, kill_at=2) == 1
    assert "FAILED: finished steps that were asked again: [0, 1]." in capfd.readouterr().out


@pytest.mark.slow
def test_a_proxy_that_cannot_start_is_told_with_its_own_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert crash(steps=4, keep=tmp_path / "missing" / "x.db") == 1
    out = capfd.readouterr().out
    assert "The demo failed." in out
    assert "missing" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_ends_the_demo_and_everything_it_started(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "agentstate", "demo", "crash"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},  # no HOME either
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if re.match(r" +3 +1 ", line):
                break
        assert len(children_in(tmp_path)) == 2
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(20) == code, rest
    assert "Traceback" not in rest
    assert children_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def children_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder below `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended while we looked, or is not ours to look at
    return found
