"""The table: complete, consistent, and silent about secrets."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass

import pytest

from agentstate.ground.settings import (
    Network,
    ProviderSettings,
    Settings,
    read_environment,
    read_network,
)
from agentstate.ground.settings_table import REPEATED, settings_table


def test_every_field_is_a_row() -> None:
    names = {row.name for row in settings_table()}

    for section, table in REPEATED.items():
        assert {f"{section}.{field.name}" for field in fields(table)} <= names
    # Of what comes in rows; the last one nobody sets.
    holders = {"providers", "webhooks", "gate.rules", "forward.routes", "replay.run_id"}
    for member in fields(Settings):
        part = getattr(Settings(), member.name)
        if is_dataclass(part):
            assert {f"{member.name}.{field.name}" for field in fields(part)} - holders <= names
        elif member.name not in holders:
            assert member.name in names


def test_rows_of_a_section_stand_together_and_rules_follow_the_gate() -> None:
    sections = list(dict.fromkeys(row.section for row in settings_table()))
    changes = [row.section for row in settings_table()]

    assert sections[sections.index("gate") + 1] == "gate.rule"
    assert sections[-2:] == ["webhook", "provider"]
    assert changes == sorted(changes, key=sections.index)


def test_defaults_of_the_table_are_those_of_the_values() -> None:
    defaults = Settings()

    for row in settings_table():
        if row.section and not row.is_repeated:
            assert getattr(getattr(defaults, row.section), row.key) == row.default, row.name


def test_no_flag_and_no_environment_name_is_given_twice() -> None:
    flags = Counter(row.flag for row in settings_table() if row.flag)
    names = Counter(name for row in settings_table() for name in row.env)

    assert [name for name, count in (flags | names).items() if count > 1] == []


def test_section_and_key_make_the_environment_name() -> None:
    names = {row.name: row.env for row in settings_table()}

    assert names["server.port"] == ("AGENTSTATE_SERVER_PORT", "PORT")
    assert names["store.path"] == ("AGENTSTATE_STORE_PATH", "AGENTSTATE_DB")
    assert names["mock"] == ("AGENTSTATE_MOCK",)
    assert names["gate.tools"] == ("AGENTSTATE_GATE_TOOLS",)
    assert names["provider.api_key"] == names["gate.rule.tool"] == ()


def test_every_default_is_within_its_bounds() -> None:
    for row in settings_table():
        if row.kind in ("integer", "number") and not row.is_optional:
            assert isinstance(row.default, int | float)
            assert row.least <= row.default, row.name
            assert row.most is None or row.default <= row.most, row.name
        if row.choices:
            is_absent = row.is_optional and row.default is None
            assert is_absent or row.default in row.choices, row.name


def test_every_row_says_what_it_expects_and_what_it_is_for() -> None:
    for row in settings_table():
        assert row.expects, row.name
        assert len(row.help) >= 10, row.name


@pytest.mark.parametrize(
    ("name", "expects", "default"),
    [
        ("server.port", "an integer from 0 to 65535", "8080"),
        ("server.hosts", "a list of text", "[]"),
        ("server.require_session", "true or false", "false"),
        ("server.idle_timeout_s", "a number from 0.1", "75.0"),
        ("store.path", "text that is not empty", '"agentstate.db"'),
        ("store.durability", '"full" or "normal"', '"full"'),
        ("replay.mask", "a list of regular expressions", "[]"),
        (
            "gate.tools",
            "a list of globs of names",
            '["send_email", "execute_command", "delete_database", "stripe_charge"]',
        ),
        ("gate.rule.tool", "a glob of names", '"*"'),
        ("gate.rule.when", "a condition", ""),
        ("gate.rule.then", '"stop" or "continue"', ""),
        ("provider.api_key", "text that is not empty", ""),
    ],
)
def test_rows_are_shown_as_a_person_would_write_them(name: str, expects: str, default: str) -> None:
    row = next(row for row in settings_table() if row.name == name)

    assert (row.expects, row.shown_default) == (expects, default)


def test_keys_are_not_shown_by_repr() -> None:
    settings = Settings(providers=(ProviderSettings(name="openai", api_key="sk-very-secret"),))

    assert "openai" in repr(settings)
    assert "sk-very-secret" not in repr(settings)


def test_the_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSTATE_TEST_MARK", "1")

    environ = read_environment()
    environ["AGENTSTATE_TEST_MARK"] = "2"

    assert read_environment()["AGENTSTATE_TEST_MARK"] == "1"


@pytest.mark.parametrize(
    ("environ", "network"),
    [
        ({}, Network()),
        (
            {"HTTP_PROXY": "http://a:1", "https_proxy": "http://b:2", "HTTPS_PROXY": "http://c:3"},
            Network(http_proxy="http://a:1", https_proxy="http://b:2"),
        ),
        ({"ALL_PROXY": "http://a:1"}, Network(http_proxy="http://a:1", https_proxy="http://a:1")),
        ({"NO_PROXY": " Localhost, .Corp ,"}, Network(no_proxy=("localhost", ".corp"))),
        (
            {"SSL_CERT_FILE": "/etc/ca.pem", "SSL_CERT_DIR": "/etc/certs"},
            Network(ssl_cert_file="/etc/ca.pem", ssl_cert_dir="/etc/certs"),
        ),
        ({"HTTP_PROXY": "", "SSL_CERT_FILE": ""}, Network()),
    ],
)
def test_proxies_and_certificates_come_from_the_usual_names(
    environ: dict[str, str], network: Network
) -> None:
    assert read_network(environ) == network


def test_under_cgi_a_client_cannot_set_our_proxy() -> None:
    environ = {"REQUEST_METHOD": "GET", "HTTP_PROXY": "http://evil:1"}

    assert read_network(environ).http_proxy is None
