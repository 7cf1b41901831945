"""Log lines: set up once at start, as text for people or JSON for machines, one line a record.

Not what writes them: modules log to `agentstate.<name>`, and a door calls `log_call` once a call.
Lines go to standard error, so that what a verb prints stays clean. The one invariant: a record is
one line (and in text the indented lines of a traceback), of bounded length, with no body, header,
query or key in it; what looks like a key is struck.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TextIO

from agentstate.ground.errors import shorten
from agentstate.ground.secrets import strike
from agentstate.ground.settings import LogSettings

ROOT = "agentstate"
LINE_CHARS_MAX = 4096  # a line over 4 KiB is cut by journald's and Docker's drivers into several
TRACEBACK_CHARS_MAX = 32 * 1024  # from its end: the innermost frames tell most

_CALL_KEY = "agentstate_call"  # where a record carries its Call
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


calls = logging.getLogger(ROOT + ".calls")


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the log tells it. None = does not apply or is not known."""

    method: str
    path: str  # without the query, which may hold a key
    status: int  # 0 = the client left before a head went out
    duration_ms: float  # from the request's head to the answer's last byte
    overhead_ms: float | None = None  # of it, ours
    session: str | None = None
    step: int | None = None
    replay: str | None = None  # exact, pinned, masked or joined
    provider: str | None = None
    model: str | None = None
    attempts: int | None = None
    error: str | None = None  # a code of errors.py


def set_up_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all of ours to `stream` (standard error) as `settings` say. Again: replaces."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JSONLines() if settings.format == "json" else TextLines())
    root = logging.getLogger(ROOT)
    root.handlers = [handler]
    root.setLevel(settings.level.upper())
    root.propagate = False


def is_logged(status: int) -> bool:
    """Say whether a call that ends with a status gets a line."""
    return calls.isEnabledFor(_level_of(status))


def log_call(call: Call) -> None:
    """Write the one line of a call: a warning where it failed on our side or upstream."""
    if is_logged(call.status):
        calls.log(_level_of(call.status), "%s", _call_text(call), extra={_CALL_KEY: call})


def _level_of(status: int) -> int:
    return logging.WARNING if status >= 500 else logging.INFO


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO message`, then the indented lines of a traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        message = printable(_bounded(record.getMessage()))
        line = f"{_timestamp(record)} {record.levelname} {message}"
        trace = self._traceback(record)
        return "\n    ".join((line, *(printable(each) for each in trace.split("\n") if each)))

    def _traceback(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[0] is None:
            return ""
        return strike(self.formatException(record.exc_info)[-TRACEBACK_CHARS_MAX:])


class JSONLines(TextLines):
    """One JSON object a line; a call's facts are keys of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        line: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        call = getattr(record, _CALL_KEY, None)
        if isinstance(call, Call):
            line["message"] = "call"
            line |= {name: _json_value(value) for name, value in _facts(call)}
        else:
            line["message"] = _bounded(record.getMessage())
        if trace := self._traceback(record):
            line["traceback"] = trace
        return json.dumps(line)


def _facts(call: Call) -> list[tuple[str, object]]:
    pairs = ((field.name, getattr(call, field.name)) for field in fields(call))
    return [(name, value) for name, value in pairs if value is not None]


def _call_text(call: Call) -> str:
    shown = {name: _text_value(value) for name, value in _facts(call)}
    method, path = shown.pop("method"), shown.pop("path")
    status, duration = shown.pop("status"), shown.pop("duration_ms")
    rest = "".join(f" {name}={value}" for name, value in shown.items())
    return f"{method} {path} {status} {duration}ms{rest}"


def _text_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    text = str(value)
    # A session's name is the caller's: it must not be able to look like further facts.
    return json.dumps(text) if " " in text or '"' in text or "=" in text else text


def _json_value(value: object) -> object:
    if isinstance(value, float):
        return round(value, 2)
    return _bounded(value) if isinstance(value, str) else value


def _bounded(text: str) -> str:
    return strike(shorten(text, LINE_CHARS_MAX))


def printable(text: str) -> str:
    """Show control characters, line ends among them, as escapes."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
