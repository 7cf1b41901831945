"""The management API. One file per topic, one row per endpoint; `endpoint_table` is all of it."""

from __future__ import annotations

from collections.abc import Callable

from agentstate.doors.api.approvals import ApprovalEndpoints, Decider
from agentstate.doors.api.budget import BudgetEndpoints, Budgeter
from agentstate.doors.api.cassettes import CassetteEndpoints
from agentstate.doors.api.control import ControlEndpoints
from agentstate.doors.api.durable import DurableEndpoints, DurableKeeper
from agentstate.doors.api.export import ExportEndpoints
from agentstate.doors.api.forks import ForkEndpoints
from agentstate.doors.api.health import HealthEndpoints
from agentstate.doors.api.live import LiveEndpoints
from agentstate.doors.api.login import LoginEndpoints
from agentstate.doors.api.metrics import MetricsEndpoints
from agentstate.doors.api.openapi import OpenAPIEndpoints
from agentstate.doors.api.overview import OverviewEndpoints
from agentstate.doors.api.recovery import RecoveryEndpoints
from agentstate.doors.api.retention import RetentionEndpoints
from agentstate.doors.api.revisions import Reviser, RevisionEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.api.settings import SettingsEndpoints
from agentstate.doors.api.timeline import TimelineEndpoints
from agentstate.doors.api.tool_calls import ToolCallEndpoints
from agentstate.doors.api.webhooks import WebhookEndpoints
from agentstate.doors.guard import Guard
from agentstate.ground.access import Tokens
from agentstate.ground.meters import Meters
from agentstate.ground.redaction import NOTHING_KNOWN, Redactor
from agentstate.ground.settings import Loaded, StoreSettings
from agentstate.house.feed import Feed
from agentstate.house.outbox import Outbox
from agentstate.house.retention import Retention, nothing_goes
from agentstate.steps.control import Control
from agentstate.steps.pipeline import Pipeline
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint


def endpoint_table(
    store: Store,
    pipeline: Pipeline,
    version: str,
    gate: Decider,
    outbox: Outbox,
    control: Control,
    durables: DurableKeeper,
    reviser: Reviser,
    budgets: Budgeter,
    feed: Feed,
    in_force: Callable[[], Loaded],
    login: LoginEndpoints | None = None,
    keys: Callable[[], tuple[str, ...]] = tuple,
    redactor: Redactor = NOTHING_KNOWN,
    meters: Meters | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    retention: Retention | None = None,
) -> tuple[Endpoint, ...]:
    """Return every endpoint of the management API. `in_force`: what is configured at the
    moment. `login`: None = nobody has to log in. `keys`: secrets that no cassette may hold.
    `redactor`: takes those and more out of training data. `meters`: what was counted; None =
    nothing is. `retention`: what goes by itself; None = nothing."""
    if retention is None:
        retention = Retention(store, StoreSettings(), nothing_goes)
    login = login or LoginEndpoints(Guard(Tokens(())), is_tls=False)
    rows = (
        *HealthEndpoints(store, pipeline, version, is_stopping).rows(),
        *login.rows(),
        *SessionEndpoints(store, budgets).rows(),
        *ToolCallEndpoints(store).rows(),
        *RecoveryEndpoints(store).rows(),
        *ControlEndpoints(store, control).rows(),
        *BudgetEndpoints(store, budgets).rows(),
        *ForkEndpoints(store, control).rows(),
        *RevisionEndpoints(store, reviser).rows(),
        *DurableEndpoints(store, durables).rows(),
        *ExportEndpoints(store, redactor).rows(),
        *CassetteEndpoints(store, control, keys).rows(),
        *ApprovalEndpoints(store, gate).rows(),
        *WebhookEndpoints(store, outbox).rows(),
        *TimelineEndpoints(store, budgets).rows(),
        *OverviewEndpoints(store).rows(),
        *SettingsEndpoints(in_force, version).rows(),
        *LiveEndpoints(feed).rows(),
        *RetentionEndpoints(retention).rows(),
        *MetricsEndpoints(store, pipeline, meters or Meters(), version, is_stopping).rows(),
    )
    return (*rows, *OpenAPIEndpoints(version, rows).rows())
