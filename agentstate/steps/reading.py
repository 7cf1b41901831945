"""Read what was recorded or sent: into the neutral form, the form that is not streamed, or to say
how it ends. Pure."""

from __future__ import annotations

from agentstate.dialects.base import Dialect, NumbersEvents
from agentstate.ground.chat import Answer
from agentstate.ground.errors import AgentStateError
from agentstate.ground.records import RecordedAnswer
from agentstate.wire.sse import Frame, SSEDecoder


def frames_of(dialect: Dialect, recorded: RecordedAnswer) -> list[Frame]:
    """Return the frames of a recorded stream; one without its end gets the dialect's own."""
    decoder = SSEDecoder()
    end = b"" if recorded.is_sealed else dialect.done_frame()
    frames = decoder.feed(recorded.content + end)
    if (rest := decoder.finish()) is not None:
        frames.append(rest)
    return frames


def read_recorded(dialect: Dialect, recorded: RecordedAnswer) -> Answer:
    """Return what the model said, whichever form it was recorded in."""
    if recorded.form == "body":
        return dialect.read_answer(recorded.content)
    # Whatever is the completing frame: all are read anyway.
    assembler = dialect.assembler(1)
    for frame in frames_of(dialect, recorded):
        assembler.feed(frame)
    return assembler.finish(True)


def as_body(dialect: Dialect, recorded: RecordedAnswer) -> bytes:
    """Return a recorded answer in the form that is not streamed."""
    if recorded.form == "body":
        return recorded.content
    return dialect.body_from_events(frames_of(dialect, recorded))


def error_event_after(dialect: Dialect, error: AgentStateError, shown: bytes) -> bytes:
    """Return the event that ends a stream of which a client has got `shown`; a dialect that numbers
    its events goes on from the last of these."""
    assembler = dialect.assembler()
    if not isinstance(assembler, NumbersEvents):
        return dialect.error_event(error)
    for frame in SSEDecoder().feed(shown):
        assembler.feed(frame)
    return assembler.error_event(error)
