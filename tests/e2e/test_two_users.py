"""The agent as another user, set up by README's own lines: what it can reach, and what it cannot.

Needs root, to start one process as one user and the next as another. No account is made: the lines
run with numbers in the place of the two names, in a folder of the test.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.proxy import START_TIMEOUT_S
from tests.test_build import archive
from tests.test_readme import snippets

__all__ = ["archive"]

pytestmark = pytest.mark.slow

PROXY, AGENT = 64_101, 64_102  # user and group; nobody's, as a rule
ASK = {
    "model": "mock/model",
    "messages": [{"role": "user", "content": "please send_email"}],
    "tools": [
        {"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}
    ],
}

# Runs as the agent, or as the proxy's user: tries each thing and prints what came of it.
TRY = """
import json, os, signal, sys
pid, folder = int(sys.argv[1]), sys.argv[2]
def attempt(what):
    try:
        what()
    except (PermissionError, ProcessLookupError) as error:
        return type(error).__name__
    return "done"
def read(path):
    with open(path, "rb") as file:
        file.read(1)
print(json.dumps({
    **{name: attempt(lambda: read(f"{folder}/{name}")) for name in
       ("agentstate.db", "agentstate.db-wal", "agentstate.db.token", "agentstate.toml")},
    "list": attempt(lambda: os.listdir(folder)),
    "write": attempt(lambda: open(f"{folder}/x", "w").close()),
    "environ": attempt(lambda: read(f"/proc/{pid}/environ")),
    "memory": attempt(lambda: open(f"/proc/{pid}/mem", "rb").close()),
    "descriptors": attempt(lambda: os.listdir(f"/proc/{pid}/fd")),
    "folder": attempt(lambda: os.listdir(f"/proc/{pid}/cwd/")),
    "signal": attempt(lambda: os.kill(pid, 0)),
}))
"""


def becoming(user: int) -> list[str]:
    """Return the beginning of a command that runs as another user, as README has it."""
    setpriv = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    # What setpriv itself starts is still looked up with root's rights.
    return [*setpriv, "/usr/bin/env", "-i"]


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy that runs as one user; `folder` is its own."""

    folder: Path
    python: str
    pid: int
    port: int
    client_token: str

    def tries(self, user: int) -> dict[str, str]:
        """Return what came of each attempt of a user."""
        done = subprocess.run(
            [*becoming(user), self.python, "-c", TRY, str(self.pid), str(self.folder)],
            cwd="/", timeout=60, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def ask(self, method: str, path: str, token: str, body: object = None) -> tuple[int, Any]:
        """Ask the proxy with a token; return status and JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "x-agent-session-id": "two-users",
        }
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()


def python_for_others() -> str:
    """Return an interpreter that the two users can run; else skip the test."""
    code = "import sys, sqlite3, ssl; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin")):
        if python is None:
            continue
        command = [*becoming(AGENT), python, "-I", "-c", code]
        done = subprocess.run(command, cwd="/", check=False, capture_output=True, timeout=60)
        if done.returncode == 0:
            return python
    pytest.skip("no Python 3.11 here that another user may run")


def lines_of_readme(**places: str) -> tuple[str, str]:
    """Return the lines that set up, and the one that starts the proxy, with our places in them."""
    [setting_up] = [text for text in snippets("sh") if text.startswith("install -d -m 700")]
    [starting] = [text for text in snippets("sh") if "--reuid=agentstate" in text]
    found = []
    for text in (setting_up, starting):
        text = re.sub(r"(?<=-[og] )agentstate\b|(?<=id=)agentstate\b", str(PROXY), text)
        for theirs, ours in places.items():
            text = text.replace(NAMES[theirs], ours)
        found.append(text)
    return found[0], found[1]


NAMES = {
    "installed": "/usr/local/lib/agentstate.pyz",
    "built": "dist/agentstate.pyz",
    "folder": "/var/lib/agentstate",
    "python": "python3",
}


@pytest.fixture(scope="module")
def rig(archive: Path) -> Iterator[Rig]:
    """Set everything up as README says, and start the proxy, with the mock for a provider."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux, to start processes as two users")
    python = python_for_others()
    with tempfile.TemporaryDirectory(prefix="agentstate-users-") as name:
        outer = Path(name)
        outer.chmod(0o755)
        folder = outer / "proxy"
        setting_up, starting = lines_of_readme(
            installed=str(outer / "installed.pyz"), built=str(archive), folder=str(folder),
            python=python,
        )  # fmt: skip
        [toml] = [text for text in snippets("toml") if "one-for-the-agent" in text]
        (outer / "agentstate.toml").write_text(
            toml.replace("[server]", "[server]\nport = 0", 1), encoding="utf-8"
        )
        subprocess.run(["sh", "-euc", setting_up], cwd=outer, check=True)
        (outer / "agentstate.toml").unlink()
        process = subprocess.Popen(
            ["sh", "-euc", starting.strip().replace("&& ", "&& exec ") + " --mock"],
            cwd=outer, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            yield Rig(folder, python, process.pid, port_of(process), token_in(toml))
        finally:
            process.terminate()
            process.communicate(timeout=START_TIMEOUT_S)


def port_of(process: subprocess.Popen[str]) -> int:
    """Return where it listens, once it says so."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise AssertionError(f"the proxy did not start:\n{said}")


def token_in(toml: str) -> str:
    """Return the agent's token."""
    found = re.search(r'client_tokens = \["([^"]+)"\]', toml)
    assert found is not None
    return found[1]


def test_the_agent_s_user_reaches_nothing_of_the_proxy(rig: Rig) -> None:
    assert os.stat(f"/proc/{rig.pid}").st_uid == PROXY
    assert set(rig.tries(AGENT).values()) == {"PermissionError"}
    # The same attempts can succeed: it is the user that makes the difference.
    assert set(rig.tries(PROXY).values()) == {"done"}


def test_the_agent_s_line_has_its_token_in_the_place_of_the_key(rig: Rig) -> None:
    [line] = [text for text in snippets("sh") if "--reuid=agent " in text]
    assert f"OPENAI_API_KEY={rig.client_token} " in line

    status, body = rig.ask("POST", "/v1/chat/completions", rig.client_token,
                           {"model": "mock/model", "messages": ASK["messages"]})  # fmt: skip

    assert (status, body["object"]) == (200, "chat.completion")
    for path in ("/api/sessions", "/api/approvals/pending", "/api/settings", "/api/export/dataset"):
        assert rig.ask("GET", path, rig.client_token)[0] == 403


def test_the_agent_cannot_approve_its_own_call_and_a_person_can(rig: Rig) -> None:
    person = (rig.folder / "agentstate.db.token").read_text("ascii").strip()
    answers: list[tuple[int, Any]] = []
    agent = threading.Thread(
        target=lambda: answers.append(
            rig.ask("POST", "/v1/chat/completions", rig.client_token, ASK)
        )
    )
    agent.start()
    try:
        pending: list[dict[str, Any]] = []
        while agent.is_alive() and not pending:  # the call is held, so its client waits
            pending = rig.ask("GET", "/api/approvals/pending", person)[1]
        assert pending, answers
        path = f"/api/approvals/{pending[0]['approval_id']}/action"

        status, refused = rig.ask("POST", path, rig.client_token, {"action": "APPROVED"})

        assert (status, refused["error"]["code"]) == (403, "forbidden")
        assert len(rig.ask("GET", "/api/approvals/pending", person)[1]) == 1
        assert rig.ask("POST", path, person, {"action": "APPROVED"})[0] == 200
    finally:
        agent.join(60)
    [(status, answer)] = answers
    assert status == 200
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "send_email"
