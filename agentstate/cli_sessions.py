"""`agentstate sessions`: prints what a running server has on record.

It speaks to the server's API over HTTP and opens no file. What is printed came from strangers
(names of sessions, answers of models), so control characters are shown and never sent to a
terminal.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from agentstate.ground.errors import AgentStateError, BadRequest, SettingError, shorten
from agentstate.ground.logs import printable

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024  # a page of the largest prompts
PAGE = 200
PAGES_MAX = 5000  # a million rows
TEXT_CHARS_MAX = 48


class ServerSilent(AgentStateError):
    """No server of ours answers at the address."""

    code = "server_silent"


def print_sessions(url: str, *, as_json: bool) -> int:
    """Print all sessions, the last active first; return the exit code."""
    rows = [row for page in _pages(url, "/api/sessions") for row in page]
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    if not rows:
        print(f"No sessions yet. Agents name one in the x-agent-session-id header at {url}/v1.")
        return 0
    head = ("SESSION", "STATUS", "STEPS", "REPLAYS", "TOKENS", "COST", "SAVED", "LAST ACTIVE")
    _print_table(head, [_session_cells(row) for row in rows])
    return 0


def print_session(url: str, session: str, *, as_json: bool) -> int:
    """Print a session and all its steps; return the exit code."""
    pages = list(_pages(url, f"/api/sessions/{quote(session, safe='')}"))
    row = pages[0]["session"]
    steps = [step for page in pages for step in page["steps"]]
    if as_json:
        print(json.dumps({"session": row, "steps": steps}, indent=2))
        return 0
    tokens = f"{row['input_tokens']} tokens in, {row['output_tokens']} out"
    print(f"{_cell(row['session'])}: {row['status']}, {row['steps']} steps, {tokens}")
    saved = _usd(row["saved_microusd"])
    print(f"cost {_session_cost(row)}; {row['replays']} replays saved {saved}")
    if steps:
        print()
        head = ("STEP", "STATE", "MODEL", "TOKENS", "COST", "MS", "REPLAYS", "ANSWER")
        _print_table(head, [_step_cells(step) for step in steps])
    return 0


def _pages(url: str, path: str) -> Iterator[Any]:
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        after = f"&after={quote(cursor, safe='')}" if cursor else ""
        page, cursor = _get(url, f"{path}?limit={PAGE}{after}")
        yield page
        if cursor is None:
            return


def _get(url: str, target: str) -> tuple[Any, str | None]:
    """Ask the server; return its JSON and the cursor of the next page, None = there is none.

    Raises:
        ServerSilent: nothing answers, or something that is not ours.
        BadRequest: the server refuses, in its own words.
    """
    connection, base_path = _connection(url)
    try:
        connection.request("GET", base_path + target, headers={"Accept": "application/json"})
        response = connection.getresponse()
        raw = response.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ServerSilent(
            f"No AgentState server answers at {shorten(url)} ({reason}). Start one with "
            "`agentstate serve`, or say with --url where it listens."
        ) from error
    finally:
        connection.close()
    try:
        answer = json.loads(raw)
        if response.status == 200:
            return answer, response.getheader("x-next-cursor")
        refusal: str = answer["error"]["message"]
    except (ValueError, TypeError, KeyError) as error:
        raise ServerSilent(
            f"What answers at {shorten(url)} is not AgentState: status {response.status} and no "
            "JSON of ours. Say with --url where the server listens."
        ) from error
    raise BadRequest(printable(refusal))


def _connection(url: str) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise SettingError(f"--url: expected http://HOST:PORT, found {shorten(repr(url))}.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=TIMEOUT_S), parts.path.rstrip("/")


def _session_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        _cell(row["session"]),
        row["status"],
        str(row["steps"]),
        str(row["replays"]),
        str(row["input_tokens"] + row["output_tokens"]),
        _session_cost(row),
        _usd(row["saved_microusd"]),
        _moment(row["updated_ms"]),
    )


def _step_cells(row: dict[str, Any]) -> tuple[str, ...]:
    usage = row["usage"]
    return (
        str(row["step_number"]),
        row["state"],
        _cell(row["model"]),
        "-" if usage is None else str(usage["total_tokens"]),
        _usd(row["cost_microusd"]),
        "-" if row["latency"] is None else f"{row['latency']:.0f}",
        str(row["replays"]),
        _cell(row["error"] or row["response"] or ""),
    )


def _session_cost(row: dict[str, Any]) -> str:
    # Steps whose price is unknown are not in the sum, so it says only "at least".
    return ("≥ " if row["unknown_costs"] else "") + _usd(row["cost_microusd"])


def _usd(microusd: int | None) -> str:
    return "-" if microusd is None else f"${microusd / 1_000_000:.6f}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _cell(text: str) -> str:
    return printable(shorten(text, TEXT_CHARS_MAX))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
