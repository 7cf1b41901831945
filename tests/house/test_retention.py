"""What was kept long enough goes, the longest unused first, and nothing that somebody waits for."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.control import About
from agentstate.ground.errors import SettingError
from agentstate.ground.load import load_settings
from agentstate.ground.retention import Quiet
from agentstate.ground.settings import StoreSettings
from agentstate.house.retention import ACTIVE_MS, DAY_MS, Going, Retention
from agentstate.store.base import Store
from tests.helpers.recording import START_MS, record, run_on
from tests.store.contract import claim_of
from tests.store.contract_durable import lost

HOUR_MS = 3_600_000


def answer(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }  # fmt: skip


async def say(
    store: Store, session: str, at_ms: int, *, steps: int = 1, noise: int = 0, **changes: Any
) -> None:
    """Record a session that was active then. `noise`: bytes of each answer that pack badly."""
    for number in range(steps):
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": f"{session} {number}"}]}
        text = f"{session} {number} " + os.urandom(noise).hex()
        await record(store, body, answer(text), session=session, at_ms=at_ms, **changes)


def retention(store: Store, at_ms: int, **limits: Any) -> Retention:
    return Retention(store, StoreSettings(**limits), store.retire_session, clock_ms=lambda: at_ms)


def names(going: list[Going]) -> list[tuple[str, str]]:
    return [(each.session, each.why) for each in going]


async def sessions_of(store: Store) -> set[str]:
    from agentstate.ground.records import Query

    return {row.session for row in (await store.list_sessions(Query())).rows}


def play(path: Path, scenario: Callable[[Store], Awaitable[None]]) -> None:
    run_on(path / "record.db", scenario)


def test_nothing_goes_without_a_limit(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        await say(store, "old", START_MS)
        kept = retention(store, START_MS + 9999 * DAY_MS)
        assert not kept.has_limits
        assert await kept.run() == []
        assert await sessions_of(store) == {"old"}

    play(tmp_path, scenario)


def test_what_is_older_goes_and_a_plan_says_so_before(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        for name, day in (("a", 0), ("b", 1), ("c", 8)):
            await say(store, name, START_MS + day * DAY_MS)
        kept = retention(store, START_MS + 9 * DAY_MS, retention_days=2.5)

        planned = await kept.plan()
        assert names(planned) == [("a", "age"), ("b", "age")]
        assert await sessions_of(store) == {"a", "b", "c"}
        assert await kept.run() == planned
        assert await sessions_of(store) == {"c"}
        assert await kept.run() == []

    play(tmp_path, scenario)


def test_what_somebody_waits_for_or_wants_to_keep_stays(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        for name in ("old", "paused", "kept"):
            about = About(tags=(("keep", "audit"),)) if name == "kept" else None
            await say(store, name, START_MS, about=about)
        await store.pause("paused", at_ms=START_MS, reason=None, by="ann")
        kept = retention(store, START_MS + 99 * DAY_MS, retention_days=1, steps_max=1)

        assert names(await kept.run()) == [("old", "age")]
        assert await sessions_of(store) == {"paused", "kept"}

    play(tmp_path, scenario)


def test_as_many_go_as_it_takes_and_none_that_is_active(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        for name, hour in (("a", 0), ("b", 1), ("c", 2), ("d", 3)):
            await say(store, name, START_MS + hour * HOUR_MS, steps=5)
        at_ms = START_MS + 3 * HOUR_MS + ACTIVE_MS // 2
        assert names(await retention(store, at_ms, steps_max=12).plan()) == [
            ("a", "steps"), ("b", "steps"),
        ]  # fmt: skip
        # However little is allowed, what was active within the hour stays.
        assert names(await retention(store, at_ms, steps_max=1).run()) == [
            ("a", "steps"), ("b", "steps"), ("c", "steps"),
        ]  # fmt: skip
        assert await sessions_of(store) == {"d"}

    play(tmp_path, scenario)


def test_the_disk_gets_its_room_back(tmp_path: Path) -> None:
    file = tmp_path / "record.db"

    async def scenario(store: Store) -> None:
        for number in range(6):
            await say(store, f"s{number}", START_MS + number, steps=4, noise=80_000)
        before = (await store.read_totals())["bytes_used"]
        kept = retention(store, START_MS + DAY_MS, size_max_mb=1)

        gone = await kept.run()

        assert {each.why for each in gone} == {"size"}
        assert 0 < len(gone) < 6
        assert [each.session for each in gone] == [f"s{number}" for number in range(len(gone))]
        after = (await store.read_totals())["bytes_used"]
        assert after <= 1024 * 1024 < before

    run_on(file, scenario)
    assert file.stat().st_size <= 1024 * 1024


@pytest.mark.parametrize("happens", ["used again", "deleted"])
def test_what_changes_between_plan_and_deletion_is_looked_at_again(
    tmp_path: Path, happens: str
) -> None:
    async def scenario(store: Store) -> None:
        for name in ("a", "b"):
            await say(store, name, START_MS)
        at_ms = START_MS + 9 * DAY_MS

        async def retire(quiet: Quiet, **moments: int) -> bool:
            if quiet.session == "b" and happens == "deleted":
                await store.delete_session("b")
            if quiet.session == "b" and happens == "used again":
                await say(store, "b", at_ms, steps=2)
            return await store.retire_session(quiet, **moments)

        kept = Retention(store, StoreSettings(retention_days=1), retire, clock_ms=lambda: at_ms)
        assert names(await kept.run()) == [("a", "age")]
        assert await sessions_of(store) == ({"b"} if happens == "used again" else set())

    play(tmp_path, scenario)


def test_what_is_at_work_stays_however_old(tmp_path: Path) -> None:
    """A claim in flight, and a durable call of which nobody knows whether it happened."""

    async def scenario(store: Store) -> None:
        await store.claim_step(claim_of("0", session="in flight", created_ms=START_MS))
        await say(store, "unknown", START_MS)
        await lost(store, session="unknown", at_ms=START_MS)
        await say(store, "old", START_MS)
        kept = retention(store, START_MS + 99 * DAY_MS, retention_days=1, steps_max=1)

        assert names(await kept.plan()) == [("old", "age")]
        assert names(await kept.run()) == [("old", "age")]
        assert await sessions_of(store) == {"in flight", "unknown"}

    play(tmp_path, scenario)


def test_no_days_are_no_setting() -> None:
    """Elsewhere 0 means that there is no limit; here it would delete what is in use."""
    with pytest.raises(SettingError, match=r"expected a number from 0\.05, found '0'"):
        load_settings({}, {"AGENTSTATE_STORE_RETENTION_DAYS": "0"}, Path("/"), None)
