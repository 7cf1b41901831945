"""The management API. One file per topic, one row per endpoint; `endpoint_table` is all of it."""

from __future__ import annotations

from agentstate.doors.api.approvals import ApprovalEndpoints, Decider
from agentstate.doors.api.health import HealthEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.api.webhooks import WebhookEndpoints
from agentstate.house.outbox import Outbox
from agentstate.steps.pipeline import Pipeline
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint


def endpoint_table(
    store: Store, pipeline: Pipeline, version: str, gate: Decider, outbox: Outbox
) -> tuple[Endpoint, ...]:
    """Return every endpoint of the management API."""
    return (
        *HealthEndpoints(store, pipeline, version).rows(),
        *SessionEndpoints(store).rows(),
        *ApprovalEndpoints(store, gate).rows(),
        *WebhookEndpoints(store, outbox).rows(),
    )
