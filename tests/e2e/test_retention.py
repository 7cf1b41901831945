"""A server deletes by itself what was kept long enough; the command line says what would go."""

from __future__ import annotations

import http.client
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.proxy import POLL_S, ROOT, Proxy

pytestmark = pytest.mark.slow

WAIT_S = 30.0


def ask(proxy: Proxy, session: str, text: str = "hi") -> str | None:
    """Make a call; return which rung of the record answered."""
    connection = http.client.HTTPConnection(*proxy.address, timeout=30)
    try:
        body = {"model": "mock/m", "messages": [{"role": "user", "content": text}]}
        headers = {"content-type": "application/json", "x-agent-session-id": session}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        assert response.status == 200
        return response.getheader("x-agentstate-replay")
    finally:
        connection.close()


def verb(proxy: Proxy, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "agentstate", "retention", *words, "--url", proxy.url],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(tmp_path: Path, **env: str) -> Proxy:
    return Proxy(
        upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db", flags=("--mock",), env=env
    )


def names(proxy: Proxy) -> set[str]:
    found: list[dict[str, Any]] = json.loads(proxy.get("/api/sessions")[1])
    return {row["session_id"] if "session_id" in row else row["session"] for row in found}


def grow_old(folder: Path, days: int = 8) -> None:
    """Have all that is on record be so many days ago."""
    with closing(sqlite3.connect(folder / "record.db", timeout=WAIT_S)) as connection:
        ms = days * 24 * 60 * 60 * 1000
        connection.execute("update session set updated_ms = updated_ms - ?", (ms,))
        connection.commit()


def wait_for(proxy: Proxy, happened: Callable[[set[str]], bool]) -> None:
    """Wait until the names of the sessions are as they should be."""
    until = time.monotonic() + WAIT_S
    while not happened(found := names(proxy)):
        assert time.monotonic() < until, found
        time.sleep(POLL_S)


def test_without_limits_all_is_kept(tmp_path: Path) -> None:
    with started(tmp_path) as proxy:
        ask(proxy, "s")
        assert "Everything is kept" in verb(proxy)
        assert "Everything is kept" in verb(proxy, "--run")
        assert names(proxy) == {"s"}


def test_the_verb_lists_first_and_deletes_when_told(tmp_path: Path) -> None:
    with started(tmp_path) as proxy:
        ask(proxy, "s")
    with started(tmp_path, AGENTSTATE_STORE_RETENTION_DAYS="0.5") as proxy:
        assert "Nothing has been kept longer" in verb(proxy)
        assert names(proxy) == {"s"}
        assert "Nothing was deleted" in verb(proxy, "--run")
        assert names(proxy) == {"s"}
    grow_old(tmp_path)
    with started(tmp_path, AGENTSTATE_STORE_RETENTION_DAYS="0.5") as proxy:
        until = time.monotonic() + WAIT_S
        while names(proxy) and time.monotonic() < until:
            time.sleep(POLL_S)
        assert names(proxy) == set(), "it looks as it starts"
        ask(proxy, "t")
        grow_old(tmp_path)
        listed = verb(proxy)
        assert "1 session would go" in listed
        assert "age" in listed
        assert names(proxy) == {"t"}
        shown = json.loads(verb(proxy, "--json"))
        assert [row["session"] for row in shown["sessions"]] == ["t"]
        assert "1 session deleted" in verb(proxy, "--run")
        assert names(proxy) == set()


def long_text(number: int) -> str:
    return "".join(random.Random(number).choices("abcdefghijklmnop", k=40_000))


def test_a_kill_while_it_deletes_loses_nothing_and_the_file_becomes_shorter(tmp_path: Path) -> None:
    file = tmp_path / "record.db"
    with started(tmp_path) as proxy:
        for number in range(40):
            ask(proxy, f"s{number}", long_text(number))
    full = file.stat().st_size
    grow_old(tmp_path)
    with started(tmp_path, AGENTSTATE_STORE_RETENTION_DAYS="7") as proxy:
        ask(proxy, "young")
        wait_for(proxy, lambda found: len(found) < 20)
        proxy.restart()
        wait_for(proxy, lambda found: found == {"young"})
        assert ask(proxy, "young") == "exact"
        assert ask(proxy, "s0", long_text(0)) is None

    assert file.stat().st_size < full / 2
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert connection.execute("pragma foreign_key_check").fetchall() == []
        assert connection.execute("select count(*) from step").fetchone() == (2,)
