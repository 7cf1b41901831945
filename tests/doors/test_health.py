"""A supervisor is told when the server takes no calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from agentstate.doors.api.health import HealthEndpoints
from agentstate.store.memory import MemoryStore


def ready(store: MemoryStore, *, is_stopping: bool) -> tuple[int, Any]:
    endpoints = HealthEndpoints(store, cast(Any, None), "1.0", lambda: is_stopping)
    response = asyncio.run(endpoints.ready(cast(Any, None), {}))
    assert isinstance(response.body, bytes)
    return response.status, json.loads(response.body)


def test_it_is_ready_until_it_is_told_to_stop() -> None:
    store = MemoryStore()
    asyncio.run(store.open())

    assert ready(store, is_stopping=False) == (200, {"status": "ready"})
    status, shown = ready(store, is_stopping=True)
    assert (status, shown) == (503, {"status": "not_ready", "reason": "it was told to stop"})


def test_a_record_that_takes_no_writes_is_not_ready() -> None:
    status, shown = ready(MemoryStore(), is_stopping=False)  # it was never opened

    assert status == 503
    assert "closed" in shown["reason"]
