"""How the verbs ask a running server: its management API over HTTP.

`cli_file.py` is the counterpart where none runs: the same requests, the same answers. What is wrong
is raised and nothing printed. Answers hold the words of strangers: who prints them makes them
`inert`.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from agentstate.cli_table import inert
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import AgentStateError, SettingError, shorten
from agentstate.token_file import find_token

TIMEOUT_S = 30.0
STREAM_TIMEOUT_S = 600.0  # between two reads: of a large record little may be wanted
ANSWER_BYTES_MAX = 64 * 1024 * 1024  # a page of the largest prompts
READ_BYTES = 64 * 1024
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

    def post(self, target: str, value: JSON, timeout_s: float = TIMEOUT_S) -> Answer:
        """Send a JSON value to a path; same errors. After `ServerSilent` it may have happened."""
        ...

    def patch(self, target: str, value: JSON) -> Answer:
        """Send what is to be another of a path; as `post`."""
        ...

    def delete(self, target: str, value: JSON) -> Answer:
        """Have what is at a path be gone; as `post`."""

    def send_file(self, target: str, body: bytes, media_type: str) -> Answer:
        """Send a file to a path; as `post`."""
        ...

    def stream(self, target: str) -> Generator[bytes, None, None]:
        """Read a path of which the answer may have any size, as it comes; close it if you leave
        early. Same errors, `ServerSilent` also where it breaks off."""
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

    def __init__(self, url: str, find_token: Callable[[str], str | None] = find_token) -> None:
        """Raises `SettingError` if `url` is none. `find_token` is asked once the server asks."""
        self.place = url
        self._find_token = find_token
        self._token: str | None = None  # None = the server has not asked for one
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

    def post(self, target: str, value: JSON, timeout_s: float = TIMEOUT_S) -> Answer:
        """See `Record.post`."""
        return self._ask("POST", target, encode(value), timeout_s=timeout_s)

    def patch(self, target: str, value: JSON) -> Answer:
        """See `Record.patch`."""
        return self._ask("PATCH", target, encode(value))

    def delete(self, target: str, value: JSON) -> Answer:
        """See `Record.delete`."""
        return self._ask("DELETE", target, encode(value))

    def send_file(self, target: str, body: bytes, media_type: str) -> Answer:
        """See `Record.send_file`."""
        return self._ask("POST", target, body, media_type, STREAM_TIMEOUT_S)

    def stream(self, target: str) -> Generator[bytes, None, None]:
        """See `Record.stream`."""
        connection = self._connection(self._host, self._port, timeout=STREAM_TIMEOUT_S)
        try:
            connection.request("GET", self._path + target, headers=self._headers())
            response = connection.getresponse()
            if response.status != 200:
                self._read_json(response.status, None, response.read(ANSWER_BYTES_MAX))
            while chunk := response.read1(READ_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from error
        finally:
            connection.close()

    def _ask(
        self,
        method: str,
        target: str,
        body: bytes | None,
        media_type: str = "application/json",
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        status, cursor, raw = self._send(method, target, body, media_type, timeout_s)
        if status == 401 and self._token is None:
            self._token = self._find_token(self.place)
            if self._token is not None:
                status, cursor, raw = self._send(method, target, body, media_type, timeout_s)
        return self._read_json(status, cursor, raw)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _send(
        self, method: str, target: str, body: bytes | None, media_type: str, timeout_s: float
    ) -> tuple[int, str | None, bytes]:
        """Return status, cursor and body of an answer."""
        headers = self._headers()
        if body is not None:
            headers["Content-Type"] = media_type
        connection = self._connection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, self._path + target, body, headers)
            response = connection.getresponse()
            raw = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from error
        finally:
            connection.close()
        return response.status, response.getheader("x-next-cursor"), raw

    def _silent(self, error: Exception) -> ServerSilent:
        if isinstance(error, http.client.IncompleteRead):
            return ServerSilent(
                f"The answer of {shorten(self.place)} broke off. The server's log says why."
            )
        reason = getattr(error, "strerror", None) or type(error).__name__
        return ServerSilent(
            f"No AgentState server answers at {shorten(self.place)} ({reason}). Start one with "
            "`agentstate serve`, or say with --url where it listens."
        )

    def _read_json(self, status: int, cursor: str | None, raw: bytes) -> Answer:
        try:
            return read_answer(status, raw, cursor)
        except ValueError as error:
            raise ServerSilent(
                f"What answers at {shorten(self.place)} is not AgentState: status "
                f"{status} and no JSON of ours. Say with --url where the server listens."
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
