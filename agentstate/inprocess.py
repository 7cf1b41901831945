"""A proxy in this process, on a thread and a loop of its own: for tests and notebooks.

It is the whole proxy, on a free port of the loopback interface; only signals, logging and the
interpreter's settings are left as they are, since they belong to whoever started the process. Not
for agents that must survive: what kills the process kills the proxy with it, though never what is
in its file.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import agentstate
from agentstate.app import App
from agentstate.ground.errors import AgentStateError
from agentstate.ground.load import load_settings
from agentstate.ground.settings import ENV_PREFIX, Loaded, Settings, read_environment

Setting = str | int | float | bool | Sequence[str]

DRAIN_S = 5.0  # what calls in flight get to end in


class Running:
    """A proxy in this process. Use with `with`, or call `start` and `stop`."""

    def __init__(
        self,
        *,
        upstream: str | None = None,
        mock: bool = True,
        db: str | Path | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Say what to start; see `running`."""
        self._upstream = upstream
        self._mock = mock and upstream is None
        self._db = db
        self._given = dict(settings or {})
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over: asyncio.Event | None = None
        self._failure: AgentStateError | None = None
        self._app: App | None = None
        self._folder = Path()  # empty but for a record that nobody named; goes with it
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        assert self._thread is not None, "it is not running: use it with `with`, or call start()"
        return self._url

    @property
    def base_url(self) -> str:
        """What OpenAI's clients take as their base URL."""
        return f"{self.url}/v1"

    def session(self, session_id: str, **options: Any) -> agentstate.Session:
        """Begin a run in a session of this proxy; see `agentstate.session`."""
        options.setdefault("api_key", "mock-key" if self._mock else None)
        return agentstate.session(session_id, base_url=self.base_url, **options)

    def start(self) -> Self:
        """Start it; return when it listens.

        Raises:
            SettingError: a setting that cannot be.
            StoreError: the record cannot be opened, or another proxy holds it.
        """
        assert self._thread is None, "it is running already"
        started = threading.Event()
        self._failure, self._url = None, ""
        self._folder = Path(tempfile.mkdtemp(prefix="agentstate-"))
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="agentstate", daemon=True
        )
        self._thread.start()
        started.wait()
        if not self._url:
            self._end()
            raise self._failure or AgentStateError("the proxy did not start; its thread says why.")
        atexit.register(self.stop)  # a notebook forgets; the record is to be closed all the same
        return self

    def stop(self) -> None:
        """Stop it: what is in flight is finished, the record closed. May be called again."""
        if self._thread is None:
            return
        assert self._loop is not None
        assert self._is_over is not None
        atexit.unregister(self.stop)
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _end(self) -> None:
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, started: threading.Event) -> None:
        try:
            asyncio.run(self._serve(started))
        except AgentStateError as error:
            self._failure = error
        finally:
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        loaded = self._load()
        await self._prepare(loaded.settings)
        app = self._app = App(loaded)
        await app.start()
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        self._url = app.url
        started.set()
        try:
            await self._is_over.wait()
        finally:
            await app.stop(DRAIN_S)
        await self._finish(loaded.settings)

    def _load(self) -> Loaded:
        # From a folder that has no agentstate.toml: a test is not to depend on where it is run.
        return load_settings(self._flags(), self._environ(), self._folder, None)

    async def _prepare(self, settings: Settings) -> None:
        """Do what is to be done before the record is opened."""

    async def _finish(self, settings: Settings) -> None:
        """Do what is to be done once the record is closed."""

    def _flags(self) -> dict[str, str]:
        return {
            "server.host": "127.0.0.1",
            "server.port": "0",
            "store.path": str(self._folder / "agentstate.db" if self._db is None else self._db),
            "mock": "true" if self._mock else "false",
        }

    def _environ(self) -> dict[str, str]:
        """Return what counts as the environment: the real one only where it is asked for."""
        if self._mock:
            environ = {}
        elif self._upstream is None:
            environ = read_environment()
        else:
            root = self._upstream.rstrip("/").removesuffix("/v1")
            environ = {"OPENAI_BASE_URL": f"{root}/v1", "ANTHROPIC_BASE_URL": root}
        return environ | {
            ENV_PREFIX + name.replace(".", "_").upper(): _written(value)
            for name, value in self._given.items()
        }


def running(
    *,
    upstream: str | None = None,
    mock: bool = True,
    db: str | Path | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> Running:
    """Make a proxy in this process, for tests and notebooks.

    `upstream`: the URL of a server that speaks OpenAI's or Anthropic's form; without it the mock
    answers, or with `mock=False` what the environment configures. `db`: where the record is; None =
    in a folder that goes with it. `settings`: any others by their names, {"gate.timeout_s": 5}.

    >>> with running() as proxy:
    ...     proxy.session("invoice-run-42").base_url == proxy.base_url
    True
    """
    return Running(upstream=upstream, mock=mock, db=db, settings=settings)


def _written(value: Setting) -> str:
    return value if isinstance(value, str) else json.dumps(value)
