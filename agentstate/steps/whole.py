"""Reads an answer whole, streamed or not, for who passes on no pieces of it."""

from __future__ import annotations

from agentstate.ground.chat import Answer
from agentstate.ground.records import RecordedAnswer
from agentstate.steps import forward
from agentstate.steps.leg import Failed
from agentstate.steps.tries import Reception


async def read_whole(
    reception: Reception, bytes_max: int
) -> tuple[RecordedAnswer, Answer] | Failed:
    """Return an answer and what it says, or how the attempt came to nothing.

    Raises:
        UpstreamError: it broke off, or has over `bytes_max` bytes.
    """
    leg, exchange = reception.leg, reception.exchange
    content = await exchange.read(bytes_max)
    if forward.is_stream(exchange):
        return leg.read_events(exchange, content)
    body, answer, failed = leg.read(exchange, content)
    if failed is not None:
        return failed
    return RecordedAnswer(exchange.status, leg.headers(exchange), "body", body), answer
