"""The two ends beyond the proxy in the full demo: a model that counts, and who is told of events.

Both are servers in the demo's own process, on free ports of the loopback interface. `Model` is the
built-in mock behind a socket, so the proxy reaches it as it reaches a vendor, and what reached it
is known without asking the proxy. No two of its answers have the same id, so whoever sees an id
again saw a replay. `Receiver` takes webhooks and keeps those whose signature is right.
"""

from __future__ import annotations

import base64
import hmac
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentstate.ground.errors import AgentStateError
from agentstate.house.mock import answer

WAIT_S = 20.0  # far more than anything here takes: reaching it is a failure
POLL_S = 0.05  # of a server that is asked to stop
OVERLOADED = json.dumps({"error": {"message": "overloaded", "type": "server_error"}}).encode()


class PeerFailed(AgentStateError):
    """What was waited for did not come."""

    code = "peer_failed"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that reached the model."""

    path: str
    model: str
    body: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a server answers."""

    status: int
    kind: str  # the type of its content
    pieces: tuple[bytes, ...]


class Model:
    """The mock, as a server that counts. All of it may be used from any thread."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._asked: list[Asked] = []
        self._failing = frozenset[str]()
        self._answers_until: int | None = None  # None = it answers all

    @property
    def asked(self) -> list[Asked]:
        """Return what reached it so far, in order."""
        with self._change:
            return list(self._asked)

    @property
    def count(self) -> int:
        """Return how many requests reached it so far."""
        return len(self.asked)

    def fail(self, *models: str) -> None:
        """Answer 503 for these models from now on, and for no others."""
        with self._change:
            self._failing = frozenset(models)

    @contextmanager
    def held(self, after: int) -> Iterator[None]:
        """While the `with` lasts, answer so many more requests, and think about all others."""
        with self._change:
            self._answers_until = len(self._asked) + after
        try:
            yield
        finally:
            with self._change:
                self._answers_until = None
                self._change.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many requests have reached it. Raises `PeerFailed` if they do not."""
        with self._change:
            if not self._change.wait_for(lambda: len(self._asked) >= count, WAIT_S):
                found = len(self._asked)
                raise PeerFailed(f"{count} requests should have reached the model; {found} did.")

    def reply(self, path: str, raw: bytes, _: Callable[[str], str]) -> Said:
        """Answer a request, when it may."""
        body: dict[str, Any] = json.loads(raw)
        with self._change:
            self._asked.append(Asked(path, body["model"], raw.decode()))
            number = len(self._asked)
            self._change.notify_all()
            self._change.wait_for(lambda: not self._holds(number), WAIT_S)
            fails = body["model"] in self._failing
        if fails:
            return Said(503, "application/json", (OVERLOADED,))
        # The mock's ids come from the request: with a number in it no two are the same.
        numbered = json.dumps(body | {"seed": number}).encode()
        said = answer("POST", path.encode(), numbered)
        kind = "text/event-stream" if said.streams else "application/json"
        return Said(said.status, kind, said.pieces)

    def _holds(self, number: int) -> bool:
        return self._answers_until is not None and number > self._answers_until


class Receiver:
    """Takes signed webhooks."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._change = threading.Condition()
        self._events: list[dict[str, Any]] = []
        self._forged = 0

    @property
    def forged(self) -> int:
        """How many came with a wrong signature."""
        with self._change:
            return self._forged

    def wait_for(self, kind: str, session: str) -> dict[str, Any]:
        """Return the first event of a kind about a session, once there is one."""

        def find() -> dict[str, Any] | None:
            of_kind = (event for event in self._events if event["type"] == kind)
            return next((event for event in of_kind if event["data"]["session"] == session), None)

        with self._change:
            self._change.wait_for(lambda: find() is not None, WAIT_S)
            if (found := find()) is None:
                raise PeerFailed(f"No event {kind} of {session} reached the webhook.")
            return found

    def reply(self, path: str, raw: bytes, header: Callable[[str], str]) -> Said:
        """Take an event."""
        signed = f"{header('webhook-id')}.{header('webhook-timestamp')}.".encode() + raw
        made = base64.b64encode(hmac.digest(self._secret, signed, "sha256")).decode()
        with self._change:
            if hmac.compare_digest(header("webhook-signature"), f"v1,{made}"):
                self._events.append(json.loads(raw))
            else:
                self._forged += 1
            self._change.notify_all()
        return Said(200, "application/json", (b"{}",))


@contextmanager
def serving(reply: Callable[[str, bytes, Callable[[str], str]], Said]) -> Iterator[str]:
    """Serve POST requests with a function until the `with` ends; yield the origin."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits 40 ms behind its head

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            said = reply(self.path, raw, lambda name: self.headers.get(name, ""))
            try:
                self.send_response(said.status)
                self.send_header("content-type", said.kind)
                self.send_header("content-length", str(sum(map(len, said.pieces))))
                self.end_headers()
                for piece in said.pieces:
                    self.wfile.write(piece)
            except OSError:
                self.close_connection = True  # a proxy that was killed waits for no answer

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def server_bind(self) -> None:
        # As the class does, without asking a name server who 127.0.0.1 is.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a connection that a killed process left is no news."""
