"""Settings of fallbacks, routes and what providers speak: from the file and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentstate.ground.errors import SettingError
from agentstate.ground.load import load_settings
from agentstate.ground.providers import DIALECT_NAMES
from agentstate.ground.settings import ForwardSettings, Loaded, RouteSettings

ROUTES = """
[forward]
retries = 5
fallback = ["gpt-5-mini", "anthropic/claude-x"]

[[forward.route]]
model = "gpt-*"
fallback = ["claude-x", "ollama/llama3"]

[[forward.route]]
fallback = "gpt-5"
"""


def load(tmp_path: Path, toml: str = "", **environ: str) -> Loaded:
    (tmp_path / "agentstate.toml").write_text(toml, encoding="utf-8")
    return load_settings({}, environ, tmp_path, None)


def refusal(tmp_path: Path, toml: str = "", **environ: str) -> str:
    with pytest.raises(SettingError) as caught:
        load(tmp_path, toml, **environ)
    return caught.value.message


# -- routes


def test_routes_come_in_rows_in_their_order(tmp_path: Path) -> None:
    loaded = load(tmp_path, ROUTES)

    assert loaded.settings.forward == ForwardSettings(
        retries=5,
        fallback=("gpt-5-mini", "anthropic/claude-x"),
        routes=(
            RouteSettings("gpt-*", ("claude-x", "ollama/llama3")),
            RouteSettings("*", ("gpt-5",)),
        ),
    )


def test_the_place_of_each_value_of_a_route_is_known(tmp_path: Path) -> None:
    sources = load(tmp_path, ROUTES).sources

    assert sources["forward.route.1.model"] == "agentstate.toml:7"
    assert sources["forward.route.1.fallback"] == "agentstate.toml:8"
    assert sources["forward.route.2.fallback"] == "agentstate.toml:11"
    assert "forward.route.2.model" not in sources
    assert sources["forward.fallback"] == "agentstate.toml:4"


@pytest.mark.parametrize(
    "toml",
    [
        '[forward]\nroute = [{model = "o3", fallback = ["gpt-5"]}]',
        'forward.route = [{model = "o3", fallback = ["gpt-5"]}]',
        '[[forward . route]]\nmodel = "o3"\nfallback = "gpt-5"',
    ],
)
def test_routes_can_be_written_in_every_form_of_a_table(tmp_path: Path, toml: str) -> None:
    assert load(tmp_path, toml).settings.forward.routes == (RouteSettings("o3", ("gpt-5",)),)


@pytest.mark.parametrize(
    "model", ["moonshotai/kimi-k2:free", "ft:gpt-4o:acme::abc", "claude-[34]*", "gpt-?o", "a@b.c_d"]
)
def test_a_route_takes_the_names_that_models_have(tmp_path: Path, model: str) -> None:
    loaded = load(tmp_path, f'[[forward.route]]\nmodel = "{model}"')

    assert loaded.settings.forward.routes == (RouteSettings(model, ()),)


def test_a_route_may_name_no_fallback(tmp_path: Path) -> None:
    loaded = load(tmp_path, '[[forward.route]]\nmodel = "o3"\nfallback = []')

    assert loaded.settings.forward.routes == (RouteSettings("o3", ()),)


def test_with_nothing_given_there_are_none(tmp_path: Path) -> None:
    forward = load(tmp_path).settings.forward

    assert (forward.routes, forward.fallback, forward.retries) == ((), (), 2)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            '[[forward.route]]\nmodel = "a"\n\n[[forward.route]]\nmodels = "b"',
            "agentstate.toml:5: unknown key 'models' in [forward.route]. Did you mean \"model\"?",
        ),
        (
            "[forward]\nroutes = []",
            "agentstate.toml:2: unknown key 'routes' in [forward]. Did you mean \"route\"?",
        ),
        (
            '[forward.route]\nmodel = "a"',
            "agentstate.toml:1: forward.route must be a table: write [[forward.route]].",
        ),
        (
            '[forward]\nroute = ["a"]',
            "agentstate.toml:2: forward.route must be a table: write [[forward.route]].",
        ),
        (
            '[[forward.route]]\nmodel = "["',
            "agentstate.toml:2: forward.route.model: '[' is no glob",
        ),
        ("[[forward.route]]\nmodel = 5", "agentstate.toml:2: forward.route.model: expected "),
        ("[[forward.route]]\nmodel = ['a']", "forward.route.model: expected "),
        ("[[forward.route]]\nmodel = ''", "forward.route.model: expected "),
        (
            '[[forward.route]]\nmodel = "a"\nfallback = [1]',
            "agentstate.toml:3: forward.route.fallback: expected a list of text, found [1]",
        ),
        ('[[forward.route]]\nfallback = [""]', "forward.route.fallback: expected a list of text"),
    ],
)
def test_a_wrong_route_is_refused_with_its_place(tmp_path: Path, toml: str, message: str) -> None:
    assert message in refusal(tmp_path, toml)


def test_a_route_cannot_come_from_the_environment(tmp_path: Path) -> None:
    message = refusal(tmp_path, AGENTSTATE_FORWARD_ROUTE_MODEL="a")

    assert message.startswith("environment: unknown setting AGENTSTATE_FORWARD_ROUTE_MODEL.")


# -- FALLBACK_MODEL


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpt-5-mini", ("gpt-5-mini",)),
        ("gpt-5-mini, anthropic/claude-x ,", ("gpt-5-mini", "anthropic/claude-x")),
        ('["a,b", "c"]', ("a,b", "c")),
        ("[]", ()),
    ],
)
def test_the_name_that_people_know_gives_the_fallbacks(
    tmp_path: Path, text: str, found: tuple[str, ...]
) -> None:
    loaded = load(tmp_path, '[forward]\nfallback = "from-the-file"', FALLBACK_MODEL=text)

    assert loaded.settings.forward.fallback == found
    assert loaded.sources["forward.fallback"] == "FALLBACK_MODEL"


def test_our_own_name_goes_before_it_and_an_empty_one_is_none(tmp_path: Path) -> None:
    both = load(tmp_path, FALLBACK_MODEL="theirs", AGENTSTATE_FORWARD_FALLBACK="ours")
    empty = load(tmp_path, '[forward]\nfallback = "file"', FALLBACK_MODEL="")

    assert both.settings.forward.fallback == ("ours",)
    assert empty.settings.forward.fallback == ("file",)


def test_a_fallback_model_that_names_none_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, FALLBACK_MODEL=" , ").startswith("FALLBACK_MODEL: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("retries = 11", "forward.retries: expected an integer from 0 to 10, found 11"),
        ("retries = -1", "forward.retries: expected an integer from 0 to 10, found -1"),
        ("cooldown_after = 0", "forward.cooldown_after: expected an integer from 1, found 0"),
        ("retry_after_max_s = -1", "forward.retry_after_max_s: expected a number from 0"),
        ("fallback_on_filter = 1", "forward.fallback_on_filter: expected true or false"),
    ],
)
def test_limits_of_retries_are_checked(tmp_path: Path, line: str, message: str) -> None:
    assert message in refusal(tmp_path, f"[forward]\n{line}")


# -- what a provider speaks

ROW = '[[provider]]\nname = "a"\nbase_url = "http://a/v1"\n'


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_provider_may_speak_each_form_alone(tmp_path: Path, name: str) -> None:
    loaded = load(tmp_path, f'{ROW}dialect = "{name}"')

    assert loaded.settings.providers[-1].dialect == (name,)


def test_a_provider_may_speak_several_best_first(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"{ROW}dialect = {list(reversed(DIALECT_NAMES))}")

    assert loaded.settings.providers[-1].dialect == tuple(reversed(DIALECT_NAMES))
    assert loaded.sources["provider.a.dialect"] == "agentstate.toml:4"


@pytest.mark.parametrize("value", ['"openai"', '["openai_chat", "chat"]', '"OpenAI_Chat"',
                                   '["openai_embeddings"]'])  # fmt: skip
def test_a_form_that_nobody_knows_is_refused_with_those_that_are_known(
    tmp_path: Path, value: str
) -> None:
    message = refusal(tmp_path, f"{ROW}dialect = {value}")

    assert message.startswith("agentstate.toml:4: provider.dialect: expected some of ")
    assert all(name in message for name in DIALECT_NAMES)


def test_a_built_in_provider_may_be_said_to_speak_something_else(tmp_path: Path) -> None:
    loaded = load(tmp_path, '[[provider]]\nname = "ollama"\ndialect = "ollama_chat"')

    row = next(row for row in loaded.settings.providers if row.name == "ollama")
    assert (row.dialect, row.base_url) == (("ollama_chat",), "http://127.0.0.1:11434/v1")
