"""Makes a stranger's text fit to be shown by a service: struck, visible, cut, of one line. Pure.

What comes in are models' and agents' words, of any length and with any character. What goes out has
no key in it that looks like one, hides nothing, and is no longer than a service takes. What is
markup differs by service and is for its own file; `card.py` says what there is to show.

Lengths are UTF-16 units: Discord counts code points and Slack does not say, so the larger count is
within both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from agentstate.ground.canonical import JSON
from agentstate.ground.secrets import strike
from agentstate.ground.visible import visible
from agentstate.wire.message import Headers

TEXT_CHARS_MAX = 65_536  # of a text is looked at; no service but JSON takes a tenth of it
CUT = "… (cut: there is more)"
WAIT_MAX_S = 86_400.0  # a service that asks for more than a day is taken to mean a day
URL_UNITS_MAX = 2_000  # Slack's buttons take 3,000, Discord's embeds 2,048
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT_MAX_MS = 253_402_300_799_999  # the end of the year 9999, which is as far as dates go

_FENCE = re.compile("`{3,}")
_SECONDS = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?\Z")
_URL_PARTS = re.compile(r"\S*/\S*")
_PRINTABLE_ASCII = re.compile(r"[\x21-\x7e]+\Z")


def words(fact: JSON) -> str:
    """Return a fact as text, with what looks like a key struck; '' = there is nothing to say."""
    match fact:
        case None:
            return ""
        case bool():
            return "yes" if fact else "no"
        case str():
            return _struck(fact)
        case int() | float():
            return _number(fact)
        case _:
            try:
                return _struck(json.dumps(fact, ensure_ascii=False, default=str))
            except (ValueError, RecursionError):
                return "(a value that cannot be shown)"


def units(text: str) -> int:
    """Return the length in UTF-16 units."""
    return len(text) + sum(char > "\uffff" for char in text)


def fit(
    text: str,
    units_max: int,
    escape: Callable[[str], str] = str,
    prepare: Callable[[str], str] = visible,
) -> str:
    """Return `text` visible and escaped, in at most `units_max` units, with a mark if it is cut.

    `escape` is given one character at a time, and what it makes of one is kept or dropped whole;
    `prepare` gets as much of the text as can matter and makes it no shorter. The mark means the
    same in every markup.
    """
    mark = CUT if units_max >= 3 * units(CUT) else CUT[0]
    kept: list[str] = []
    used = fitting = 0  # units so far; how many pieces leave room for the mark
    for char in prepare(text[: units_max + 1]):
        piece = escape(char)
        used += units(piece)
        if used > units_max:
            return "".join(kept[:fitting]) + mark
        kept.append(piece)
        if used + units(mark) <= units_max:
            fitting = len(kept)
    return "".join(kept)


def one_line(char: str) -> str:
    """Escape one character of a text that must stay on its line, for `fit`."""
    return {"\n": "⏎", "\t": " "}.get(char, char)


def in_code(char: str) -> str:
    """Escape one character of a text within a pair of backticks, for `fit`.

    No markup has a way to write a backtick there, so it becomes a mark that looks much the same.
    """
    return "\u02cb" if char == "`" else one_line(char)


def code_line(text: str, units_max: int, escape: Callable[[str], str] = in_code) -> str:
    """Return a text on one line, between backticks that are its own; never blank."""
    return f"`{fit(text.strip() or '(empty)', units_max - 2, escape)}`"


def code_block(text: str, units_max: int, escape: Callable[[str], str] = str) -> str:
    """Return a text for a code block that nothing in it can end, without the fences.

    A blank text is said to be one, since a block without content is no block to the services, and
    its fences would pair with the next one's.
    """
    if not text.strip():
        return "(only white space)" if text else "(empty)"
    return fit(text, units_max, escape, _unfenced)


def instant(at_ms: JSON) -> datetime | None:
    """Return milliseconds since 1970 as a time in UTC; None = it is no such number."""
    if isinstance(at_ms, bool) or not isinstance(at_ms, int) or not 0 <= at_ms <= INSTANT_MAX_MS:
        return None
    return EPOCH + timedelta(milliseconds=at_ms)


def timestamp(at_ms: int) -> str:
    """Return a time as RFC 3339 has it, in UTC with milliseconds; the epoch for what is none."""
    at = instant(at_ms) or EPOCH
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def host_and_path(url: str) -> tuple[str, str]:
    """Return both, the host in lower case; two empty ones for what is no URL."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").rstrip("."), parts.path
    except ValueError:
        return "", ""


def is_linkable(url: str) -> bool:
    """Say whether services take a URL for a link.

    It must be short, of http or https, and its host an address or a name with a dot: Discord
    refuses the whole message for `http://proxy:8000/`, and Slack drops such a button in silence.
    """
    if len(url) > URL_UNITS_MAX or not _PRINTABLE_ASCII.match(url) or set(url) & set('<>|"`\\^{}'):
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and ("." in host.strip(".") or ":" in host)


def asked_wait_s(headers: Headers) -> float | None:
    """Return the seconds that Retry-After asks for, as a number or a date; None = it does not.

    A date is measured from the answer's own Date: a receiver's clock may be wrong, but it is the
    same clock twice. Source: RFC 9110 section 10.2.3.
    """
    value = headers.text(b"retry-after")
    if value is None:
        return None
    seconds = seconds_of(value)
    if seconds is not None:
        return seconds
    until, now = _date(value), _date(headers.text(b"date"))
    if until is None or now is None:
        return None
    return bounded_s((until - now).total_seconds())


def seconds_of(value: str | None) -> float | None:
    """Return a number of seconds in a header, at most a day; None = it is none."""
    return bounded_s(float(value)) if value and _SECONDS.match(value) else None


def bounded_s(seconds: float) -> float:
    """Return seconds to wait as between none and a day."""
    return min(max(seconds, 0.0), WAIT_MAX_S)


def quoted(text: str, units_max: int = 200) -> str:
    """Return a service's own words for a line of a log: nothing in it that may be of a URL.

    Some servers repeat the path they were asked for, and the path of a webhook is its secret.
    """
    return fit(_URL_PARTS.sub("…", strike(text[:2_000])).strip(), units_max, one_line)


def _struck(text: str) -> str:
    return strike(text[:TEXT_CHARS_MAX]) + (CUT if len(text) > TEXT_CHARS_MAX else "")


def _unfenced(text: str) -> str:
    """Runs of three backticks get spaces of no width between them, the one change that nobody need
    see: any other would show other arguments than are to be approved."""
    return _FENCE.sub(lambda run: "\u200b".join(run[0]), visible(text))


def _number(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python's bound on the digits of an integer
        return "(a number too long to be shown)"


def _date(value: str | None) -> datetime | None:
    try:
        at = parsedate_to_datetime(value or "")
    except (ValueError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
