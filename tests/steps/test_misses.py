"""What a call came near to: the nearest recorded step, and where the two first differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.steps.misses import Miss, first_difference
from agentstate.wire.message import Pair
from tests.steps.scene import FakeRequest, Scene, header, play

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "a"}]}


@pytest.mark.parametrize(
    ("theirs", "recorded", "difference"),
    [
        (BODY, BODY, None),
        ({"model": "n"}, {"model": "m"}, ("model", "n", "m")),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ("a.b[1]", 2, 3)),
        ({"a": [1, 2]}, {"a": [1]}, ("a[1]", 2, None)),
        ({"a": [1]}, {"a": [1, 2]}, ("a[1]", None, 2)),
        ({"a": 1}, {}, ("a", 1, None)),
        ({}, {"a": 1}, ("a", None, 1)),
        ({"b": 1, "a": 2}, {"a": 1, "b": 2}, ("a", 2, 1)),
        ({"a": True}, {"a": 1}, ("a", True, 1)),
        ({"a": {}}, {"a": []}, ("a", {}, [])),
    ],
)
def test_the_first_place_where_two_bodies_differ_is_named(
    theirs: Any, recorded: Any, difference: Any
) -> None:
    assert first_difference(theirs, recorded) == difference


def test_a_header_names_the_place_and_never_a_value() -> None:
    miss = Miss(7, 9, "messages[0].content", "my secret", "your secret")

    assert miss.as_header() == "step 7 differs at messages[0].content"


def request(*texts: str, **headers: str) -> FakeRequest:
    """Make a call whose messages say these texts."""
    messages = [{"role": "user", "content": text} for text in texts]
    pairs: list[Pair] = [(b"x-agent-session-id", b"s"), (b"authorization", b"Bearer sk-x")]
    pairs += [(f"x-agent-{name.replace('_', '-')}".encode(), value.encode())
              for name, value in headers.items()]  # fmt: skip
    return FakeRequest(pairs, json.dumps({"model": "m", "messages": messages}).encode())


async def miss_of(scene: Scene, *texts: str, **headers: str) -> str | None:
    """Make a call and return what it came near to."""
    return header(await scene.ask(request(*texts, **headers)), "x-agentstate-miss")


def test_the_nearest_of_several_is_named_by_its_number() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(request("a", "b", "c"))
        await scene.ask(request("a", "x", "y"))

        assert await miss_of(scene, "a", "x", "z") == "step 1 differs at messages[2].content"
        row = await scene.store.find_step("s", 2)
        assert row is not None
        assert row.miss == {
            "step_number": 1,
            "index": 1,
            "path": "messages[2].content",
            "sent": "z",
            "recorded": "y",
        }

    play(scenario)


def test_what_goes_on_from_a_request_or_has_nothing_in_common_is_no_near_miss() -> None:
    async def scenario(scene: Scene) -> None:
        assert await miss_of(scene, "a") is None
        assert await miss_of(scene, "a", "b") is None
        assert await miss_of(scene, "other") is None

    play(scenario)


def test_a_call_that_was_not_looked_for_came_near_to_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(request("a", "b"))

        assert await miss_of(scene, "a", "c", replay="refresh") is None

    play(scenario)


def test_after_a_restart_the_record_is_asked() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(request("a", "b"))
        scene.ladder.misses._recent.clear()

        assert await miss_of(scene, "a", "c") == "step 0 differs at messages[1].content"

    play(scenario)
