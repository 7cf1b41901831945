"""A proxy in this process that records a cassette, or answers from one: what a test gets.

It differs from `agentstate record` and `replay` (`cli_run.py`) in that the agent is code of this
process, so nothing is run, and nothing is said at the end: whoever started it asks what was missed.
`pytest_plugin.py` is the counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import agentstate
from agentstate.cassettes import (
    load_tape,
    missed_lines,
    private_settings,
    secret_values,
    write_tape,
)
from agentstate.cli_command import environment
from agentstate.cli_table import inert
from agentstate.cli_tape import read_file
from agentstate.ground.clock import now_ms
from agentstate.ground.load import load_settings
from agentstate.ground.settings import Loaded, Settings, read_environment
from agentstate.house.cassette_export import TapeOrder
from agentstate.house.cassette_import import Imported, read_sessions
from agentstate.inprocess import Running

# As `cli_run.py` has them: when recording the key that is configured takes its place.
CONFIGURED_KEY, NO_KEY = "mock-key", "no-key-is-needed"


class TapeProxy(Running):
    """A proxy on one cassette. Use with `with`, or call `start` and `stop`.

    `stop` writes the cassette, if it was recorded and a call was made.
    """

    def __init__(
        self, file: Path, session: str, *, records: bool, folder: Path, keeps_secrets: bool = False
    ) -> None:
        """Say which; `session` is that of calls that name none, `folder` has the settings' file."""
        super().__init__(mock=False)
        self.file = file
        self.session_id = session
        self.is_recording = records
        self._config_folder = folder
        self._keeps_secrets = keeps_secrets
        # Now: once it runs, the environment leads to it.
        self._here = read_environment()
        self._has_key = False
        self._secrets: tuple[str, ...] = ()
        self._told = 0  # calls that were missed, and said so

    @property
    def base_url(self) -> str:
        """What OpenAI's clients take as their base URL; it names the session."""
        return f"{self.anthropic_base_url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """What Anthropic's clients take, and Google's: the same without /v1."""
        return f"{self.url}/s/{quote(self.session_id, safe='')}"

    def session(self, session_id: str | None = None, **options: Any) -> agentstate.Session:
        """Begin a run in the test's session, or in another one of its cassette; see
        `agentstate.session`."""
        options.setdefault("token", "")  # one of the environment is another server's
        return agentstate.session(
            session_id or self.session_id, base_url=f"{self.url}/v1", **options
        )

    def variables(self) -> Mapping[str, str]:
        """Return the variables by which clients find their way here, and those they do not start
        without."""
        has_key = not self.is_recording or self._has_key
        key = CONFIGURED_KEY if self.is_recording else NO_KEY
        found = environment(self._here, self.url, self.session_id, key if has_key else None)
        return {name: text for name, text in found.items() if self._here.get(name) != text}

    def missed(self) -> list[str]:
        """Return what is to be said of calls that no step answered, since it was last asked."""
        offline = None if self._app is None else self._app.offline
        if offline is None or offline.missed_count == self._told:
            return []
        new = offline.missed[self._told :]
        self._told = offline.missed_count
        lines = [line for each in new for line in missed_lines(each)]
        if not self.file.exists():
            lines.append(f"  there is no cassette {inert(str(self.file))}")
        return lines

    def stop(self) -> None:
        """Stop it, and write what was recorded.

        Raises:
            SecretsInAnswers: secrets can neither be taken out nor left in unasked.
            SettingError: it cannot be written.
        """
        super().stop()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _load(self) -> Loaded:
        loaded = load_settings({}, self._here, self._config_folder, None)
        settings = loaded.settings
        self._has_key = settings.mock or any(row.api_key for row in settings.providers)
        self._secrets = (*settings.secrets, *secret_values(self._here))
        run_id = "record" if self.is_recording else "replay"
        settings = private_settings(
            settings, self._folder, run_id=run_id, is_offline=not self.is_recording
        )
        # Whoever runs the test is the only one who knows of it.
        server = replace(settings.server, token=None, approve_tokens=(), read_tokens=())
        return replace(loaded, settings=replace(settings, server=server))

    async def _prepare(self, settings: Settings) -> None:
        if not self.is_recording and self.file.exists():
            tape: Imported = read_sessions(read_file(self.file), at_ms=now_ms())
            await load_tape(settings.store, tape)

    async def _finish(self, settings: Settings) -> None:
        if self.is_recording:
            order = TapeOrder(keeps_secrets=self._keeps_secrets, keys=self._secrets)
            await write_tape(settings.store, self.file, order)
