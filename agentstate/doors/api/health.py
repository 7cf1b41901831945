"""Is it alive, and does it take calls? For supervisors and for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypedDict

from agentstate.doors.api.reply import json_response
from agentstate.doors.api.shapes import as_json
from agentstate.ground.errors import StoreError
from agentstate.steps.pipeline import Pipeline
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Params
from agentstate.wire.message import Request, Response


class HealthShown(TypedDict):
    """What works."""

    status: Literal["ok"]
    version: str
    in_flight: int
    sessions: int
    steps: int


class DegradedShown(TypedDict):
    """What does not."""

    status: Literal["degraded"]
    reason: str
    version: str


class ReadyShown(TypedDict):
    """That it takes calls."""

    status: Literal["ready"]


class NotReadyShown(TypedDict):
    """That it does not, and why."""

    status: Literal["not_ready"]
    reason: str


class HealthEndpoints:
    """Answers `/healthz` and `/readyz`."""

    def __init__(
        self, store: Store, pipeline: Pipeline, version: str, is_stopping: Callable[[], bool]
    ) -> None:
        self._is_stopping = is_stopping
        self._store = store
        self._pipeline = pipeline
        self._version = version

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/healthz",
                self.health,
                "Say whether the proxy works; 503 if not.",
                shape=HealthShown,
                faults=((503, DegradedShown),),
                needs="anybody",
            ),
            Endpoint(
                "GET",
                "/readyz",
                self.ready,
                "Say whether it takes calls: 503 once it was told to stop, or if the record takes "
                "no writes.",
                shape=ReadyShown,
                faults=((503, NotReadyShown),),
                needs="anybody",
            ),
        )

    async def ready(self, request: Request, params: Params) -> Response:
        """Answer 200, or 503 with the reason."""
        reason = "it was told to stop" if self._is_stopping() else None
        if reason is None:
            try:
                await self._store.check()
            except StoreError as error:
                reason = error.message
        if reason is not None:
            shown: NotReadyShown = {"status": "not_ready", "reason": reason}
            return json_response(as_json(shown), 503)
        return json_response(as_json(ReadyShown(status="ready")))

    async def health(self, request: Request, params: Params) -> Response:
        """Answer 200 with what works, or 503 with what does not."""
        try:
            await self._store.check()
            totals = await self._store.read_totals()
        except StoreError as error:
            degraded: DegradedShown = {
                "status": "degraded",
                "reason": error.message,
                "version": self._version,
            }
            return json_response(as_json(degraded), 503)
        shown: HealthShown = {
            "status": "ok",
            "version": self._version,
            "in_flight": self._pipeline.in_flight_count,
            "sessions": totals.get("sessions", 0),
            "steps": totals.get("steps", 0),
        }
        return json_response(as_json(shown))
