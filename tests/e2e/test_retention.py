"""A server deletes by itself what was kept long enough; the command line says what would go."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.proxy import POLL_S, ROOT, Proxy

pytestmark = pytest.mark.slow

WAIT_S = 30.0


def ask(proxy: Proxy, session: str) -> None:
    connection = http.client.HTTPConnection(*proxy.address, timeout=30)
    try:
        body = {"model": "mock/m", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"content-type": "application/json", "x-agent-session-id": session}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        assert connection.getresponse().status == 200
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
    with started(tmp_path, AGENTSTATE_STORE_RETENTION_DAYS="1e-9") as proxy:
        until = time.monotonic() + WAIT_S
        while names(proxy) and time.monotonic() < until:
            time.sleep(POLL_S)
        assert names(proxy) == set(), "it looks as it starts"
        ask(proxy, "t")
        listed = verb(proxy)
        assert "1 session would go" in listed
        assert "age" in listed
        assert names(proxy) == {"t"}
        shown = json.loads(verb(proxy, "--json"))
        assert [row["session"] for row in shown["sessions"]] == ["t"]
        assert "1 session deleted" in verb(proxy, "--run")
        assert names(proxy) == set()
