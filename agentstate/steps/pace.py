"""Play a recorded stream with its own timing, for demonstrations and for testing interfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from agentstate.ground.clock import monotonic_s
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.checkpoint import read_pace
from agentstate.wire.message import Response


def at_recorded_speed(response: Response, answer: RecordedAnswer) -> Response:
    """Return the response of a replayed stream with its writes spaced as they were recorded.

    Any other response comes back as it is: only the recorded events have a timing.
    """
    if not isinstance(response.body, bytes) or not response.body.startswith(answer.content):
        return response
    return Response(response.status, response.headers, _play(response.body, answer.pace))


async def _play(body: bytes, pace: bytes) -> AsyncIterator[bytes]:
    began_s = monotonic_s()
    offset = 0
    for length, at_ms in read_pace(pace):
        wait_s = at_ms / 1000 - (monotonic_s() - began_s)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        yield body[offset : offset + length]
        offset += length
    if offset < len(body):
        yield body[offset:]  # an end that the record lacked
