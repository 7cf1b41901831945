"""A proxy in this process: it is the whole one, and leaves nothing behind."""

from __future__ import annotations

import json
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import agentstate
from agentstate.ground.errors import SettingError, StoreError
from tests.helpers.upstream import CountingUpstream

ASK = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}


def ask(proxy: agentstate.Running, session_id: str) -> tuple[str | None, Any]:
    request = urllib.request.Request(
        f"{proxy.base_url}/chat/completions",
        json.dumps(ASK).encode(),
        {"content-type": "application/json", "x-agent-session-id": session_id,
         "authorization": "Bearer key"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["x-agentstate-cache-hit"], json.loads(answer.read())


def test_the_record_outlives_it(tmp_path: Path) -> None:
    db = tmp_path / "record.db"
    with CountingUpstream() as upstream:
        for hit in ("false", "true"):
            with agentstate.running(upstream=upstream.url, db=db) as proxy:
                assert ask(proxy, "s")[0] == hit
        assert list(upstream.counts.values()) == [1]


def test_the_mock_answers_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("AGENTSTATE_SERVER_PORT", "9")
    with agentstate.running() as proxy:
        assert "mock" in ask(proxy, "s")[1]["choices"][0]["message"]["content"]


def test_with_neither_mock_nor_upstream_the_environment_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with CountingUpstream() as upstream:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
        with agentstate.running(mock=False) as proxy:
            ask(proxy, "s")
        assert list(upstream.counts.values()) == [1]


def test_settings_are_taken_by_their_names() -> None:
    settings = {"replay.mode": "off", "gate.tools": ["pay_*"], "server.require_session": True}
    with agentstate.running(settings=settings) as proxy:
        assert [ask(proxy, "s")[0] for _ in range(2)] == ["false", "false"]


def test_a_fault_is_raised_where_it_is_started(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="GATE_TIMEOUT"):
        agentstate.running(settings={"gate.timeout_s": "soon"}).start()
    other = agentstate.running(db=tmp_path / "record.db")
    with agentstate.running(db=tmp_path / "record.db"), pytest.raises(StoreError, match="another"):
        other.start()


def test_it_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    proxy = agentstate.running().start()
    assert "agentstate" in {thread.name for thread in threading.enumerate()}
    assert len(list(tmp_path.iterdir())) == 1
    proxy.stop()
    proxy.stop()

    assert "agentstate" not in {thread.name for thread in threading.enumerate()}
    assert list(tmp_path.iterdir()) == []


def test_several_run_side_by_side() -> None:
    with agentstate.running() as one, agentstate.running() as other:
        ask(one, "s")
        assert one.url != other.url
        assert ask(other, "s")[0] == "false"


def test_before_it_runs_it_has_no_address() -> None:
    with pytest.raises(AssertionError, match="it is not running"):
        assert agentstate.running().url
