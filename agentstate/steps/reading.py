"""Read a recorded answer back into the neutral form. Pure; for lists, pages and export."""

from __future__ import annotations

from agentstate.dialects.base import Dialect
from agentstate.ground.chat import Answer
from agentstate.ground.records import RecordedAnswer
from agentstate.wire.sse import SSEDecoder


def read_recorded(dialect: Dialect, recorded: RecordedAnswer) -> Answer:
    """Return what the model said, whichever form it was recorded in."""
    if recorded.form == "body":
        return dialect.read_answer(recorded.content)
    # Enough choices that no frame is taken for the completing one too early: all are read anyway.
    assembler = dialect.assembler(1)
    decoder = SSEDecoder()
    # A record without its end is replayed with the dialect's own, so it is read with that.
    end = b"" if recorded.is_sealed else dialect.done_frame()
    for frame in decoder.feed(recorded.content + end):
        assembler.feed(frame)
    if (rest := decoder.finish()) is not None:
        assembler.feed(rest)
    return assembler.finish(True)
