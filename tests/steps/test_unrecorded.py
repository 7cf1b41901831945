"""Calls without a session that are asked in another form: when their stream ends, and how."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from agentstate.dialects import dialect_for_path
from agentstate.ground.canonical import parse
from agentstate.ground.settings import StreamSettings
from agentstate.steps.call import Entry
from agentstate.wire.message import Abort, Response
from tests.steps.far import BEGUN, ENDED, far_exchange, said, settle_far, thought
from tests.steps.scene import (
    DONE,
    END,
    HEAD,
    TEXT,
    FakeExchange,
    FakeRequest,
    Scene,
    frame,
    play,
    read,
)


async def ask(scene: Scene, path: str, model: str, **more: object) -> Response:
    """Make a streaming call without a session."""
    raw = json.dumps({"model": model, "stream": True, **more}).encode()
    dialect = dialect_for_path(path.removeprefix("/v1"))
    assert dialect is not None
    request = FakeRequest([(b"x-stainless-retry-count", b"1")], raw)
    found = dialect.read_ask(parse(raw))
    response = await scene.pipeline.answer_unrecorded(request, Entry(dialect, path, ""), raw, found)
    assert response is not None
    return response


def giving(scene: Scene, make: Callable[[], FakeExchange]) -> None:
    """Let every call be answered like this."""

    async def answer(number: int) -> FakeExchange:
        return make()

    scene.transport.on_call = answer


def test_what_has_no_words_in_the_callers_form_counts_as_a_part_of_the_answer() -> None:
    async def scenario(scene: Scene) -> None:
        settle_far(scene)
        thinking = thought(*["t" * 10_000] * 10)
        giving(scene, lambda: far_exchange(BEGUN, *thinking, *said("hello"), *ENDED, None))
        response = await ask(scene, "/v1/responses", "anthropic/claude-x", input="hi")

        with pytest.raises(Abort):
            await read(response)
        assert scene.transport.calls

    play(scenario, stream=StreamSettings(answer_bytes_max=65_536))


def test_an_answer_that_is_whole_ends_whatever_its_upstream_goes_on_to_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentstate.steps.unrecorded.AFTER_DONE_S", 0.05)

    async def scenario(scene: Scene) -> None:
        settle_far(scene)
        exchange = far_exchange(HEAD, TEXT, END)
        giving(scene, lambda: exchange)

        async def go_on() -> None:
            while True:
                exchange.give(b": still here\n\n")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(go_on())
        try:
            response = await ask(
                scene, "/v1/messages", "openai/m", max_tokens=5,
                messages=[{"role": "user", "content": "hi"}],
            )  # fmt: skip
            async with asyncio.timeout(5):
                body = await read(response)
        finally:
            dripping.cancel()
        assert b"message_stop" in body
        assert exchange.is_closed

    play(scenario)


def test_usage_that_comes_with_the_end_is_in_the_answer() -> None:
    async def scenario(scene: Scene) -> None:
        settle_far(scene)
        usage = frame({}, usage={"prompt_tokens": 5, "completion_tokens": 77, "total_tokens": 82})
        giving(scene, lambda: far_exchange(HEAD, TEXT, END, usage, DONE, None))
        response = await ask(
            scene, "/v1/messages", "openai/m", max_tokens=5,
            messages=[{"role": "user", "content": "hi"}],
        )  # fmt: skip

        assert b'"output_tokens":77' in await read(response)

    play(scenario)
