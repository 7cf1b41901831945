"""Runs a command as a shell would: its environment, its signals, its exit code, and what it began.

The command has our stdin, stdout and stderr. On a terminal it stays in our process group, so the
terminal reaches it as it would without us, and Ctrl-C is its to answer. Elsewhere (CI, a service)
it gets a group of its own: a signal that we are sent goes to all of it, and what is left of it when
the command has ended is ended too.

The invariant: when `run_command` returns, by whatever way, the command has ended and been reaped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote

NOT_FOUND, NOT_RUNNABLE = 127, 126  # as a shell says it
SIGNALLED = 128  # and the number of the signal
STOP_S = 10.0  # what a command gets to end in once it was told to
LEFT_S = 2.0  # and what it leaves behind
POLL_S = 0.02

_PASSED_ON = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_FROM_TERMINAL = ("SIGINT", "SIGQUIT")  # which a terminal sends to the whole group
_ENDING = ("SIGTERM", "SIGHUP")

# What SDKs read today: OpenAI's and what follows it want the version in the base URL, the others
# add it by themselves. LangChain looks at the _API_ names first.
_WITH_VERSION = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_WITHOUT = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "GOOGLE_GEMINI_BASE_URL")
# One of each group is enough for its SDK to start; the first one is set if none is.
_KEYS = (
    ("OPENAI_API_KEY",),
    ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
)
_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


class CannotRun(Exception):
    """The command cannot be started; `code` is what a shell would end with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def environment(
    environ: Mapping[str, str], url: str, session: str, key: str | None
) -> dict[str, str]:
    """Return the environment of a command whose calls are to come to the proxy at `url`.

    `key`: what SDKs get that have none and would not start; None = they are to say so themselves.
    """
    base = f"{url}/s/{quote(session, safe='')}"
    found = dict(environ)
    found |= dict.fromkeys(_WITH_VERSION, f"{base}/v1")
    found |= dict.fromkeys(_WITHOUT, base)
    if key is not None:
        for names in _KEYS:
            if not any(found.get(name) for name in names):
                found[names[0]] = key
    if any(found.get(name) for name in _PROXIES):
        # A client would ask its proxy for what is on this machine.
        for name in ("NO_PROXY", "no_proxy"):
            found[name] = ",".join(filter(None, (found.get(name), "127.0.0.1", "localhost")))
    return found


async def run_command(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command and return its exit code; one that a signal ended is 128 and the signal.

    Raises:
        CannotRun: there is none of that name, or it cannot be run.
    """
    shares_group = not hasattr(os, "killpg") or _is_on_terminal()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=environ, process_group=None if shares_group else 0
        )
    except FileNotFoundError as error:
        raise CannotRun(f"{command[0]}: there is no such command.", NOT_FOUND) from error
    except OSError as error:
        raise CannotRun(f"{command[0]}: {error.strerror}.", NOT_RUNNABLE) from error
    return await _Running(process, shares_group=shares_group).wait()


class _Running:
    """A command that runs."""

    def __init__(self, process: asyncio.subprocess.Process, *, shares_group: bool) -> None:
        self._process = process
        self._shares_group = shares_group
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None

    async def wait(self) -> int:
        """Wait for its end, pass on what comes meanwhile, and leave nothing of it."""
        self._listen()
        try:
            code = await self._process.wait()
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            if self._process.returncode is None:
                self._send(signal.SIGKILL)
                await self._process.wait()
            if not self._shares_group:
                await self._end_group()
        return SIGNALLED - code if code < 0 else code

    def _listen(self) -> None:
        for name in _PASSED_ON:
            number = getattr(signal, name, None)
            if number is None:
                continue
            if self._shares_group and name in _FROM_TERMINAL:
                self._loop.add_signal_handler(number, _pass_by)
            else:
                self._loop.add_signal_handler(number, self._pass_on, number)

    def _pass_on(self, number: signal.Signals) -> None:
        self._send(number)
        if number.name in _ENDING and self._deadline is None:
            self._deadline = self._loop.call_later(STOP_S, self._send, signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._shares_group:
                self._process.send_signal(number)
            else:
                os.killpg(self._process.pid, number)

    async def _end_group(self) -> None:
        """End what the command has begun and left behind."""
        # Nothing is left, or what is left is not ours to end.
        with suppress(ProcessLookupError, PermissionError):
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.killpg(self._process.pid, number)
                until_s = self._loop.time() + LEFT_S
                while self._loop.time() < until_s:
                    await asyncio.sleep(POLL_S)
                    os.killpg(self._process.pid, 0)


def _is_on_terminal() -> bool:
    """Say whether a terminal sends its signals to our process group."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            if os.isatty(stream.fileno()):
                return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    return False


def _pass_by() -> None:
    """The terminal has told the command already."""
