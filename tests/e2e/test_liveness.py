"""A stream is live: each event reaches the client before the upstream sends the next.

Proved without timing: the upstream sends event k+1 only when the client has acknowledged event k
through the test. A proxy that keeps anything back stops for good, and the deadline tells.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.proxy import ONCE, Proxy
from tests.helpers.raw_client import Pair, Reception, ask
from tests.helpers.reading import read_chat, read_events
from tests.helpers.upstream import Gate, Received, Reply, Upstream, model_reply

pytestmark = pytest.mark.slow

WORDS = 40
STREAMS = 16
DEADLINE_S = 10.0
BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'
PATH = "/v1/chat/completions"


class GatedUpstream(Upstream):
    """Streams one answer per request, each event waiting for its gate; gates by `x-title`."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = {str(n): Gate() for n in range(STREAMS)}

    def reply_to(self, request: Received) -> Reply:
        reply = model_reply(request.json(), words=WORDS)
        gate = self.gates[request.header("x-title") or ""]
        return Reply(
            headers=reply.headers, chunks=reply.chunks, framing="chunked", gate=gate,
            head_first=True,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy before a gated upstream."""

    proxy: Proxy
    upstream: GatedUpstream


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Start both."""
    with (
        GatedUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=ONCE) as proxy,
    ):
        yield Rig(proxy, upstream)


def read_in_lockstep(
    rig: Rig, number: int, headers: tuple[Pair, ...] = (), *, begun: int = 1
) -> Reception:
    """Ask for a stream and let each event out when the one before has come, after `begun`."""
    gate = rig.upstream.gates[str(number)]
    gate.open(begun)
    opened = begun

    def acknowledge(got: Reception) -> bool:
        nonlocal opened
        seen = len(read_events(got.body))
        if seen >= opened:
            gate.open(seen + 1 - opened)
            opened = seen + 1
        return False

    pairs = ((b"content-type", b"application/json"), (b"x-title", str(number).encode()), *headers)
    return ask(
        rig.proxy.address, "POST", PATH, pairs, BODY, until=acknowledge, timeout_s=DEADLINE_S
    )


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "transparent"])
def test_each_event_arrives_before_the_next_is_sent(rig: Rig, is_recorded: bool) -> None:
    named = ((b"x-agent-session-id", b"live"),) if is_recorded else ()

    got = read_in_lockstep(rig, 0, named)

    assert got.ending == "complete"
    read = read_chat(got.header("content-type"), got.body)
    assert read.done
    assert len(got.pieces) == len(read_events(got.body)), "chunks in are chunks out"
    assert len(read.first.text.split(" ")) == WORDS


def test_with_something_left_to_try_the_first_event_comes_with_the_first_content(
    tmp_path: Path,
) -> None:
    """Until then another target could take over unseen; from then on each comes as it is sent."""
    with (
        GatedUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        named = ((b"x-agent-session-id", b"live"),)
        got = read_in_lockstep(Rig(proxy, upstream), 0, named, begun=2)

    assert got.ending == "complete"
    assert len(got.pieces) == len(read_events(got.body)), "chunks in are chunks out"


def test_many_streams_are_live_at_once(rig: Rig) -> None:
    got: dict[int, Reception] = {}

    def read(number: int) -> None:
        session = ((b"x-agent-session-id", b"live-%d" % number),)
        got[number] = read_in_lockstep(rig, number, session)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(STREAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {reception.ending for reception in got.values()} == {"complete"}
    assert len(got) == STREAMS


def test_a_second_client_of_the_same_call_sees_the_stream_live_too(rig: Rig) -> None:
    gate = rig.upstream.gates["0"]
    pairs = (
        (b"content-type", b"application/json"),
        (b"x-title", b"0"),
        (b"x-agent-session-id", b"two"),
    )
    first_seen, second_seen = threading.Event(), threading.Event()
    got: dict[str, Reception] = {}

    def read(name: str, seen: threading.Event) -> None:
        def note(reception: Reception) -> bool:
            if len(read_events(reception.body)) >= 2:
                seen.set()
            return False

        got[name] = ask(
            rig.proxy.address, "POST", PATH, pairs, BODY, until=note, timeout_s=DEADLINE_S
        )

    first = threading.Thread(target=read, args=("first", first_seen))
    first.start()
    gate.open(2)
    assert first_seen.wait(DEADLINE_S)
    second = threading.Thread(target=read, args=("second", second_seen))
    second.start()
    assert second_seen.wait(DEADLINE_S), "the one who joins gets at once what there is"
    gate.open(WORDS + 10)
    first.join()
    second.join()

    assert got["first"].body == got["second"].body
    assert got["second"].header("x-agentstate-replay") == "joined"
    assert len(rig.upstream.received) == 1


def test_a_client_that_leaves_a_recorded_stream_does_not_stop_it(rig: Rig) -> None:
    pairs = (
        (b"content-type", b"application/json"),
        (b"x-title", b"0"),
        (b"x-agent-session-id", b"gone"),
    )  # fmt: skip
    gate = rig.upstream.gates["0"]
    gate.open(3)
    left = ask(
        rig.proxy.address, "POST", PATH, pairs, BODY,
        until=lambda got: len(read_events(got.body)) >= 3,
    )  # fmt: skip
    gate.open(WORDS + 10)
    rig.proxy.wait_for_steps("gone", lambda steps: bool(steps) and steps[0]["state"] == "complete")

    again = ask(rig.proxy.address, "POST", PATH, pairs, BODY)

    assert again.body.startswith(left.body)
    assert read_chat(again.header("content-type"), again.body).done
    assert len(rig.upstream.received) == 1


def test_a_client_that_leaves_a_transparent_stream_stops_it(rig: Rig) -> None:
    pairs = ((b"content-type", b"application/json"), (b"x-title", b"0"))
    rig.upstream.gates["0"].open(3)
    ask(
        rig.proxy.address, "POST", PATH, pairs, BODY,
        until=lambda got: len(read_events(got.body)) >= 3,
    )  # fmt: skip

    rig.upstream.wait_for(lambda received: received[0].outcome == "left", DEADLINE_S)
