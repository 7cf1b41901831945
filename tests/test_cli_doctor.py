"""`agentstate doctor` as a user meets it: real sockets, real files, a real server."""

from __future__ import annotations

import json
import os
import socket
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from agentstate.__main__ import main
from agentstate.cli_doctor import _lines
from agentstate.ground.clock import now_ms
from agentstate.house.doctor_seen import Finding
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Pair, Reply, Upstream

KEY = "sk-proj-0123456789abcdefghij"
JSON: Pair = (b"content-type", b"application/json")
REFUSED = Reply(401, (JSON,), (f'{{"error": "Incorrect API key: {KEY}"}}'.encode(),))
BUILT_IN = ("openai", "anthropic", "gemini", "ollama")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has an empty folder and none of the developer's settings."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(
            ("AGENTSTATE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OLLAMA_", "WEBHOOK_", "PORT")
        ) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)


def configure(url: str, extra: str = "") -> None:
    """Put every built-in provider at `url`, so that no test leaves this machine."""
    rows = "".join(f'[[provider]]\nname = "{name}"\nbase_url = "{url}"\n' for name in BUILT_IN)
    Path("agentstate.toml").write_text(extra + rows)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "--json", "--port", "0", *argv])
    printed = capsys.readouterr()
    assert printed.err == ""
    assert KEY not in printed.out
    rows = json.loads(printed.out)
    assert all(list(row) == ["check", "state", "found", "advice"] for row in rows)
    assert code == int(any(row["state"] == "fault" for row in rows))
    return code, {row["check"]: row for row in rows}


def test_offline_in_an_empty_folder_all_is_well_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = run(capsys, "--offline")

    assert code == 0
    assert rows["clock"]["state"] == "skip"
    assert "will be made" in rows["database"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_a_line_for_each_check_and_what_to_do_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("agentstate.db").write_bytes(b"no database at all, but a text" * 9)

    assert main(["doctor", "--offline", "--port", "0"]) == 1

    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("FAULT  database"))
    assert lines[at].endswith("agentstate.db is not a database")
    assert lines[at + 1].strip() == "→ Move it away, or name another file with --db."
    assert lines[-1] == "1 fault: database."


def test_settings_that_do_not_load_are_a_fault_and_the_rest_is_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("agentstate.toml").write_text("[server]\nprot = 1\n")

    code, rows = run(capsys)

    assert code == 1
    assert rows["settings"]["found"].startswith("agentstate.toml:2: unknown key 'prot'")
    assert (rows["python"]["state"], rows["port"]["state"]) == ("ok", "skip")


@pytest.mark.parametrize("argv", [("--config", "none.toml"), ("--db", "x://y"), ("--host", "::")])
def test_what_the_server_would_refuse_is_refused_here(
    argv: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = run(capsys, "--offline", *argv)

    assert (code, rows["settings"]["state"]) == (1, "fault")


def test_a_wrong_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Upstream([REFUSED] * 4) as upstream:
        configure(upstream.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        code, rows = run(capsys)
        sent = {received.target: received for received in upstream.received}

    assert code == 1
    assert rows["key openai"]["found"] == "the key in OPENAI_API_KEY is refused (401)"
    assert rows["key anthropic"]["state"] == "fault"
    assert rows["key gemini"]["state"] == "ok"
    assert {rows[f"upstream {name}"]["state"] for name in BUILT_IN} == {"ok"}
    assert sent["/v1/models"].header("x-api-key") == KEY


def test_a_clock_that_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    date = formatdate(now_ms() / 1000 - 7200, usegmt=True).encode()
    with Upstream([Reply(401, (JSON, (b"date", date)), (b"{}",))] * 4) as upstream:
        configure(upstream.url)
        code, rows = run(capsys)

    assert code == 1
    assert "2 hours ahead of" in rows["clock"]["found"]
    assert "approvals" in rows["clock"]["advice"]


def test_dead_upstreams(capsys: pytest.CaptureFixture[str]) -> None:
    configure("http://127.0.0.1:9")

    code, rows = run(capsys)

    assert code == 1
    assert {rows[f"upstream {name}"]["state"] for name in BUILT_IN} == {"fault"}
    assert "refused" in rows["upstream openai"]["found"]


def test_a_base_url_that_is_our_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://localhost:{port}/v1")

    code, rows = run(capsys, "--offline", "--port", port)

    assert (code, rows["base urls"]["state"]) == (0, "warn")
    assert "OPENAI_BASE_URL" in rows["base urls"]["advice"]


@pytest.mark.slow
def test_a_running_server_is_found_and_is_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Upstream([Reply(401, (JSON,), (b"{}",))] * 4) as upstream:
        db = tmp_path / "a.db"
        with Proxy(upstream_url=upstream.url, db=db) as proxy:
            configure(upstream.url)
            port = str(proxy.address[1])
            code, rows = run(capsys, "--port", port, "--db", str(db))
            # One that listens elsewhere and calls this one would be refused as a loop.
            configure(f"http://127.0.0.1:{port}")
            loop_code, loop = run(capsys)
            pid = str(proxy.pid)

    assert code == 0
    assert "a server is running here" in rows["port"]["found"]
    assert rows["database"]["state"] == "ok"
    assert f"process {pid}" in rows["database"]["found"]
    assert (loop_code, loop["base urls"]["state"]) == (1, "fault")


def test_on_a_terminal_lines_are_wrapped_below_what_was_found() -> None:
    finding = Finding("port", "ok", "one two " * 10 + "/a/path-that-is-copied", "do this " * 9)

    lines = list(_lines([finding], 60))

    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("ok     port  one two")
    assert lines[1].startswith(" " * 13 + "one")
    assert lines[-4].startswith(" " * 13 + "→ do")
    assert lines[-3].startswith(" " * 15 + "this")
    assert "/a/path-that-is-copied" in " ".join(lines)


def test_the_same_advice_is_given_once_and_strangers_words_move_no_cursor() -> None:
    findings = [
        Finding("a", "fault", "one\x1b[2J", "do it"),
        Finding("b", "fault", "two", "do it"),
        Finding("c", "warn", "three", "do it"),
        Finding("d", "ok", "four"),
    ]

    assert list(_lines(findings, None)) == [
        "FAULT  a  one\\x1b[2J",
        "FAULT  b  two",
        "          → do it",
        "warn   c  three",
        "          → do it",
        "ok     d  four",
        "",
        "2 faults: a, b; 1 warning.",
    ]


def test_a_database_of_a_server_on_another_port_is_a_fault_as_it_is_to_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "a.db"
    with Proxy(upstream_url="http://127.0.0.1:9", db=database, flags=("--mock",)):
        code, rows = run(capsys, "--mock", "--db", str(database))
        assert main(["serve", "--mock", "--port", "0", "--db", str(database)]) == 1
        assert "held by another server" in capsys.readouterr().err

    assert code == 1
    assert rows["database"]["state"] == "fault"
    assert "in use by a running server" in rows["database"]["found"]
