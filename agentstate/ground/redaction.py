"""Takes secrets out of what is kept or given away: what looks like one becomes a short mark. Pure.

Known by their form are the keys of providers and services, tokens, private keys, and what is given
to a name such as `api_key` or `password` and looks like chance. A password that looks like a word
is not. The structure stays: a mark has only letters, brackets and a colon, and no pattern reaches
over a quote or ends within an escape, so JSON in a text, tool arguments above all, is JSON
afterwards. What was cleared once stays as it is when it is cleared again, so two values can be
compared by what is left of them. The counterpart for logs and errors is `secrets.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log2

from agentstate.ground.canonical import JSON
from agentstate.ground.secrets import MARK, mark_of

# A key begins where no word or id goes on. In JSON within a text it may stand after an escape, as
# in `\nsk-...`, whose letter is none of its own.
_BEGIN = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4}))"

# By kind. What could begin anywhere in a long run takes all of it, or begins where none goes on: so
# no text is looked at twice.
_FORMS: Mapping[str, str] = {
    "private_key": (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[A-Za-z0-9+/=:,.\s]|-(?!----)|\\+[nr])*"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
    ),
    "anthropic_key": _BEGIN + r"sk-ant-[A-Za-z0-9_-]{16,}",
    "openai_key": _BEGIN + r"sk-[A-Za-z0-9_-]{16,}",
    "google_key": _BEGIN + r"AIza[A-Za-z0-9_-]{30,}",
    "groq_key": _BEGIN + r"gsk_[A-Za-z0-9]{16,}",
    "xai_key": _BEGIN + r"xai-[A-Za-z0-9_-]{16,}",
    "huggingface_key": _BEGIN + r"hf_[A-Za-z0-9]{16,}",
    "github_token": _BEGIN + r"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{16,}",
    "gitlab_token": _BEGIN + r"glpat-[A-Za-z0-9_-]{16,}",
    "aws_key": _BEGIN + r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "slack_token": _BEGIN + r"(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}",
    "stripe_key": _BEGIN + r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}",
    "jwt": _BEGIN + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{2,}(?:\.[A-Za-z0-9_-]*)?",
    "bearer_token": r"(?:(?<![A-Za-z])|(?<=\\[nrtbf]))[Bb]earer [A-Za-z0-9._~+/=-]{16,}",
    "url_password": r"://(?!\[secret:)[^\s/:@\"'\\<>]{1,100}:[^\s/:@\"'\\<>]{1,200}(?=@)",
}
ASSIGNED = "assigned_secret"  # known by the name it is given to, and by how it looks
KEY = "configured_key"  # known by itself: one that is configured, or that the caller sent
PATTERN = "pattern"  # a configured pattern found it
KINDS = (*_FORMS, ASSIGNED)

_SECRET = re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in _FORMS.items()))
# Where one may begin: to look for plain words takes a third of the time of one pattern for all.
_STARTS = (
    "-----BEGIN ", "sk-", "AIza", "gsk_", "xai-", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat_", "glpat-", "AKIA", "ASIA", "xox", "xapp-", "sk_live_", "sk_test_", "rk_live_",
    "rk_test_", "eyJ", "Bearer ", "bearer ", "://",
)  # fmt: skip
# What of it stays.
_KEPT = {"bearer_token": len("Bearer "), "url_password": len("://")}
# Words run on, too: `sk-learn-compatible-estimators` and `Bearer authentication-scheme` are none.
_NEEDS_DIGIT = frozenset(("openai_key", "xai_key", "bearer_token", "slack_token", "gitlab_token"))


# `api_key=`, `"client_secret": "`, `--db-password `, and the same in JSON within a text.
_NAME = (
    r"(?:(?:api|access|auth|bearer|client|encryption|private|refresh|secret|session|signing)"
    r"[_-]?(?:key|token|secret)|secret|passwd|password|passphrase)"
)
_NAMED = re.compile(rf"(?:[A-Za-z0-9]{{1,30}}[_-]){{0,4}}{_NAME}", re.IGNORECASE)
_RUN = r"[A-Za-z0-9+/_.~!@#$%^*-]{12,200}={0,2}"
_VALUE = re.compile(_RUN)
# What is given comes first, since names are in every text.
_QUOTE = r"(?:\\{0,7}[\"'])?"  # as it stands in JSON within JSON within a text
_GIVEN = re.compile(rf"[:=]\s{{0,3}}{_QUOTE}(?P<value>{_RUN})")
_NAME_BEFORE = re.compile(rf"{_NAME}{_QUOTE}\s{{0,3}}\Z", re.IGNORECASE)
NAME_CHARS_MAX = 40
_ANY_NAME = re.compile(_NAME, re.IGNORECASE)
_NAME_WORDS = ("key", "token", "secret", "passw", "passph")  # one of them is in each name
TEXT_CHARS_MIN = len("://a:b@")  # the shortest secret, with what it is known by
ASSIGNED_CHARS_MIN = 12
# Of a text by chance; words and numbers have less.
BITS_PER_CHAR_MIN = 3.0
# A placeholder such as `not-needed` is sent as a key as well, and is a word in many texts.
KNOWN_CHARS_MIN, KNOWN_KINDS_MIN = 16, 8


def redact_text(text: str) -> str:
    """Return a text without what has the form of a secret."""
    while _may_hold_one(text):
        cleared = _cleared(text, find_secrets(text))
        if cleared == text:
            return text
        text = cleared  # where one ended another may begin, which went on from a word before
    return text


def _may_hold_one(text: str) -> bool:
    """Say whether it is worth looking for secrets: most texts are told from plain words alone."""
    if len(text) < TEXT_CHARS_MIN:
        return False
    for word in _STARTS:
        if word in text:
            return True
    lower = text.lower()
    for word in _NAME_WORDS:
        if word in lower:
            return _ANY_NAME.search(text) is not None
    return False


def redact_bytes(raw: bytes) -> bytes:
    """Do the same for bytes of unknown coding; every other byte stays."""
    return redact_text(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def count_marks(value: JSON) -> Counter[str]:
    """Return how many secrets of each kind were taken out of a value, whenever that was."""
    counts: Counter[str] = Counter()
    for text in _texts_of(value):
        counts.update(mark.removeprefix("[secret:")[:-1] for mark in MARK.findall(text))
    return counts


def is_redacted(value: JSON) -> bool:
    """Say whether something was taken out of a value."""
    return any(MARK.search(text) for text in _texts_of(value))


def _texts_of(value: JSON) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += (*one, *one.values())


def find_secrets(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) of each secret in a text, in order."""
    later = list(_find_assigned(text))
    if not later:
        yield from _find_formed(text)
        return
    # Where two overlap they are one: what would be left of either is a secret's piece.
    found = sorted((*_find_formed(text), *later), key=lambda each: each[1])
    kind, start, end = found[0]
    for next_kind, next_start, next_end in found[1:]:
        if next_start >= end:
            yield kind, start, end
            kind, start, end = next_kind, next_start, next_end
            continue
        end = max(end, next_end)
        if kind == ASSIGNED:
            kind = next_kind
    yield kind, start, end


def _find_formed(text: str) -> Iterator[tuple[str, int, int]]:
    done = 0
    for start in sorted(place for word in _STARTS for place in _places(text, word)):
        if start < done or (found := _SECRET.match(text, start)) is None:
            continue
        done = found.end()
        kind = found.lastgroup
        assert kind is not None, "one of the alternatives is what was found"
        if kind in _NEEDS_DIGIT and not any(char.isdigit() for char in found[0]):
            continue
        yield kind, start + _KEPT.get(kind, 0), done


def _places(text: str, word: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)


def _find_assigned(text: str) -> Iterator[tuple[str, int, int]]:
    for found in _GIVEN.finditer(text):
        before = text[max(0, found.start() - NAME_CHARS_MAX) : found.start()]
        start, end = found.span("value")
        if _NAME_BEFORE.search(before) and looks_random(found["value"]):
            yield ASSIGNED, start, end


def looks_random(text: str) -> bool:
    """Say whether a run of characters was made by chance: long, of letters and digits, with few
    repetitions."""
    if len(text) < ASSIGNED_CHARS_MIN or not any(char.isdigit() for char in text):
        return False
    if not any(char.isalpha() for char in text):
        return False
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * log2(share) for share in shares) >= BITS_PER_CHAR_MIN


@lru_cache(maxsize=256)
def is_known_secret(key: str) -> bool:
    """Say whether a configured or sent key is one that text must not hold, and no placeholder."""
    return len(key) >= KNOWN_CHARS_MIN and len(set(key)) >= KNOWN_KINDS_MIN and looks_random(key)


class Redactor:
    """Takes out secrets by their form, `keys` that are known by themselves, and what `patterns`
    (regular expressions) find. Immutable."""

    def __init__(self, keys: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._know(dict.fromkeys(key for key in keys if is_known_secret(key)))
        self._patterns = tuple(re.compile(pattern) for pattern in patterns)

    def with_keys(self, keys: Iterable[str]) -> Redactor:
        """Return one that knows these keys as well."""
        more = [key for key in keys if key not in self._keys and is_known_secret(key)]
        if not more:
            return self
        other = Redactor()
        other._know((*self._keys, *more))
        other._patterns = self._patterns
        return other

    def _know(self, keys: Iterable[str]) -> None:
        self._keys = tuple(keys)
        self._raw_keys = tuple(key.encode("utf-8", "surrogatepass") for key in self._keys)

    @property
    def knows_keys(self) -> bool:
        """Whether there are keys that are known by themselves."""
        return bool(self._keys)

    def value(self, value: JSON) -> JSON:
        """Return a value without the secrets in its strings, keys of objects included. The value
        itself is left as it is.

        Raises:
            RecursionError: it is nested too deeply to be written either.
        """
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict():
                return self._object(value)
            case _:
                return value

    def finds(self, value: JSON) -> bool:
        """Say whether there are secrets in a value."""
        return self.value(value) != value

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = redact_text(self.text_without_keys(text))
        for pattern in self._patterns:
            spans = ((PATTERN, *found.span()) for found in pattern.finditer(text) if found[0])
            marks = [found.span() for found in MARK.finditer(text)]
            text = _cleared(text, [each for each in spans if not _is_in(each, marks)])
        return text

    def text_without_keys(self, text: str) -> str:
        """Return a text without the keys that are known by themselves."""
        for key in self._keys:
            if key in text:
                text = text.replace(key, mark_of(KEY))
        return text

    def without_keys(self, content: bytes) -> bytes:
        """Do the same for bytes; what has none comes back as the same object."""
        for raw in self._raw_keys:
            if raw in content:
                content = content.replace(raw, mark_of(KEY).encode())
        return content

    def _object(self, value: Mapping[str, JSON]) -> JSON:
        cleared: dict[str, JSON] = {}
        for key, item in value.items():
            name = self.text(key)
            # Two keys that were secrets must stay two, or a value would be lost.
            while name != key and (name in cleared or name in value):
                name += "+"
            clear = self.value(item)
            if isinstance(clear, str) and _is_secret_of(key, clear):
                clear = mark_of(ASSIGNED)
            cleared[name] = clear
        return cleared


NOTHING_KNOWN = Redactor()  # takes out what has the form of a secret


def _is_secret_of(name: str, text: str) -> bool:
    """Say whether a text is the value of a name that secrets have, and looks like one."""
    return bool(_NAMED.fullmatch(name) and _VALUE.fullmatch(text)) and looks_random(text)


def _cleared(text: str, spans: Iterable[tuple[str, int, int]]) -> str:
    pieces: list[str] = []
    done = 0
    for kind, start, end in spans:
        pieces += (text[done:start], mark_of(kind))
        done = end
    return "".join((*pieces, text[done:])) if pieces else text


def _is_in(span: tuple[str, int, int], marks: Sequence[tuple[int, int]]) -> bool:
    """Say whether a find overlaps a mark: what is a mark is not looked into."""
    return any(span[1] < end and start < span[2] for start, end in marks)
