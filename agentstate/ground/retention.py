"""Sessions that may be deleted to make room. Values only.

Which those are is for the store to say (`store/base_retention.py`), which of them go is decided in
`house/retention.py`. Time is integer milliseconds UTC (`_ms`).
"""

from __future__ import annotations

from dataclasses import dataclass

KEEP_TAG = "keep"  # a session with this tag, of whatever value, stays


@dataclass(frozen=True, slots=True)
class Quiet:
    """A session that may go."""

    session: str
    updated_ms: int  # its last activity
    steps: int
