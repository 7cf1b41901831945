"""What the scenes of the full demo play on: a proxy, a model that counts, agents, a webhook.

Everything is a real process or a real socket of this machine. The proxy is configured by a file of
the demo's own, and no process sees the environment of whoever started it: a key or a base URL that
is exported there must not lead a demo to a real model. The one invariant: when `staged` is left, by
whatever way, all that it started has ended, and its folder is gone.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from agentstate.ground.clock import monotonic_s
from agentstate.ground.settings import read_environment
from agentstate.house.demo import API_TIMEOUT_S, DemoFailed
from agentstate.house.demo_peers import WAIT_S, Model, Receiver, serving
from agentstate.house.launch import Proxy, child, module_command, proxy

MODEL = "gpt-4o"  # it has a list price, so what is paid can be counted
POLL_S = 0.02
# What a process needs of the environment to run at all; the last three are Windows'.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONUTF8", "SYSTEMROOT", "TEMP", "TMP")

CONFIGURATION = """\
[forward]
retries = 1

[gate]
heartbeat_s = 0.2

[[webhook]]
name = "demo"
url = "{url}"
format = "json"
secret = "{secret}"
events = ["approval.required", "budget.reached"]
"""

T = TypeVar("T")


class Life:
    """An agent process from its start to its end, and what it told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._change = threading.Condition()
        self._lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return all it told so far."""
        with self._change:
            return list(self._lines)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Return the answers it got so far."""
        return [line for line in self.lines if "answer" in line]

    @property
    def ids(self) -> list[str]:
        """Return the ids of its answers: no two answers of the model have the same."""
        return [line["id"] for line in self.answers]

    @property
    def replayed(self) -> int:
        """How many answers came from the record, or from the same call in flight."""
        return sum(line["replay"] is not None for line in self.answers)

    @property
    def cost_usd(self) -> float:
        """What its answers cost, at the list price."""
        return sum((line["cost_usd"] for line in self.answers), 0.0)

    def told(self, key: str) -> list[dict[str, Any]]:
        """Return the lines that have a key."""
        return [line for line in self.lines if key in line]

    def wait_for(self, key: str, count: int = 1) -> None:
        """Wait until it has told so many lines with a key. Raises `DemoFailed` if it does not."""

        def is_there() -> bool:
            return sum(key in line for line in self._lines) >= count

        with self._change:
            if not self._change.wait_for(is_there, WAIT_S):
                raise DemoFailed(f"The agent did not tell {key!r} {count} times: {self._lines}")

    def end(self) -> Life:
        """Wait for its own end. Raises `DemoFailed` if there is none, or it failed."""
        if (code := self._wait()) != 0:
            raise DemoFailed(f"The agent ended with {code}. It told: {self.lines[-3:]}")
        return self

    def end_killed(self) -> Life:
        """Wait until it has killed itself, as its order said."""
        if (code := self._wait()) != -signal.SIGKILL:
            raise DemoFailed(f"The agent should have died; it ended with {code}: {self.lines[-3:]}")
        return self

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        self._wait()

    def _wait(self) -> int:
        try:
            code = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired as error:
            raise DemoFailed(f"The agent did not end. It told: {self.lines[-3:]}") from error
        self._reader.join(WAIT_S)
        return code

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                with self._change:
                    self._lines.append(_parsed(line))
                    self._change.notify_all()
        except ValueError:
            pass  # the pipe was closed under us: the demo has ended


class Stage:
    """The place where scenes play."""

    def __init__(self, folder: Path, model: Model, receiver: Receiver, model_url: str) -> None:
        self.folder = folder
        self.model = model
        self.receiver = receiver
        self.environ = {
            **{name: value for name, value in read_environment().items() if name in KEPT},
            "OPENAI_BASE_URL": f"{model_url}/v1",
            "OPENAI_API_KEY": "demo-key",
            "ANTHROPIC_BASE_URL": model_url,
            "ANTHROPIC_API_KEY": "demo-key",
        }
        self.replayed = 0  # answers that all agents so far had from the record
        self._running = ExitStack()
        self._proxy: Proxy | None = None

    @property
    def url(self) -> str:
        """The proxy's origin."""
        assert self._proxy is not None
        return self._proxy.url

    # --- the proxy ----------------------------------------------------------------------------

    def start_proxy(self) -> None:
        """Start it; it has the same port each time."""
        port = 0 if self._proxy is None else self._proxy.port
        flags = ("--db", str(self.folder / "demo.db"))
        started = proxy(self.folder, *flags, port=port, environ=self.environ)
        self._proxy = self._running.enter_context(started)

    def kill_proxy(self) -> None:
        """End it with SIGKILL."""
        assert self._proxy is not None
        # How often steps were replayed is written a little behind, but before it is shown: without
        # this look the last of it could be lost, and the sums at the end would be too small.
        self.get("/api/sessions")
        os.kill(self._proxy.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End it, if it still runs."""
        self._running.close()

    def get(self, path: str) -> Any:
        """Return what its API answers. Raises `DemoFailed` if that is an error."""
        return json.loads(self.fetch("GET", path))

    def post(self, path: str, value: Mapping[str, object]) -> Any:
        """Post a JSON value; return what is answered. Raises `DemoFailed` if that is an error."""
        return json.loads(self.fetch("POST", path, value))

    def fetch(self, method: str, path: str, value: Mapping[str, object] | None = None) -> bytes:
        """Return the body of what its API answers. Raises `DemoFailed` if that is an error."""
        assert self._proxy is not None
        there = http.client.HTTPConnection(
            self._proxy.host, self._proxy.port, timeout=API_TIMEOUT_S
        )
        body = None if value is None else json.dumps(value)
        try:
            there.request(method, path, body, {"content-type": "application/json"})
            response = there.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise DemoFailed(f"The proxy's API did not answer {method} {path}: {error}.") from error
        finally:
            there.close()
        if response.status != 200:
            raise DemoFailed(f"{method} {path} got {response.status}: {raw[:300].decode()}")
        return raw

    def wait_for(self, what: str, look: Callable[[], T]) -> T:
        """Look until there is something. Raises `DemoFailed` if there is not."""
        until_s = monotonic_s() + WAIT_S
        while not (found := look()):
            if monotonic_s() > until_s:
                raise DemoFailed(f"There was no {what} within {WAIT_S:g} s.")
            threading.Event().wait(POLL_S)
        return found

    def wait_for_question(self, session: str) -> dict[str, Any]:
        """Return what a session asks a person, once it asks."""

        def look() -> list[dict[str, Any]]:
            pending: list[dict[str, Any]] = self.get("/api/approvals/pending")
            return [row for row in pending if row["session"] == session]

        return self.wait_for(f"question of {session}", look)[0]

    # --- agents -------------------------------------------------------------------------------

    @contextmanager
    def living(self, session: str, *lanes: list[str], **order: Any) -> Iterator[Life]:
        """Start an agent that asks these questions, side by side if there are several lanes."""
        command = self.agent("demo_full_agent", session, *lanes, url=self.url, **order)
        with child(command, self.folder, environ=self.environ) as process:
            life = Life(process)
            yield life
        self.replayed += life.replayed

    def live(self, session: str, *lanes: list[str], **order: Any) -> Life:
        """Run an agent to its own end."""
        with self.living(session, *lanes, **order) as life:
            return life.end()

    def agent(self, module: str, session: str, *lanes: list[str], **order: Any) -> list[str]:
        """Return the command that is one life of an agent; see `demo_full_agent.Agent`."""
        whole = {"session": session, "run": secrets.token_hex(8), "model": MODEL, "lanes": lanes}
        return module_command(f"agentstate.house.{module}", json.dumps(whole | order))


def path_of(session: str) -> str:
    """Return where the API has a session."""
    return f"/api/sessions/{quote(session, safe='')}"


def expect(what: str, found: object, wanted: object) -> None:
    """Compare. Raises `DemoFailed` that names both if they are not the same."""
    if found != wanted:
        raise DemoFailed(f"{what}: expected {wanted}, found {found}.")


@contextmanager
def staged() -> Iterator[Stage]:
    """Set everything up in a folder of its own, and take it down at the end."""
    secret = secrets.token_hex(16)
    model, receiver = Model(), Receiver(secret)
    with (
        tempfile.TemporaryDirectory(prefix="agentstate-") as name,
        serving(model.reply) as model_url,
        serving(receiver.reply) as hook_url,
    ):
        folder = Path(name)
        (folder / "agentstate.toml").write_text(
            CONFIGURATION.format(url=f"{hook_url}/hook", secret=secret), "utf-8"
        )
        stage = Stage(folder, model, receiver, model_url)
        try:
            stage.start_proxy()
            yield stage
        finally:
            stage.close()


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"odd": line}
