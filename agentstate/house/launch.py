"""Starts parts of this program as child processes, and ends them: for demos and benchmarks.

A child is named by its module, not by a path or a command on PATH, so that it is the same code as
its parent's in a checkout, an installation and the .pyz. Children run in a session of their own:
Ctrl-C reaches the parent alone, which ends them in its `finally`. The one invariant: when a `with`
is left, by whatever way, its child has ended and been reaped.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import agentstate
from agentstate.ground.errors import AgentStateError

START_TIMEOUT_S = 30.0  # a cold .pyz on a slow disk unpacks first
STOP_TIMEOUT_S = 10.0
TAIL_LINES = 40  # of a child's output kept for the message when it fails

# Runs a module of the package the parent came from, whatever the child's own path would find.
_BOOT = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
_BANNER = re.compile(r"^AgentState listening on http://(.+):(\d+)\s*$")


class ChildFailed(AgentStateError):
    """A child process ended, or did not get ready in time; the message has its last words."""

    code = "child_failed"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy."""

    host: str
    port: int
    pid: int = 0  # of its process; 0 = it is not a child of ours

    @property
    def url(self) -> str:
        """Its origin, as in http://127.0.0.1:8080."""
        return f"http://{self.host}:{self.port}"


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this program in a new interpreter."""
    root = Path(agentstate.__file__).resolve().parent.parent
    return [sys.executable, "-u", "-c", _BOOT, str(root), module, *arguments]


@contextmanager
def child(
    command: list[str],
    cwd: Path,
    *,
    takes_input: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a command; its output and errors are one pipe of lines. Ends and reaps it at the end.

    environ: its whole environment; None = that of this process.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        env=environ,
    )
    try:
        yield process
    finally:
        end(process)


@contextmanager
def proxy(
    cwd: Path, *flags: str, port: int = 0, environ: Mapping[str, str] | None = None
) -> Iterator[Proxy]:
    """Run a proxy on the loopback interface, in `cwd`; `port` 0 = any free one.

    environ: its whole environment; None = that of this process.

    Raises:
        ChildFailed: it ended before it listened, or took over `START_TIMEOUT_S`.
    """
    place = ("--host", "127.0.0.1", "--port", str(port))
    command = module_command("agentstate", "serve", *place, *flags)
    with child(command, cwd, environ=environ) as process:
        match = wait_for_line(process, _BANNER)
        drain = threading.Thread(target=_drain, args=(process.stdout,), daemon=True)
        drain.start()
        yield Proxy(match[1], int(match[2]), process.pid)


def wait_for_line(process: subprocess.Popen[str], pattern: re.Pattern[str]) -> re.Match[str]:
    """Read a child's output up to the line that matches.

    Raises:
        ChildFailed: it ended first, or took over `START_TIMEOUT_S` and was killed.
    """
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    killed = threading.Event()

    def give_up() -> None:
        killed.set()
        process.kill()  # this is what ends a read that waits for it

    watchdog = threading.Timer(START_TIMEOUT_S, give_up)
    watchdog.start()
    try:
        for line in process.stdout:
            if match := pattern.match(line):
                return match
            tail.append(line)
    finally:
        watchdog.cancel()
    code = process.wait()
    what = (
        f"was not ready within {START_TIMEOUT_S:g} s" if killed.is_set() else f"ended with {code}"
    )
    raise ChildFailed(
        f"A child process {what}, and did not listen. Its last words:\n{''.join(tail)}"
    )


def end(process: subprocess.Popen[str]) -> None:
    """Ask a child to stop, wait, kill it if it does not, and reap it."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass  # it is killed below
    finally:
        if process.poll() is None:  # also after a second Ctrl-C in the wait above
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            _close(pipe)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what is inside as Ctrl-C does: every `finally` runs.

    Only in the main thread; elsewhere signals are not ours to handle and nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, _stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)  # the code a shell shows for a process ended by this signal


def _drain(pipe: IO[str] | None) -> None:
    """Read and drop a child's output, so that it never waits for a reader."""
    assert pipe is not None
    try:
        for _ in pipe:
            pass
    except ValueError:
        pass  # closed under us: the child has been reaped


def _close(pipe: IO[str] | None) -> None:
    if pipe is None:
        return
    try:
        pipe.close()
    except BrokenPipeError:
        pass  # what was still buffered for a dead child has no reader
