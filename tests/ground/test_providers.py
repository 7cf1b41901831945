"""Built-in providers, what the environment and the file make of them, and our own address."""

from __future__ import annotations

import pytest

from agentstate.ground.errors import SettingError
from agentstate.ground.providers import Built, build_providers, is_own_address
from agentstate.ground.settings import FileRow, ProviderSettings, ServerSettings, Value

GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"


def build(
    *rows: dict[str, Value],
    environ: dict[str, str] | None = None,
    server: ServerSettings | None = None,
) -> Built:
    made = [
        FileRow(values, dict.fromkeys(values, f"f:{number}"), f"f:{number}")
        for number, values in enumerate(rows, start=1)
    ]
    return build_providers(made, environ or {}, server or ServerSettings())


def named(built: Built, name: str) -> ProviderSettings:
    return next(row for row in built.providers if row.name == name)


def test_four_providers_need_no_configuration() -> None:
    built = build()

    assert [(row.name, row.dialect, row.base_url, row.api_key) for row in built.providers] == [
        ("openai", ("openai_chat", "openai_responses"), "https://api.openai.com/v1", None),
        ("anthropic", ("anthropic_messages",), "https://api.anthropic.com", None),
        ("gemini", ("openai_chat", "gemini"), GEMINI, None),
        ("ollama", ("openai_chat",), "http://127.0.0.1:11434/v1", None),
    ]  # fmt: skip
    assert built.warnings == ()


@pytest.mark.parametrize(
    ("environ", "name", "field", "value"),
    [
        ({"OPENAI_API_KEY": "k"}, "openai", "api_key", "k"),
        ({"OPENAI_API_BASE": "http://a/v1"}, "openai", "base_url", "http://a/v1"),
        ({"OPENAI_BASE_URL": "http://b/v1/"}, "openai", "base_url", "http://b/v1"),
        (
            {"OPENAI_API_BASE": "http://a/v1", "OPENAI_BASE_URL": "http://b/v1"},
            "openai", "base_url", "http://a/v1",
        ),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic", "api_key", "k"),
        ({"ANTHROPIC_BASE_URL": "http://a"}, "anthropic", "base_url", "http://a"),
        ({"GEMINI_API_KEY": "k"}, "gemini", "api_key", "k"),
    ],
)  # fmt: skip
def test_the_names_people_know_work(
    environ: dict[str, str], name: str, field: str, value: str
) -> None:
    built = build(environ=environ)

    assert getattr(named(built, name), field) == value
    assert built.sources[f"provider.{name}.{field}"] in environ


@pytest.mark.parametrize("key", ["mock-key", "your-api-key", " ", ""])
def test_a_placeholder_is_no_key(key: str) -> None:
    assert named(build(environ={"OPENAI_API_KEY": key}), "openai").api_key is None


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("gpu", "http://gpu:11434/v1"),
        ("gpu:1234", "http://gpu:1234/v1"),
        (":1234", "http://127.0.0.1:1234/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("[::]:1234", "http://[::1]:1234/v1"),
        ("http://gpu", "http://gpu:80/v1"),
        ("https://gpu/", "https://gpu:443/v1"),
        ("https://gpu/ollama", "https://gpu:443/ollama/v1"),
        ("http://gpu:1/v1", "http://gpu:1/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(said: str, url: str) -> None:
    assert named(build(environ={"OLLAMA_HOST": said}), "ollama").base_url == url


@pytest.mark.parametrize("said", ["ftp://gpu", "gpu:port", "[::1", "http://", "user:pw@gpu"])
def test_an_ollama_host_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(SettingError, match="OLLAMA_HOST: expected a host"):
        build(environ={"OLLAMA_HOST": said})


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("api.openai.com/v1", "must begin with http"),
        ("ftp://host", "must begin with http"),
        ("https://", "names no host"),
        ("https://host:port/v1", "cannot be read"),
        ("https://user:se/cret@host", "cannot be read"),
        ("https://user:secret@host/v1", "holds a user or password"),
        ("https://host/v1?key=secret", "holds a query"),
        ("https://host/v1#secret", "holds a query or fragment"),
        ("https://host/ v1", "no URL may"),
        ("https://höst/v1", "no URL may"),
    ],
)
def test_an_address_that_is_none_is_refused_without_being_shown(url: str, why: str) -> None:
    with pytest.raises(SettingError, match=why) as of_environment:
        build(environ={"OPENAI_API_BASE": url})
    with pytest.raises(SettingError, match=why) as of_row:
        build({"name": "x", "base_url": url})

    assert of_environment.value.message.startswith("OPENAI_API_BASE: ")
    assert of_row.value.message.startswith("f:1: provider.base_url: ")
    assert "secret" not in of_environment.value.message + of_row.value.message


# -- rows


def test_a_row_changes_only_what_it_says() -> None:
    built = build({"name": "anthropic", "base_url": "http://gateway"})

    row = named(built, "anthropic")
    assert (row.base_url, row.dialect, row.models) == (
        "http://gateway", ("anthropic_messages",), ("claude-*",),
    )  # fmt: skip
    assert built.sources["provider.anthropic.base_url"] == "f:1"


def test_the_environment_beats_a_row() -> None:
    built = build(
        {"name": "openai", "base_url": "http://file/v1", "api_key": "file"},
        environ={"OPENAI_API_BASE": "http://env/v1", "OPENAI_API_KEY": "env"},
    )

    assert named(built, "openai").base_url == "http://env/v1"
    assert named(built, "openai").api_key == "env"
    assert built.sources["provider.openai.base_url"] == "OPENAI_API_BASE"


def test_new_rows_come_after_the_built_in_ones_in_their_order() -> None:
    built = build(
        {"name": "b", "base_url": "http://b"},
        {"name": "a", "base_url": "http://a", "dialect": ("gemini",)},
    )

    assert [row.name for row in built.providers[4:]] == ["b", "a"]
    assert [row.dialect for row in built.providers[4:]] == [(), ("gemini",)]


@pytest.mark.parametrize("name", ["mock", "Groq", "a/b", "-x", "x" * 65, "a b"])
def test_a_name_must_fit_into_urls_and_models(name: str) -> None:
    with pytest.raises(SettingError, match=r"f:1: provider\.name: expected lower-case"):
        build({"name": name, "base_url": "http://a"})


def test_a_row_needs_a_name_and_an_address() -> None:
    with pytest.raises(SettingError, match=r"f:1: a \[\[provider\]\] needs a name"):
        build({"base_url": "http://a"})
    with pytest.raises(SettingError, match="f:1: provider 'groq' needs a base_url"):
        build({"name": "groq"})


def test_a_name_counts_once() -> None:
    with pytest.raises(SettingError, match="f:2: the provider 'a' stands at f:1 already"):
        build({"name": "a", "base_url": "http://a"}, {"name": "a", "base_url": "http://a"})


# -- our own address

LOOPBACK = ServerSettings(host="127.0.0.1", port=8080)
WILDCARD = ServerSettings(host="0.0.0.0", port=8080, hosts=("proxy.lan",))
NAMED = ServerSettings(host="10.0.0.5", port=443)


@pytest.mark.parametrize(
    ("url", "server", "is_own"),
    [
        ("http://localhost:8080/v1", LOOPBACK, True),
        ("http://127.0.0.1:8080/s/x/v1", LOOPBACK, True),
        ("http://127.1.2.3:8080", LOOPBACK, True),
        ("http://[::1]:8080", LOOPBACK, True),
        ("http://LOCALHOST:8080", LOOPBACK, True),
        ("http://agent.localhost:8080", LOOPBACK, True),
        ("http://0.0.0.0:8080", LOOPBACK, True),
        ("http://localhost:8081", LOOPBACK, False),
        ("http://localhost", LOOPBACK, False),
        ("http://10.0.0.5:8080", LOOPBACK, False),
        ("http://localhost.example:8080", LOOPBACK, False),
        ("http://localhost:8080", WILDCARD, True),
        ("http://Proxy.lan:8080", WILDCARD, True),
        ("http://other.lan:8080", WILDCARD, False),
        ("https://10.0.0.5/v1", NAMED, True),
        ("http://10.0.0.5/v1", NAMED, False),
        ("https://localhost/v1", NAMED, False),
    ],
)
def test_our_own_address_is_known_by_all_its_names(
    url: str, server: ServerSettings, is_own: bool
) -> None:
    assert is_own_address(url, server) is is_own


def test_our_own_address_in_the_environment_is_passed_over_with_a_warning() -> None:
    built = build(environ={"OPENAI_BASE_URL": "http://localhost:8080/v1"})

    assert named(built, "openai").base_url == "https://api.openai.com/v1"
    assert built.warnings == (
        "OPENAI_BASE_URL=http://localhost:8080/v1 is this server's own address and is ignored: "
        "openai is reached at https://api.openai.com/v1.",
    )


def test_the_next_name_counts_where_the_first_is_our_own_address() -> None:
    environ = {"OPENAI_API_BASE": "http://localhost:8080/v1", "OPENAI_BASE_URL": "http://real/v1"}

    built = build(environ=environ)

    assert named(built, "openai").base_url == "http://real/v1"
    assert len(built.warnings) == 1


def test_our_own_address_in_the_file_is_a_mistake() -> None:
    with pytest.raises(SettingError, match="it would call itself"):
        build({"name": "x", "base_url": "http://localhost:8080/v1"})


def test_a_free_port_is_nobodys_address() -> None:
    environ = {"OPENAI_BASE_URL": "http://localhost:8080/v1"}

    assert build(environ=environ, server=ServerSettings(port=0)).warnings == ()
