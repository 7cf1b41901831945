"""What is taken over of a configuration that was read again, and what waits for a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentstate.ground.load import load_settings
from agentstate.ground.reload import Reloaded, take_over
from agentstate.ground.settings import Loaded

STARTED = """
[server]
port = 9000

[gate]
tools = ["send_email"]

[[webhook]]
name = "ops"
url = "https://ops.example/a"

[[provider]]
name = "groq"
base_url = "https://groq.example/v1"
api_key = "key-of-groq-before"
"""


def load(folder: Path, text: str) -> Loaded:
    (folder / "agentstate.toml").write_text(text, encoding="utf-8")
    return load_settings({}, {}, folder, None)


def reload(folder: Path, text: str) -> tuple[Loaded, Reloaded]:
    """Start with `STARTED` and read `text` then."""
    started = load(folder, STARTED)
    return started, take_over(started, load(folder, text))


def test_policy_and_webhooks_are_taken_and_nothing_waits(tmp_path: Path) -> None:
    text = STARTED.replace("send_email", "wire_money").replace("ops.example/a", "ops.example/b")
    text = f"{text}\n[[gate.rule]]\ntool = 'stripe_*'\naction = 'deny'\n"
    started, reloaded = reload(tmp_path, text)
    settings = reloaded.loaded.settings

    assert settings.gate.tools == ("wire_money",)
    assert [rule.tool for rule in settings.gate.rules] == ["stripe_*"]
    assert [row.url for row in settings.webhooks] == ["https://ops.example/b"]
    assert (settings.server, settings.providers) == (
        started.settings.server,
        started.settings.providers,
    )
    assert reloaded.waits == ()
    assert reloaded.loaded.sources["gate.rule.1.tool"] == "agentstate.toml:18"


def test_what_takes_a_restart_stays_and_is_named_with_its_place(tmp_path: Path) -> None:
    text = STARTED.replace("9000", "9001").replace("key-of-groq-before", "key-of-groq-after")
    text += "\n[[provider]]\nname = 'mistral'\nbase_url = 'https://mistral.example/v1'\n"
    started, reloaded = reload(tmp_path, text)

    assert reloaded.loaded.settings == started.settings
    assert reloaded.waits == (
        "provider.groq (agentstate.toml:15)",
        "provider.mistral (agentstate.toml:19)",
        "server.port (agentstate.toml:3)",
    )
    assert reloaded.loaded.warnings == (
        *started.warnings,
        *(f"{each} has changed; it takes a restart" for each in reloaded.waits),
    )
    assert "key-of-groq" not in str(reloaded.waits)


def test_a_row_that_is_gone_waits_as_well(tmp_path: Path) -> None:
    _, reloaded = reload(tmp_path, STARTED.partition("[[provider]]")[0])

    assert reloaded.waits == ("provider.groq",)
    assert "provider.groq.base_url" in reloaded.loaded.sources


def test_what_has_moved_in_the_file_is_shown_where_it_is_now(tmp_path: Path) -> None:
    _, reloaded = reload(tmp_path, "# a line\n# and another\n" + STARTED)

    assert reloaded.loaded.sources["server.port"] == "agentstate.toml:5"
    assert reloaded.loaded.sources["webhook.ops.url"] == "agentstate.toml:12"
    assert reloaded.waits == ()


def test_what_was_taken_away_from_the_gate_has_no_place_any_more(tmp_path: Path) -> None:
    started = load(tmp_path, STARTED + "\n[[gate.rule]]\ntool = 'a'\n")
    reloaded = take_over(started, load(tmp_path, ""))

    assert reloaded.loaded.settings.gate.rules == ()
    assert reloaded.loaded.settings.webhooks == ()
    assert [name for name in reloaded.loaded.sources if name.startswith(("gate.rule", "webhook"))] \
        == []  # fmt: skip


@pytest.mark.parametrize("port", [9000, 9002])
def test_it_is_compared_with_what_the_server_was_started_with(tmp_path: Path, port: int) -> None:
    started, first = reload(tmp_path, STARTED.replace("9000", "9001"))
    again = take_over(started, load(tmp_path, STARTED.replace("9000", str(port))))

    assert len(first.waits) == 1
    assert len(again.waits) == (port != 9000)
