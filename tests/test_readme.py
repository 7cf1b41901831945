"""README says what is so: its tables come from the code, its snippets run."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
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
from agentstate.ground.settings_table import settings_table
from agentstate.house.export_base import FORMATS
from agentstate.steps.identify import ABOUT_HEADERS, SESSION_HEADERS
from tests.helpers.environments import need_python
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
    table = endpoint_table(None, None, "", *[None] * 8)  # type: ignore[arg-type]  # only the rows are read
    for endpoint in table:
        assert f"`{endpoint.method} {endpoint.pattern}`" in README
    for verb in VERBS:
        assert verb.name in README
    for name in (*SESSION_HEADERS, *ABOUT_HEADERS):
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
        command, capture_output=True, text=True, timeout=180, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Which environment has what a snippet imports, where the tests' own has not.
ELSEWHERE = {"langchain_openai": "langchain", "crewai": "frameworks"}
IN_PROCESS = [code for code in snippets("python") if "agentstate.running(" in code]
# What a framework says of itself while it works, as CrewAI does from a thread of its own: in boxes,
# each begun on whatever line is open at that moment.
BOXES = re.compile("[╭│╰].*")
THROUGH_A_PROXY = [code for code in snippets("python") if code not in IN_PROCESS]


def python_for(code: str) -> str:
    """Return an interpreter that has what the snippet imports; else skip the test."""
    modules = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
    for module, environment in ELSEWHERE.items():
        if module in modules:
            return str(need_python(environment))
    for module in (*modules, "openai"):
        pytest.importorskip(module)
    return sys.executable


@pytest.mark.clients
@pytest.mark.parametrize("number", range(len(THROUGH_A_PROXY)))
def test_a_python_snippet_runs_and_its_second_run_is_a_replay(
    number: int, proxy: Proxy, tmp_path: Path
) -> None:
    code = THROUGH_A_PROXY[number]
    python = python_for(code)
    if ADDRESS not in code:  # ours need not say where the proxy usually is
        code = re.sub(r'(session_id=|session\()"invoice-run-42"',
                      rf'\g<0>, base_url="{proxy.base_url}"', code)  # fmt: skip
    command = [python, "-c", code.replace(ADDRESS, proxy.url)]
    env = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "OTEL_SDK_DISABLED": "true",
           "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}  # fmt: skip
    first = play(command, env)
    assert "mock" in first
    before = replays(proxy)
    assert BOXES.sub("", play(command, env)).split() == BOXES.sub("", first).split()
    assert replays(proxy) == before + 1


@pytest.mark.clients
def test_the_snippet_of_a_proxy_in_this_process_runs() -> None:
    [code] = IN_PROCESS
    assert "mock" in play([python_for(code), "-c", code], {"PYTHONPATH": str(ROOT)})


def test_what_other_frameworks_are_given_is_what_their_agents_here_are_given() -> None:
    found = re.search(r"^\| framework \|.*?\n\n", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    rows = re.findall(r"^\| ([^|]+) \| `(.+)` \|$", found[0], re.MULTILINE)
    agents = ROOT / "tests" / "e2e" / "agents" / "frameworks"
    sources = [" ".join(path.read_text("utf-8").split()) for path in agents.iterdir()
               if path.suffix in (".py", ".mjs")]  # fmt: skip
    assert len(rows) == 5
    for name, given in rows:
        words = re.findall(r"[\w.\"-]+", given.replace("...", ""))
        assert any(all(word in source for word in words) for source in sources), name


def test_the_export_snippet_makes_the_files_that_are_named(proxy: Proxy, tmp_path: Path) -> None:
    ask = {"model": "mock/hello", "messages": [{"role": "user", "content": "Hello"}]}
    connection = http.client.HTTPConnection(*proxy.address, timeout=10)
    headers = {"content-type": "application/json", "x-agent-session-id": "exported"}
    connection.request("POST", "/v1/chat/completions", json.dumps(ask), headers)
    assert connection.getresponse().read()
    connection.close()
    [commands] = [text for text in snippets("sh") if "agentstate.pyz export" in text]

    for command in commands.splitlines():
        words = shlex.split(command, comments=True)
        assert words[:2] == ["python3", "dist/agentstate.pyz"]
        line = [sys.executable, "-m", "agentstate", *words[2:], "--url", proxy.url]
        done = subprocess.run(
            line, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60
        )
        assert done.returncode == 0, command

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "runs.jsonl", "runs.train.jsonl", "runs.validation.jsonl", "runs.manifest.json"
    }  # fmt: skip
    assert b"Hello" in (tmp_path / "runs.jsonl").read_bytes()
    assert [name for name in names if name not in README] == []
    assert [form for form in FORMATS if f"| `{form}` |" not in README] == []


def test_the_snippet_that_steers_a_run_steers_it(proxy: Proxy) -> None:
    scripts = [text for text in snippets("sh") if text.startswith("agentstate sessions")]
    connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=10)
    for number in range(22):
        body = {"model": "mock/hello", "messages": [{"role": "user", "content": f"{number}"}]}
        headers = {"x-agent-session-id": "steered", "x-agent-step-number": str(number)}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        assert connection.getresponse().read()
    connection.close()

    said = ""
    for line in "".join(scripts).replace("invoice-run-42", "steered").splitlines():
        _, *arguments = shlex.split(line, comments=True)
        command = [sys.executable, "-m", "agentstate", *arguments, "--url", proxy.url]
        said += play(command, {"PYTHONPATH": str(ROOT)})

    assert "2 steps would be taken back" in said
    assert "2 steps taken back" in said
    assert "2 steps active again" in said
    assert "22 of 22 steps" in said
    assert "No such call of steered is on record." in said
    assert "steps     300 set for this session; 277 left" in said  # one was asked again
    found = proxy.maybe_session("steered")
    assert found is not None
    assert found["session"]["status"] == "COMPLETED"
    kinds = [row["kind"] for row in found["rollbacks"]]
    assert kinds == ["rerun", "edit", "restore", "rollback"]


def test_the_tool_of_the_snippet_acts_once(proxy: Proxy) -> None:
    [code] = [text for text in snippets("py") if "@agentstate.tool(" in text]
    code = code.replace('"invoice-run-42"', f'"tools", url="{proxy.url}"')
    env = {"PYTHONPATH": str(ROOT)}
    result = "{'receipt': 'ann-500'}\n"

    assert play([sys.executable, "-c", code], env) == "charged ann\n" + result
    assert play([sys.executable, "-c", code], env) == result


def test_the_test_of_the_snippet_is_recorded_and_then_needs_nobody(
    proxy: Proxy, tmp_path: Path
) -> None:
    pytest.importorskip("openai")
    [code] = [text for text in snippets("py") if "(agentstate)" in text]
    [commands] = [text for text in snippets("sh") if "--agentstate-record" in text]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_agent.py").write_text(code, encoding="utf-8")
    env = {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "mock-key"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # where it is installed it would be there twice
    for line, url in zip(commands.splitlines(), (proxy.url, "http://127.0.0.1:9"), strict=True):
        words = shlex.split(line, comments=True)
        assert words[0] == "pytest"
        command = [sys.executable, "-m", "pytest", "-p", "agentstate.pytest_plugin", *words[1:]]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **env, "OPENAI_BASE_URL": f"{url}/v1"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    assert (tmp_path / "tests/cassettes/test_agent/test_it_names_primes.jsonl").exists()


def test_the_snippet_of_a_tool_in_any_language_begins_and_reports(proxy: Proxy) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    [script] = [text for text in snippets("sh") if "/tool-calls/CALL" in text]
    script = script.replace("curl ", "curl -sf ").replace(ADDRESS, proxy.url)
    begin, report = script.split("# after")
    begun = json.loads(play(["sh", "-c", begin], {}))
    row = json.loads(play(["sh", "-c", "# after" + report.replace("CALL", begun["call"])], {}))

    assert (begun["state"], row["state"]) == ("run", "done")


def test_the_snippet_that_settles_a_call_does_so(proxy: Proxy) -> None:
    [script] = [text for text in snippets("sh") if text.startswith("agentstate tools")]
    listing, *settling = script.splitlines()
    env = {"PYTHONPATH": str(ROOT)}

    def run(line: str, call: str) -> str:
        _, *arguments = shlex.split(line.replace("CALL", call), comments=True)
        return play([sys.executable, "-m", "agentstate", *arguments, "--url", proxy.url], env)

    for number, line in enumerate(settling):
        for owner in ("one", "two"):
            connection = http.client.HTTPConnection(*proxy.address, timeout=10)
            body = json.dumps({"name": "charge", "key": str(number), "owner": owner})
            headers = {"content-type": "application/json"}
            connection.request("POST", "/api/sessions/settled/tool-calls", body, headers)
            begun = json.loads(connection.getresponse().read())
            connection.close()
        assert begun["state"] == "unknown"
        assert begun["call"] in run(listing, "")
        assert "of session settled" in run(line, begun["call"])


@pytest.mark.clients
def test_the_snippets_that_test_an_agent_with_no_key_do(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    [recording, replaying] = [
        line
        for text in snippets("sh")
        if text.startswith("agentstate record")
        for line in text.splitlines()
    ]
    (tmp_path / "tests").mkdir()
    [code] = [text for text in snippets("py") if "subprocess" in text]
    (tmp_path / "tests" / "test_primes.py").write_text(code, encoding="utf-8")
    command = tmp_path / "agentstate"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m agentstate "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "OPENAI_API_KEY": ""}

    said = ""
    # The whole program replays the file, so it is there from the second recording on.
    for line, flags in (
        (recording, ["--mock"]), (recording, ["--mock"]), (replaying, [])
    ):  # fmt: skip
        _, verb, *words = shlex.split(line, comments=True)
        arguments = [str(command), verb, *flags, *words, "-p", "no:cacheprovider"]
        done = subprocess.run(
            arguments, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "2 passed" in said


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
