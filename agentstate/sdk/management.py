"""Asks the management API of a running server. Standard library alone; one connection a request.

What went wrong is one of two errors: nobody answered (`ServerUnreachable`), or the server said no
(`ProxyRefused`). After the first the request may have been carried out or not. It waits, so it is
not for an event loop.
"""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.parse import quote, urlsplit

from agentstate.sdk.address import parse_address
from agentstate.sdk.token import HEADER, VARIABLE

TIMEOUT_S = 30.0  # besides the time that is asked for
ANSWER_BYTES_MAX = 16 * 1024 * 1024
FIRST_PAUSE_S, PAUSE_S_MAX = 0.1, 5.0  # between tries; doubled each time
TRIES = 6  # about 3 seconds: where no server is, that is to be known soon
PATIENT_TRIES = 14  # about 46 seconds: one was there, so it is being started again
NEEDS_TOKEN = 401


class ServerUnreachable(ConnectionError):
    """No AgentState server answered, or it could not."""


class ProxyRefused(Exception):
    """The server said no, in its own words."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Management:
    """The management API at an address."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Take the server's address, or a base URL that leads to it. `token`: None = none.

        Raises:
            ValueError: it is no http or https URL.
        """
        self.url = parse_address(url).url
        parts = urlsplit(self.url)
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        self._is_secure = parts.scheme == "https"
        self._token = token
        self._was_there = False  # somebody has taken a connection

    def post(
        self, path: str, value: object, *, wait_s: float = 0.0, is_patient: bool = True
    ) -> Any:
        """Post a JSON value, a bounded number of times while nobody answers or the server cannot,
        once if not `is_patient`; return what it answers. The request must be one that may come
        twice.

        Raises:
            ServerUnreachable: nobody answered, or the server could not.
            ProxyRefused: it said no.
        """
        return self._ask("POST", path, value, wait_s, is_patient)

    def patch(self, path: str, value: object) -> Any:
        """Send a PATCH, as `post` does.

        Raises:
            ServerUnreachable, ProxyRefused: as `post`.
        """
        return self._ask("PATCH", path, value, 0.0, True)

    def _ask(self, method: str, path: str, value: object, wait_s: float, is_patient: bool) -> Any:
        body = json.dumps(value).encode("ascii")
        pause_s = FIRST_PAUSE_S
        tries = 0
        while True:
            try:
                return self._send(method, path, body, wait_s)
            except ServerUnreachable:
                tries += 1
                most = PATIENT_TRIES if self._was_there else TRIES
                if not is_patient or tries >= most:
                    raise
            threading.Event().wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _send(self, method: str, path: str, body: bytes, wait_s: float) -> Any:
        # More than all else that a session imports, and not every agent comes here.
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        kind = HTTPSConnection if self._is_secure else HTTPConnection
        headers = {"content-type": "application/json"}
        if self._token is not None:
            headers[HEADER] = self._token
        connection = kind(self._host, self._port, timeout=TIMEOUT_S + wait_s)
        try:
            connection.connect()
            self._was_there = True
            connection.request(method, self._path + path, body, headers)
            response = connection.getresponse()
            raw = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, HTTPException) as error:
            raise ServerUnreachable(
                f"No AgentState server answers at {self.url}: {error or type(error).__name__}. "
                "Start one (agentstate serve), or name its address."
            ) from error
        finally:
            connection.close()
        return self._read(response.status, raw)

    def _read(self, status: int, raw: bytes) -> Any:
        try:
            value = json.loads(raw)
        except ValueError as error:
            raise ServerUnreachable(
                f"What answers at {self.url} is no AgentState server (status {status}, no JSON)."
            ) from error
        if status == 200:
            return value
        said = value.get("error") if isinstance(value, dict) else None
        said = said if isinstance(said, dict) else {}
        message = str(said.get("message") or f"status {status}")
        if hint := said.get("hint"):
            message = f"{message} {hint}"
        if status >= 500:
            raise ServerUnreachable(f"The server at {self.url} could not: {message}")
        if status == NEEDS_TOKEN and self._token is None:
            message = f"{message} Give it as token=..., or in {VARIABLE}."
        raise ProxyRefused(message, status=status, code=str(said.get("code")))


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")
