"""The composition root: builds every part, starts it, and stops it in order.

Start: settings → store (migrated, dead claims marked) → transports → pipeline → doors → server →
outbox and sweep. Stop (SIGTERM, SIGINT): no new connections → calls in flight finish, bounded →
sweep and outbox stopped → store closed → 0.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from agentstate import __version__
from agentstate.doors.api import endpoint_table
from agentstate.doors.api.login import LoginEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.doors.guard import Guard
from agentstate.doors.proxy import ProxyDoor
from agentstate.ground.addresses import is_loopback
from agentstate.ground.budget import Budget, limits_of, shown
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import SettingError
from agentstate.ground.meters import Meters
from agentstate.ground.reload import Reloaded, take_over
from agentstate.ground.settings import ForwardSettings, Loaded, Network, Settings
from agentstate.ground.tasks import TaskSet
from agentstate.ground.words import counted
from agentstate.house.feed import Feed
from agentstate.house.hooks import Hook, build_hooks
from agentstate.house.mock import MockProvider
from agentstate.house.outbox import Outbox
from agentstate.house.retention import Retention
from agentstate.house.sweep import Sweep
from agentstate.reloading import Found, hooks_of, reload_on
from agentstate.steps.control import Control
from agentstate.steps.durable import Durables
from agentstate.steps.forward import Transports
from agentstate.steps.gate import Gate
from agentstate.steps.offline import Nowhere, Offline
from agentstate.steps.pauses import Pauses
from agentstate.steps.pipeline import Pipeline
from agentstate.steps.recording import Services, build_services
from agentstate.steps.routing import Targets
from agentstate.store import open_store
from agentstate.store.base import Store
from agentstate.token_file import AUTO, resolve_token, tokens_of
from agentstate.wire.client import HTTPClient, tls_context
from agentstate.wire.descriptors import clients_that_fit, handler_of_failed_accepts, raise_limit
from agentstate.wire.endpoint import Router
from agentstate.wire.pool import read_proxies
from agentstate.wire.server import Server
from agentstate.wire.tls import server_tls

log = logging.getLogger("agentstate")

SWITCH_INTERVAL_S = 0.002
OUTBOX_STOP_S = 5.0  # what a webhook gets to answer in; what is cut off is sent at the next start
CUT_S = 1.0  # what calls get to end in once their clients were cut off


class App:
    """A running proxy."""

    def __init__(self, loaded: Loaded, *, files_max: int | None = None) -> None:
        """Check what only the whole can check; build nothing yet. `files_max`: how many files this
        process may have open, if that is known.

        Raises:
            SettingError: a bind that would let strangers in.
        """
        self._started = loaded
        self._settings = loaded.settings  # as it was started: see `adopt`
        self.loaded = loaded  # what is in force
        check_bind(self._settings)
        self._files_max = files_max
        self.token = resolve_token(self._settings)
        server = self._settings.server
        self._guard = Guard(
            tokens_of(server, self.token),
            agents_need_one=bool(server.client_tokens) or not is_loopback(server.host),
        )
        self._tls = server_tls(server.tls_cert, server.tls_key)
        self._tasks = TaskSet()
        self._store: Store = open_store(self._settings.store)
        client = http_client(loaded.settings.forward, loaded.network)
        is_offline = self._settings.replay.offline
        # What offline comes past all that should answer it finds nobody there.
        there = (Nowhere(), Nowhere()) if is_offline else (client, MockProvider())
        self._transports = Transports(*there)
        keys = [row.api_key for row in self._settings.providers if row.api_key]
        self._outbox = Outbox(self._store, hooks_of(self._settings), client, keys=keys)
        self._sweep = Sweep(self._store, self._settings.sweep, self._outbox.ring)
        self._feed = Feed()
        self._meters = Meters()
        self._is_stopping = False
        self._store.watch(self._feed.note)
        self._server: Server | None = None
        self._pipeline: Pipeline | None = None
        self._gate: Gate | None = None
        self._retention: Retention | None = None
        self._pauses: Pauses | None = None
        self._durables: Durables | None = None
        self.interrupted_count = 0  # claims of a dead process, found at the start

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._server is not None, "start first"
        return self._server.address

    async def start(self) -> None:
        """Open the record and listen.

        Raises:
            StoreError: the record cannot be opened, or another server holds it.
            SettingError: the port is taken.
        """
        self.interrupted_count = await self._store.open()
        settings = self._settings
        self._subscribe()
        # Offline no target is asked, so none needs a key.
        is_mocked = settings.mock or settings.replay.offline
        targets = Targets(settings.providers, mock_only=is_mocked, forward=settings.forward)
        services = build_services(
            self._store,
            self._transports,
            settings,
            self._tasks,
            crash_points(settings.crash_at),
            self._meters,
        )
        self._gate = services.gate
        self._gate.on_event = self._outbox.ring
        self._pauses = services.pauses
        self._durables = services.durables
        pipeline = self._pipeline = Pipeline(services, targets)
        control = pipeline.control()
        self._retention = Retention(self._store, settings.store, control.retire)
        self._server = Server(
            self._door(pipeline, services, targets, control).answer,
            replace(settings.server, connections_max=self.clients_max),
            tls=self._tls,
        )
        try:
            await self._server.start()
        except BaseException:
            await self._store.close()
            raise
        self._outbox.start(settings.server.public_url or self.url)
        self._sweep.start()
        self._retention.start()

    def adopt(self, found: Found) -> Reloaded:
        """Go on by the policy and the webhooks of a configuration that was read again.

        Calls in flight end by the policy they began with; what was asked stays asked.
        """
        assert self._gate is not None, "start first"
        reloaded = take_over(self._started, found.loaded)
        self._gate.adopt(found.loaded.settings.gate, found.policy)
        self._outbox.adopt(found.hooks)
        self._subscribe()
        self.loaded = reloaded.loaded
        return reloaded

    def _subscribe(self) -> None:
        self._store.subscribe(tuple(hook.subscription for hook in self._outbox.hooks.values()))

    def _door(
        self, pipeline: Pipeline, services: Services, targets: Targets, control: Control
    ) -> FrontDoor:
        """Return what answers every request."""
        return FrontDoor(
            ProxyDoor(pipeline, self._transports, targets, self._settings),
            Router(
                endpoint_table(
                    self._store,
                    pipeline,
                    __version__,
                    services.gate,
                    self._outbox,
                    control,
                    services.durables,
                    pipeline.revisions(),
                    services.budgets,
                    self._feed,
                    lambda: self.loaded,
                    LoginEndpoints(self._guard, is_tls=self._tls is not None),
                    lambda: self.loaded.settings.secrets,
                    services.redactor,
                    self._meters,
                    lambda: self._is_stopping,
                    self._retention,
                )
            ),
            Assets(),
            self._settings.server.hosts,
            self._guard,
            self._meters,
        )

    @property
    def url(self) -> str:
        """The same as a URL, without a path."""
        host, port = self.address
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def clients_max(self) -> int:
        """How many client connections are served at once."""
        return clients_that_fit(self._files_max, self._settings.server.connections_max)

    @property
    def offline(self) -> Offline | None:
        """What answers for the world; None = the world does, or it was not started."""
        return None if self._pipeline is None else self._pipeline.offline

    @property
    def in_flight_count(self) -> int:
        """How many calls are on their way."""
        return 0 if self._pipeline is None else self._pipeline.in_flight_count

    @property
    def drain_s(self) -> float:
        """How long they may take once it is told to stop."""
        return self._settings.server.drain_timeout_s

    async def stop(self, drain_s: float) -> None:
        """Finish what is in flight within `drain_s`, then close the record. May be called again."""
        self._is_stopping = True
        self._feed.stop()  # pages come back to the next process
        if self._server is not None:
            if self._gate is not None:
                self._gate.park()  # people take their time; what waits is on record
            if self._pauses is not None:
                self._pauses.park()
            if self._durables is not None:
                self._durables.park()
            until_s = monotonic_s() + drain_s
            cut = await self._server.stop(drain_s)
            stopped = await self._tasks.close(max(until_s - monotonic_s(), CUT_S))
            if cut or stopped:
                log.warning(
                    "%s and %s did not end in time",
                    counted(cut, "connection"),
                    counted(stopped, "call"),
                )
        await self._sweep.stop()
        if self._retention is not None:
            await self._retention.stop()
        await self._outbox.stop(min(drain_s, OUTBOX_STOP_S))  # after the last event's cause
        await self._transports.close()
        await self._store.close()


def http_client(settings: ForwardSettings, network: Network) -> HTTPClient:
    """Return the client for everything outside, through the proxies that the environment names."""
    named = {
        "http_proxy": network.http_proxy,
        "https_proxy": network.https_proxy,
        "no_proxy": ",".join(network.no_proxy),
    }
    proxies = read_proxies({name: value for name, value in named.items() if value})
    if network.ssl_cert_file is None and network.ssl_cert_dir is None:
        return HTTPClient(
            settings, proxies=proxies
        )  # certifi's roots, read at the first https call
    context = tls_context(network.ssl_cert_file, network.ssl_cert_dir)
    return HTTPClient(settings, proxies=proxies, tls=context)


def serve(loaded: Loaded, load: Callable[[], Loaded]) -> int:
    """Run the proxy until it is told to stop; return the exit code. `load` reads the configuration
    again; it raises `SettingError`."""
    return asyncio.run(_serve(loaded, load))


async def _serve(loaded: Loaded, load: Callable[[], Loaded]) -> int:
    loop = asyncio.get_running_loop()
    hangups = asyncio.Event()
    if hasattr(signal, "SIGHUP"):  # before it listens: once it does, none must end it
        loop.add_signal_handler(signal.SIGHUP, hangups.set)
    app = App(loaded, files_max=raise_limit())
    await app.start()
    signals: asyncio.Queue[None] = asyncio.Queue()
    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(name, signals.put_nowait, None)
        except NotImplementedError:  # Windows: Ctrl-C arrives as KeyboardInterrupt
            continue
    loop.set_exception_handler(handler_of_failed_accepts())
    tune_interpreter()
    print(banner(loaded, app), flush=True)

    def load_startable() -> Loaded:
        again = load()
        check_bind(again.settings)
        return again

    helpers = TaskSet()
    reloads = helpers.start(reload_on(hangups, load_startable, app.adopt), "reload")
    try:
        await signals.get()
    finally:
        reloads.cancel()
        await _stop(app, signals)
    return 0


def tune_interpreter() -> None:
    """Set the interpreter up for many short calls in two threads.

    Keep the garbage collector from walking what lives as long as the process.

    At Python's threshold of 700 new objects a tenth of the processor's time per call went into
    walking modules and settings. What a call makes is freed by its reference counts; a cycle that
    holds a body is a fault (tests/e2e/test_memory.py).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    # The store's thread and the loop hand the interpreter to each other at every commit; at
    # Python's 5 ms one of them waits that long for the other whenever both have work, and well
    # below 2 ms they spend a tenth of the time on handing over (agentstate/DESIGN.md).
    sys.setswitchinterval(SWITCH_INTERVAL_S)


async def _stop(app: App, signals: asyncio.Queue[None]) -> None:
    """Stop gracefully; a second signal stops at once."""
    if app.in_flight_count:
        log.info(
            "stopping: %s in flight may take %.0f s to finish; a second signal stops at once",
            counted(app.in_flight_count, "call"),
            app.drain_s,
        )
    helpers = TaskSet()
    graceful = helpers.start(app.stop(app.drain_s), "stop")
    again = helpers.start(signals.get(), "second signal")
    await asyncio.wait((graceful, again), return_when=asyncio.FIRST_COMPLETED)
    if not graceful.done():
        graceful.cancel()
        await asyncio.wait((graceful,))
        await app.stop(0.0)
    again.cancel()
    if not graceful.cancelled():
        graceful.result()


def banner(loaded: Loaded, app: App) -> str:
    """Return what a person wants to know at the start; the first line is for programs too."""
    settings = loaded.settings
    url = app.url
    lines = [
        f"AgentState listening on {url}",
        f"  base_url   {url}/v1",
        f"  dashboard  {url}/dashboard/{_login_of(settings, app)}",
        f"  database   {Path(settings.store.path).absolute()} "
        f"(durability {settings.store.durability})",
    ]
    if settings.replay.offline:
        lines.append(
            "  answers    come from the record alone: nothing is sent anywhere, not to webhooks"
        )
    elif settings.mock:
        lines.append("  answers    come from the MOCK provider: no model is asked, nothing costs")
    else:
        for row in settings.providers:
            key = "key configured" if row.api_key else "caller's key"
            lines.append(f"  provider   {row.name:<10} {shown_url(row.base_url)} ({key})")
        own = "; openai has a key, so mock-key means that one" if _has_key(settings) else ""
        lines.append(f"  mock       models named mock/..., and the key mock-key{own}")
    if not settings.replay.offline:
        lines.extend(_fallback_lines(settings))
        lines.extend(_budget_lines(settings))
        lines.extend(f"  webhook    {shown_hook(hook)}" for hook in build_hooks(settings.webhooks))
    if app.interrupted_count:
        found = counted(app.interrupted_count, "call")
        lines.append(
            f"  found      {found} in flight when the last process died; they run again when asked"
        )
    if app.clients_max < settings.server.connections_max:
        lines.append(
            f"  warning    {app.clients_max} clients at once, fewer than server.connections_max: "
            "raise the limit of open files (ulimit -n, LimitNOFILE=)"
        )
    lines.extend(f"  warning    {warning}" for warning in loaded.warnings)
    return "\n".join(lines)


def _login_of(settings: Settings, app: App) -> str:
    """Return what makes the dashboard's address a link that logs in, if the token was made here.
    Browsers keep what stands behind the # to themselves."""
    return f"#token={app.token}" if settings.server.token == AUTO else ""


def _fallback_lines(settings: Settings) -> Iterator[str]:
    """Yield where the configured fallbacks lead."""
    targets = Targets(settings.providers, mock_only=settings.mock, forward=settings.forward)
    chains = [("any model", settings.forward.fallback)] if settings.forward.fallback else []
    chains += [(route.model, route.fallback) for route in settings.forward.routes]
    for models, names in chains:
        found = [targets.examine(name, "openai") for name in names]
        told = (place if why is None else f"{place} (passed over: {why})" for place, why in found)
        yield f"  fallback   {models} → {' → '.join(told) or 'none'}"


def _budget_lines(settings: Settings) -> Iterator[str]:
    """Yield the caps that hold for each session."""
    budget = settings.budget
    limits = limits_of(Budget(), budget.caps, None)
    told = [f"{limit.cap} {shown(limit.cap, limit.amount):,}" for limit in limits]
    then = "a person is asked" if budget.action == "hold" else "429"
    if told:
        yield f"  budget     of each session: {', '.join(told)}; then {then}"


def _has_key(settings: Settings) -> bool:
    return any(row.name == "openai" and row.api_key for row in settings.providers)


def shown_url(url: str) -> str:
    """Return a base URL without what may be secret in it."""
    scheme, _, rest = url.partition("://")
    place = rest.partition("?")[0]
    return f"{scheme}://{place.rpartition('@')[2]}"


def shown_hook(hook: Hook) -> str:
    """Return a webhook's name, format and host: the rest of its URL is a key."""
    return f"{hook.name:<10} {hook.format.name} to {hook.host} ({', '.join(hook.events)})"


def check_bind(settings: Settings) -> None:
    """Refuse to listen where strangers are and ask them nothing: whoever reaches the port can read
    every prompt.

    Raises:
        SettingError: the host is no loopback address, and there is no token.
    """
    host = settings.server.host
    if not is_loopback(host) and settings.server.token is None:
        raise SettingError(
            f"server.host is {host!r}: anybody who can reach it could read every prompt and spend "
            "your keys. Start it with `--token auto` (or set server.token), or listen on 127.0.0.1."
        )


def crash_points(crash_at: str) -> Callable[[str], None]:
    """Return what the pipeline calls at each named point: nothing, or a real SIGKILL.

    `crash_at` is a name, or `name:n` for the n-th pass. The process does not unwind, flush or say
    goodbye: that is the point.
    """
    if not crash_at:
        return _pass_by
    name, _, count = crash_at.partition(":")
    left = {name: int(count or 1)}

    def crash(point: str) -> None:
        if point in left:
            left[point] -= 1
            if left[point] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return crash


def _pass_by(point: str) -> None:
    """Do nothing."""
