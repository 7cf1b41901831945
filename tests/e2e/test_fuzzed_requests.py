"""Right requests with random changes, in random pieces, to a running proxy: never a 500, never
a hang, and no more answers than requests could be in it.

The wire alone is fuzzed without sockets, and so more often, by `tests/fuzz`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.test_targets import changed
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection, Reception
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

TOKEN = "admin-" + "x" * 26
EXAMPLES = 150


def request(line: str, *headers: str, body: object = None) -> bytes:
    """Return one right request."""
    raw = b"" if body is None else json.dumps(body).encode()
    length = (
        [] if body is None else ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
    )
    head = "\r\n".join((line, "Host: localhost", *headers, *length, "", ""))
    return head.encode() + raw


CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SESSION = "x-agent-session-id: fuzzed"
AUTHORIZED = f"authorization: Bearer {TOKEN}"
SEEDS = [
    request("POST /v1/chat/completions HTTP/1.1", SESSION, "x-agent-step-number: 1", body=CHAT),
    request("POST /v1/chat/completions HTTP/1.1", SESSION, body={**CHAT, "stream": True}),
    request("POST /s/fuzzed/v1/responses HTTP/1.1", body={"model": "m", "input": "hi"}),
    request("POST /p/openai/v1/messages HTTP/1.1", "anthropic-version: 2023-06-01",
            body={**CHAT, "max_tokens": 5}),
    request("POST /v1beta/models/m:generateContent?key=k HTTP/1.1", SESSION,
            body={"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    request("GET /v1/models HTTP/1.1", "Range: bytes=0-1"),
    request("GET /api/sessions?status=FAILED&limit=2&tag=a=b HTTP/1.1", AUTHORIZED),
    request("GET /api/sessions/fuzzed?detail=1 HTTP/1.1", AUTHORIZED),
    request("POST /api/sessions/fuzzed/rollback HTTP/1.1", AUTHORIZED, body={"to_step": 1}),
    request("POST /api/login HTTP/1.1", "Cookie: a=b; agentstate=x", body={"token": TOKEN}),
    request("GET /api/overview?range=1h HTTP/1.1", f"x-agentstate-token: {TOKEN}"),
    request("GET /dashboard/app.js HTTP/1.1", "If-None-Match: \"x\"", "Accept-Encoding: gzip"),
    request("OPTIONS * HTTP/1.1") + request("HEAD /healthz HTTP/1.1"),
]  # fmt: skip


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Start one for all examples."""
    db: Path = tmp_path_factory.mktemp("fuzzed") / "record.db"
    env = {"AGENTSTATE_TOKEN": TOKEN, "AGENTSTATE_FORWARD_RETRIES": "0"}
    with (
        CountingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=db, env=env, flags=["--mock"]) as proxy,
    ):
        yield proxy


def answers(proxy: Proxy, data: bytes, step: int) -> list[Reception]:
    """Send data in pieces, close the sending half, and return every answer to the end."""
    found: list[Reception] = []
    with Connection(proxy.address) as connection:
        try:
            for at in range(0, len(data), step):
                connection.send(data[at : at + step])
            connection.end_sending()
        except OSError:
            pass  # it was refused before all was sent
        while True:
            got = connection.receive()
            assert got.ending != "timeout", "it hangs"
            if got.status is None:
                return found
            found.append(got)


@given(number=st.integers(0, 2**32 - 1), step=st.sampled_from((1, 7, 50, 1_000, 100_000)))
@settings(
    derandomize=True, deadline=None, database=None, max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_a_changed_request_gets_one_answer_and_never_a_500(
    proxy: Proxy, number: int, step: int
) -> None:
    data = changed(SEEDS, number)

    got = answers(proxy, data, step)

    assert [each.body for each in got if each.status == 500] == []
    # Of what can be no request there is one refusal more.
    assert len(got) <= data.count(b" HTTP/1.") + 1
    assert proxy.is_running


def test_nothing_of_it_was_a_bug(proxy: Proxy) -> None:
    assert proxy.get("/healthz")[0] == 200
    assert "Traceback" not in proxy.log_path.read_text("utf-8", "replace")
