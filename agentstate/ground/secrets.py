"""Strike what looks like a key out of text that leaves its place: logs, errors, excerpts. Pure.

Not a guard for answers: those are kept verbatim, since a replay must be what the agent saw. Known
keys (the caller's own) are struck wherever they stand; unknown ones by the forms vendors give them.
"""

from __future__ import annotations

import re

STRUCK = "…"
MARK = re.compile(r"\[secret:[a-z_]+\]")  # what `mark_of` returns

# sk-..., gsk_..., AIza..., xai-..., hf_..., AWS, GitHub and Slack tokens, and what follows Bearer.
_KEY = re.compile(
    r"(\bsk-|\bgsk_|\bAIza|\bxai-|\bhf_|\bAKIA|\bgh[pousr]_|\bxox[abprs]-|\b[Bb]earer )"
    r"[A-Za-z0-9._~+/=*-]{6,}"
)
KEY_CHARS_MIN = 8  # a shorter "key" is a placeholder, and striking it would eat words


def strike(text: str, *known: str) -> str:
    """Return the text with everything that looks like a key, and every `known` one, struck."""
    for key in known:
        if len(key) >= KEY_CHARS_MIN:
            text = text.replace(key, STRUCK)
    return _KEY.sub(lambda found: found[1] + STRUCK, text)


def strike_bytes(raw: bytes, *known: str) -> bytes:
    """Do the same for bytes of unknown coding; every other byte stays."""
    text = raw.decode("utf-8", "surrogateescape")
    return strike(text, *known).encode("utf-8", "surrogateescape")


def mark_of(kind: str) -> str:
    """Return what stands in the place of a secret that was taken out of something kept."""
    return f"[secret:{kind}]"


# How the keys of vendors begin, where that tells them apart.
_OWNERS = ((b"sk-ant-", "anthropic"), (b"sk-proj-", "openai"), (b"sk-svcacct-", "openai"),
           (b"AIza", "gemini"))  # fmt: skip


def provider_of_key(key: bytes) -> str | None:
    """Return whose key it is by how it begins; None = it does not tell."""
    return next((owner for prefix, owner in _OWNERS if key.startswith(prefix)), None)
