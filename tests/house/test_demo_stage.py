"""What scenes play on: a comparison that can fail, and an environment that leads nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentstate.house.demo import DemoFailed
from agentstate.house.demo_peers import Model, Receiver
from agentstate.house.demo_stage import Stage, expect, path_of


def test_what_is_not_as_expected_names_both() -> None:
    expect("Calls", 4, 4)
    with pytest.raises(DemoFailed, match=r"Calls: expected 4, found 5\."):
        expect("Calls", 5, 4)


def test_a_session_is_one_segment_of_a_path() -> None:
    assert path_of("a/b c") == "/api/sessions/a%2Fb%20c"


def test_no_key_and_no_address_of_the_environment_reaches_a_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OPENAI_BASE_URL", "GEMINI_API_KEY", "AGENTSTATE_MOCK", "WEBHOOK_URL"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("PATH", "/bin")

    environ = Stage(tmp_path, Model(), Receiver("x"), "http://127.0.0.1:1").environ

    assert "theirs" not in environ.values()
    assert environ["PATH"] == "/bin"
    assert environ["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"


def test_what_never_comes_is_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("agentstate.house.demo_stage.WAIT_S", 0.01)
    stage = Stage(tmp_path, Model(), Receiver("x"), "http://127.0.0.1:1")

    assert stage.wait_for("word", lambda: "here") == "here"
    with pytest.raises(DemoFailed, match="There was no word within"):
        stage.wait_for("word", lambda: "")
