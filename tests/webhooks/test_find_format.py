from __future__ import annotations

import pytest

from agentstate.webhooks import FORMATS, find_format, format_by_name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "slack"),
        ("https://hooks.slack.com/triggers/T0/1/x", "slack"),
        ("https://hooks.slack-gov.com/services/T0/B0/x", "slack"),
        ("HTTPS://Hooks.Slack.com/services/T0/B0/x", "slack"),
        ("https://discord.com/api/webhooks/1/t", "discord"),
        ("https://discordapp.com/api/webhooks/1/t?thread_id=5", "discord"),
        ("https://canary.discord.com/api/webhooks/1/t", "discord"),
        ("https://ptb.discord.com/api/v10/webhooks/1/t", "discord"),
        ("https://discord.com/api/webhooks/1/t/slack", "slack"),
        ("https://discord.com/api/webhooks/1/t/slack?wait=true", "slack"),
        ("https://discord.com/api/webhooks/1/t/github", "json"),
        ("https://discord.com/channels/1/2", "json"),
        ("https://mattermost.example/hooks/x", "json"),
        ("https://chat.example/services/T0/B0/x", "json"),
        ("https://hooks.slack.com.evil.example/services/T0/B0/x", "json"),
        ("https://evil.example/?hooks.slack.com", "json"),
        ("https://notdiscord.com/api/webhooks/1/t", "json"),
        ("https://[discord.com/api/webhooks/1/t", "json"),
        ("http://127.0.0.1:9000/api/webhooks/1/t", "json"),
    ],
)
def test_a_format_is_found_from_the_url(url: str, name: str) -> None:
    assert find_format(url).name == name


@pytest.mark.parametrize("name", [row.name for row in FORMATS])
def test_a_named_format_wins_over_the_url(name: str) -> None:
    found = find_format("https://hooks.slack.com/services/T0/B0/x", name)

    assert found is format_by_name(name)
    assert found.name == name


def test_a_name_that_no_format_has_is_an_error() -> None:
    assert format_by_name("teams") is None
    with pytest.raises(KeyError):
        find_format("https://a.example/", "teams")


def test_names_are_told_apart_and_the_last_row_takes_every_url() -> None:
    assert len({row.name for row in FORMATS}) == len(FORMATS)
    assert FORMATS[-1].matches("no url at all")
