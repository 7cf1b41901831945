"""How the verbs ask a running server: its management API over HTTP.

`cli_file.py` is the counterpart where none runs: the same requests, the same answers. What is wrong
is raised and nothing printed. Answers hold the words of strangers: who prints them makes them
`inert`.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from agentstate.cli_table import inert
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import AgentStateError, SettingError, shorten

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024  # a page of the largest prompts
PAGE = 200
PAGES_MAX = 5000  # a million rows


class ServerSilent(AgentStateError):
    """No server of ours answers at the address."""

    code = "server_silent"


class Refused(AgentStateError):
    """The server said no, in its own words; `status` is what it answered."""

    code = "refused"

    def __init__(self, message: str, status: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """What the record answers to one request."""

    raw: bytes  # JSON; where its numbers must be exact, read it with `canonical.parse`
    cursor: str | None  # of the next page; None = there is none

    @property
    def value(self) -> Any:
        """Return the JSON as any reader has it."""
        return json.loads(self.raw)


class Record(Protocol):
    """Where the verbs look things up and decide."""

    place: str  # for messages: a URL or a file

    def get(self, target: str) -> Answer:
        """Read a path with its query.

        Raises:
            ServerSilent: nothing answers, or something that is not ours.
            Refused: it says no.
        """
        ...

    def post(self, target: str, value: JSON) -> Answer:
        """Send a JSON value to a path; same errors. After `ServerSilent` it may have happened."""
        ...


def read_pages(record: Record, path: str, query: str = "", limit: int = PAGE) -> Iterator[Answer]:
    """Yield all pages of a listing; `query` as in "status=PENDING&"."""
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        after = f"&after={quote(cursor, safe='')}" if cursor else ""
        page = record.get(f"{path}?{query}limit={limit}{after}")
        yield page
        cursor = page.cursor
        if cursor is None:
            return


class RemoteRecord:
    """The record of a running server."""

    def __init__(self, url: str) -> None:
        """Raises `SettingError` if `url` is none."""
        self.place = url
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or parts.scheme not in ("http", "https"):
            raise SettingError(f"--url: expected http://HOST:PORT, found {shorten(repr(url))}.")
        self._host, self._port, self._path = host, port, parts.path.rstrip("/")
        secure = parts.scheme == "https"
        self._connection = http.client.HTTPSConnection if secure else http.client.HTTPConnection

    def get(self, target: str) -> Answer:
        """See `Record.get`."""
        return self._ask("GET", target, None)

    def post(self, target: str, value: JSON) -> Answer:
        """See `Record.post`."""
        return self._ask("POST", target, encode(value))

    def _ask(self, method: str, target: str, body: bytes | None) -> Answer:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, self._path + target, body, headers)
            response = connection.getresponse()
            raw = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ServerSilent(
                f"No AgentState server answers at {shorten(self.place)} ({reason}). Start one with "
                "`agentstate serve`, or say with --url where it listens."
            ) from error
        finally:
            connection.close()
        try:
            return read_answer(response.status, raw, response.getheader("x-next-cursor"))
        except ValueError as error:
            raise ServerSilent(
                f"What answers at {shorten(self.place)} is not AgentState: status "
                f"{response.status} and no JSON of ours. Say with --url where the server listens."
            ) from error


def read_answer(status: int, raw: bytes, cursor: str | None) -> Answer:
    """Return a success, raise a refusal; `ValueError` = neither is in it."""
    value = json.loads(raw)
    if status == 200:
        return Answer(raw, cursor)
    try:
        error = value["error"]
        message, hint = error["message"], error.get("hint")
        refusal = Refused(inert(message), status, None if hint is None else inert(hint))
    except (TypeError, KeyError, AttributeError) as cause:
        raise ValueError("no refusal of ours") from cause
    raise refusal
