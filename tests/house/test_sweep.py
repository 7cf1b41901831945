"""The sweep: who owes a result has stalled, who does not is completed, each silence told once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentstate.ground.chat import ToolCall
from agentstate.ground.errors import StoreError
from agentstate.ground.events import Event, IdleSession, Subscription
from agentstate.ground.records import Query
from agentstate.ground.settings import SweepSettings
from agentstate.house.sweep import Sweep
from agentstate.store.memory import MemoryStore
from tests.store.contract import START_MS, checkpoint_of, claim_of

SETTINGS = SweepSettings(stalled_after_s=900.0, completed_after_s=120.0)
KINDS = frozenset(("session.stalled", "session.completed"))
LIMIT_S = 10.0
ANSWERED_MS = START_MS + 1000
SECOND_MS = 1000


class Room:
    """A store in which sessions are quiet, a sweep over it, and a clock."""

    def __init__(
        self, settings: SweepSettings = SETTINGS, store: MemoryStore | None = None
    ) -> None:
        self.store = store or MemoryStore()
        self.rings = 0
        self.now_ms = ANSWERED_MS
        self.sweep = Sweep(self.store, settings, self._ring, clock_ms=lambda: self.now_ms)

    def _ring(self) -> None:
        self.rings += 1

    async def open(self) -> None:
        """Open the store, which tells everything to one webhook."""
        await self.store.open()
        self.store.subscribe((Subscription("w", KINDS),))

    async def step(self, session: str, *, calls_tool: bool, at_ms: int = START_MS) -> None:
        """Record a step of a session."""
        claimed = await self.store.claim_step(
            claim_of(f"{session} {at_ms}", session=session, created_ms=at_ms)
        )
        call = ToolCall(0, "call_0", "read_file", "{}")
        await self.store.record_answer(
            checkpoint_of(
                claimed.step_id,
                answered_ms=at_ms + 1000,
                tool_calls=((0, call),) if calls_tool else (),
            )
        )

    async def told(self) -> list[tuple[str, str]]:
        """Return what was told so far, the oldest first."""
        page = await self.store.list_deliveries(Query())
        return [(row.event.session, row.event.kind) for row in reversed(page.rows)]


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def go() -> None:
        await work()

    asyncio.run(go())


def test_each_kind_of_silence_is_told_at_its_time_and_once() -> None:
    async def go() -> None:
        room = Room()
        await room.open()
        await room.step("owing", calls_tool=True)
        await room.step("done", calls_tool=False)
        for after_s, told in (
            (119, []),
            (121, [("done", "session.completed")]),
            (899, [("done", "session.completed")]),
            (901, [("done", "session.completed"), ("owing", "session.stalled")]),
            (9000, [("done", "session.completed"), ("owing", "session.stalled")]),
        ):
            room.now_ms = ANSWERED_MS + after_s * SECOND_MS
            await room.sweep.look()
            assert await room.told() == told, after_s
        assert room.rings == 2

    run(go)


def test_a_session_whose_last_call_came_to_nothing_has_stalled() -> None:
    async def go() -> None:
        room = Room()
        await room.open()
        claimed = await room.store.claim_step(claim_of(session="cut"))
        await room.store.record_failure(claimed.step_id, (), failed_ms=ANSWERED_MS)
        room.now_ms = ANSWERED_MS + 899 * SECOND_MS
        assert await room.sweep.look() == 0
        room.now_ms = ANSWERED_MS + 901 * SECOND_MS
        assert await room.sweep.look() == 1
        [row] = (await room.store.list_deliveries(Query())).rows
        assert row.event.kind == "session.stalled"
        assert row.event.facts is not None
        why = "its last call came to nothing, and no other one came for 901 s"
        assert row.event.facts["why"] == why

    run(go)


def test_a_session_that_goes_on_is_told_of_again() -> None:
    async def go() -> None:
        room = Room()
        await room.open()
        await room.step("owing", calls_tool=True)
        room.now_ms = ANSWERED_MS + 901 * SECOND_MS
        assert await room.sweep.look() == 1
        await room.step("owing", calls_tool=True, at_ms=room.now_ms)
        assert await room.sweep.look() == 0
        room.now_ms += 902 * SECOND_MS
        assert await room.sweep.look() == 1

    run(go)


def test_the_event_says_where_and_how_long() -> None:
    async def go() -> None:
        room = Room()
        await room.open()
        await room.step("owing", calls_tool=True)
        room.now_ms = ANSWERED_MS + 901 * SECOND_MS
        await room.sweep.look()
        [row] = (await room.store.list_deliveries(Query())).rows
        event = row.event
        assert (event.session, event.index, event.created_ms) == ("owing", 0, room.now_ms)
        assert event.facts == {"why": "no tool result came for 901 s", "idle_s": 901}

    run(go)


def test_a_silence_of_zero_is_never_told() -> None:
    async def go() -> None:
        room = Room(SweepSettings(stalled_after_s=0.0, completed_after_s=120.0))
        await room.open()
        await room.step("owing", calls_tool=True)
        await room.step("done", calls_tool=False)
        room.now_ms = ANSWERED_MS + 9000 * SECOND_MS
        await room.sweep.look()
        assert await room.told() == [("done", "session.completed")]
        silent = Sweep(room.store, SweepSettings(0.0, 0.0), room._ring)
        silent.start()
        await silent.stop()
        assert await silent.look() == 0

    run(go)


def test_it_looks_by_itself_and_goes_on_after_a_fault_of_the_disk() -> None:
    class Failing(MemoryStore):
        faults = 1

        def __init__(self) -> None:
            super().__init__()
            self.noted = asyncio.Event()

        async def find_idle(self, *, idle_since_ms: int, limit: int) -> tuple[IdleSession, ...]:
            """Fail once."""
            self.faults -= 1
            if self.faults >= 0:
                raise StoreError("the disk is full")
            return await super().find_idle(idle_since_ms=idle_since_ms, limit=limit)

        async def note_idle(self, event: Event) -> None:
            """Say so."""
            await super().note_idle(event)
            self.noted.set()

    async def go() -> None:
        store = Failing()
        room = Room(SweepSettings(stalled_after_s=0.1, completed_after_s=0.1), store)
        await room.open()
        await room.step("done", calls_tool=False)
        room.now_ms = ANSWERED_MS + SECOND_MS
        room.sweep.start()
        async with asyncio.timeout(LIMIT_S):
            await store.noted.wait()
        await room.sweep.stop()
        assert await room.told() == [("done", "session.completed")]
        assert room.rings == 1

    run(go)
