"""Is it alive? For supervisors and for people."""

from __future__ import annotations

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


class HealthEndpoints:
    """Answers `/healthz`."""

    def __init__(self, store: Store, pipeline: Pipeline, version: str) -> None:
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
        )

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
