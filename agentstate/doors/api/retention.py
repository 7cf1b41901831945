"""What has been kept long enough, and deleting it now."""

from __future__ import annotations

from typing import TypedDict

from agentstate.doors.api.reply import json_response, read_params
from agentstate.doors.api.shapes import as_json
from agentstate.house.retention import Going, Retention
from agentstate.wire.endpoint import Endpoint, Params
from agentstate.wire.message import Request, Response


class GoingShown(TypedDict):
    """A session that goes, or went."""

    session: str
    updated_ms: int
    steps: int
    content_bytes: int
    why: str


class RetentionShown(TypedDict):
    """What the limits are, and what they mean now."""

    retention_days: float | None
    steps_max: int | None
    size_max_mb: int | None
    sessions: list[GoingShown]


class RetentionEndpoints:
    """Answers `/api/retention`."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/retention",
                self.show,
                "Show which sessions have been kept long enough. Nothing is deleted.",
                shape=RetentionShown,
            ),
            Endpoint(
                "POST",
                "/api/retention",
                self.run,
                "Delete them now, instead of within ten minutes.",
                shape=RetentionShown,
            ),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with the limits and the sessions that would go."""
        read_params(request, frozenset())
        return self._answer(await self._retention.plan())

    async def run(self, request: Request, params: Params) -> Response:
        """Answer with the limits and the sessions that went."""
        read_params(request, frozenset())
        return self._answer(await self._retention.run())

    def _answer(self, going: list[Going]) -> Response:
        limits = self._retention.limits
        shown: RetentionShown = {
            "retention_days": limits.retention_days,
            "steps_max": limits.steps_max,
            "size_max_mb": limits.size_max_mb,
            "sessions": [
                {
                    "session": each.session,
                    "updated_ms": each.quiet.updated_ms,
                    "steps": each.quiet.steps,
                    "content_bytes": each.content_bytes,
                    "why": each.why,
                }
                for each in going
            ],
        }
        return json_response(as_json(shown))
