"""Is it alive? For supervisors and for people."""

from __future__ import annotations

from agentstate.doors.api.reply import json_response
from agentstate.ground.errors import StoreError
from agentstate.steps.pipeline import Pipeline
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Params
from agentstate.wire.message import Request, Response


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
                needs="anybody",
            ),
        )

    async def health(self, request: Request, params: Params) -> Response:
        """Answer 200 with what works, or 503 with what does not."""
        try:
            await self._store.check()
            totals = await self._store.read_totals()
        except StoreError as error:
            return json_response(
                {"status": "degraded", "reason": error.message, "version": self._version}, 503
            )
        return json_response(
            {
                "status": "ok",
                "version": self._version,
                "in_flight": self._pipeline.in_flight_count,
                "sessions": totals.get("sessions", 0),
                "steps": totals.get("steps", 0),
            }
        )
