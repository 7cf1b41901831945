"""`agentstate record` and `agentstate replay`: a command beside a proxy that lives as long as it.

The proxy runs in this process on a free port, with a record of its own in a temporary folder. All
calls of the command are one run, so the n-th of several equal ones gets the n-th recorded answer,
in whatever order parallel calls arrive.

Recording writes the cassette when the command has ended, however it did. Replaying is offline: what
no recorded step answers fails, and is told again at the end, since an agent may have swallowed it.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentstate.app import App
from agentstate.cassettes import (
    list_unasked,
    load_tape,
    missed_lines,
    private_settings,
    secret_values,
    write_tape,
)
from agentstate.cli_command import CannotRun, environment, run_command
from agentstate.cli_export import open_output
from agentstate.cli_table import cell, inert
from agentstate.cli_tape import read_file, say, summary
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import AgentStateError, SettingError
from agentstate.ground.load import load_settings
from agentstate.ground.logs import set_up_logs
from agentstate.ground.records import StepRow
from agentstate.ground.settings import (
    Loaded,
    Settings,
    read_environment,
)
from agentstate.ground.words import counted
from agentstate.house.cassette_export import TapeOrder
from agentstate.house.cassette_import import Imported, read_sessions
from agentstate.house.cassette_secrets import SecretsInAnswers
from agentstate.steps.identify import check_session
from agentstate.steps.offline import Offline

FAILED = 1
SHOWN_MAX = 20  # calls that are listed at the end
REPLAY_STOP_S = 1.0  # nothing of a replay is worth waiting for
# Placeholders: when recording the key that is configured takes its place, in a replay nothing does.
CONFIGURED_KEY, NO_KEY = "mock-key", "no-key-is-needed"


class Recorder:
    """`agentstate record`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._file: Path = asked.file
        self._environ = read_environment()

    def run(self) -> int:
        """Run the command and write the cassette; return the command's exit code.

        Raises:
            SettingError: the configuration is wrong, or the file cannot be written; nothing was
                run.
        """
        flags = {"mock": "true"} if self._asked.mock else {}
        loaded = _load(flags, self._environ, self._asked.config)
        session = _session(self._asked)
        _check_writable(self._file)
        folder = Path(tempfile.mkdtemp(prefix="agentstate-record-"))
        keeps = False
        try:
            settings = private_settings(loaded.settings, folder, run_id="record", is_offline=False)
            try:
                code = asyncio.run(self._run(replace(loaded, settings=settings), session))
            except CannotRun as error:
                say(error.message)
                return error.code
            try:
                asyncio.run(self._write(settings, loaded.settings.secrets, code))
            except SecretsInAnswers as error:
                keeps = True
                say(f"{error.message} {inert(str(self._file))} was not written.")
                say(
                    f"What was recorded is in {folder}. To write it with its secrets: agentstate "
                    f"serve --db {folder}/record.db --offline, and beside it agentstate sessions "
                    f"cassette {session} --keep-secrets --out {inert(str(self._file))}"
                )
                return code or FAILED
            return code
        finally:
            if not keeps:
                shutil.rmtree(folder, ignore_errors=True)

    async def _run(self, loaded: Loaded, session: str) -> int:
        app = App(loaded)
        await app.start()
        try:
            has_key = loaded.settings.mock or any(row.api_key for row in loaded.settings.providers)
            key = CONFIGURED_KEY if has_key else None
            say(
                f"recording to {inert(str(self._file))}; what waits for a person: agentstate "
                f"approvals watch --url {app.url}"
            )
            environ = environment(self._environ, app.url, session, key)
            return await run_command(self._asked.command, environ)
        finally:
            await app.stop(app.drain_s)  # what is paid for is waited for

    async def _write(self, settings: Settings, secrets: tuple[str, ...], code: int) -> None:
        order = TapeOrder(
            keeps_secrets=self._asked.keep_secrets,
            has_timing=self._asked.timing,
            keys=(*secrets, *secret_values(self._environ)),
        )
        how = "" if code == 0 else f" The command ended with {code}."
        end = await write_tape(settings.store, self._file, order)
        if end is None:
            kept = f"; {inert(str(self._file))} stays as it was" if self._file.exists() else ""
            say(f"no call was recorded{kept}.{how}")
            return
        calls = counted(end["steps"], "call")
        say(f"{calls} in {inert(str(self._file))}.{how and how + ' That is what it got to.'}")
        for text in summary(end, keeps_secrets=self._asked.keep_secrets):
            say(text)


class Replayer:
    """`agentstate replay`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._file = inert(str(asked.file))
        self._environ = read_environment()

    def run(self) -> int:
        """Run the command on the cassette; return its exit code, or 1 if it ended well and a call
        found no answer, or (--strict) a recorded one was not asked for.

        Raises:
            SettingError: the configuration is wrong, or the file cannot be read.
            BadCassette: it is none.
        """
        loaded = _load({}, self._environ, self._asked.config)
        tape = read_sessions(read_file(self._asked.file), at_ms=now_ms())
        session = self._asked.session or _session_of(tape, self._asked.file)
        with tempfile.TemporaryDirectory(prefix="agentstate-replay-") as folder:
            settings = private_settings(
                loaded.settings, Path(folder), run_id="replay", is_offline=True
            )
            try:
                played = asyncio.run(self._run(replace(loaded, settings=settings), tape, session))
            except CannotRun as error:
                say(error.message)
                return error.code
        lines = list(self._findings(played))
        for line in lines:
            say(line)
        has_failed = played.offline.missed_count or (self._asked.strict and played.unasked)
        return played.code or (FAILED if has_failed else 0)

    async def _run(self, loaded: Loaded, tape: Imported, session: str) -> _Played:
        await load_tape(loaded.settings.store, tape)
        app = App(loaded)
        await app.start()
        assert app.offline is not None, "so it was set"
        try:
            environ = environment(self._environ, app.url, session, NO_KEY)
            code = await run_command(self._asked.command, environ)
        finally:
            await app.stop(REPLAY_STOP_S)
        unasked = await list_unasked(loaded.settings.store)
        return _Played(code, app.offline, unasked)

    def _findings(self, played: _Played) -> Iterator[str]:
        offline = played.offline
        if offline.missed_count:
            yield f"{counted(offline.missed_count, 'call')} had no recorded answer in {self._file}:"
            for missed in offline.missed[:SHOWN_MAX]:
                yield from missed_lines(missed)
            if offline.missed_count > SHOWN_MAX:
                yield f"  and {offline.missed_count - SHOWN_MAX:,} more"
            command = " ".join(map(inert, self._asked.command))
            yield f"if it is meant to differ: agentstate record {self._file} -- {command}"
        if self._asked.strict and played.unasked:
            yield f"{counted(len(played.unasked), 'recorded call')} not asked for in {self._file}:"
            for row in played.unasked[:SHOWN_MAX]:
                prompt = f": {cell(row.prompt)}" if row.prompt else ""
                yield f"  {cell(row.session)} step {row.step_number}, {cell(row.model)}{prompt}"
            if len(played.unasked) > SHOWN_MAX:
                yield f"  and {len(played.unasked) - SHOWN_MAX:,} more"
        if offline.repeated_count:
            calls = counted(offline.repeated_count, "call")
            yield f"{calls} asked once more for what was recorded, and got the last answer again"


@dataclass(frozen=True, slots=True)
class _Played:
    """How a replay went."""

    code: int
    offline: Offline
    unasked: Sequence[StepRow]  # recorded steps that no call got


def _load(flags: Mapping[str, str], environ: Mapping[str, str], config: Path | None) -> Loaded:
    loaded = load_settings(flags, environ, Path.cwd(), config)
    # The terminal is the command's: no line for each call of it.
    set_up_logs(replace(loaded.settings.log, level="warning"))
    return loaded


def _session(asked: argparse.Namespace) -> str:
    return check_session(asked.session or asked.file.stem, "--session")


def _session_of(tape: Imported, file: Path) -> str:
    """Return the session of calls that name none: the file's, else the first of the cassette."""
    names = [each.session for each in tape.sessions]
    return file.stem if file.stem in names or not names else names[0]


def _check_writable(file: Path) -> None:
    """Find out that a file cannot be written before anything is paid that should be in it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_output(file.with_name(f".{file.name}.try")):
            pass
        file.with_name(f".{file.name}.try").unlink()
    except (OSError, AgentStateError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "message", "")
        raise SettingError(f"{inert(str(file))} cannot be written: {why}.") from error
