"""Flags > environment > file > defaults, and every way to be refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.errors import SettingError
from agentstate.ground.load import FILE_BYTES_MAX, load_settings, nearest
from agentstate.ground.settings import (
    GateSettings,
    Loaded,
    RuleSettings,
    Settings,
)
from agentstate.ground.settings_table import settings_table


def load(
    tmp_path: Path,
    toml: str | None = None,
    *,
    flags: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
) -> Loaded:
    if toml is not None:
        (tmp_path / "agentstate.toml").write_text(toml, encoding="utf-8")
    return load_settings(flags or {}, environ or {}, tmp_path, None)


def refusal(
    tmp_path: Path,
    toml: str | None = None,
    *,
    flags: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
) -> str:
    with pytest.raises(SettingError) as caught:
        load(tmp_path, toml, flags=flags, environ=environ)
    return caught.value.message


# -- where values come from


def test_with_nothing_given_all_is_default(tmp_path: Path) -> None:
    loaded = load(tmp_path)

    assert loaded.settings.server == Settings().server
    assert loaded.settings.store == Settings().store
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.warnings == ()


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path) -> None:
    toml = "[server]\nport = 1\n[store]\npath = 'file.db'\n[log]\nlevel = 'debug'\n"
    environ = {"AGENTSTATE_SERVER_PORT": "2", "AGENTSTATE_STORE_PATH": "env.db"}

    loaded = load(tmp_path, toml, flags={"server.port": "3"}, environ=environ)

    assert loaded.settings.server.port == 3
    assert loaded.settings.store.path == "env.db"
    assert loaded.settings.log.level == "debug"
    assert loaded.sources["server.port"] == "--port"
    assert loaded.sources["store.path"] == "AGENTSTATE_STORE_PATH"
    assert loaded.sources["log.level"] == "agentstate.toml:6"
    assert loaded.sources["log.format"] == "default"


def test_our_name_beats_the_one_that_others_use_too(tmp_path: Path) -> None:
    assert load(tmp_path, environ={"PORT": "5"}).settings.server.port == 5
    both = {"PORT": "5", "AGENTSTATE_SERVER_PORT": "6"}
    assert load(tmp_path, environ=both).settings.server.port == 6


def test_an_empty_environment_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load(tmp_path, environ={"PORT": "", "AGENTSTATE_SERVER_PORT": ""}).settings == Settings(
        providers=load(tmp_path).settings.providers
    )


def test_every_setting_can_be_given_in_the_file_and_in_the_environment(tmp_path: Path) -> None:
    for row in settings_table():
        if row.is_repeated:
            continue
        plain = row.shown_default.translate(dict.fromkeys(map(ord, '[]" ')))
        some = "https://some.host" if row.form == "url" else "some-text"
        some = "7" if row.kind in ("integer", "number") else some
        text = plain or some
        environ = {row.env[0]: text}
        assert load(tmp_path, environ=environ).sources[row.name] == row.env[0]
        header = f"[{row.section}]\n" if row.section else ""
        value = row.shown_default.replace('""', '"some-text"') or (
            some if some == "7" else f'"{some}"'
        )
        loaded = load(tmp_path, f"{header}{row.key} = {value}\n")
        assert loaded.sources[row.name] == f"agentstate.toml:{2 if row.section else 1}"
        (tmp_path / "agentstate.toml").unlink()


def test_config_names_another_file(tmp_path: Path) -> None:
    (tmp_path / "agentstate.toml").write_text("[server]\nport = 1\n")
    (tmp_path / "other.toml").write_text("[server]\nport = 2\n")

    loaded = load_settings({}, {}, tmp_path, Path("other.toml"))

    assert loaded.settings.server.port == 2
    assert loaded.sources["server.port"] == "other.toml:2"


def test_a_value_can_be_read_from_the_environment(tmp_path: Path) -> None:
    toml = '[server]\nport = "env:MY_PORT"\n[store]\npath = "env:MY_DB"\n'

    loaded = load(tmp_path, toml, environ={"MY_PORT": "81", "MY_DB": "/data/x.db"})

    assert (loaded.settings.server.port, loaded.settings.store.path) == (81, "/data/x.db")


def test_a_missing_environment_value_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, '[store]\npath = "env:MY_DB"\n')

    assert "agentstate.toml:2: store.path: says env:MY_DB, but MY_DB is not set" in message


# -- types, as TOML and as text


@pytest.mark.parametrize(
    ("toml", "section", "key", "value"),
    [
        ("[server]\nrequire_session = true", "server", "require_session", True),
        ("[server]\nidle_timeout_s = 5", "server", "idle_timeout_s", 5.0),
        ("[server]\nidle_timeout_s = 0.5", "server", "idle_timeout_s", 0.5),
        ('[server]\nhosts = ["a", "b"]', "server", "hosts", ("a", "b")),
        ('[server]\nhosts = "a"', "server", "hosts", ("a",)),
        ("[replay]\nmask = ['\\d{1,3}']", "replay", "mask", ("\\d{1,3}",)),
        ('[store]\ndurability = "normal"', "store", "durability", "normal"),
        ("server.port = 1", "server", "port", 1),
        ("server = {port = 1}", "server", "port", 1),
    ],
)
def test_values_of_the_file(
    tmp_path: Path, toml: str, section: str, key: str, value: object
) -> None:
    assert getattr(getattr(load(tmp_path, toml).settings, section), key) == value


@pytest.mark.parametrize(
    ("name", "text", "section", "key", "value"),
    [
        ("AGENTSTATE_SERVER_REQUIRE_SESSION", "Yes", "server", "require_session", True),
        ("AGENTSTATE_SERVER_REQUIRE_SESSION", "0", "server", "require_session", False),
        ("AGENTSTATE_SERVER_PORT", " 81 ", "server", "port", 81),
        ("AGENTSTATE_SERVER_IDLE_TIMEOUT_S", "1e2", "server", "idle_timeout_s", 100.0),
        ("AGENTSTATE_SERVER_HOSTS", "a, b,,", "server", "hosts", ("a", "b")),
        ("AGENTSTATE_REPLAY_MASK", '["\\\\d{1,3}", "x"]', "replay", "mask", ("\\d{1,3}", "x")),
        ("AGENTSTATE_REPLAY_MASK", "[0-9]+", "replay", "mask", ("[0-9]+",)),
        ("AGENTSTATE_GATE_TOOLS", "pay_*,[ab]_x", "gate", "tools", ("pay_*", "[ab]_x")),
        ("AGENTSTATE_GATE_TOOLS", " [] ", "gate", "tools", ()),
        ("AGENTSTATE_DB", "x.db", "store", "path", "x.db"),
    ],
)
def test_values_of_the_environment(
    tmp_path: Path, name: str, text: str, section: str, key: str, value: object
) -> None:
    loaded = load(tmp_path, environ={name: text})

    assert getattr(getattr(loaded.settings, section), key) == value


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            '[server]\nhost = "x"\nport = "80a"',
            "agentstate.toml:3: server.port: expected an integer from 0 to 65535, found '80a'.",
        ),
        ("[server]\nport = true", "expected an integer from 0 to 65535, found True"),
        ("[server]\nport = 80.0", "expected an integer from 0 to 65535, found 80.0"),
        ("[server]\nport = 70000", "expected an integer from 0 to 65535, found 70000"),
        ("[server]\nport = -1", "expected an integer from 0 to 65535, found -1"),
        ("[server]\nidle_timeout_s = -1", "server.idle_timeout_s: expected a number from 0.1"),
        ("[server]\nidle_timeout_s = nan", "expected a number from 0.1, found nan"),
        ("[server]\nidle_timeout_s = inf", "expected a number from 0.1, found inf"),
        (f"[server]\nidle_timeout_s = {10**400}", "expected a number from 0.1, found 1000"),
        ("[server]\nhosts = [1]", "expected a list of text, found [1]"),
        ('[server]\nhosts = [""]', "expected a list of text, found ['']"),
        ("[server]\nhost = 2026-01-01", "expected text that is not empty, found datetime"),
        ('[server]\nhost = ""', "expected text that is not empty, found ''"),
        ("[server]\nrequire_session = 1", "expected true or false, found 1"),
        ('[store]\ndurability = "no"', 'expected "full" or "normal", found \'no\''),
        (
            "[replay]\nspeed = 'instant'\nmask = ['ok', '(']",
            "agentstate.toml:3: replay.mask: '(' is no regular expression: missing )",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, toml: str, message: str) -> None:
    assert message in refusal(tmp_path, toml)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AGENTSTATE_SERVER_PORT", "http"),
        ("AGENTSTATE_SERVER_PORT", "8_0"),
        ("AGENTSTATE_SERVER_PORT", "9" * 5000),
        ("AGENTSTATE_SERVER_IDLE_TIMEOUT_S", "soon"),
        ("AGENTSTATE_SERVER_IDLE_TIMEOUT_S", "inf"),
        ("AGENTSTATE_SERVER_REQUIRE_SESSION", "maybe"),
        ("AGENTSTATE_REPLAY_MASK", '["unclosed'),
        ("AGENTSTATE_REPLAY_MASK", '["a", 1]'),
        ("AGENTSTATE_REPLAY_MASK", "("),
        ("AGENTSTATE_LOG_FORMAT", "xml"),
        ("AGENTSTATE_GATE_TOOLS", " "),
        ("AGENTSTATE_GATE_TOOLS", ","),
        ("AGENTSTATE_GATE_TOOLS", "[ab"),
        ("PORT", "-1"),
    ],
)
def test_a_wrong_environment_value_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    assert refusal(tmp_path, environ={name: text}).startswith(f"{name}: ")


def test_a_wrong_flag_is_refused_by_name(tmp_path: Path) -> None:
    message = refusal(tmp_path, flags={"server.port": "x"})

    assert message == "--port: expected an integer from 0 to 65535, found 'x'."


def test_long_values_are_cut(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, f'[server]\nport = "{"9" * 10_000}"')) < 200


@given(text=st.text(max_size=40))
def test_text_of_any_kind_is_a_value_or_a_refusal(text: str) -> None:
    for row in settings_table():
        if row.env:
            try:
                loaded = load_settings({}, {row.env[0]: text}, Path("/nowhere"), None)
            except SettingError:
                continue
            assert row.name in loaded.sources


# -- what is unknown


def test_an_unknown_key_names_line_and_nearest(tmp_path: Path) -> None:
    toml = '# comment\n[store]\npath = "port.db"\n\n[server]\nhost = "x"\nprot = 1\n'

    message = refusal(tmp_path, toml)

    assert message == ("agentstate.toml:7: unknown key 'prot' in [server]. Did you mean \"port\"?")


def test_an_unknown_section_names_line_and_nearest(tmp_path: Path) -> None:
    message = refusal(tmp_path, "mock = true\n\n[sever]\nport = 1\n")

    assert message == (
        "agentstate.toml:3: unknown section or key 'sever'. Did you mean \"server\"?"
    )


def test_where_nothing_is_near_all_are_named() -> None:
    assert nearest("zzz", ["b", "a"]) == "Known are: a, b."


def test_a_section_must_be_a_table(tmp_path: Path) -> None:
    assert "agentstate.toml:1: server must be a table" in refusal(tmp_path, "server = 1")
    assert "provider must be a table: write [[provider]]" in refusal(
        tmp_path, "[provider]\nname = 'x'"
    )


def test_an_unknown_environment_name_of_a_section_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, environ={"AGENTSTATE_SERVER_PROT": "1"})

    assert message == (
        "environment: unknown setting AGENTSTATE_SERVER_PROT. "
        'Did you mean "AGENTSTATE_SERVER_PORT"?'
    )


def test_other_names_of_the_environment_are_left_alone(tmp_path: Path) -> None:
    environ = {"AGENTSTATE_URL": "http://x", "SERVER_PORT": "1", "HOST": "x86_64-conda-linux-gnu"}

    assert load(tmp_path, environ=environ).settings.server == Settings().server


def test_service_links_of_kubernetes_are_not_settings(tmp_path: Path) -> None:
    environ = {
        "AGENTSTATE_SERVER_PORT": "tcp://10.0.0.1:8080",
        "AGENTSTATE_SERVER_SERVICE_HOST": "10.0.0.1",
        "AGENTSTATE_SERVER_SERVICE_PORT": "8080",
        "AGENTSTATE_SERVER_SERVICE_PORT_HTTP": "8080",
        "AGENTSTATE_SERVER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "AGENTSTATE_SERVER_PORT_8080_TCP_ADDR": "10.0.0.1",
    }

    assert load(tmp_path, environ=environ).settings.server.port == 8080


# -- the file itself


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    message = refusal(tmp_path, "[server]\nport = \n")

    assert message.startswith("agentstate.toml: is not TOML: ")
    assert "line 2" in message


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"gone\.toml: there is no such file"):
        load_settings({}, {}, tmp_path, Path("gone.toml"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "agentstate.toml").mkdir()

    assert "agentstate.toml: cannot be read" in refusal(tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agentstate.toml").write_bytes(b"# \xff")

    assert "must be UTF-8; byte 2 is not" in refusal(tmp_path)


def test_a_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    assert "is refused" in refusal(tmp_path, "#" * (FILE_BYTES_MAX + 1))


# -- the gate


def test_an_empty_list_of_tools_is_a_list(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[gate]\ntools = []\n")

    assert loaded.settings.gate.tools == ()
    assert loaded.sources["gate.tools"] == "agentstate.toml:2"


def test_an_empty_variable_leaves_the_tools_guarded(tmp_path: Path) -> None:
    loaded = load(tmp_path, environ={"AGENTSTATE_GATE_TOOLS": ""})

    assert loaded.settings.gate == GateSettings()
    assert "send_email" in loaded.settings.gate.tools


RULES = """
[gate]
strict = true

[[gate.rule]]
tool = "stripe_*"
when = 'args.amount > 5000 and args.currency == "eur"'
action = "deny"
then = "continue"
reason = "too much"

[[gate.rule]]
"""


def test_rules_come_in_rows(tmp_path: Path) -> None:
    loaded = load(tmp_path, RULES)

    condition = 'args.amount > 5000 and args.currency == "eur"'
    assert loaded.settings.gate.strict
    assert loaded.settings.gate.rules == (
        RuleSettings("stripe_*", condition, "deny", "continue", "too much"),
        RuleSettings("*", None, "ask", None, None),
    )
    assert loaded.sources["gate.rule.1.when"] == "agentstate.toml:7"
    assert not [name for name in loaded.sources if name.startswith("gate.rule.2.")]


@pytest.mark.parametrize(
    "toml",
    [
        '[gate]\nrule = [{tool = "a"}]',
        'gate.rule = [{tool = "a"}]',
        'gate = {rule = [{tool = "a"}]}',
        '[[ gate . "rule" ]]\ntool = "a"',
    ],
)
def test_rules_can_be_written_in_every_form_of_a_table(tmp_path: Path, toml: str) -> None:
    assert load(tmp_path, toml).settings.gate.rules == (RuleSettings("a"),)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            '[[gate.rule]]\ntool = "a"\n\n[[gate.rule]]\ntools = "b"',
            "agentstate.toml:5: unknown key 'tools' in [gate.rule]. Did you mean \"tool\"?",
        ),
        (
            "[gate]\nrules = []",
            "agentstate.toml:2: unknown key 'rules' in [gate]. Did you mean \"rule\"?",
        ),
        ("[gate.rule]\ntool = 'a'", "agentstate.toml:1: gate.rule must be a table: write "
         "[[gate.rule]]."),
        ("[gate]\nrule = ['a']", "agentstate.toml:2: gate.rule must be a table: write "
         "[[gate.rule]]."),
        ("gate = [1]", "agentstate.toml:1: gate must be a table: write [gate]."),
        ('["gate.rule"]\ntool = "a"', "agentstate.toml:1: unknown section or key 'gate.rule'."),
        (
            "[[gate.rule]]\ntool = 'a'\n[[gate.rule]]\ntool = '['",
            "agentstate.toml:4: gate.rule.tool: '[' is no glob of tool names: what stands in",
        ),
        ("[[gate.rule]]\ntool = 5", "agentstate.toml:2: gate.rule.tool: expected a glob of "
         "names, found 5."),
        ("[[gate.rule]]\ntool = ''", "gate.rule.tool: expected a glob of names, found ''."),
        (
            "[[gate.rule]]\nwhen = 'args.amount > lots'",
            "agentstate.toml:2: gate.rule.when: at character 15: expected a number, true, false, "
            "null or a text in quotes; found 'lots'.",
        ),
        ("[[gate.rule]]\nwhen = ['x']", "gate.rule.when: expected a condition, found ['x']."),
        ("[[gate.rule]]\naction = 'hold'", 'gate.rule.action: expected "ask" or "deny" or '
         "\"allow\", found 'hold'."),
        ("[[gate.rule]]\nthen = 'go'", 'gate.rule.then: expected "stop" or "continue", found '
         "'go'."),
        ("[gate]\nrule = [{then = 5}]", 'agentstate.toml:2: gate.rule.then: expected "stop" or'),
        ("[gate]\ntools = ['a', 'b,c']", "agentstate.toml:2: gate.tools: 'b,c' is no glob of tool "
         "names: in no name there is a quote, a comma,"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_its_place(tmp_path: Path, toml: str, message: str) -> None:
    assert message in refusal(tmp_path, toml)


def test_a_rule_cannot_come_from_the_environment(tmp_path: Path) -> None:
    message = refusal(tmp_path, environ={"AGENTSTATE_GATE_RULE_TOOL": "a"})

    assert message.startswith("environment: unknown setting AGENTSTATE_GATE_RULE_TOOL.")


# -- providers, as rows of the file


def test_a_row_adds_a_provider(tmp_path: Path) -> None:
    toml = """
[[provider]]
name = "groq"
base_url = "https://groq.example/openai/v1/"
api_key = "env:GROQ_KEY"
models = "llama-*"
"""

    loaded = load(tmp_path, toml, environ={"GROQ_KEY": "gsk-1"})

    row = loaded.settings.providers[-1]
    assert (row.name, row.base_url, row.api_key, row.models, row.dialect) == (
        "groq", "https://groq.example/openai/v1", "gsk-1", ("llama-*",), (),
    )  # fmt: skip
    assert loaded.sources["provider.groq.api_key"] == "agentstate.toml:5"


def test_a_wrong_key_of_the_second_row_has_its_own_line(tmp_path: Path) -> None:
    toml = """[[provider]]
name = "a"
base_url = "http://a/v1"

[[provider]]
name = "b"
base_rul = "http://b/v1"
"""

    assert refusal(tmp_path, toml) == (
        "agentstate.toml:7: unknown key 'base_rul' in [provider]. Did you mean \"base_url\"?"
    )


def test_a_wrong_key_value_is_refused_without_being_shown(tmp_path: Path) -> None:
    message = refusal(tmp_path, '[[provider]]\nname = "a"\napi_key = ["sk-secret"]\n')

    assert message == "agentstate.toml:3: provider.api_key: expected text that is not empty."


def test_a_missing_key_in_the_environment_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, '[[provider]]\nname = "a"\napi_key = "env:A_KEY"\n')

    assert "provider.api_key: says env:A_KEY, but A_KEY is not set" in message


# -- webhooks

WEBHOOKS = """
[server]
public_url = "https://agents.example"

[[webhook]]
url = "env:SLACK_URL"
events = ["approval.required"]

[[webhook]]
name = "ours"
url = "https://ours.example/in"
format = "json"
secret = "env:HOOK_SECRET"
"""


def test_webhooks_come_in_rows(tmp_path: Path) -> None:
    slack = "https://hooks.slack.com/services/T/B/x"
    environ = {"SLACK_URL": slack, "HOOK_SECRET": "whsec_x", "WEBHOOK_URL": "https://w.example/"}

    loaded = load(tmp_path, WEBHOOKS, environ=environ)

    assert [(row.name, row.url) for row in loaded.settings.webhooks] == [
        ("webhook-1", slack),
        ("ours", "https://ours.example/in"),
        ("webhook", "https://w.example/"),
    ]
    assert loaded.settings.webhooks[0].events == ("approval.required",)
    assert loaded.settings.webhooks[1].secret == "whsec_x"
    assert loaded.settings.server.public_url == "https://agents.example"
    assert loaded.sources["webhook.ours.format"] == "agentstate.toml:12"


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[[webhook]]\nurls = 'x'", "agentstate.toml:2: unknown key 'urls' in [webhook]. Did you "),
        ("[[webhook]]\nformat = 'slack'", "agentstate.toml:1: webhook 'webhook-1' needs a url."),
        ("[[webhook]]\nformat = 'teams'", 'expected "slack" or "discord" or "json"'),
        ("[webhook]\nurl = 'x'", "agentstate.toml:1: webhook must be a table: write [[webhook]]."),
        ("[[webhook]]\nurl = 3", "agentstate.toml:2: webhook.url: expected text"),
        ("[server]\npublic_url = 'agents.example'", "server.public_url: expected a URL as in "),
    ],
)
def test_a_webhook_that_is_not_understood_is_refused(
    tmp_path: Path, toml: str, expected: str
) -> None:
    assert expected in refusal(tmp_path, toml)
