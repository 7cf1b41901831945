"""The fixture `agentstate`, in a pytest of its own as its users have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agentstate.pytest_plugin import file_name
from tests.helpers.proxy import _NOT_INHERITED, ROOT
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

LIMIT_S = 120.0
NOWHERE = "http://127.0.0.1:9"
# An agent that knows nothing of a proxy: where the models are is said by the environment.
AGENT = """
import json
import os
import urllib.request

import pytest


def ask(text, headers=None):
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", **(headers or {}),
         "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())["choices"][0]["message"]["content"]
"""


class Project:
    """A folder with tests, and how they went."""

    def __init__(self, folder: Path, upstream: CountingUpstream) -> None:
        self.folder = folder
        self.upstream = upstream
        self.tapes = folder / "cassettes" / "test_agent"

    def write(self, tests: str) -> None:
        """Write the test file."""
        (self.folder / "test_agent.py").write_text(AGENT + tests, encoding="utf-8")

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run pytest there; with no upstream named there is none."""
        own = {k: v for k, v in os.environ.items() if not _NOT_INHERITED.match(k)}
        command = [sys.executable, "-m", "pytest", "-p", "agentstate.pytest_plugin",
                   "-p", "no:cacheprovider", "-q", *arguments]  # fmt: skip
        return subprocess.run(
            command,
            cwd=self.folder,
            # Where this checkout is installed, the plug-in would be there twice.
            env={
                **own,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": str(ROOT),
                "OPENAI_BASE_URL": f"{NOWHERE}/v1",
                **env,
            },
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def record(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it against the upstream."""
        return self.run("--agentstate-record", *arguments, **self.there)

    @property
    def there(self) -> Mapping[str, str]:
        """An environment that has the upstream."""
        return {"OPENAI_BASE_URL": f"{self.upstream.url}/v1", "OPENAI_API_KEY": "sk-of-a-person"}

    def steps(self, name: str) -> int:
        """How many steps a cassette has."""
        lines = (self.tapes / f"{name}.jsonl").read_text("utf-8").splitlines()
        return int(json.loads(lines[-1])["end"]["steps"])


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with CountingUpstream() as upstream:
        yield Project(tmp_path, upstream)


TWO = """
def test_one(agentstate):
    assert os.environ["OPENAI_BASE_URL"] == agentstate.base_url
    assert os.environ["ANTHROPIC_BASE_URL"] == agentstate.anthropic_base_url
    assert ask("one") and ask("one")  # asked twice, since it is asked twice


class TestMore:
    @pytest.mark.parametrize("text", ["a/b", "a-b"])
    def test_two(self, agentstate, text):
        assert ask(text)


def test_nothing(agentstate):
    pass


def test_without():
    assert "/s/" not in os.environ["OPENAI_BASE_URL"]
"""


def test_what_was_recorded_answers_with_no_key_and_no_network(project: Project) -> None:
    project.write(TWO)

    recorded = project.record()
    assert recorded.returncode == 0, recorded.stdout
    assert "agentstate: recording" in recorded.stdout
    assert "agentstate approvals watch --url http://127.0.0.1:" in recorded.stdout
    assert sum(project.upstream.counts.values()) == 4
    names = sorted(path.stem for path in project.tapes.iterdir())
    assert names[:2] == [
        "TestMore.test_two[a-b]", file_name("TestMore", "test_two[a/b]")
    ]  # fmt: skip
    assert names[2:] == ["test_one"], "no call, no cassette"
    assert project.steps("test_one") == 2
    before = {path.name: path.read_bytes() for path in project.tapes.iterdir()}

    replayed = project.run()
    assert replayed.returncode == 0, replayed.stdout
    assert "5 passed" in replayed.stdout
    assert "recording" not in replayed.stdout
    assert sum(project.upstream.counts.values()) == 4
    assert {path.name: path.read_bytes() for path in project.tapes.iterdir()} == before


@pytest.mark.parametrize(("value", "calls"), [("1", 1), ("0", 0), ("", 0)])
def test_the_environment_may_say_that_it_is_recorded(
    project: Project, value: str, calls: int
) -> None:
    project.write("\n\ndef test_one(agentstate):\n    ask('one')\n")

    done = project.run(AGENTSTATE_RECORD=value, **project.there)

    assert done.returncode == (0 if calls else 1)
    assert sum(project.upstream.counts.values()) == calls


SWALLOWED = """
def test_one(agentstate):
    try:
        ask("Name three {what}.")
    except Exception:
        pass  # as some agents do
"""


def test_a_call_that_finds_no_answer_fails_the_test_and_names_the_nearest_step(
    project: Project,
) -> None:
    project.write(SWALLOWED.replace("{what}", "primes"))
    assert project.record().returncode == 0
    project.write(SWALLOWED.replace("{what}", "colours"))

    done = project.run()

    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "a call had no recorded answer" in done.stdout
    assert "the nearest recorded step is 0, which differs at" in done.stdout
    assert "Name three colours." in done.stdout
    assert "Name three primes." in done.stdout
    assert "pytest --agentstate-record 'test_agent.py::test_one'" in done.stdout


def test_a_test_that_fails_by_itself_says_both(project: Project) -> None:
    project.write("\n\ndef test_one(agentstate):\n    ask('one')\n")

    done = project.run()

    assert done.returncode == 1
    assert "HTTP Error 404" in done.stdout
    assert "there is no cassette" in done.stdout


LATE = """
@pytest.fixture
def late(agentstate):
    yield
    try:
        ask("late")
    except Exception:
        pass


def test_one(late):
    pass
"""


def test_a_call_of_another_fixture_s_end_is_not_overlooked(project: Project) -> None:
    project.write(LATE)

    done = project.run()

    assert done.returncode == 1
    assert "1 passed, 1 error" in done.stdout
    assert "a call had no recorded answer" in done.stdout


def test_a_cassette_that_is_none_is_said_to_be_none(project: Project) -> None:
    project.write("\n\ndef test_one(agentstate):\n    ask('one')\n")
    project.tapes.mkdir(parents=True)
    (project.tapes / "test_one.jsonl").write_text("{}\n", encoding="utf-8")

    done = project.run()

    assert done.returncode == 1
    assert "agentstate: " in done.stdout
    assert "ssette" in done.stdout
    assert "Traceback" not in done.stdout


SECRET = """
def test_one(agentstate):
    ask("Say " + "sk-ant-api03-" + "a1B2" * 20)
"""


def test_a_secret_is_not_in_what_is_recorded(project: Project) -> None:
    project.write(SECRET)
    assert project.record().returncode == 0

    assert b"a1B2a1B2" not in (project.tapes / "test_one.jsonl").read_bytes()
    assert project.run().returncode == 0


RUN = """
def test_one(agentstate):
    acted = []
    with agentstate.session() as run:
        @run.tool
        def charge(customer):
            acted.append(customer)
            return len(acted)

        assert charge(ask("whom?", run.headers())) == 1
"""


def test_a_run_of_the_test_s_session_has_its_tools(project: Project) -> None:
    project.write(RUN)

    assert project.record().returncode == 0
    for _ in range(2):
        done = project.run(AGENTSTATE_TOKEN="t" * 30, AGENTSTATE_SERVER_CLIENT_TOKENS="c" * 30)
        assert done.returncode == 0, done.stdout


def test_it_brings_nothing_that_is_not_asked_for() -> None:
    code = (
        "import sys, pytest; old = set(sys.modules); import agentstate.pytest_plugin; "
        "print(sorted(n for n in set(sys.modules) - old if n not in sys.stdlib_module_names))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert printed == "['agentstate', 'agentstate.pytest_plugin']\n"


def test_names_are_those_that_file_systems_take() -> None:
    names = [file_name("test_a[x]"), file_name("test_a[x y]"), file_name("test_a[x-y]"),
             file_name("test_a[\u00e4]"), file_name("test_" + "a" * 500)]  # fmt: skip

    assert names[0] == "test_a[x]"
    assert len(set(names)) == len(names)
    assert all(name.isascii() and len(name) <= 130 and "/" not in name for name in names)
