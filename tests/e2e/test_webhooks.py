"""Webhooks from a real proxy: told once a call is held, also over kills, and no URL leaks."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cases.held import put_on_hold
from tests.helpers.people import approve
from tests.helpers.proxy import POLL_S, WAIT_TIMEOUT_S, Proxy
from tests.helpers.raw_client import Reception, ask
from tests.helpers.services import TOKEN, Service
from tests.helpers.upstream import Gate, Reply, Upstream

pytestmark = pytest.mark.slow

SEED = 8
TOOL = "delete_rows"


def env_of(service: Service) -> dict[str, str]:
    """Let a proxy hold a tool and tell this service of it."""
    return {
        "AGENTSTATE_GATE_TOOLS": TOOL,
        "AGENTSTATE_GATE_HEARTBEAT_S": "0.2",
        "WEBHOOK_URL": service.hook_url,
    }


def deliveries(proxy: Proxy, query: str = "") -> list[dict[str, Any]]:
    status, body = proxy.get(f"/api/webhooks/deliveries{query}")
    assert status == 200, body
    found: list[dict[str, Any]] = json.loads(body)
    return found


def wait_for_sent(proxy: Proxy, count: int) -> list[dict[str, Any]]:
    """Wait until so many deliveries were taken, and return them."""
    until = time.monotonic() + WAIT_TIMEOUT_S
    while len(found := deliveries(proxy, "?state=sent")) < count:
        assert time.monotonic() < until, deliveries(proxy)
        time.sleep(POLL_S)
    return found


def end_leases(db: Path) -> None:
    """Let the minute of the dead process's leases pass."""
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("update delivery set leased_ms = 0 where leased_ms is not null")


def test_a_held_call_is_told_with_a_link_to_it(tmp_path: Path) -> None:
    with (
        Upstream() as upstream,
        Service("json") as service,
        Proxy(upstream_url=upstream.url, db=tmp_path / "r.db", env=env_of(service)) as proxy,
    ):
        approval = put_on_hold(proxy, upstream, "s", TOOL)
        [received] = service.wait_for_requests(1)
        [row] = wait_for_sent(proxy, 1)

        told = received.json()
        assert (told["type"], received.header("webhook-id")) == (
            "approval.required",
            row["event_id"],
        )
        assert f"{proxy.url}/dashboard/#/approvals/{approval}" in json.dumps(told)
        assert (row["approval_id"], row["tries"], row["webhook"]) == (approval, 1, "webhook")
        approve(proxy, session="s")
    assert len(service.received) == 1, "a decision is not among what a URL alone is told of"


def test_a_delivery_in_flight_when_the_proxy_is_killed_arrives_with_the_same_id(
    tmp_path: Path,
) -> None:
    db = tmp_path / "r.db"
    with (
        Upstream() as upstream,
        Service("json", [Reply(chunks=(b"ok",), gate=Gate())]) as service,
        Proxy(upstream_url=upstream.url, db=db, env=env_of(service)) as proxy,
    ):
        put_on_hold(proxy, upstream, "s", TOOL)
        service.wait_for_requests(1)
        proxy.kill()
        end_leases(db)
        proxy.start()
        first, second = service.wait_for_requests(2)
        [row] = wait_for_sent(proxy, 1)

        assert row["tries"] == 2
        assert first.header("webhook-id") == second.header("webhook-id") == row["event_id"]
        assert first.json()["data"] == second.json()["data"]


def test_over_many_kills_no_event_is_lost_and_each_kill_doubles_one_at_most(
    tmp_path: Path,
) -> None:
    rng, kills, count = random.Random(SEED), 4, 12
    db, gate = tmp_path / "r.db", Gate()
    script = [Reply(chunks=(b"ok",), gate=gate) for _ in range(count + kills)]
    with (
        Upstream() as upstream,
        Service("json", script) as service,
        Proxy(upstream_url=upstream.url, db=db, env=env_of(service)) as proxy,
    ):
        approvals = {put_on_hold(proxy, upstream, f"s{n}", TOOL) for n in range(count)}
        for _ in range(kills):
            gate.open(rng.randrange(3))
            time.sleep(rng.random() * 0.05)  # wherever that finds it
            proxy.kill()
            end_leases(db)
            proxy.start()
        gate.open(count + kills)
        rows = wait_for_sent(proxy, count)

        assert {row["approval_id"] for row in rows} == approvals
        sent = Counter(str(each.header("webhook-id")) for each in service.received)
        assert set(sent) == {row["event_id"] for row in rows}
        assert sent.total() <= count + kills
        assert max(sent.values()) <= 1 + kills


def test_a_url_is_in_no_answer_no_file_and_no_line_of_the_log(tmp_path: Path) -> None:
    db = tmp_path / "r.db"
    echo = f"no hook at /services/T00000000/B00000000/{TOKEN}".encode()
    script = [Reply(500, chunks=(echo,)), Reply(404, chunks=(echo,)), Reply(410, chunks=(echo,))]
    (tmp_path / "agentstate.toml").write_text(
        '[[webhook]]\nurl = "env:MY_HOOK"\nformat = "slack"\n[log]\nlevel = "debug"\n'
    )
    with Upstream() as upstream, Service("slack", script) as service:
        env = env_of(service)
        env["MY_HOOK"] = env.pop("WEBHOOK_URL")
        with Proxy(upstream_url=upstream.url, db=db, env=env) as proxy:
            put_on_hold(proxy, upstream, "s", TOOL)
            service.wait_for_requests(2)  # again after at most 2 s, then never
            until = time.monotonic() + WAIT_TIMEOUT_S
            while not (dead := deliveries(proxy, "?state=dead")):
                assert time.monotonic() < until
                time.sleep(POLL_S)
            shown = b"".join(
                proxy.get(path)[1]
                for path in ("/api/webhooks", "/api/webhooks/deliveries", "/healthz")
            )
            log = proxy.log_tail()
        stored = proxy.stored_bytes()
    assert (dead[0]["status"], dead[0]["tries"]) == (404, 2)
    assert "webhook-1  slack to 127.0.0.1 (approval.required" in log
    assert "is given up" in log
    for text in (shown, stored, log.encode()):
        assert TOKEN.encode() not in text
        assert b"T00000000" not in text


def test_a_webhook_that_hangs_keeps_the_proxy_from_stopping_only_for_a_moment(
    tmp_path: Path,
) -> None:
    db = tmp_path / "r.db"
    with Upstream() as upstream, Service("json", [Reply(gate=Gate(), chunks=(b"",))]) as service:
        with Proxy(upstream_url=upstream.url, db=db, env=env_of(service)) as proxy:
            put_on_hold(proxy, upstream, "s", TOOL)
            service.wait_for_requests(1)
            started = time.monotonic()
            proxy.stop()
            assert time.monotonic() - started < 15
        end_leases(db)
        proxy.start()
        first, second = service.wait_for_requests(2)
        proxy.stop()
    assert first.header("webhook-id") == second.header("webhook-id")


def test_a_killed_agent_is_told_of(tmp_path: Path) -> None:
    with Upstream() as upstream, Service("json") as service:
        env = env_of(service) | {
            "AGENTSTATE_SWEEP_STALLED_AFTER_S": "0.3",
            "AGENTSTATE_GATE_TOOLS": "nothing_else",
        }
        with Proxy(upstream_url=upstream.url, db=tmp_path / "r.db", env=env) as proxy:
            call = {"id": "c", "type": "function", "function": {"name": TOOL, "arguments": "{}"}}
            said = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
            body = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}
            upstream.extend([Reply(chunks=(json.dumps(body).encode(),), headers=JSON_TYPE)])
            answer = post_chat(proxy, "lost")
            assert answer.status == 200
            [received] = service.wait_for_requests(1)
            [row] = wait_for_sent(proxy, 1)
    assert (received.json()["type"], row["session"]) == ("session.stalled", "lost")


JSON_TYPE = ((b"content-type", b"application/json"),)


def post_chat(proxy: Proxy, session: str) -> Reception:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = (*JSON_TYPE, (b"x-agent-session-id", session.encode()))
    return ask(proxy.address, "POST", "/v1/chat/completions", headers, body)


def test_a_webhook_that_is_not_there_denies_nothing(tmp_path: Path) -> None:
    with Upstream() as upstream:
        with Service("json") as gone:
            env = env_of(gone)
        with Proxy(upstream_url=upstream.url, db=tmp_path / "r.db", env=env) as proxy:
            put_on_hold(proxy, upstream, "s", TOOL)
            approve(proxy, session="s")
            again = post_chat(proxy, "s")
            [row] = deliveries(proxy)
    assert again.status == 200
    assert TOOL.encode() in again.body
    assert (row["state"], row["status"]) == ("due", None)
