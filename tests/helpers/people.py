"""A person at the gate: waits for questions over the API of a real proxy, and answers them."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import quote

from tests.helpers.proxy import POLL_S, WAIT_TIMEOUT_S, Proxy


def list_pending(proxy: Proxy) -> list[dict[str, Any]]:
    """Return what waits for a decision, the first asked first."""
    status, body = proxy.get("/api/approvals/pending")
    assert status == 200, (status, body)
    found: list[dict[str, Any]] = json.loads(body)
    return found


def wait_for_pending(
    proxy: Proxy, count: int = 1, *, session: str | None = None, timeout_s: float = WAIT_TIMEOUT_S
) -> list[dict[str, Any]]:
    """Wait until so many approvals are pending (of one session) and return them."""
    until = time.monotonic() + timeout_s
    while True:
        found = [row for row in list_pending(proxy) if session in (None, row["session"])]
        if len(found) >= count:
            assert len(found) == count, found
            return found
        assert time.monotonic() < until, f"{len(found)} of {count} approvals are pending"
        time.sleep(POLL_S)


def decide(
    proxy: Proxy, approval_id: str, action: str = "APPROVED", **more: Any
) -> tuple[int, dict[str, Any]]:
    """Post a decision; return status and body."""
    connection = http.client.HTTPConnection(*proxy.address, timeout=10)
    try:
        connection.request(
            "POST",
            f"/api/approvals/{quote(approval_id, safe='')}/action",
            json.dumps({"action": action, **more}),
            {"content-type": "application/json"},
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def approve(proxy: Proxy, *, session: str | None = None, **more: Any) -> dict[str, Any]:
    """Wait for the one question (of a session) and approve it."""
    (row,) = wait_for_pending(proxy, session=session)
    status, decided = decide(proxy, row["approval_id"], **more)
    assert status == 200, decided
    return decided


def reject(proxy: Proxy, *, session: str | None = None, **more: Any) -> dict[str, Any]:
    """Wait for the one question (of a session) and refuse it."""
    (row,) = wait_for_pending(proxy, session=session)
    status, decided = decide(proxy, row["approval_id"], "REJECTED", **more)
    assert status == 200, decided
    return decided
