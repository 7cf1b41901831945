"""The proxy kills itself at each named point of a call; afterwards the record must be right.

The rule: an answer whose end the client has seen is on record and is never asked again. One that
was cut may be asked again, and at most once more.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Address, Reception, ask
from tests.helpers.reading import read_chat
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

SEED = 87
LIVES = 3
WORKERS = 6

# A body goes out in one write after the commit: nothing lies between.
BODY_POINTS = ("claimed", "sent", "head", "before_commit", "after_commit")
STREAM_POINTS = (
    "claimed", "sent", "head", "first_frame", "before_commit", "after_commit", "before_release",
    "released", "before_tail", "after_tail",
)  # fmt: skip
# From here on the answer is on the disk.
RECORDED_POINTS = {"after_commit", "before_release", "released", "before_tail", "after_tail"}


@contextmanager
def dying(point: str, folder: Path) -> Iterator[tuple[CountingUpstream, Proxy]]:
    """Start a proxy that will kill itself at this point, and its upstream."""
    with (
        CountingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db", crash_at=point) as proxy,
    ):
        yield upstream, proxy


def call(address: Address, *, streams: bool, content: str = "hi") -> Reception:
    """Make the call whose fate is looked at."""
    ask_for = {"model": "m", "messages": [{"role": "user", "content": content}], "stream": streams}
    headers = (
        (b"content-type", b"application/json"),
        (b"x-agent-session-id", b"crash"),
        (b"x-agent-step-number", b"0"),
    )
    return ask(address, "POST", "/v1/chat/completions", headers, json.dumps(ask_for).encode())


@pytest.mark.parametrize(
    ("point", "streams"),
    [(point, False) for point in BODY_POINTS] + [(point, True) for point in STREAM_POINTS],
)
def test_a_proxy_that_dies_there_loses_nothing_seen(
    point: str, streams: bool, tmp_path: Path
) -> None:
    with dying(point, tmp_path) as (upstream, proxy):
        cut = call(proxy.address, streams=streams)
        proxy.wait_for_crash()
        paid_before = upstream.counts.total()
        proxy.start()
        whole = call(proxy.address, streams=streams)
        steps = proxy.settled_steps("crash")
        once_more = call(proxy.address, streams=streams)
        paid = upstream.counts.total()

    seen = read_chat(cut.header("content-type"), cut.body) if cut.status == 200 else None
    read = read_chat(whole.header("content-type"), whole.body)
    assert (whole.status, whole.ending) == (200, "complete")
    assert read.first.finish_reason == "stop"
    assert read.done is streams
    if seen is not None and seen.first.finish_reason is not None:
        assert paid == 1, "its end was seen, so it must not be asked again"
        assert seen.first.text == read.first.text
    if point in RECORDED_POINTS:
        assert paid == 1, "it was on the disk"
        assert whole.header("x-agentstate-cache-hit") == "true"
        assert whole.body.startswith(cut.body)
    assert paid - paid_before <= 1
    assert paid <= 2
    assert [step["state"] for step in steps] == ["complete"]
    assert once_more.body == whole.body


def test_whenever_it_dies_what_was_seen_to_its_end_is_replayed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with (
        CountingUpstream(delay_s=0.002, chunk_delay_s=0.001) as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        seen_count = 0
        for life in range(LIVES):
            seen = kill_under_load(proxy, f"life {life}", chance.uniform(0.1, 0.4))
            paid = upstream.counts.total()
            for content, streams, body in seen:
                again = call(proxy.address, streams=streams, content=content)
                assert again.header("x-agentstate-cache-hit") == "true"
                assert again.ending == "complete"
                assert again.body.startswith(body)
            assert upstream.counts.total() == paid, "something was asked again"
            seen_count += len(seen)
    assert seen_count > 0


def kill_under_load(proxy: Proxy, name: str, after_s: float) -> list[tuple[str, bool, bytes]]:
    """Make calls from several threads, kill and restart the proxy among them.

    Returns content, form and bytes of each answer whose finish reason a client has seen.
    """
    seen: list[tuple[str, bool, bytes]] = []
    is_over = threading.Event()

    def work(worker: int) -> None:
        for number in itertools.count():
            streams = (number + worker) % 2 == 0
            content = f"{name}, worker {worker}, call {number}"
            try:
                got = call(proxy.address, streams=streams, content=content)
            except OSError:
                return  # it is dead
            is_readable = got.status == 200 and (streams or got.ending == "complete")
            if is_readable:
                read = read_chat(got.header("content-type"), got.body)
                if read.first.finish_reason is not None:
                    seen.append((content, streams, got.body))
            if is_over.is_set():
                return

    workers = [threading.Thread(target=work, args=(n,)) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    time.sleep(after_s)  # the moment of the kill is the point of the test
    proxy.kill()
    is_over.set()
    for worker in workers:
        worker.join()
    proxy.start()
    return seen


def test_a_call_that_was_in_flight_is_marked_interrupted(tmp_path: Path) -> None:
    with dying("sent", tmp_path) as (_, proxy):
        call(proxy.address, streams=False)
        proxy.wait_for_crash()
        proxy.start()
        (step,) = proxy.steps("crash")

    assert step["state"] == "interrupted"


def test_the_third_call_can_be_the_one_that_dies(tmp_path: Path) -> None:
    with dying("before_commit:3", tmp_path) as (upstream, proxy):
        for content in ("one", "two", "three"):
            call(proxy.address, streams=True, content=content)
        proxy.wait_for_crash()
        proxy.start()
        for content in ("one", "two", "three"):
            assert call(proxy.address, streams=True, content=content).ending == "complete"
        steps = proxy.settled_steps("crash")
        paid = list(upstream.counts.values())

    assert paid == [1, 1, 2]
    assert [step["state"] for step in steps] == ["complete"] * 3
