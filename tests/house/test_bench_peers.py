"""Other proxies beside this one: their file, their table, and one that is a dozen lines long."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentstate.house import bench_peers
from agentstate.house.bench_peers import Peer, compare, measure, read_peers
from agentstate.house.bench_stand import BenchFailed, Stand
from agentstate.house.bench_table import Figure, Table

ROW = {
    "name": "other", "version": "1.2", "command": ["other", "{port}"], "path": "/v1/x",
    "headers": ["a: {upstream}"], "environment": {"A": "1"}, "files": {"other.conf": "{upstream}"},
}  # fmt: skip

# A proxy that passes nothing on: it answers by itself, in chunks.
SCRIPT = """\
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        wanted = open("other.conf").read() + " " + self.headers["x-upstream"]
        self.send_response(200 if wanted == "{0} {0}" and self.path == "/other" else 500)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"2\\r\\nok\\r\\n0\\r\\n\\r\\n")
    def log_message(self, *words):
        pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def figures(*rates: float) -> Sequence[Figure]:
    return [Figure(1000 / rate, 2000 / rate, rate) for rate in rates]


def cells(table: Table, what: str) -> list[tuple[str, ...]]:
    return [line.cells for line in table.lines if what in line.what]


def test_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text(json.dumps([ROW]))
    [peer] = read_peers(tmp_path / "peers.json")
    assert (peer.name, peer.command, peer.headers) == (
        "other",
        ("other", "{port}"),
        ("a: {upstream}",),
    )


@pytest.mark.parametrize(
    "text", [None, "{", "[1]", '[{"name": "x"}]', json.dumps([{**ROW, "x": 1}])]
)
def test_a_file_of_another_form_is_refused_with_how_to_make_one(
    text: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "peers.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BenchFailed, match=r"build\.py bench --against"):
        read_peers(file)


def test_ratios_are_those_of_the_same_round_with_their_spread() -> None:
    rounds = {1: [figures(100, 200, 400), figures(50, 50, 300)]}
    table = compare(["AgentState", "other 1.2"], rounds, [2**20, None], [0.5, 7.0], 3)
    assert cells(table, "of ours") == [("1", "0.50 (0.25 to 0.75)")]
    assert cells(table, "a second") == [("200", "50")]
    assert cells(table, "memory") == [("1 MiB", "?")]
    assert cells(table, "start") == [("0.5 s", "7.0 s")]
    [line] = [line for line in table.lines if "of ours" in line.what]
    assert line.figures == {"other 1.2_to_ours": 0.5}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_peers, "CLIENTS", (1, 2))
    monkeypatch.setattr(bench_peers, "WARM_S", 0.02)
    monkeypatch.setattr("agentstate.house.bench_stand.ROUND_QUICK_S", 0.05)


def other(tmp_path: Path, stand: Stand, script: str) -> Peer:
    file = tmp_path / "other.py"
    file.write_text(script.replace("{0}", str(stand.upstream_port)))
    command = (sys.executable, str(file), "{port}")
    return Peer("other", "1.2", command, "/other", ("x-upstream: {upstream}",), {},
                {"other.conf": "{upstream}"})  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_peer_is_started_measured_in_turn_and_ended(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stand = Stand(tmp_path, is_quick=True)
        stand.open(stack)
        table = measure(stand, [other(tmp_path, stand, SCRIPT)])
    assert table.columns == ("AgentState", "other 1.2")
    rates = cells(table, "a second")
    assert len(rates) == 2
    assert all(float(cell.replace(",", "")) > 0 for row in rates for cell in row)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("script", "words"),
    [("raise SystemExit('no such flag')", "no such flag"),
     (SCRIPT.replace("200 if", "503 if"), "it answered 503")],
)  # fmt: skip
def test_a_peer_that_does_not_answer_is_named_with_its_words(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        stand = Stand(tmp_path, is_quick=True)
        stand.open(stack)
        # It answers wrongly for as long as it is asked; the first second tells as much.
        monkeypatch.setattr(bench_peers, "START_S", 3.0)
        with pytest.raises(BenchFailed, match=words) as caught:
            measure(stand, [other(tmp_path, stand, script)])
    assert "other could not be measured" in caught.value.message
