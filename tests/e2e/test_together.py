"""Identical calls at once make one upstream call, and a call outlives the client that made it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection, Reception, ask, render_request
from tests.helpers.reading import read_chat
from tests.helpers.upstream import CountingUpstream, Gate, Received, Reply, Upstream, model_reply

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
WORDS = 10
DEADLINE_S = 10.0


def call(proxy: Proxy, *, streams: bool, **headers: str) -> Reception:
    """Ask the one question of these tests."""
    body: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    if streams:
        body["stream"] = True
    pairs = [(b"x-agent-session-id", b"s"), (b"content-type", b"application/json")]
    pairs += [(f"x-agent-{k.replace('_', '-')}".encode(), v.encode()) for k, v in headers.items()]
    return ask(proxy.address, "POST", PATH, pairs, json.dumps(body).encode())


def has_begun(got: Reception) -> bool:
    """Say whether some of the body is there: the moment a client of these tests leaves."""
    return len(got.pieces) > 0


def text_of(got: Reception) -> str:
    """Return what the model said, in whichever form."""
    return read_chat(got.header("content-type"), got.body).first.text


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize("form", ["whole", "streamed", "mixed"])
def test_identical_calls_at_once_are_paid_once(count: int, form: str, tmp_path: Path) -> None:
    with (
        CountingUpstream(delay_s=0.3) as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
        ThreadPoolExecutor(count) as clients,
    ):

        def one(number: int) -> Reception:
            return call(proxy, streams=form == "streamed" or (form == "mixed" and number % 2 == 0))

        answers = list(clients.map(one, range(count)))
        steps = proxy.settled_steps("s")
    assert upstream.counts.total() == 1
    assert {each.status for each in answers} == {200}
    assert len({text_of(each) for each in answers}) == 1
    assert [each.header("x-agentstate-cache-hit") for each in answers].count("false") == 1
    assert len(steps) == 1


class GatedUpstream(Upstream):
    """Streams one answer, each event waiting at one gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def reply_to(self, request: Received) -> Reply:
        reply = model_reply(request.json(), words=WORDS)
        return Reply(
            headers=reply.headers,
            chunks=reply.chunks,
            framing="chunked",
            gate=self.gate,
            head_first=True,
        )


def test_a_late_joiner_gets_what_has_arrived_and_then_lives_along(tmp_path: Path) -> None:
    with (
        GatedUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
        ThreadPoolExecutor(2) as clients,
    ):
        upstream.gate.open(4)
        first = clients.submit(call, proxy, streams=True)
        upstream.wait_for_requests(1)
        late = clients.submit(call, proxy, streams=True)
        upstream.gate.open(100)
        one, two = first.result(DEADLINE_S), late.result(DEADLINE_S)
        assert one.body == two.body
        assert (one.ending, two.ending) == ("complete", "complete")
        assert len(upstream.received) == 1


@pytest.mark.parametrize("moment", ["before the first event", "in the middle"])
def test_a_call_whose_client_left_is_finished_and_its_retry_is_a_replay(
    moment: str, tmp_path: Path
) -> None:
    with (
        GatedUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        if moment == "in the middle":
            upstream.gate.open(4)
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'
        headers = ((b"x-agent-session-id", b"s"), (b"content-type", b"application/json"))
        if moment == "in the middle":
            left = ask(
                proxy.address, "POST", PATH, headers, body, until=lambda got: len(got.pieces) > 0
            )
            assert left.ending == "left"
        else:
            with Connection(proxy.address) as connection:
                connection.send(render_request("POST", PATH, proxy.address, headers, body))
                upstream.wait_for_requests(1)
        upstream.gate.open(100)
        proxy.wait_for_steps("s", lambda steps: [s["state"] for s in steps] == ["complete"])
        again = call(proxy, streams=True)
        assert again.header("x-agentstate-cache-hit") == "true"
        assert again.ending == "complete"
        assert len(upstream.received) == 1


def test_a_client_that_would_rather_cancel_stops_the_upstream(tmp_path: Path) -> None:
    with (
        GatedUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        upstream.gate.open(4)
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'
        headers = (
            (b"x-agent-session-id", b"s"),
            (b"content-type", b"application/json"),
            (b"x-agent-on-disconnect", b"cancel"),
        )
        ask(proxy.address, "POST", PATH, headers, body, until=has_begun)
        steps = proxy.wait_for_steps("s", lambda steps: steps[0]["state"] == "failed")
        assert "left" in steps[0]["error"]


def test_every_joiner_of_a_failing_call_gets_the_error_and_none_asks_again(tmp_path: Path) -> None:
    class Refusing(Upstream):
        def reply_to(self, request: Received) -> Reply:
            return Reply(
                status=503,
                headers=((b"content-type", b"application/json"),),
                chunks=(b'{"error":{"message":"overloaded"}}',),
                delays_s=(0.3,),
            )

    with (
        Refusing() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
        ThreadPoolExecutor(20) as clients,
    ):
        answers = list(clients.map(lambda _: call(proxy, streams=False), range(20)))
        assert {each.status for each in answers} == {503}
        assert len(upstream.received) == 1


def test_a_recorded_stream_can_be_played_with_its_own_timing(tmp_path: Path) -> None:
    env = {"AGENTSTATE_REPLAY_SPEED": "recorded"}
    with (
        CountingUpstream(chunk_delay_s=0.05, words=6) as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=env) as proxy,
    ):
        first, again = call(proxy, streams=True), call(proxy, streams=True)
    assert again.header("x-agentstate-cache-hit") == "true"
    assert first.body == again.body
    assert len(again.pieces) > 3, "it came in one lump"
    assert again.pieces[-1].at_s - again.pieces[0].at_s >= 0.2
