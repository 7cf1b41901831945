"""What a call needed is given back when it ends, without waiting for the garbage collector."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import ask
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

CALLS = 60
BODY_BYTES = 1_000_000
GROWTH_KIB_MAX = 40 * 1024  # two thirds of the bodies; a cycle per call keeps all of them, parsed


def test_large_bodies_do_not_stay_in_memory(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    headers = ((b"x-agent-session-id", b"s"), (b"content-type", b"application/json"))
    with (
        CountingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):

        def call(number: int) -> None:
            content = f"{number:06}" + "x" * BODY_BYTES
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            answer = ask(
                proxy.address, "POST", "/v1/chat/completions", headers, json.dumps(body).encode()
            )
            assert answer.status == 200

        for number in range(10):
            call(number)
        before = proxy.memory_kib()
        for number in range(10, 10 + CALLS):
            call(number)
        assert proxy.memory_kib() - before < GROWTH_KIB_MAX
