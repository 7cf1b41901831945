"""Server-sent events: bytes in, frames out, and back. Pure, incremental.

To the WHATWG standard (HTML Living Standard, section 9.2.6, "Interpreting an event stream"): lines
end at CR, LF or CRLF and at nothing else (U+2028, U+0085 and form feed are data), a field's one
leading space is dropped, comments begin with a colon, an event ends at a blank line. Fed bytes cut
anywhere. Every byte fed comes out again in exactly one frame's `raw`, in order: a proxy forwards
`raw` and only reads the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentstate.ground.errors import AnswerTooLong

# Of one event. Images come as base64 inside one event; OpenAI's largest are about 10 MiB.
FRAME_BYTES_MAX = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_CR, _LF, _COLON, _SPACE = b"\r\n: "
_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Frame:
    """One event with the bytes it came as; or, with `data` None, bytes that dispatch nothing."""

    raw: bytes  # everything up to and including the blank line that ended it
    data: bytes | None  # data lines joined by LF, undecoded; None = no event (comment, blank line)
    event: bytes = b""  # the event field; b'' = not given, so "message"
    has_id: bool = False  # an id field was in it: then our own blank lines would matter


class SSEDecoder:
    """Cuts one stream of bytes into frames.

    A frame comes out with the feed that brings its last byte, also where that is a CR whose LF may
    still follow: the LF then comes out alone, as bytes that dispatch nothing. A comment line comes
    out at once unless it stands inside an event, so that heartbeats are not held up.
    """

    __slots__ = (
        "_bytes_max",
        "_event",
        "_has_id",
        "_is_after_cr",
        "_is_at_start",
        "_lines",
        "_lines_bytes",
        "_tail",
        "_tail_bytes",
        "_values",
    )

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = frame_bytes_max
        self._is_at_start = True  # no line has ended yet: a byte order mark may stand there
        self._is_after_cr = False  # the last byte was a CR that ended a line
        self._tail: list[bytes] = []  # pieces of the line that has not ended
        self._tail_bytes = 0
        # Of the event that has not ended: its whole lines as they came, and what they say.
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._values: list[bytes] = []  # of its data fields
        self._event = b""
        self._has_id = False

    @property
    def rest_bytes(self) -> int:
        """How many bytes were fed and have not come out."""
        return self._lines_bytes + self._tail_bytes

    def feed(self, data: bytes) -> list[Frame]:
        """Take in what was read and return the frames that are whole now.

        Raises:
            AnswerTooLong: one event is over the limit. The decoder cannot be used any more.
        """
        frames: list[Frame] = []
        if self._is_after_cr and data:
            self._is_after_cr = False
            if data[0] == _LF:
                self._take_late_lf(frames)
                data = data[1:]
        if b"\n" not in data and b"\r" not in data:
            self._keep(data)
            return frames
        if self._tail:
            # Only now, when the line ends: joining at every feed would be quadratic.
            data = b"".join((*self._tail, data))
            self._tail.clear()
            self._tail_bytes = 0
        self._keep(data[self._take_lines(data, frames) :])
        return frames

    def finish(self) -> Frame | None:
        """Return what was left over when the stream ended, None if nothing was.

        An event without its blank line is no event, so the frame has no data. Its bytes are for
        forwarding.
        """
        raw = b"".join((*self._lines, *self._tail))
        has_id = self._has_id
        self._clear_event()
        self._tail.clear()
        self._tail_bytes = 0
        return Frame(raw, None, has_id=has_id) if raw else None

    def _take_lines(self, data: bytes, frames: list[Frame]) -> int:
        """Take in the lines of `data` that have ended; return where the unended one begins."""
        find, startswith, size = data.find, data.startswith, len(data)
        position = 0
        if self._is_at_start:
            self._is_at_start = False
            if startswith(_BOM):
                frames.append(Frame(_BOM, None))
                position = len(_BOM)
        # The next LF and CR from `position` on; `size` = none. Each is looked for only when it was
        # passed, so a body is scanned once even if it has none of one kind.
        lf = cr = -1
        while position < size:
            if lf < position and (lf := find(b"\n", position)) < 0:
                lf = size
            if cr < position and (cr := find(b"\r", position)) < 0:
                cr = size
            if lf < cr:
                end, stop = lf, lf + 1
                # What nearly every event of nearly every upstream is: one data line, LF, LF.
                if (
                    stop < size
                    and data[stop] == _LF
                    and not self._lines
                    and startswith(b"data:", position)
                ):
                    stop += 1
                    begin = position + (6 if data[position + 5] == _SPACE else 5)
                    self._check_size(stop - position)
                    frames.append(Frame(data[position:stop], data[begin:end]))
                    position = stop
                    continue
            elif cr < size:
                end = cr
                stop = cr + 2 if lf == cr + 1 < size else cr + 1
            else:
                break
            self._take_line(data[position:stop], data[position:end], frames)
            position = stop
        self._is_after_cr = position == size and data[-1] == _CR
        return position

    def _take_line(self, raw: bytes, line: bytes, frames: list[Frame]) -> None:
        if not line:
            self._end_event(raw, frames)
            return
        if line[0] == _COLON and not self._lines:
            self._check_size(len(raw))
            frames.append(Frame(raw, None))
            return
        self._lines.append(raw)
        self._lines_bytes += len(raw)
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._values.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id":
            self._has_id = True

    def _end_event(self, raw: bytes, frames: list[Frame]) -> None:
        self._check_size(self._lines_bytes + len(raw))
        raw = b"".join((*self._lines, raw))
        if self._values:
            frames.append(Frame(raw, b"\n".join(self._values), self._event, self._has_id))
        else:
            frames.append(Frame(raw, None, has_id=self._has_id))
        self._clear_event()

    def _take_late_lf(self, frames: list[Frame]) -> None:
        """Take in the LF of a CRLF that was cut between the two."""
        if self._lines:
            self._lines.append(b"\n")
            self._lines_bytes += 1
        else:
            frames.append(Frame(b"\n", None))

    def _keep(self, data: bytes) -> None:
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
        self._check_size(self.rest_bytes)

    def _clear_event(self) -> None:
        self._lines.clear()
        self._lines_bytes = 0
        self._values.clear()
        self._event = b""
        self._has_id = False

    def _check_size(self, size: int) -> None:
        if size > self._bytes_max:
            raise AnswerTooLong(
                "The upstream sent a server-sent event that is longer than the "
                f"{self._bytes_max:,} bytes one may have; it was given up."
            )


def encode(data: bytes, event: bytes = b"") -> bytes:
    """Render one event. Line ends inside `data` come out as LF: the format knows no others."""
    assert not _LINE_END.search(event), "an event's name is one line"
    lines = _LINE_END.split(data) if b"\n" in data or b"\r" in data else [data]
    head = b"event: " + event + b"\n" if event else b""
    return head + b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"


def comment(text: bytes) -> bytes:
    """Render a comment line, which every client skips: a heartbeat.

    Without a blank line after it: a client may dispatch an empty event at any blank line once the
    stream has carried an id (older openai-python, its issue 2722). It may stand only between
    frames, never inside one.
    """
    assert not _LINE_END.search(text), "a comment is one line"
    return b": " + text + b"\n"
