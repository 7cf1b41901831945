"""Plays the requests of a case against the proxy and keeps what happened.

Nothing is judged here, except that the case could be played as it is written: `checks.py` does that
afterwards, on the `Play` this module fills.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from tests.cases import held, told
from tests.cases.files import Case, to_bytes
from tests.cases.held import Asking, Held
from tests.cases.staging import FALLBACK, ROUTED, Stage, reply_of
from tests.cases.tables import DISK_FILLS
from tests.cases.told import Told
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import (
    TIMEOUT_S,
    Connection,
    Pair,
    Reception,
    Stop,
    ask,
    render_request,
)
from tests.helpers.reading import ChatRead, read_chat, read_events, read_messages
from tests.helpers.services import Service
from tests.helpers.upstream import Gate, Upstream

DEFAULT_SESSION = "s1"  # renamed, so that many cases can share one proxy
SMALL_WINDOW_BYTES = 16 * 1024
WATCH_EVERY_S = 0.05
PATIENCE_S = 60.0  # of a client; no case lasts as long


@dataclass(frozen=True, slots=True)
class Sending:
    """A request of the client, ready to go out."""

    method: str
    target: str
    headers: tuple[Pair, ...]
    body: bytes

    def without(self, *names: str) -> Sending:
        """Return it without these headers."""
        kept = tuple(p for p in self.headers if p[0].decode().lower() not in names)
        return Sending(self.method, self.target, kept, self.body)


def sending_of(client: Mapping[str, Any], session: str, base: Sending | None = None) -> Sending:
    """Build a request; what `client` does not say is taken from `base`."""
    pairs = {} if base is None else {key.decode(): value for key, value in base.headers}
    for name, value in client.get("headers", {}).items():
        is_default = name == "x-agent-session-id" and value == DEFAULT_SESSION
        if value is not None:  # a variant of the case that leaves it out
            pairs[name] = to_bytes(session if is_default else value)
    if "body_raw" in client:
        body = to_bytes(client["body_raw"])
    elif "body" in client:
        body = json.dumps(client["body"], ensure_ascii=False).encode()
    else:
        body = base.body if base is not None and "method" not in client else b""
    return Sending(
        method=client.get("method") or (base.method if base else "POST"),
        target=client.get("path") or (base.target if base else ""),
        headers=tuple((name.encode(), value) for name, value in pairs.items()),
        body=body,
    )


# --- playing --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Play:
    """A case being played: what was sent, what came, what the upstream saw."""

    case: Case
    proxy: Proxy
    upstream: Upstream
    session: str  # as the record names it; '' = the case names none
    sending: Sending
    gate: Gate | None  # lets the upstream's events out one by one; None = they go freely
    fallback: Upstream | None = None  # None = the case has none
    first: Reception = field(default_factory=lambda: Reception(0.0))
    later: list[Reception] = field(default_factory=list)  # of `then`, in order
    added: list[int] = field(default_factory=list)  # upstream calls each of them caused
    steps: list[dict[str, Any]] = field(default_factory=list)  # after the first request
    calls_of_first: int = 0  # at all upstreams together
    service: Service | None = None  # the webhook's; None = the case has none
    told: Told | None = None  # what it was told of the first request
    waited: Held | None = None  # how the first request waited at the gate; None = it did not
    asked: list[held.Row] = field(default_factory=list)  # approvals, after the first request
    on_hold: str = ""  # the approval there is to decide on; '' = the case needs none
    latencies_s: list[float] = field(default_factory=list)  # of other requests meanwhile
    memory_kib: list[int] = field(default_factory=list)  # before, then after

    @classmethod
    def of(cls, case: Case, stage: Stage) -> Play:
        """Load the upstreams with the case's script and make the first request ready."""
        fills = case.setup.get("disk") == DISK_FILLS
        is_gated = fills or "events_forwarded_within_ms" in case.expect.get("client", {})
        gate = Gate() if is_gated else None
        stage.upstream.load(
            [reply_of(entry, case.scale, gate) for entry in case.entries_to("primary")]
        )
        if stage.fallback is not None:
            stage.fallback.load(
                [reply_of(entry, case.scale) for entry in case.entries_to(FALLBACK)]
            )
        client = _by_prefix(case.client) if "route" in case.setup else case.client
        sending = sending_of(client, f"{case.name}.session")
        return cls(
            case, stage.proxy, stage.upstream, _session_of(sending), sending, gate,
            fallback=stage.fallback, service=stage.service,
        )  # fmt: skip

    def run(self) -> None:
        """Play all requests of the case."""
        if "{id}" in self.sending.target:
            self._put_on_hold()
        then = [item for item in self.case.client.get("then", []) if "at" in item]
        beside = [item for item in then if item.get("at") == "concurrent"]
        threads = [threading.Thread(target=self._play_beside, args=(item,)) for item in beside]
        with Watch(self):
            for thread in threads:
                thread.start()
            self.first = self._play_first()
            for thread in threads:
                thread.join()
        self.calls_of_first = self.call_count
        # A call whose client left goes on; its retry is to find it in flight.
        is_left_running = self.first.ending == "left" and len(then) > len(beside)
        if not is_left_running:
            self._read_steps()
        if "approval" in self.case.expect and self.session:
            self.asked = held.list_asked(self.proxy, self.session)
        for item in then:
            if item not in beside:
                self._play_then(item)
        if is_left_running:
            self._read_steps()
        unscripted = [call.target for server in self.upstreams for call in server.unscripted]
        assert not unscripted, f"calls upstream that the case does not know: {unscripted}"

    def ask(self, sending: Sending, until: Stop | None = None) -> Reception:
        """Make one request of the client. It gives up when it must: heartbeats could go on."""
        gives_up_s = time.perf_counter() + PATIENCE_S

        def is_over(got: Reception) -> bool:
            assert time.perf_counter() < gives_up_s, f"no end came: {got.body!r}"
            return until is not None and until(got)

        return ask(
            self.proxy.address, sending.method, sending.target, sending.headers, sending.body,
            until=is_over,
        )  # fmt: skip

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """The servers that play models."""
        return (self.upstream,) if self.fallback is None else (self.upstream, self.fallback)

    @property
    def call_count(self) -> int:
        """How many calls went upstream so far."""
        return sum(len(server.received) for server in self.upstreams)

    @property
    def first_read(self) -> ChatRead:
        """The first answer as a client of its path reads it."""
        read = read_messages if self.sending.target.endswith("/messages") else read_chat
        return read(self.first.header("content-type"), self.first.body)

    @property
    def step(self) -> dict[str, Any]:
        """The step of the first request."""
        assert self.steps, f"session {self.session!r} has no step"
        return self.steps[0]

    @property
    def sent_bytes(self) -> bytes:
        """The body of the upstream's first answer, framing removed."""
        return b"".join(reply_of(self.case.upstream[0], 1.0).chunks)

    def _read_steps(self) -> None:
        is_wanted = not self.case.expect.keys().isdisjoint(("step", "rule"))
        was_refused = self.first.status in (400, 413) and not self.calls_of_first
        if is_wanted and self.session and not was_refused:
            self.steps = self.proxy.settled_steps(self.session)

    def _play_first(self) -> Reception:
        client = self.case.client
        if self.service is not None:
            return self._play_told(self.service)
        if decisions := held.decisions_of(self.case):
            return self._play_held(decisions)
        if self.case.setup.get("disk") == DISK_FILLS:
            return self._send_and_fill_disk()
        if wire := client.get("wire"):
            assert wire == "send head, wait for an interim response up to 3000 ms, then body"
            return self._send_with_pause()
        read = client.get("read")
        match read:
            case None:
                return self.ask(self.sending, self._opener())
            case {"before_head": True, "close_after_ms": int(ms)}:
                return self._send_and_leave(ms)
            case {"after_events": int(count), "then": "close"}:
                return self.ask(self.sending, lambda got: len(read_events(got.body)) >= count)
            case {"bytes_per_s": 0, "for_ms": int(ms)}:
                return self._send_and_not_read(ms)
            case _:
                raise AssertionError(f"no such way of reading: {read}")

    def _opener(self) -> Stop | None:
        """Let the upstream's next event out only when the one before has reached the client."""
        gate = self.gate
        if gate is None:
            return None
        opened = self._together()
        gate.open(opened)

        def on_piece(got: Reception) -> bool:
            nonlocal opened
            seen = len(read_events(got.body))
            if seen >= opened:
                gate.open(seen + 1 - opened)
                opened = seen + 1
            return False

        return on_piece

    def _together(self) -> int:
        """Return how many events go out at once at first: while something is left to try, those
        before the first content are withheld until that has come."""
        if self.case.setup.get("retries") == 0:
            return 1
        chunks = reply_of(self.case.upstream[0], 1.0).chunks
        counts = range(1, len(chunks) + 1)
        return next(
            n for n in counts if read_chat("text/event-stream", b"".join(chunks[:n])).first.text
        )

    def _play_held(self, decisions: list[dict[str, Any]]) -> Reception:
        read = self.case.client.get("read", {"idle_timeout_ms": 1000 * TIMEOUT_S / self.case.scale})
        assert set(read) == {"idle_timeout_ms"}, f"no such way of reading what is held: {read}"
        self.waited = held.play_held(
            self.case,
            self.proxy,
            self.session,
            self._rendered(),
            decisions,
            count=held.question_count(self.case),
            timeout_s=read["idle_timeout_ms"] / 1000 * self.case.scale,
        )
        return held.as_let_out(self.waited.got)

    def _play_told(self, service: Service) -> Reception:
        count = len(self.case.setup["webhooks"])
        self.told = told.play_told(self.proxy, service, self.session, self._rendered(), count=count)
        return self.told.got

    def _put_on_hold(self) -> None:
        (tool,) = self.case.setup["sensitive_tools"]
        self.on_hold = held.put_on_hold(
            self.proxy, self.upstream, f"{self.case.name}.session", tool
        )
        target = self.sending.target.replace("{id}", self.on_hold)
        self.sending = replace(self.sending, target=target)

    def _send_and_fill_disk(self) -> Reception:
        assert self.gate is not None
        with Asking(self.proxy.address, self._rendered()) as asking:
            self.upstream.wait_for_requests(1)  # so its claim is written
            self.proxy.set_disk(is_full=True)
            self.gate.open(len(self.case.upstream[0]["chunks"]))
            return asking.ended()

    def _rendered(self, sending: Sending | None = None) -> bytes:
        sending = sending or self.sending
        return render_request(
            sending.method, sending.target, self.proxy.address, sending.headers, sending.body
        )

    def _send_with_pause(self) -> Reception:
        whole, body_size = self._rendered(), len(self.sending.body)
        with Connection(self.proxy.address) as connection:
            got = Reception(time.perf_counter())
            connection.send(whole[:-body_size])
            connection.wait_for_interim(3.0, got)
            connection.send(whole[-body_size:])
            return connection.receive(got)

    def _send_and_leave(self, after_ms: int) -> Reception:
        with Connection(self.proxy.address) as connection:
            got = Reception(time.perf_counter(), ending="left")
            connection.send(self._rendered())
            self.upstream.wait_for_requests(1)
            self._pass_time(after_ms)
        return got

    def _send_and_not_read(self, for_ms: int) -> Reception:
        with Connection(self.proxy.address, receive_bytes=SMALL_WINDOW_BYTES) as connection:
            got = Reception(time.perf_counter(), ending="left")
            connection.send(self._rendered())
            self.upstream.wait_for(lambda seen: bool(seen) and seen[0].was_blocked)
            self._pass_time(for_ms)  # memory would go on growing
            self.memory_kib.append(self.proxy.memory_kib())
        return got

    def _play_beside(self, item: Mapping[str, Any]) -> None:
        assert item["same_request"] is True
        self.upstream.wait_for_requests(1)  # the first one is on its way
        self._pass_time(item["after_ms"])
        self.later.append(self.ask(self.sending))

    def _play_then(self, item: Mapping[str, Any]) -> None:
        assert not (unknown := set(item) - _THEN_KEYS), f"no such follow-up: {unknown}"
        if item["at"] == "after_success":
            assert self.first.status in (200, 400), self.first.status
        self._pass_time(item.get("sleep_ms", 0))
        before = self.call_count
        seen = len(self.upstream.received)
        sending = sending_of(item, self.session, self.sending)
        got = self._ask_and_decide(sending, item) if "action" in item else self.ask(sending)
        added = self.upstream.received[seen:]
        assert self.call_count - before == len(added), "a follow-up went to a fallback"
        self.later.append(got)
        self.added.append(len(added))
        match item.get("expect"):
            case "hit":
                assert not added, "it must be answered from the record"
                assert got.body == self.first.body
            case "differs":
                assert [call.body for call in added] == [sending.body]
            case other:
                assert other is None, f"no such expectation of a follow-up: {other}"

    def _ask_and_decide(self, sending: Sending, item: Mapping[str, Any]) -> Reception:
        """Make a further request; its one question, if any tool is guarded, is decided so."""
        if not self.case.setup.get("sensitive_tools"):
            return self.ask(sending)
        rendered = self._rendered(sending)
        found = held.play_held(self.case, self.proxy, self.session, rendered, [item], count=1)
        return held.as_let_out(found.got)

    def _pass_time(self, ms: int) -> None:
        """Keep the pace the case asks for."""
        time.sleep(ms / 1000 * self.case.scale)


_THEN_KEYS = {
    "at", "same_request", "method", "path", "headers", "body", "body_raw", "sleep_ms", "expect",
    "action",
}  # fmt: skip


def _session_of(sending: Sending) -> str:
    raw = dict(sending.headers).get(b"x-agent-session-id", b"")
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        return raw.decode("latin-1").strip()


def _by_prefix(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client that names the provider of its route before the model."""
    body = client["body"]
    return {**client, "body": {**body, "model": f"{ROUTED}/{body['model']}"}}


class Watch:
    """Makes other requests meanwhile and takes the proxy's memory, where a case asks for it."""

    def __init__(self, playing: Play) -> None:
        self._playing = playing
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._is_wanted = "proxy" in playing.case.expect

    def __enter__(self) -> None:
        if self._is_wanted:
            self._playing.memory_kib.append(self._playing.proxy.memory_kib("VmHWM"))
            self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_wanted:
            self._over.set()
            self._thread.join()
            self._playing.memory_kib.append(self._playing.proxy.memory_kib("VmHWM"))

    def _run(self) -> None:
        while not self._over.wait(WATCH_EVERY_S):
            started = time.perf_counter()
            status, _ = self._playing.proxy.get("/healthz")
            assert status == 200
            self._playing.latencies_s.append(time.perf_counter() - started)
