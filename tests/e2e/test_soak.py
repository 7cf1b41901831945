"""The soak: agents under load, the proxy killed every few seconds; nothing lost or paid twice.

What is counted, over all lives of the proxy:

- lost: a client saw an answer to its end, and asking again does not give the same bytes from the
  record;
- double bills: an upstream request for a call whose answer was committed before;
- asked again: calls that were in flight when the proxy died, which nobody can know the fate of.

The short form is part of every run; ten minutes of it with `--long`.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Address, Reception, ask
from tests.helpers.reading import read_chat
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

SEED = 4711
WORKERS = 6
STEPS_MAX = 12  # of an agent's conversation before a worker begins a new one


@dataclass(slots=True)
class Soak:
    """What the workers saw."""

    seen: dict[tuple[str, str], tuple[bool, bytes]] = field(default_factory=dict)
    asked: int = 0
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def call(address: Address, session: str, content: str, *, streams: bool) -> Reception:
    """Make one call of an agent."""
    body: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": content}]}
    if streams:
        body["stream"] = True
    headers = (
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer sk-soak"),
        (b"x-agent-session-id", session.encode()),
    )
    return ask(address, "POST", "/v1/chat/completions", headers, json.dumps(body).encode())


def work(soak: Soak, proxy: Proxy, worker: int, is_over: threading.Event) -> None:
    """Live as agents do: step after step, a failed one again until it is answered."""
    for agent in itertools.count():
        for step in range(STEPS_MAX):
            session, content = f"w{worker}-a{agent}", f"worker {worker} agent {agent} step {step}"
            streams = (worker + step) % 2 == 0
            while not is_over.is_set():
                try:
                    got = call(proxy.address, session, content, streams=streams)
                except OSError:
                    time.sleep(0.02)  # the proxy is dead; another life is coming
                    continue
                soak.asked += 1
                if got.status != 200 or got.ending != "complete":
                    continue
                if read_chat(got.header("content-type"), got.body).first.finish_reason is not None:
                    with soak.lock:
                        soak.seen[session, content] = (streams, got.body)
                    break
            if is_over.is_set():
                return


def soak_for(seconds: float, folder: Path) -> None:
    """Run the soak, check what was seen, print the counts."""
    chance = random.Random(SEED)
    soak, is_over = Soak(), threading.Event()
    with (
        CountingUpstream(delay_s=0.004, chunk_delay_s=0.001) as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db") as proxy,
    ):
        workers = [
            threading.Thread(target=work, args=(soak, proxy, number, is_over))
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        until_s, kills = time.monotonic() + seconds, 0
        while time.monotonic() < until_s:
            time.sleep(chance.uniform(1.0, 4.0))  # when it dies is the point
            proxy.kill()
            kills += 1
            proxy.start()
        is_over.set()
        for worker in workers:
            worker.join()

        paid = upstream.counts.total()
        for (session, content), (streams, body) in soak.seen.items():
            again = call(proxy.address, session, content, streams=streams)
            if again.header("x-agentstate-cache-hit") != "true" or again.body != body:
                soak.lost.append(content)
        # Each call that was seen whole was committed once. What was paid beyond that was in flight
        # at a kill: its answer was never committed, or it is on record and nobody was left to see.
        double_bills = upstream.counts.total() - paid
        asked_again = paid - len(upstream.counts)
    print(
        f"\nsoak: {seconds:.0f} s, {kills} kills, {len(soak.seen)} calls seen whole; lost "
        f"{len(soak.lost)}, double bills {double_bills}, asked again after a kill {asked_again}"
    )
    assert kills > 0
    assert soak.lost == []
    assert double_bills == 0
    assert asked_again <= kills * WORKERS, "more was paid again than can have been in flight"


def test_a_short_soak_loses_nothing_and_pays_nothing_twice(tmp_path: Path) -> None:
    soak_for(8.0, tmp_path)


@pytest.mark.long
def test_a_soak_of_ten_minutes_loses_nothing_and_pays_nothing_twice(tmp_path: Path) -> None:
    soak_for(600.0, tmp_path)
