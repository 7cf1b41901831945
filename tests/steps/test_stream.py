"""Reading a stream whose upstream says what the caller's form has no words for."""

from __future__ import annotations

import asyncio

import pytest

from agentstate.ground.settings import GateSettings, StreamSettings
from agentstate.wire.message import Abort
from tests.steps.far import BEGUN, ENDED, far_exchange, far_request, said, settle_far, thought
from tests.steps.scene import FakeExchange, Scene, play, read

ASKED = {"model": "anthropic/claude-x", "input": "hi", "stream": True}
RESPONSES = "/v1/responses"  # a form in which the thoughts of others have no place


def test_a_client_hears_something_while_what_comes_has_no_words_in_its_form() -> None:
    async def scenario(scene: Scene) -> None:
        settle_far(scene)
        begun, *thinking, ended = thought("let me", " see")
        exchange = far_exchange(BEGUN, begun, *thinking)

        async def answer(number: int) -> FakeExchange:
            return exchange

        scene.transport.on_call = answer
        # The client repeats its call by itself, so the head need not wait for content.
        asked = far_request(ASKED)
        asked.headers = type(asked.headers)((*asked.headers, (b"x-stainless-retry-count", b"1")))
        response = await scene.ask(asked, RESPONSES)
        pieces = aiter(response.body)  # type: ignore[arg-type]

        first = await anext(pieces)
        beats = [await anext(pieces), await anext(pieces)]
        assert first.startswith(b"event: response.created")
        assert beats[0] == beats[1]
        assert b"response." not in beats[0]

        exchange.give(ended, *said("hello"), *ENDED, None)
        rest = b"".join([piece async for piece in pieces])
        assert b'"delta":"hello"' in rest
        assert b"response.completed" in rest
        # What is on record has no heartbeat in it.
        again = await read(await scene.ask(far_request(ASKED), RESPONSES))
        assert beats[0] not in again
        assert again == first + rest.replace(beats[0], b"")

    play(scenario, gate=GateSettings(heartbeat_s=0.01))


def test_what_has_no_words_in_the_callers_form_counts_as_a_part_of_the_answer() -> None:
    async def scenario(scene: Scene) -> None:
        settle_far(scene)

        async def answer(number: int) -> FakeExchange:
            thinking = thought(*["t" * 10_000] * 10)
            return far_exchange(BEGUN, *thinking, *said("hello"), *ENDED, None)

        scene.transport.on_call = answer
        asked = far_request(ASKED)
        asked.headers = type(asked.headers)((*asked.headers, (b"x-stainless-retry-count", b"1")))
        response = await scene.ask(asked, RESPONSES)

        async with asyncio.timeout(5):
            with pytest.raises(Abort):
                await read(response)
        assert await scene.states() == ["failed"]

    play(scenario, stream=StreamSettings(answer_bytes_max=65_536))
