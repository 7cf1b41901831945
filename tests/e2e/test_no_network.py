"""Nothing is reached that the configuration does not name: what the kernel was asked to connect to.

The whole life of a proxy is watched from its first instruction: start, calls, a replay, the
dashboard, the command line, the end. Every address of every connection, and of every datagram (a
name look-up would be one), must be an upstream that was configured or the proxy itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.proxy import POLL_S, ROOT, WAIT_TIMEOUT_S, Proxy
from tests.helpers.raw_client import ask
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]%s}'
HEADERS = ((b"x-agent-session-id", b"s"), (b"content-type", b"application/json"))

# As in: connect(7, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("10.0.0.1")}, 16)
# A reply to somebody has no address of its own: the socket was accepted.
REACHED = re.compile(
    r"\b(?:connect|sendto|sendmsg|sendmmsg)\(.*?sa_family=AF_INET6?, sin6?_port=htons\((\d+)\)"
    r'.*?"([^"]+)"'
)

# The first process that was watched is the one that was started; here it has ended.
ENDED = re.compile(r"\A(\d+) (?s:.*)^\1 +\+\+\+ ", re.MULTILINE)


def tracing(output: Path) -> list[str]:
    """Return the command that watches another one; the other one keeps its process id."""
    if shutil.which("strace") is None and not os.environ.get("CI"):
        pytest.skip("needs strace")
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    return ["strace", "-D", "-f", "-s", "0", "-e", calls, "-o", str(output)]


def reached(output: Path) -> set[tuple[str, int]]:
    """Return every address, with its port, that was connected or sent to, once all is written."""
    deadline = time.perf_counter() + WAIT_TIMEOUT_S
    while not ENDED.search(text := output.read_text("utf-8", "replace")):
        assert time.perf_counter() < deadline, "the end was not watched"
        time.sleep(POLL_S)
    lines = text.splitlines()
    return {(found[2], int(found[1])) for line in lines if (found := REACHED.search(line))}


def load_dashboard(proxy: Proxy) -> None:
    """Fetch its page and all that the page, its scripts and its styles name."""
    wanted, seen = ["/dashboard/", "/dashboard/app.js"], set[str]()
    while wanted:
        path = wanted.pop()
        if path not in seen:
            seen.add(path)
            status, body = proxy.get(path)
            assert status == 200, path
            text = body.decode("utf-8", "replace")
            folder = path.rpartition("/")[0]
            wanted += [
                os.path.normpath(f"{folder}/{name}")
                for name in re.findall(r"(?:from|import\() ?\"(\.[^\"]+\.js)\"", text)
            ]
    assert len(seen) > 10


def test_a_proxy_reaches_its_upstream_and_nothing_else(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with CountingUpstream() as upstream:
        proxy = Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", under=tracing(trace))
        with proxy:
            for tail in (b"", b"", b',"stream":true'):
                got = ask(proxy.address, "POST", "/v1/chat/completions", HEADERS, BODY % tail)
                assert got.status == 200
            load_dashboard(proxy)
            for path in ("/api/sessions", "/api/overview?range=all", "/api/settings", "/healthz"):
                assert proxy.get(path)[0] == 200
        port = int(upstream.url.rpartition(":")[2])
    assert reached(trace) == {("127.0.0.1", port)}


def test_a_proxy_with_the_mock_reaches_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    proxy = Proxy(
        upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db", under=tracing(trace),
        flags=["--mock"],
    )  # fmt: skip
    with proxy:
        for _ in range(2):
            got = ask(proxy.address, "POST", "/v1/chat/completions", HEADERS, BODY % b"")
            assert got.status == 200
        load_dashboard(proxy)
    assert reached(trace) == set()


@pytest.mark.parametrize("verb", [["sessions", "list"], ["approvals", "list"], ["doctor"]])
def test_a_verb_reaches_the_proxy_and_what_is_configured(verb: list[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with CountingUpstream() as upstream:
        with Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy:
            # The doctor asks every provider there is: those that are built in are elsewhere.
            (tmp_path / "agentstate.toml").write_text(
                f"[server]\nport = {proxy.port}\n" + "".join(
                    f'[[provider]]\nname = "{name}"\nbase_url = "{upstream.url}"\n'
                    for name in ("openai", "anthropic", "gemini", "ollama")
                )
            )  # fmt: skip
            where = [] if verb == ["doctor"] else ["--url", proxy.url]
            subprocess.run(
                [*tracing(trace), sys.executable, "-m", "agentstate", *verb, *where],
                cwd=tmp_path,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
                timeout=60,
                capture_output=True,
                check=verb != ["doctor"],  # it may have something to say of this machine
            )
        known = {("127.0.0.1", proxy.port), ("127.0.0.1", int(upstream.url.rpartition(":")[2]))}
    assert reached(trace) == (known if verb == ["doctor"] else {("127.0.0.1", proxy.port)})


def test_what_is_watched_for_is_seen(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = (
        "import socket\n"
        "socket.socket().connect_ex(('127.0.0.1', 9))\n"
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.2', 53))\n"
        "try: socket.socket(socket.AF_INET6).connect(('::1', 9))\n"
        "except OSError: pass  # not every machine has it\n"
    )
    subprocess.run([*tracing(trace), sys.executable, "-c", code], check=True, timeout=60)

    assert {("127.0.0.1", 9), ("127.0.0.2", 53)} <= reached(trace)
