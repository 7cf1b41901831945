"""What Prometheus and a supervisor are told by a real server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.proxy import ONCE, Proxy
from tests.helpers.upstream import Reply, Upstream, json_reply, sse_reply

pytestmark = pytest.mark.slow

BODY = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "secret words"}]}
KEY = "sk-metrics-" + "q7Rz2Lw9Kp4Xc8Vb"


def answer() -> Reply:
    message = {"role": "assistant", "content": "hello"}
    return json_reply({
        "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
    })  # fmt: skip


def stream() -> Reply:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    pieces = [{"content": "hel"}, {"content": "lo"}]
    chunks = [{**head, "choices": [{"index": 0, "delta": each, "finish_reason": None}]}
              for each in pieces]  # fmt: skip
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    frames = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks]
    return sse_reply([*frames, b"data: [DONE]\n\n"])


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as started:
        yield started


def started(upstream: Upstream, tmp_path: Path, **env: str) -> Proxy:
    return Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env={**ONCE, **env})


def ask(proxy: Proxy, session: str = "s", **more: Any) -> int:
    connection = http.client.HTTPConnection(*proxy.address, timeout=30)
    try:
        headers = {"content-type": "application/json", "x-agent-session-id": session,
                   "authorization": f"Bearer {KEY}"}  # fmt: skip
        connection.request("POST", "/v1/chat/completions", json.dumps({**BODY, **more}), headers)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def metrics(proxy: Proxy) -> dict[str, dict[tuple[str, ...], float]]:
    """Return every sample: by name, then by the values of its labels in order of their names."""
    status, body = proxy.get("/metrics")
    assert status == 200, body
    assert b"secret words" not in body
    assert KEY.encode() not in body
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_calls_replays_failures_and_money_are_counted(upstream: Upstream, tmp_path: Path) -> None:
    upstream.load([answer(), json_reply({"error": {"message": "no"}}, status=400), stream()])
    with started(upstream, tmp_path) as proxy:
        before = metrics(proxy)
        assert ask(proxy) == 200
        assert ask(proxy) == 200  # from the record
        assert ask(proxy, "t") == 400
        assert ask(proxy, "u", stream=True) == 200
        found = metrics(proxy)

    assert before["agentstate_record_steps"][()] == 0
    assert "agentstate_requests_total" not in before
    assert found["agentstate_requests_total"] == {
        ("", "2xx"): 2, ("", "4xx"): 1, ("exact", "2xx"): 1,
    }  # fmt: skip
    assert sum(found["agentstate_overhead_seconds_count"].values()) == 4
    place = ("chat", "openai", "gpt-4o-mini")
    took = found["gen_ai_client_operation_duration_seconds_count"]
    assert took["", *place] == 2
    assert sum(took.values()) == 3
    assert found["gen_ai_client_operation_time_to_first_chunk_seconds_count"][place] == 1
    assert found["gen_ai_client_token_usage_sum"][*place, "input"] == 1000
    assert found["gen_ai_client_token_usage_sum"][*place, "output"] == 200
    cost = found["agentstate_cost_usd_total"]["gpt-4o-mini", "openai"]
    assert cost > 0
    assert found["agentstate_saved_usd_total"][()] == pytest.approx(cost)
    assert found["agentstate_record_steps"][()] == 3
    assert found["agentstate_record_bytes"][()] > 0
    assert found["agentstate_approvals_waiting"][()] == 0
    assert found["agentstate_ready"][()] == 1
    assert found["process_resident_memory_bytes"][()] > 1_000_000


def test_metrics_are_for_readers_and_health_is_for_everybody(
    upstream: Upstream, tmp_path: Path
) -> None:
    tokens = {"AGENTSTATE_SERVER_TOKEN": "an-admins-token-of-thirty-chars",
              "AGENTSTATE_SERVER_READ_TOKENS": "a-readers-token-of-thirty-chars"}  # fmt: skip
    with started(upstream, tmp_path, **tokens) as proxy:
        assert proxy.get("/metrics")[0] == 401
        assert proxy.get("/readyz") == (200, b'{"status":"ready"}')
        connection = http.client.HTTPConnection(*proxy.address, timeout=30)
        connection.request(
            "GET", "/metrics", headers={"authorization": "Bearer a-readers-token-of-thirty-chars"}
        )
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type")) == (
            200, "text/plain; version=0.0.4; charset=utf-8",
        )  # fmt: skip
        response.read()
        connection.close()


def test_a_page_of_another_name_cannot_read_metrics(upstream: Upstream, tmp_path: Path) -> None:
    with started(upstream, tmp_path) as proxy:
        connection = http.client.HTTPConnection(*proxy.address, timeout=30)
        connection.request("GET", "/metrics", headers={"host": "evil.example"})
        assert connection.getresponse().status == 403
        connection.close()


def test_a_full_disk_is_not_ready(upstream: Upstream, tmp_path: Path) -> None:
    with started(upstream, tmp_path) as proxy:
        proxy.set_disk(is_full=True)
        status, body = proxy.get("/readyz")
        assert status == 503
        assert json.loads(body)["status"] == "not_ready"
        assert metrics(proxy)["agentstate_ready"][()] == 0
        proxy.set_disk(is_full=False)
        assert proxy.get("/readyz")[0] == 200
