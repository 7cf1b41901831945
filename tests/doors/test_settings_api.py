"""The settings, to read: every one, where it came from, and no secret in whatever place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentstate.doors.api.settings import sections_json, without_secrets
from agentstate.ground.canonical import encode, parse
from agentstate.ground.load import load_settings
from agentstate.ground.settings_table import settings_table

FILE = """
[server]
public_url = "https://agents.example.com/x"

[gate]
timeout_s = 90
tools = ["send_*"]

[[gate.rule]]
tool = "stripe_*"

[[webhook]]
name = "ops"
url = "https://hooks.slack.com/services/hook-secret"

[[provider]]
name = "groq"
base_url = "https://api.groq.com/openai/v1"
api_key = "env:GROQ"
models = ["llama-*"]
"""


@pytest.fixture
def sections(tmp_path: Path) -> dict[str, Any]:
    """The settings of a file, an environment and a flag, by name."""
    (tmp_path / "agentstate.toml").write_text(FILE, "utf-8")
    environ = {"GROQ": "gsk-secret", "OPENAI_API_KEY": "sk-secret", "AGENTSTATE_LOG_LEVEL": "debug"}
    loaded = load_settings({"server.port": "9000"}, environ, tmp_path, None)
    found: Any = sections_json(loaded)
    text = encode(found).decode()
    assert "secret" not in text.replace("is_secret", "").replace('"secret"', "").replace(
        ".secret", ""
    )
    return {
        setting["name"]: setting
        for section in parse(encode(found))  # type: ignore[union-attr]
        for setting in section["settings"]  # type: ignore[call-overload,index]
    }


def test_every_setting_is_there(sections: dict[str, Any]) -> None:
    for row in settings_table():
        if not row.is_repeated and row.name != "crash_at":
            assert row.name in sections
            assert sections[row.name]["help"] == row.help


def test_each_says_its_value_and_where_it_came_from(sections: dict[str, Any]) -> None:
    def of(name: str) -> tuple[Any, Any]:
        return sections[name]["value"], sections[name]["source"]

    assert of("server.port") == (9000, "--port")
    assert of("log.level") == ("debug", "AGENTSTATE_LOG_LEVEL")
    assert of("gate.timeout_s") == (90, "agentstate.toml:6")
    assert of("gate.tools") == (["send_*"], "agentstate.toml:7")
    assert of("gate.rule.1.tool") == ("stripe_*", "agentstate.toml:10")
    assert of("server.host") == ("127.0.0.1", "default")
    assert sections["server.port"]["default"] == 8080


def test_a_secret_is_only_said_to_be_set(sections: dict[str, Any]) -> None:
    for name in ("provider.groq.api_key", "provider.openai.api_key", "webhook.ops.url"):
        assert (sections[name]["value"], sections[name]["is_set"]) == (None, True)
    assert sections["webhook.ops.secret"]["is_set"] is False


def test_a_url_is_shown_without_what_may_be_secret(sections: dict[str, Any]) -> None:
    assert sections["provider.groq.base_url"]["value"] == "https://api.groq.com/openai/v1"
    assert sections["server.public_url"]["value"] == "https://agents.example.com/x"
    assert without_secrets("http://[::1]:8080/v1") == "http://[::1]:8080/v1"
    assert without_secrets("https://user:key@x.example/a?key=b#c") == "https://x.example/a"
