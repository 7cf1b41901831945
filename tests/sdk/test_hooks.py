"""What a request hook says of each try of a call."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from agentstate.sdk.hooks import Hooks
from agentstate.sdk.run import Run


@dataclass
class URL:
    path: str = "/v1/chat/completions"


@dataclass
class Request:
    """As much of an `httpx.Request` as a hook looks at; its headers are in small letters."""

    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"
    url: URL = field(default_factory=URL)


def tried(hooks: Hooks, count: int = 0, **more: str) -> dict[str, str]:
    request = Request({"x-stainless-retry-count": str(count), **more})
    hooks.stamp(request)
    return request.headers


def test_all_tries_of_a_call_have_its_id_and_the_next_call_another() -> None:
    hooks = Hooks(Run("s"))

    first, again, next_one = tried(hooks), tried(hooks, 1), tried(hooks)

    assert first["x-agent-call-id"] == again["x-agent-call-id"] != next_one["x-agent-call-id"]
    assert [each["x-agent-step-number"] for each in (first, again, next_one)] == ["0", "0", "1"]


def test_a_retry_that_did_not_begin_here_is_left_to_its_count() -> None:
    mine, others = Hooks(Run("s")), Hooks(Run("s"))

    def both() -> tuple[dict[str, str], dict[str, str]]:
        return tried(others), tried(mine, 1)

    _, found = copy_context().run(both)

    assert set(found) == {"x-stainless-retry-count"}


def test_tasks_do_not_take_each_others_ids() -> None:
    hooks = Hooks(Run("s"))

    async def call() -> bool:
        first: Any = Request({"x-stainless-retry-count": "0"})
        await hooks.stamp_async(first)
        await asyncio.sleep(0)
        again: Any = Request({"x-stainless-retry-count": "1"})
        await hooks.stamp_async(again)
        return bool(first.headers["x-agent-call-id"] == again.headers["x-agent-call-id"])

    async def main() -> list[bool]:
        return await asyncio.gather(*(call() for _ in range(20)))

    assert asyncio.run(main()) == [True] * 20


def test_what_a_request_says_itself_stands() -> None:
    hooks = Hooks(Run("s"))

    assert tried(hooks, **{"x-agent-call-id": "own"})["x-agent-call-id"] == "own"
    assert tried(hooks, **{"x-agent-step-number": "7"})["x-agent-step-number"] == "7"
    assert "x-agent-call-id" not in tried(hooks, **{"x-agent-session-id": "other"})


def test_what_is_no_step_is_left_alone() -> None:
    request = Request(method="GET")
    Hooks(Run("s")).stamp(request)
    assert request.headers == {}
