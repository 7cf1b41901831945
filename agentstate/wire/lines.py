"""Newline-delimited JSON as frames: one object a line, one frame a line. Pure.

Ollama's own form streams so. The counterpart for server-sent events is `sse.py`, whose `Frame` this
gives, so that whoever reads frames needs to know no more. Lines end with LF or CRLF.
"""

from __future__ import annotations

from agentstate.ground.errors import AnswerTooLong
from agentstate.wire.sse import FRAME_BYTES_MAX, Frame


class LinesDecoder:
    """Cuts one stream of bytes into lines. A line comes out with the feed that ends it."""

    __slots__ = ("_bytes_max", "_rest", "_rest_bytes")

    def __init__(self, line_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = line_bytes_max
        self._rest: list[bytes] = []  # pieces of the line that has not ended
        self._rest_bytes = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Take in what came and return the lines that it ends.

        Raises:
            AnswerTooLong: a line is longer than the limit.
        """
        *ended, rest = data.split(b"\n")
        frames: list[Frame] = []
        for piece in ended:
            self._keep(piece)
            line = b"".join(self._rest)
            self._rest.clear()
            self._rest_bytes = 0
            frames.append(_frame(line + b"\n", line))
        self._keep(rest)
        return frames

    def finish(self) -> Frame | None:
        """Return the last line, if it was not ended; None = there is none."""
        line = b"".join(self._rest)
        self._rest.clear()
        return _frame(line, line) if line.strip() else None

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_bytes += len(piece)
        if self._rest_bytes > self._bytes_max:
            raise AnswerTooLong(
                f"The upstream sent a line of over {self._bytes_max} bytes, which is the limit."
            )


def _frame(raw: bytes, line: bytes) -> Frame:
    data = line.strip()
    return Frame(raw, data or None)
