"""The disk fills up: nothing is paid that cannot be kept, and what is kept goes on replaying.

A full disk is played with a limit on file size, set on the running process: see `Proxy.set_disk`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Reception, ask
from tests.helpers.reading import read_chat
from tests.helpers.upstream import CountingUpstream, Gate, Received, Reply, model_reply

pytestmark = pytest.mark.slow


class PausingUpstream(CountingUpstream):
    """Waits before each answer until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def reply_to(self, request: Received) -> Reply:
        super().reply_to(request)
        reply = model_reply(request.json())
        return Reply(
            headers=reply.headers, chunks=reply.chunks, framing=reply.framing, gate=self.gate
        )


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy that has one step on record, and its upstream."""

    proxy: Proxy
    upstream: PausingUpstream


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Start both and record the step `first`."""
    with (
        PausingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        upstream.gate.open(1000)
        assert call(proxy, "first").status == 200
        yield Rig(proxy, upstream)
        proxy.set_disk(is_full=False)


def call(proxy: Proxy, content: str, *, streams: bool = False) -> Reception:
    """Make one call of the session."""
    body = {"model": "m", "messages": [{"role": "user", "content": content}], "stream": streams}
    headers = ((b"content-type", b"application/json"), (b"x-agent-session-id", b"disk"))
    return ask(proxy.address, "POST", "/v1/chat/completions", headers, json.dumps(body).encode())


def test_a_call_is_refused_before_it_is_paid(rig: Rig) -> None:
    rig.proxy.set_disk(is_full=True)

    got = call(rig.proxy, "second")

    assert got.status == 503
    assert got.json()["error"]["code"] == "store_unavailable"
    assert rig.upstream.counts.total() == 1


def test_a_recorded_step_still_replays(rig: Rig) -> None:
    rig.proxy.set_disk(is_full=True)

    got = call(rig.proxy, "first")

    assert got.status == 200
    assert got.header("x-agentstate-cache-hit") == "true"


def test_it_works_again_when_there_is_room(rig: Rig) -> None:
    rig.proxy.set_disk(is_full=True)
    call(rig.proxy, "second")
    rig.proxy.set_disk(is_full=False)

    got = call(rig.proxy, "second")

    assert got.status == 200
    states = [step["state"] for step in rig.proxy.settled_steps("disk")]
    assert states == ["complete", "complete"]


@pytest.mark.parametrize("streams", [False, True], ids=["body", "stream"])
def test_an_answer_that_cannot_be_kept_is_delivered_once(rig: Rig, streams: bool) -> None:
    got: list[Reception] = []
    rig.upstream.gate = Gate()
    asking = threading.Thread(target=lambda: got.append(call(rig.proxy, "second", streams=streams)))
    asking.start()
    rig.upstream.wait_for_requests(2)
    rig.proxy.set_disk(is_full=True)
    rig.upstream.gate.open(1000)
    asking.join()
    rig.proxy.set_disk(is_full=False)

    answer = read_chat(got[0].header("content-type"), got[0].body)
    assert (got[0].status, got[0].ending) == (200, "complete")
    assert answer.first.finish_reason == "stop"
    if not streams:  # a stream's head is long gone by then
        assert got[0].header("x-agentstate-unsaved") == "true"
    again = call(rig.proxy, "second", streams=streams)
    assert again.header("x-agentstate-cache-hit") == "false"
    assert rig.upstream.counts.total() == 3
