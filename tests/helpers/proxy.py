"""Starts the real proxy as a process and talks to it.

Nothing of the product is imported: what a test sees is what a user sees, the command line, the
environment, the sockets and the exit code. All output goes to one log file, whose end is part of
every failure message.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pytest

ROOT = Path(__file__).resolve().parents[2]

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
WAIT_TIMEOUT_S = 10.0
POLL_S = 0.02
LOG_TAIL_BYTES = 4000

_BANNER = re.compile(
    rb"^AgentState listening on https?://([^:\s]+|\[[^\]\s]+\]):(\d+)", re.MULTILINE
)
# What a developer has exported for their own use must not reach a test.
_NOT_INHERITED = re.compile(
    r"AGENTSTATE|OPENAI|ANTHROPIC|GEMINI|GOOGLE|OLLAMA|PORT$|HOST$|FALLBACK_MODEL$|WEBHOOK|"
    r"HTTPS?_PROXY$|ALL_PROXY$|NO_PROXY$",
    re.IGNORECASE,
)


# For tests of what one attempt comes to: a failure is final.
ONCE = {"AGENTSTATE_FORWARD_RETRIES": "0"}


class Proxy:
    """One proxy on a free port. Use with `with`; `stop` is called at the end."""

    def __init__(
        self,
        *,
        upstream_url: str,
        db: Path,
        env: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        crash_at: str | None = None,
        under: Sequence[str] = (),
    ) -> None:
        """Say what to start; `crash_at` holds for the first start only, see `start`. `under` is a
        command that starts another one and becomes it, or watches it, as its own parent."""
        self._first_crash_at = crash_at
        self._db = db
        self._env = {
            **{k: v for k, v in os.environ.items() if not _NOT_INHERITED.match(k)},
            "OPENAI_BASE_URL": f"{upstream_url}/v1",
            "ANTHROPIC_BASE_URL": upstream_url,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **(env or {}),
        }
        self._flags = tuple(flags)
        self._under = tuple(under)
        self._process: subprocess.Popen[bytes] | None = None
        self.log_path = db.with_name(db.name + ".proxy.log")
        self.host = "127.0.0.1"
        self.port = 0

    # --- life -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start(crash_at=self._first_crash_at)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.is_running:
            return
        if error is None:
            self.stop()
        else:
            self.kill()
            error.add_note(f"--- end of the proxy's log ---\n{self.log_tail()}")

    def start(self, *, crash_at: str | None = None) -> None:
        """Start it and wait until it listens; again on the same port after a stop or a kill.

        `crash_at` is a named point of a call, with `:n` for the n-th pass: the process kills itself
        there.
        """
        assert not self.is_running, "the proxy is running"
        env = self._env if crash_at is None else {**self._env, "AGENTSTATE_CRASH_AT": crash_at}
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._under, sys.executable, "-m", "agentstate", "serve",
                    "--host", "127.0.0.1", "--port", str(self.port), "--db", str(self._db),
                    *self._flags,
                ],
                cwd=self._db.parent,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.host, self.port = self._wait_for_banner(offset)

    def kill(self) -> None:
        """Kill it as a crash would: no handler runs, nothing is flushed."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def stop(self) -> None:
        """Ask it to stop; it must exit with 0 in time."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM did not end the proxy.\n{self.log_tail()}") from None
        self._process = None
        assert code == 0, f"the proxy exited with {code} on SIGTERM.\n{self.log_tail()}"

    def restart(self, *, crash_at: str | None = None) -> None:
        """Start it again on the same file and port; a running one is killed first."""
        if self.is_running:
            self.kill()
        self.start(crash_at=crash_at)

    def wait_for_crash(self) -> None:
        """Wait until the process has killed itself at its crash point."""
        assert self._process is not None
        try:
            code = self._process.wait(WAIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the proxy did not reach its crash point.\n{self.log_tail()}"
            ) from None
        self._process = None
        assert code == -signal.SIGKILL, f"exited with {code}, not killed.\n{self.log_tail()}"

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the running proxy."""
        assert self._process is not None
        return self._process.pid

    # --- talking to it ----------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    @property
    def url(self) -> str:
        """The origin, without a path."""
        return f"http://{self.host}:{self.port}"

    @property
    def base_url(self) -> str:
        """What an agent sets as its base URL."""
        return f"{self.url}/v1"

    def get(self, path: str) -> tuple[int, bytes]:
        """GET a path; return status and body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def maybe_session(self, session: str) -> dict[str, Any] | None:
        """Return the session and its steps as the API shows them, or None if it is unknown."""
        status, body = self.get(f"/api/sessions/{quote(session, safe='')}?detail=1")
        assert status in (200, 404), f"GET session answered {status}: {body[:500]!r}"
        found: dict[str, Any] | None = json.loads(body) if status == 200 else None
        return found

    def steps(self, session: str) -> list[dict[str, Any]]:
        """Return the steps of a session, [] if it is unknown."""
        found = self.maybe_session(session)
        return [] if found is None else list(found["steps"])

    def settled_steps(self, session: str) -> list[dict[str, Any]]:
        """Return the steps once none is in flight any more."""
        return self.wait_for_steps(
            session, lambda steps: all(step["state"] != "in_flight" for step in steps)
        )

    def wait_for_steps(
        self, session: str, happened: Callable[[list[dict[str, Any]]], bool]
    ) -> list[dict[str, Any]]:
        """Poll the steps until `happened(steps)`; fail with them at the time limit."""
        deadline = time.perf_counter() + WAIT_TIMEOUT_S
        while not happened(steps := self.steps(session)):
            if time.perf_counter() > deadline:
                raise AssertionError(f"the steps did not get there in time: {steps}")
            time.sleep(POLL_S)
        return steps

    # --- looking at it ----------------------------------------------------------------------

    def log_tail(self) -> str:
        """Return the end of what it printed."""
        if not self.log_path.exists():
            return "(no output)"
        return self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace")

    def set_disk(self, *, is_full: bool) -> None:
        """Make every further write of the process to a file fail as on a full disk, or undo that.

        Played with a limit on file size; skips the test where a running process cannot get one.
        """
        if not hasattr(resource, "prlimit"):
            pytest.skip("needs prlimit, so Linux")
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))

    def memory_kib(self, field: str = "VmRSS") -> int:
        """Return a memory figure of the process from /proc: VmRSS now, VmHWM the highest so far.

        Skips the test where there is no /proc.
        """
        if not Path("/proc/self/status").exists():
            pytest.skip("needs /proc, so Linux")
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None, f"/proc has no {field}"
        return int(found[1])

    def stored_bytes(self) -> bytes:
        """Return all files of the database and the log, one after another."""
        paths = sorted(self._db.parent.glob(self._db.name + "*"))
        return b"".join(path.read_bytes() for path in paths)

    def _wait_for_banner(self, offset: int) -> tuple[str, int]:
        assert self._process is not None
        deadline = time.perf_counter() + START_TIMEOUT_S
        while True:
            printed = self.log_path.read_bytes()[offset:]
            if found := _BANNER.search(printed):
                return found[1].decode().strip("[]"), int(found[2])
            code = self._process.poll()
            if code is not None or time.perf_counter() > deadline:
                if code is None:
                    self.kill()
                what = "did not say where it listens" if code is None else f"exited with {code}"
                raise AssertionError(f"the proxy {what}. It printed:\n{self.log_tail()}")
            time.sleep(POLL_S)
