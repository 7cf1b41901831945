"""What `import agentstate` brings, and what it says of a package that is not there."""

from __future__ import annotations

import doctest
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import agentstate
from agentstate.sdk.missing import MissingPackage, load

ROOT = Path(__file__).resolve().parents[2]
CLIENT_NAMES = [name for name in dir(agentstate) if name.endswith(("OpenAI", "Anthropic"))]
OTHER_NAMES = ["MissingPackage", "ProxyRefused", "Running", "ServerUnreachable", "Session",
               "ToolError", "ToolHeld", "ToolProblem", "ToolRefused", "ToolUnknown",
               "ToolUnreported", "running", "session", "tool",
               "wrap_crewai", "wrap_langchain", "wrap_langchain_anthropic",
               "wrap_langchain_embeddings"]  # fmt: skip
MODULES = ["agentstate.inprocess", "agentstate.sdk.session", "agentstate.sdk.wrappers"]


def loaded_by(code: str) -> set[str]:
    """Return the modules that a new interpreter has after `code`, and had not before."""
    program = f"import sys, json; old = set(sys.modules)\n{code}\n" \
              "print(json.dumps(sorted(set(sys.modules) - old)))"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_importing_the_package_brings_nothing_but_itself() -> None:
    found = loaded_by("import agentstate")
    assert found - standard(found) == {"agentstate"}
    assert not {"asyncio", "http.client", "ssl", "sqlite3", "urllib.request"} & found


def standard(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] in sys.stdlib_module_names}


def test_a_session_brings_nothing_of_others_and_nothing_of_the_server() -> None:
    found = loaded_by("import agentstate; agentstate.session('s').headers()")
    ours = {name for name in found if name.startswith("agentstate.")}
    assert {name for name in ours if not name.startswith("agentstate.sdk")} == set()
    assert found - ours - standard(found) == {"agentstate"}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_each_name_is_there_with_no_package_of_others(name: str) -> None:
    assert loaded_by(f"import agentstate; agentstate.{name}") >= {"agentstate"}
    assert name in dir(agentstate)


def test_no_name_is_missing_here() -> None:
    assert sorted([*CLIENT_NAMES, *OTHER_NAMES]) == sorted(agentstate._PLACES)
    with pytest.raises(AttributeError, match="has no attribute 'AgentStateOpenAi'"):
        agentstate.AgentStateOpenAi  # noqa: B018


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_package_that_is_missing_is_named_with_the_line_that_brings_it(name: str) -> None:
    package = "openai" if name.endswith("OpenAI") else "anthropic"
    code = f"import sys; sys.modules[{package!r}] = None; from agentstate import {name}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"agentstate.sdk.missing.MissingPackage: agentstate.{name} needs the package {package}, "
        f"which is not installed here. Install it: pip install {package}"
    )


def test_a_fault_inside_a_package_is_said_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        load("agentstate_nowhere", "openai", "this")
    assert not isinstance(caught.value, MissingPackage)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.clients
@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_the_examples_of_the_clients_are_true(package: str) -> None:
    pytest.importorskip(package)
    result = doctest.testmod(importlib.import_module(f"agentstate.sdk.{package}_clients"))
    assert result.attempted > 0
    assert result.failed == 0
