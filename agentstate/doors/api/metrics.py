"""What the server has counted, and how things stand now, for Prometheus."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

from agentstate.doors.api.reply import read_params
from agentstate.ground.clock import now_ms, process_s
from agentstate.ground.errors import StoreError
from agentstate.ground.meters import MICRO, Meters
from agentstate.ground.metrics import MEDIA_TYPE, Gauge, Labels, Metric, render
from agentstate.steps.pipeline import Pipeline
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Params
from agentstate.wire.message import Request, Response

_STATUS = "/proc/self/statm"
_FILES = "/proc/self/fd"


class MetricsEndpoints:
    """Answers `/metrics`."""

    def __init__(
        self,
        store: Store,
        pipeline: Pipeline,
        meters: Meters,
        version: str,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._meters = meters
        self._is_stopping = is_stopping
        self._version = version
        self._began_s = now_ms() / 1000

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/metrics",
                self.show,
                "Show what was counted since the start and how things stand, for Prometheus.",
                answers="lines",
                media_type="text/plain",
            ),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer in Prometheus' text form. A record that cannot be read says so in
        `agentstate_record_up`; all else is there."""
        read_params(request, frozenset())
        body = render([*self._meters.rows(), *await self._gauges()])
        headers = [(b"content-type", MEDIA_TYPE), (b"cache-control", b"no-store")]
        return Response(200, headers, body)

    async def _gauges(self) -> list[Gauge]:
        in_flight = self._pipeline.in_flight_count
        is_ready = not self._is_stopping() and await self._takes_writes()
        found = [
            _gauge("agentstate_info", "The version that runs.", {(self._version,): 1.0}, "version"),
            _plain("agentstate_calls_in_flight", "Calls on their way.", in_flight),
            _plain(
                "agentstate_ready",
                "1 = it takes calls; 0 = it stops, or the record takes no writes.",
                float(is_ready),
            ),
            *_process(self._began_s),
        ]
        try:
            found += await self._of_record()
        except StoreError:
            found.append(_plain("agentstate_record_up", "1 = the record can be read.", 0))
        return found

    async def _takes_writes(self) -> bool:
        try:
            await self._store.check()
        except StoreError:
            return False
        return True

    async def _of_record(self) -> list[Gauge]:
        totals = await self._store.read_totals()
        waiting = await self._store.count_pending(at_ms=now_ms())
        due: dict[Labels, float] = {
            (hook, state): count
            for hook, counts in (await self._store.count_deliveries()).items()
            for state, count in counts.items()
            if state != "sent"
        }
        return [
            _plain("agentstate_record_up", "1 = the record can be read.", 1),
            _plain("agentstate_record_sessions", "Sessions on record.", totals["sessions"]),
            _plain("agentstate_record_steps", "Steps on record.", totals["steps"]),
            _plain("agentstate_record_bytes", "Size of the database.", totals["bytes_on_disk"]),
            _plain(
                "agentstate_record_cost_usd",
                "What all answers on record cost at list prices.",
                totals["cost_microusd"] / MICRO,
            ),
            _plain(
                "agentstate_record_saved_usd",
                "What all replays on record saved.",
                totals["saved_microusd"] / MICRO,
            ),
            _plain("agentstate_approvals_waiting", "Approvals that wait for a person.", waiting),
            _gauge(
                "agentstate_webhook_deliveries",
                "Messages to webhooks that are due, or were given up.",
                due,
                "webhook",
                "state",
            ),
        ]


def _process(began_s: float) -> Iterator[Gauge]:
    """Yield what Prometheus' own clients tell of every process, as far as this machine tells it."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield _gauge("python_info", "The Python it runs on.", {(python,): 1.0}, "version")
    yield _plain("process_start_time_seconds", "When it started, since 1970.", began_s)
    yield _plain("process_cpu_seconds_total", "Processor time it took.", process_s(), "counter")
    try:
        with open(_STATUS, encoding="ascii") as file:
            pages = int(file.read().split()[1])
        yield _plain(
            "process_resident_memory_bytes", "Memory it has.", pages * os.sysconf("SC_PAGE_SIZE")
        )
        yield _plain("process_open_fds", "Files it has open.", len(os.listdir(_FILES)))
    except OSError:
        return  # no Linux


def _plain(name: str, text: str, value: float, kind: str = "gauge") -> Gauge:
    return Gauge(Metric(name, text, "counter" if kind == "counter" else "gauge"), {(): value})


def _gauge(name: str, text: str, values: dict[Labels, float], *labels: str) -> Gauge:
    return Gauge(Metric(name, text, "gauge", labels), values)
