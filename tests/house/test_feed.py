"""The feed: each page gets each change once, what it missed too, and nothing piles up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agentstate.house import feed as feed_module
from agentstate.house.feed import KEPT_MAX, NAMED_MAX, Feed, News

WAIT_S = 5.0


@pytest.fixture(autouse=True)
def no_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "PACE_S", 0)


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), WAIT_S)

    asyncio.run(bounded())


async def sessions_of(page: AsyncIterator[News]) -> tuple[str, ...] | None:
    return (await anext(page)).sessions


def test_a_page_gets_what_changes_from_now_on() -> None:
    async def scenario() -> None:
        feed = Feed()
        feed.note(["old"])
        page = feed.follow(None)
        assert await sessions_of(page) == ()
        feed.note(["a", "b"])
        feed.note(["a"])
        assert await sessions_of(page) == ("a", "b")  # the last first, each once
        waiting = asyncio.ensure_future(anext(page))
        await asyncio.sleep(0)
        feed.note(["c"])
        assert (await waiting).sessions == ("c",)

    play(scenario)


def test_a_page_that_was_away_gets_what_it_missed() -> None:
    async def scenario() -> None:
        feed = Feed()
        page = feed.follow(None)
        feed.note(["a"])
        await anext(page)
        feed.note(["b"])
        cursor = (await anext(page)).cursor
        feed.note(["c", "b"])
        assert await sessions_of(feed.follow(cursor)) == ("b", "c")

    play(scenario)


@pytest.mark.parametrize("cursor", ["", "x", "-", "0-1", "{life}-9", "{life}--1", "{life}-x"])
def test_a_cursor_of_another_life_means_that_anything_may_have_changed(cursor: str) -> None:
    async def scenario() -> None:
        feed = Feed()
        feed.note(["a"])
        life = (await anext(feed.follow(None))).cursor.partition("-")[0]
        assert await sessions_of(feed.follow(cursor.replace("{life}", life))) is None

    play(scenario)


def test_what_is_no_longer_kept_is_anything() -> None:
    async def scenario() -> None:
        feed = Feed()
        cursor = (await anext(feed.follow(None))).cursor
        feed.note(str(number) for number in range(KEPT_MAX + 1))
        assert await sessions_of(feed.follow(cursor)) is None
        late = (await anext(feed.follow(None))).cursor
        feed.note(["a"])
        assert await sessions_of(feed.follow(late)) == ("a",)

    play(scenario)


def test_many_at_once_are_not_named() -> None:
    async def scenario() -> None:
        feed = Feed()
        page = feed.follow(None)
        await anext(page)
        feed.note(str(number) for number in range(NAMED_MAX))
        named = await sessions_of(page)
        assert named is not None
        assert len(named) == NAMED_MAX
        feed.note(str(number) for number in range(NAMED_MAX + 1))
        assert await sessions_of(page) is None

    play(scenario)


def test_silence_is_broken_by_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "SILENCE_S", 0.01)

    async def scenario() -> None:
        feed = Feed()
        feed.note(["a"])
        page = feed.follow(None)
        first = await anext(page)
        assert await anext(page) == News(first.cursor, ())

    play(scenario)


def test_it_ends_for_all_and_takes_a_bounded_number() -> None:
    async def scenario() -> None:
        feed = Feed(pages_max=2)
        pages = [feed.follow(None), feed.follow(None)]
        for page in pages:
            await anext(page)
        assert feed.is_full
        await pages[0].aclose()  # type: ignore[attr-defined]
        assert not feed.is_full
        feed.stop()
        assert feed.is_full
        assert [news async for news in pages[1]] == []

    play(scenario)
