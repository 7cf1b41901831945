"""Decides, frame by frame, what of a stream may go out before the gate has seen it whole. Pure.

Text flows. From the first frame on that shows, or may still turn out to show, part of a guarded
call, frames are kept in their order; what is kept is let go once it cannot be part of one any more
(DESIGN section 4). The gate judges the assembled calls later; this only makes sure that none of
them has left by then.

The invariant: what a client has got never adds up to a call, or the beginning of the name of a
call, that the policy could hold. It is kept by looking again at every frame: a frame goes out only
if the calls assembled up to and with that frame are harmless as they stand. A name that grows on
later is met by the frame that makes it grow, and that one stays.
"""

from __future__ import annotations

from collections import deque

from agentstate.dialects.base import Assembler, Mark
from agentstate.steps.policy import Policy
from agentstate.steps.textcalls import TextScreen


class Screen:
    """Stands between one upstream stream and its clients."""

    def __init__(self, policy: Policy, *, scans_text: bool, holds_calls: bool = False) -> None:
        """`scans_text`: texts may spell calls. `holds_calls`: no call goes out early, guarded or
        not."""
        self._policy = policy
        self._scans_text = scans_text
        self._holds_calls = holds_calls
        self._has_calls = False
        self._harmless: dict[str, bool] = {}  # by name: asked at every frame, and names repeat
        self._texts: dict[int, _Text] = {}  # by choice
        # (frame, how much text of which choices had come with it)
        self._kept: deque[tuple[bytes, dict[int, int]]] = deque()

    @property
    def is_keeping(self) -> bool:
        """Whether anything is being kept."""
        return bool(self._kept)

    def take(self, frame: bytes, mark: Mark, assembler: Assembler) -> bytes:
        """Take in a frame that `assembler` has just been fed; return what may go out now."""
        if not self._has_calls:
            # Whatever a frame is marked as, it may bring a call as well: the one that completes the
            # answer, or one that tells all of it once more.
            self._has_calls = mark is Mark.TOOL or bool(assembler.call_names())
        if not (self._has_calls or self._scans_text):
            return frame
        ends: dict[int, int] = {}
        if self._scans_text:
            for choice, piece in assembler.new_text():
                text = self._texts.get(choice) or self._texts.setdefault(
                    choice, _Text(self._policy)
                )
                ends[choice] = text.feed(piece)
        self._kept.append((frame, ends))
        return b"" if self._has_suspect(assembler) else self._let_go()

    def rest(self) -> bytes:
        """Return what was kept, and keep it no longer."""
        rest = b"".join(frame for frame, _ in self._kept)
        self._kept.clear()
        return rest

    def _has_suspect(self, assembler: Assembler) -> bool:
        """Say whether a call is, or may be about to be, one that the policy could hold."""
        if not self._has_calls:
            return False
        names = assembler.call_names()
        if self._holds_calls or not names:
            return True  # a part of a call has come, and nobody knows of which yet
        last: dict[int, int] = {}  # choice → its newest call, whose name may still be coming
        for choice, position, _ in names:
            last[choice] = max(position, last.get(choice, 0))
        for choice, position, name in names:
            if not self._is_harmless(name):
                return True
            if position == last[choice] and self._policy.could_become(name):
                return True
        return False

    def _is_harmless(self, name: str) -> bool:
        known = self._harmless.get(name)
        if known is None:
            known = self._harmless[name] = not self._policy.could_hold(name)
        return known

    def _let_go(self) -> bytes:
        free: list[bytes] = []
        while self._kept and all(
            end <= self._texts[choice].safe for choice, end in self._kept[0][1].items()
        ):
            free.append(self._kept.popleft()[0])
        return b"".join(free)


class _Text:
    """The text of one choice, and how much of it may go out."""

    def __init__(self, policy: Policy) -> None:
        self._screen = TextScreen(policy.could_spell)
        self._length = 0

    def feed(self, piece: str) -> int:
        """Take in a piece and return how long the text is now."""
        self._screen.feed(piece)
        self._length += len(piece)
        return self._length

    @property
    def safe(self) -> int:
        return self._screen.safe
