"""README says what is so: its tables come from the code, its snippets run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate.cli import VERBS
from agentstate.doors.api import endpoint_table
from agentstate.ground.events import EVENT_KINDS
from agentstate.ground.load import load_settings
from agentstate.ground.settings import settings_table
from agentstate.steps.identify import SESSION_HEADERS
from tests.helpers.node import FOLDER as NODE_FOLDER
from tests.helpers.node import need_node
from tests.helpers.proxy import Proxy

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ADDRESS = "http://localhost:8080"

SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def settings_markdown() -> str:
    """Return README's table of settings, from the one table there is."""
    lines = ["| setting | default | |", "|---|---|---|"]
    for row in settings_table():
        if row.section == "provider":
            continue
        flag = f" (`{row.flag}`)" if row.flag else ""
        default = f"`{row.shown_default}`" if row.shown_default else ""
        lines.append(f"| `{row.name}`{flag} | {default} | {row.help} |")
    return "\n".join(lines)


def snippets(language: str) -> list[str]:
    return [text for name, text in SNIPPETS if name == language]


def test_it_opens_with_the_two_commands_that_do_all_the_set_up() -> None:
    first = snippets("sh")[0]
    assert first.splitlines()[0].startswith("python3 build.py run")
    assert first.splitlines()[1].startswith("python3 build.py test")
    assert README.index(first) < 900


def test_the_table_of_settings_is_the_one_of_the_code() -> None:
    found = re.search(r"<!-- settings -->\n(.*?)\n<!-- /settings -->", README, re.DOTALL)
    assert found is not None
    assert found[1] == settings_markdown(), f"put this there:\n\n{settings_markdown()}\n"


@pytest.mark.parametrize("number", range(len(snippets("toml"))))
def test_a_piece_of_configuration_is_understood(number: int, tmp_path: Path) -> None:
    toml = snippets("toml")[number]
    environ = dict.fromkeys(re.findall(r"env:(\w+)", toml), "https://some.example/value")
    (tmp_path / "agentstate.toml").write_text(toml, encoding="utf-8")

    loaded = load_settings({}, environ, tmp_path, None)

    assert loaded.settings != load_settings({}, environ, tmp_path.parent, None).settings


def test_every_kind_of_event_is_named() -> None:
    assert [kind for kind in EVENT_KINDS if f"`{kind}`" not in README] == []


def test_every_endpoint_verb_and_session_header_is_named() -> None:
    table = endpoint_table(None, None, "", None, None)  # type: ignore[arg-type]  # only the rows are read
    for endpoint in table:
        assert f"`{endpoint.method} {endpoint.pattern}`" in README
    for verb in VERBS:
        assert verb.name in README
    for name in SESSION_HEADERS:
        assert f"`{name.decode()}`" in README


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    db = tmp_path_factory.mktemp("readme") / "record.db"
    with Proxy(upstream_url="http://127.0.0.1:9", db=db, flags=["--mock"]) as running:
        yield running


def replays(proxy: Proxy) -> int:
    found = proxy.maybe_session("invoice-run-42")
    assert found is not None
    return int(found["session"]["replays"])


def play(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.clients
@pytest.mark.parametrize("number", range(len(snippets("python"))))
def test_a_python_snippet_runs_and_its_second_run_is_a_replay(number: int, proxy: Proxy) -> None:
    code = snippets("python")[number].replace(ADDRESS, proxy.url)
    pytest.importorskip(code.split()[1])
    first = play([sys.executable, "-c", code], {})
    assert "mock" in first
    before = replays(proxy)
    assert play([sys.executable, "-c", code], {}) == first
    assert replays(proxy) == before + 1


@pytest.mark.clients
def test_the_curl_snippet_runs(proxy: Proxy) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    [command] = [text for text in snippets("sh") if text.startswith("curl")]
    command = command.replace("curl ", "curl -sf ", 1).replace(ADDRESS, proxy.url)
    assert '"chat.completion"' in play(["sh", "-c", command], {})


ASK = """
const answer = await client.chat.completions.create({
  model: "gpt-4o-mini", messages: [{ role: "user", content: "Name three primes." }],
});
console.log(answer.choices[0].message.content);
"""


@pytest.mark.clients
def test_the_node_snippet_runs(proxy: Proxy) -> None:
    node = need_node()
    [code] = snippets("js")
    script = NODE_FOLDER / "readme-snippet.mjs"  # beside node_modules, where Node looks
    script.write_text(code.replace(ADDRESS, proxy.url) + ASK, encoding="utf-8")
    assert "mock" in play([node, str(script)], {"OPENAI_API_KEY": "mock-key"})
