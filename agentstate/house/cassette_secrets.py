"""What is taken out of a cassette as a secret, and when that would break its replay. Pure.

Requests: always. What they match is their fingerprint, which was made of what was sent.

Most secrets of a request were taken out when it was written: of those only the kind is known.

Answers: what an agent is answered it mostly sends back, so a mark in the place of a secret would
change its next request, and the step that was recorded for that would not be found. So a secret of
an answer is taken out where no later request has it. Where one has it somebody must decide, and the
export is refused until they do. Whether an agent does something else with a secret than to send it
back cannot be told; what was taken out is counted, for a person to see.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentstate.dialects.base import Dialect
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest, Conflict
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.redaction import (
    KEY,
    NOTHING_KNOWN,
    count_marks,
    find_secrets,
    redact_text,
)
from agentstate.ground.secrets import KEY_CHARS_MIN, mark_of
from agentstate.steps.reading import as_body

SHOWN_MAX = 5  # places that a refusal names
# What of a secret comes through every way of escaping text.
_PLAIN = re.compile(r"[A-Za-z0-9+/=_.-]+")


class SecretsInAnswers(Conflict):
    """Answers hold secrets that later requests hold as well."""

    code = "secrets_in_answers"


@dataclass(frozen=True, slots=True)
class _Found:
    """A secret in an answer."""

    place: str  # of the step, for people
    kind: str
    needle: str  # that part of it which is looked for in requests
    before: int  # how many of its kind had been taken out of the request of its own step


class Censor:
    """Takes secrets out of one session, in order. `keys`: those that are known by themselves."""

    def __init__(self, keys: Sequence[str], *, keeps_answers: bool = False) -> None:
        self._keys = tuple(key for key in keys if len(key) >= KEY_CHARS_MIN)
        self._keeps_answers = keeps_answers
        self._found: list[_Found] = []
        self._clashes: dict[str, str] = {}  # place of the answer → what it holds, and where again
        self.counts: Counter[str] = Counter()

    # --- the first look -----------------------------------------------------------------------

    def look_at(self, place: str, request: JSON, dialect: Dialect, answer: RecordedAnswer) -> None:
        """Look at a step, those before it first."""
        if self._keeps_answers:
            return
        marks = count_marks(request)
        if self._found:
            text = encode(request).decode("ascii")
            for found in self._found:
                # One more of its kind may be it: better asked than broken.
                if found.needle in text or marks[found.kind] > found.before:
                    self._clashes.setdefault(
                        found.place, f"{found.place} ({found.kind}, sent again by {place})"
                    )
        seen: set[str] = set()
        for text in _texts_of(dialect, answer):
            for kind, secret in self._secrets_in(text):
                needle = _needle_of(secret)
                if needle not in seen:
                    seen.add(needle)
                    self._found.append(_Found(place, kind, needle, marks[kind]))

    def check(self) -> None:
        """Refuse what cannot be told apart: raises `SecretsInAnswers`."""
        if not self._clashes:
            return
        shown = list(self._clashes.values())
        more = f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""
        raise SecretsInAnswers(
            "Answers hold what looks like secrets, and the agent sends them back: taken out, its "
            f"later requests would not be found. {'; '.join(shown[:SHOWN_MAX])}{more}.",
            hint="Keep them with secrets=keep (--keep-secrets): then the file is as secret as they "
            "are. Or roll those steps back and record them again without.",
        )

    # --- taking out ---------------------------------------------------------------------------

    def request(self, value: JSON) -> JSON:
        """Return a request without secrets."""
        cleared = NOTHING_KNOWN.value(value)
        self.counts += count_marks(cleared)  # those that were taken out when it was recorded, too
        return _with_texts(cleared, self._without_keys) if self._keys else cleared

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        cleared = redact_text(text)
        self.counts += count_marks(cleared)
        return self._without_keys(cleared)

    def answer(self, dialect: Dialect, answer: RecordedAnswer) -> RecordedAnswer:
        """Return an answer without secrets, or as it is if they are to be kept.

        A stream in which one is spread over several events becomes an answer that is not streamed;
        asked for as a stream it still is one.
        """
        if self._keeps_answers:
            return answer
        content = self._cleared(answer.content)
        if answer.form == "body":
            return replace(answer, content=content)
        whole = as_body(dialect, replace(answer, content=content))
        cleared = self._cleared(whole)
        if cleared == whole:
            return (
                answer if content == answer.content else replace(answer, content=content, pace=b"")
            )
        headers = tuple(
            (name, b"application/json" if name.lower() == b"content-type" else value)
            for name, value in answer.headers
        )
        return RecordedAnswer(answer.status, headers, "body", cleared)

    def _cleared(self, content: bytes) -> bytes:
        text = content.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def _secrets_in(self, text: str) -> Iterator[tuple[str, str]]:
        for kind, start, end in find_secrets(text):
            yield kind, text[start:end]
        for key in self._keys:
            if key in text:
                yield KEY, key

    def _without_keys(self, text: str) -> str:
        for key in self._keys:
            if count := text.count(key):
                self.counts[KEY] += count
                text = text.replace(key, mark_of(KEY))
        return text


def _needle_of(secret: str) -> str:
    plain = max(_PLAIN.findall(secret), key=len, default="")
    return plain if len(plain) >= KEY_CHARS_MIN else secret  # a short word is in many texts


def _texts_of(dialect: Dialect, answer: RecordedAnswer) -> Iterator[str]:
    """Yield an answer as it came, and put together if it came in pieces."""
    yield answer.content.decode("utf-8", "replace")
    if answer.form == "events":
        try:
            yield as_body(dialect, answer).decode("utf-8", "replace")
        except BadRequest:
            return  # it can be read and not be written again; then it stays in its pieces


def _with_texts(value: JSON, change: Callable[[str], str]) -> JSON:
    match value:
        case str():
            return change(value)
        case list():
            return [_with_texts(item, change) for item in value]
        case dict():
            return {change(key): _with_texts(item, change) for key, item in value.items()}
        case _:
            return value
