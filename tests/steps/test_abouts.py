"""What an agent says of its session is on record, and costs a write only where it is news."""

from __future__ import annotations

import asyncio

import pytest

from agentstate.ground.control import About
from agentstate.ground.errors import Deleted, StoreError
from agentstate.steps import abouts
from agentstate.steps.abouts import Abouts
from agentstate.steps.identify import Caller
from agentstate.store.memory import MemoryStore
from tests.store.contract import answered

NEW = About(tags=(("new", "1"),))
OTHER = About(name="Invoices", parent="boss")


class _CountingStore(MemoryStore):
    """Counts what is written of sessions; `error` is what that meets."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[str, About]] = []
        self.error: StoreError | None = None

    async def record_about(self, session: str, about: About) -> None:
        if self.error is not None:
            raise self.error
        self.writes.append((session, about))
        await super().record_about(session, about)


def caller(about: About | None, session: str = "s") -> Caller:
    return Caller(session, None, None, None, False, "pinned", False, about=about)


async def opened() -> tuple[_CountingStore, Abouts]:
    store = _CountingStore()
    await store.open()
    await answered(store, "a")
    return store, Abouts(store)


def test_what_is_said_again_is_written_once() -> None:
    async def scenario() -> None:
        store, kept = await opened()
        for about in (None, NEW, NEW, None, NEW, OTHER, OTHER, NEW):
            await kept.take_in(caller(about))
        assert store.writes == [("s", NEW), ("s", OTHER), ("s", NEW)]
        row = await store.read_session("s")
        assert row is not None
        assert (row.tags, row.name, row.parent) == ((("new", "1"),), "Invoices", "boss")

    asyncio.run(scenario())


def test_what_a_claim_wrote_is_known() -> None:
    async def scenario() -> None:
        store, kept = await opened()
        kept.note("s", NEW)
        kept.note("s", None)
        await kept.take_in(caller(NEW))
        assert store.writes == []
        kept.forget("s")
        await kept.take_in(caller(NEW))
        assert store.writes == [("s", NEW)]

    asyncio.run(scenario())


def test_a_disk_that_takes_nothing_hinders_no_replay() -> None:
    async def scenario() -> None:
        store, kept = await opened()
        store.error = StoreError("the disk is full")
        await kept.take_in(caller(NEW))
        store.error = None
        await kept.take_in(caller(NEW))
        assert store.writes == [("s", NEW)]

    asyncio.run(scenario())


def test_a_session_that_is_gone_is_said_to_be() -> None:
    async def scenario() -> None:
        _, kept = await opened()
        with pytest.raises(Deleted):
            await kept.take_in(caller(NEW, "gone"))

    asyncio.run(scenario())


def test_only_so_many_sessions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abouts, "KEPT_MAX", 1)

    async def scenario() -> None:
        store, kept = await opened()
        await answered(store, "b", session="t")
        for session in ("s", "t", "t", "s"):
            await kept.take_in(caller(NEW, session))
        assert [session for session, _ in store.writes] == ["s", "t", "s"]

    asyncio.run(scenario())
