"""The answer is on the disk before its end is on the wire: what the kernel was asked, in order.

Killing a process proves nothing about a power cut: what was written and not synced survives a kill.
So the system calls of a running proxy are watched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import ask
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}'
HEADERS = ((b"x-agent-session-id", b"s"), (b"content-type", b"application/json"))

SYNC = re.compile(r"\b(?:fsync|fdatasync)\(\d+<[^>]*-wal>")
# What completes an answer: the body of a whole one, the finish reason of a stream.
ENDS = re.compile(r'\bsend(?:to|msg)\(.*(?:\\"finish_reason\\":\s?\\"(?:stop|tool_calls))')
# The upstream's answer as it comes in has the same words, in a receiving call.


@contextmanager
def watched(proxy: Proxy, output: Path) -> Iterator[None]:
    """Write the syncs and sends of a running proxy to `output`."""
    calls = "trace=fsync,fdatasync,sendto,sendmsg"
    command = ["strace", "-f", "-y", "-s", "100000", "-e", calls, "-o", str(output)]
    tracer = subprocess.Popen([*command, "-p", str(proxy.pid)], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    assert "attached" in said, f"strace cannot attach: {said}"
    try:
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=20)


def synced_at(lines: list[str], at: int) -> int:
    """Return the line on which a sync has returned; another thread may act in between."""
    if "<unfinished" not in lines[at]:
        return at
    thread = lines[at].split()[0]
    back = re.compile(rf"{thread} +<\.\.\. f(?:data)?sync resumed>")
    return next(later for later in range(at + 1, len(lines)) if back.match(lines[later]))


@pytest.mark.parametrize("kind", ["body", "stream"])
def test_the_log_is_synced_before_the_end_of_an_answer_is_sent(kind: str, tmp_path: Path) -> None:
    if shutil.which("strace") is None and not os.environ.get("CI"):
        pytest.skip("needs strace")
    trace = tmp_path / "trace"
    body = BODY % (b',"stream":true' if kind == "stream" else b"")
    with (
        CountingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
        watched(proxy, trace),
    ):
        first = ask(proxy.address, "POST", "/v1/chat/completions", HEADERS, body)
        again = ask(proxy.address, "POST", "/v1/chat/completions", HEADERS, body)
    assert (first.status, again.status) == (200, 200)
    assert first.body == again.body
    lines = trace.read_text("utf-8", "replace").splitlines()
    syncs = [synced_at(lines, at) for at, line in enumerate(lines) if SYNC.search(line)]
    ends = [at for at, line in enumerate(lines) if ENDS.search(line)]
    assert len(ends) == 2, "one end of each answer"
    assert syncs, "nothing was synced at all"
    assert syncs[0] < ends[0], "the end was sent before the log was synced"
    assert not [at for at in syncs if ends[0] < at < ends[1]], "a replay syncs nothing"
