"""Server-sent events: bytes in, frames out, and back. Pure, incremental.

To the WHATWG standard (HTML Living Standard, section 9.2.6, "Interpreting an event stream"): lines
end at CR, LF or CRLF and at nothing else (U+2028, U+0085 and form feed are data), a field's one
leading space is dropped, comments begin with a colon, an event ends at a blank line. Fed bytes cut
anywhere. Every byte fed comes out again in exactly one frame's `raw`, in order: a proxy forwards
`raw` and only reads the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One event with the bytes it came as; or, with `data` None, bytes that dispatch nothing."""

    raw: bytes  # everything up to and including the blank line that ended it
    data: bytes | None  # data lines joined by LF, undecoded; None = no event (comment, blank line)
    event: bytes = b""  # the event field; b'' = not given, so "message"
    has_id: bool = False  # an id field was in it: then our own blank lines would matter
