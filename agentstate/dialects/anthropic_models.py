"""What Claude models take and what they answer with a 400, by their names.

The Messages form is one, its models differ: newer ones have lost the sampling parameters and the
prefilled answer, older ones lack structured output and effort. A name that says no version (an
alias, another vendor's model behind the same form) is taken for a model that takes the form as it
was first published: what it does not know, such servers mostly pass over.
Source: platform.claude.com/docs/en/about-claude/models/migration-guide, .../build-with-claude/
{effort,structured-outputs} and .../api/errors, .../about-claude/models/overview, November 2026.
"""

from __future__ import annotations

import re

# "claude-opus-4-7", "us.anthropic.claude-opus-4-7-v1:0", "anthropic/claude-opus-4.7",
# "claude-opus-4-20250514" (4.0), "claude-sonnet-5". Before 4 the version stood before the family.
_NAME = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(?:v?2|3|instant)")

# Of the names without a family before the version; all others of these have 4,096.
_OLD_OUTPUT_TOKENS = {"claude-3-5": 8_192, "claude-3.5": 8_192, "claude-3-7": 64_000,
                      "claude-3.7": 64_000}  # fmt: skip

_NEVER = (99, 0)
_SAMPLING_UNTIL = (4, 7)
_PREFILL_UNTIL = (4, 6)
_FORMAT_SINCE = (4, 5)
# By family, since which version; families that are not here came with 5 and have all of them.
_EFFORT_SINCE = {"opus": (4, 5), "sonnet": (4, 6), "haiku": _NEVER}
_MOST_EFFORT_SINCE = {"opus": (4, 7), "sonnet": (5, 0), "haiku": _NEVER}


def takes_sampling(model: str) -> bool:
    """Say whether a model takes a temperature, `top_p` and `top_k`."""
    version = _version(model)
    return version is None or version < _SAMPLING_UNTIL


def takes_prefill(model: str) -> bool:
    """Say whether a model goes on from an answer that was begun for it."""
    version = _version(model)
    return version is None or version < _PREFILL_UNTIL


def takes_format(model: str) -> bool:
    """Say whether a model can be held to a schema: in its text, and in a strict tool."""
    version = _version(model)
    return version is None or version >= _FORMAT_SINCE


def takes_effort(model: str, effort: str) -> bool:
    """Say whether a model is known to take a level of effort."""
    match = _NAME.search(model)
    version = _version(model)
    if match is None or version is None:
        return False
    since = {"xhigh": _MOST_EFFORT_SINCE, "low": _EFFORT_SINCE, "medium": _EFFORT_SINCE,
             "high": _EFFORT_SINCE}.get(effort)  # fmt: skip
    return since is not None and version >= since.get(match[1], (5, 0))


def most_output_tokens(model: str) -> int | None:
    """Return how many tokens a model may answer; None = its name does not tell."""
    version, match = _version(model), _NAME.search(model)
    if version is None:
        return None
    if match is None:
        return next((most for name, most in _OLD_OUTPUT_TOKENS.items() if name in model), 4_096)
    is_first_opus = match[1] == "opus" and version < (4, 5)
    return 32_000 if is_first_opus else 64_000


def _version(model: str) -> tuple[int, int] | None:
    if _OLD_NAME.search(model):
        return (3, 0)
    match = _NAME.search(model)
    return None if match is None else (int(match[2]), int(match[3] or 0))
