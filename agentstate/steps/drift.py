"""Take clocks out of a system text, so that a prompt that tells the time is the same prompt again.

Pure. A date or time is a clock only within 36 hours of the call it stands in: "today is 2026-11-30"
drifts from run to run, "the contract of 2019-03-01" never does and keeps counting. 36 hours is a
day of drift plus the widest time zone. Under a run id, UUIDs and what `replay.mask` names drift as
well.

What is taken out leaves a mark, so "It is 10:01." and "It is ." stay different.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

WINDOW = timedelta(hours=36)
HOUR_MS = 3_600_000
TEXTS_CHARS_MAX = 2_000_000  # of the texts remembered; some 30 long system prompts

_CLOCK = "\x00clock"
_UUID_MARK = "\x00uuid"
_MASK_MARK = "\x00mask"

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun",
            "july jul", "august aug", "september sep sept", "october oct", "november nov",
            "december dec",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?)"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:\s?(?:[ap]\.m\.|[ap]m\b))?"
_ZONE = r"(?:\s?(?:z|utc|gmt|[ecmp][sd]t|cet|cest|bst|[+-]\d{2}:?\d{2})(?![a-z0-9]))?"
# What may follow a date: "T10:01:32Z", " 10:01", ", 10:01 AM", " at 10:01:32.5+01:00".
_THEN_TIME = rf"(?:(?:t|,?\s+(?:at\s+)?){_TIME}{_ZONE})?"

# One pass over the text; each alternative is one way to write a moment.
_MOMENT = re.compile(
    r"(?<![\w.-])(?:"
    # 1. 2026-11-30, 2026/11/30, with or without a time
    rf"(?P<iso>(?P<iy>\d{{4}})[-/](?P<im>\d{{1,2}})[-/](?P<id>\d{{1,2}})(?P<it>{_THEN_TIME}))"
    # 2. Mon Nov 30 10:01:32 [UTC] 2026
    rf"|(?P<c>{_WEEKDAY}\s+(?P<cm>{_MONTH})\s+(?P<cd>\d{{1,2}})\s+{_TIME}{_ZONE}\s+(?P<cy>\d{{4}}))"
    # 3. [Monday,] November 30[th][, 2026]
    rf"|(?P<mdy>(?:{_WEEKDAY},?\s+)?(?P<mm>{_MONTH})\.?\s+(?P<md>\d{{1,2}})(?:st|nd|rd|th)?"
    rf"(?:,?\s+(?P<my>\d{{4}}))?(?![\d:])(?P<mt>{_THEN_TIME}))"
    # 4. [Mon,] 30[th] November [2026]
    rf"|(?P<dmy>(?:{_WEEKDAY},?\s+)?(?P<dd>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<dm>{_MONTH})\.?"
    rf"(?:,?\s+(?P<dy>\d{{4}}))?(?![\d:])(?P<dt>{_THEN_TIME}))"
    # 5. 11/30/2026, 30/11/2026, 30.11.2026: read both ways
    rf"|(?P<num>(?P<n1>\d{{1,2}})[/.](?P<n2>\d{{1,2}})[/.](?P<ny>\d{{4}})(?P<nt>{_THEN_TIME}))"
    # 6. seconds, milliseconds or microseconds since 1970
    r"|(?P<epoch>\d{10}(?:\d{3}|\d{6})?(?:\.\d{1,9})?)"
    r")(?![\w-]|\.\d)",
    re.IGNORECASE | re.ASCII,
)
# A time of day alone is a clock only where the text says that it is the time.
_TIME_SAID = re.compile(
    r"(?P<said>\b(?:current|now|local|it is|it's)\b[^\n\d]{0,24}?)"
    rf"(?P<time>(?<!\d){_TIME}{_ZONE})(?!\d)",
    re.IGNORECASE | re.ASCII,
)
_DAY_SAID = re.compile(
    rf"(?P<said>\btoday\b[^\n\d]{{0,12}}?\b)(?P<day>{_WEEKDAY})\b", re.IGNORECASE
)
_ANY_DIGIT = re.compile(r"[0-9]")
_UUID = re.compile(
    r"(?<![0-9a-f-])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f-])",
    re.IGNORECASE | re.ASCII,
)


class Masker:
    """Takes drift out of texts, and remembers what came of them.

    An agent sends the same system text with every call, and the search through a long one takes
    tens of milliseconds. All calls of one hour count as made at its beginning, so that what is
    remembered depends on the text alone.
    """

    def __init__(self, patterns: Iterable[re.Pattern[str]] = ()) -> None:
        """`patterns`: what `replay.mask` names."""
        self._patterns = tuple(patterns)
        self._texts: OrderedDict[tuple[str, int, bool], str] = OrderedDict()
        self._chars = 0

    def mask_for(self, now_ms: int, *, masks_ids: bool) -> Callable[[str], str]:
        """Return the function that takes drift out of a text of a call made at `now_ms`.

        `masks_ids`: also UUIDs and the patterns (DESIGN section 5, masked, case (a): under a run
        id).
        """
        hour = now_ms // HOUR_MS
        now = datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC)

        def mask(text: str) -> str:
            key = (text, hour, masks_ids)
            found = self._texts.get(key)
            if found is None:
                found = self._mask(text, now, masks_ids=masks_ids)
                self._remember(key, found)
            return found

        return mask

    def _mask(self, text: str, now: datetime, *, masks_ids: bool) -> str:
        if masks_ids:
            for pattern in self._patterns:
                text = pattern.sub(_MASK_MARK, text)
            text = _UUID.sub(_UUID_MARK, text)
        return mask_clocks(text, now)

    def _remember(self, key: tuple[str, int, bool], masked: str) -> None:
        # Called from threads too: each line is one operation, and a lost one only costs time.
        self._texts[key] = masked
        self._chars += len(key[0])
        while self._chars > TEXTS_CHARS_MAX and self._texts:
            (text, _, _), _ = self._texts.popitem(last=False)
            self._chars -= len(text)


def mask_clocks(text: str, now: datetime) -> str:
    """Return the text with every moment within 36 hours of `now` replaced by a mark."""

    def replace(match: re.Match[str]) -> str:
        return _CLOCK if any(_is_near(day, now) for day in _days(match, now)) else match[0]

    if _ANY_DIGIT.search(text) is None:
        return _DAY_SAID.sub(lambda match: match["said"] + _CLOCK, text)
    if _may_have_moment(text, now):
        text = _MOMENT.sub(replace, text)
    text = _TIME_SAID.sub(lambda match: match["said"] + _CLOCK, text)
    return _DAY_SAID.sub(lambda match: match["said"] + _CLOCK, text)


def _may_have_moment(text: str, now: datetime) -> bool:
    """Say whether a moment near `now` can be in the text at all: the full search is slow."""
    near = {now + step * timedelta(days=1) for step in (-2, -1, 0, 1, 2)}
    lower = text.lower()
    return (
        any(str(day.year) in text for day in near)
        or any(day.strftime("%b").lower() in lower for day in near)
        or any(str(int(day.timestamp()))[:4] in text for day in near)
    )


def _days(match: re.Match[str], now: datetime) -> list[datetime]:
    """Return the moments a match may mean: days at noon, or an instant for an epoch number."""
    if match["iso"]:
        return _day(match["iy"], match["im"], match["id"])
    if match["mdy"]:
        return _month_day(match["my"], match["mm"], match["md"], now)
    if match["dmy"]:
        return _month_day(match["dy"], match["dm"], match["dd"], now)
    if match["c"]:
        return _month_day(match["cy"], match["cm"], match["cd"], now)
    if match["num"]:
        return _day(match["ny"], match["n1"], match["n2"]) + _day(
            match["ny"], match["n2"], match["n1"]
        )
    whole = match["epoch"].partition(".")[0]
    seconds = int(whole) / 10 ** (len(whole) - 10)
    return [datetime.fromtimestamp(seconds, UTC)]


def _month_day(year: str | None, month: str, day: str, now: datetime) -> list[datetime]:
    number = str(_MONTHS[month.lower()])
    # Without a year: this one, or the neighbour across New Year's Eve.
    years = [year] if year else [str(now.year + step) for step in (-1, 0, 1)]
    return [moment for each in years for moment in _day(each, number, day)]


def _day(year: str, month: str, day: str) -> list[datetime]:
    try:
        return [datetime(int(year), int(month), int(day), 12, tzinfo=UTC)]
    except ValueError:  # month 13, February 30: no date
        return []


def _is_near(moment: datetime, now: datetime) -> bool:
    # A day stands for its noon: half a day off at most, so the window is kept within the day.
    return abs(moment - now) <= WINDOW
