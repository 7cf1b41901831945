"""Open files run out in a running proxy: what is open goes on, the log stays short, and when
connections close others are served."""

from __future__ import annotations

import http.client
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.upstream import CountingUpstream

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits another process's open files"),
]
SPARE, MORE = 3, 8
TIMEOUT_S = 20


def ask(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/healthz")
    response = connection.getresponse()
    response.read()
    return response.status


def test_out_of_open_files_it_waits_and_goes_on(tmp_path: Path) -> None:
    with CountingUpstream() as upstream, ExitStack() as closing:
        proxy = closing.enter_context(Proxy(upstream_url=upstream.url, db=tmp_path / "record.db"))
        early = http.client.HTTPConnection(*proxy.address, timeout=TIMEOUT_S)
        closing.callback(early.close)
        assert ask(early) == 200
        count = len(list(Path(f"/proc/{proxy.pid}/fd").iterdir()))
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (count + SPARE, count + MORE))

        with ExitStack() as crowd:
            for _ in range(MORE):
                crowd.enter_context(socket.create_connection(proxy.address, TIMEOUT_S))
            while "new connections wait" not in proxy.log_path.read_text():
                assert ask(early) == 200
            for _ in range(100):
                assert ask(early) == 200

        late = http.client.HTTPConnection(*proxy.address, timeout=TIMEOUT_S)
        closing.callback(late.close)
        assert ask(late) == 200
        log = proxy.log_path.read_text()
        assert log.count("new connections wait") == 1
        assert "out of system resource" not in log
