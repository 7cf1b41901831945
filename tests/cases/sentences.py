"""What a check is, and how one is made for a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cases.playing import Play

Check = Callable[[Play, Any], None]


def same_sentence(known: str, check: Callable[[Play], None]) -> Check:
    """Make a check of a sentence that may only be this one."""

    def checked(playing: Play, wanted: Any) -> None:
        assert wanted == known, f"no check for the sentence {wanted!r}"
        check(playing)

    return checked
