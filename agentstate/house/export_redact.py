"""Takes secrets out of a line of training data: what looks like a key is replaced by a short mark.

A file for training goes to strangers and into weights, which give back what they have seen. Known
by their form are the keys of providers and services, tokens and private keys; a password that looks
like a word is not. The structure stays: a mark has only letters, brackets and a colon, and no
pattern reaches over a quote or ends within an escape, so JSON in a text, tool arguments above all,
is JSON afterwards. Pure; the counterpart for logs and errors is `ground/secrets.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from agentstate.ground.canonical import JSON
from agentstate.ground.secrets import mark_of

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
    "url_password": r"://[^\s/:@\"'\\<>]{1,100}:[^\s/:@\"'\\<>]{1,200}(?=@)",
}
KINDS = tuple(_FORMS)

_SECRET = re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in _FORMS.items()))
# Where one may begin: plain words, which are found fifty times as fast as the forms.
_START = re.compile(
    "-----BEGIN |sk-|AIza|gsk_|xai-|hf_|gh[pousr]_|github_pat_|glpat-|A(?:KIA|SIA)|xox[abeprs]-"
    "|xapp-|[sr]k_(?:live|test)_|eyJ|[Bb]earer |://"
)
# What of it stays.
_KEPT = {"bearer_token": len("Bearer "), "url_password": len("://")}
# Words run on, too: `sk-learn-compatible-estimators` and `Bearer authentication-scheme` are none.
_NEEDS_DIGIT = frozenset(("openai_key", "xai_key", "bearer_token", "slack_token", "gitlab_token"))


def redact(value: JSON) -> tuple[JSON, Counter[str]]:
    """Return a value without the secrets in its strings, keys of objects included, and how many of
    each kind there were. The value itself is left as it is.

    Raises:
        RecursionError: it is nested too deeply to be written either.
    """
    counts: Counter[str] = Counter()
    return _walk(value, counts), counts


def redact_text(text: str, counts: Counter[str]) -> str:
    """Return a text without the secrets in it; count them."""
    pieces: list[str] = []
    done = 0
    for kind, start, end in find_secrets(text):
        counts[kind] += 1
        pieces += (text[done:start], mark_of(kind))
        done = end
    return "".join((*pieces, text[done:])) if pieces else text


def find_secrets(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) of each secret in a text, in order."""
    at = 0
    while (start := _START.search(text, at)) is not None:
        found = _SECRET.match(text, start.start())
        if found is None:
            at = start.end()
            continue
        at = found.end()
        kind = found.lastgroup
        assert kind is not None, "one of the alternatives is what was found"
        if kind in _NEEDS_DIGIT and not any(char.isdigit() for char in found[0]):
            continue
        yield kind, found.start() + _KEPT.get(kind, 0), at


def _walk(value: JSON, counts: Counter[str]) -> JSON:
    match value:
        case str():
            return redact_text(value, counts)
        case list():
            return [_walk(item, counts) for item in value]
        case dict():
            cleared: dict[str, JSON] = {}
            for key, item in value.items():
                name = redact_text(key, counts)
                # Two keys that were secrets must stay two, or a value would be lost.
                while name != key and (name in cleared or name in value):
                    name += "+"
                cleared[name] = _walk(item, counts)
            return cleared
        case _:
            return value
