"""Sends what is due: every event of the record to every webhook that wants it.

Theory of operation. A delivery is a row, written with its event. The outbox claims one for each
webhook that is neither busy nor asked to wait, so a slow service holds up nobody else and each gets
one message at a time. A claim is a lease: when the process dies in the middle, the delivery is
claimed again once it ends, under the same event id; nothing else is ever sent twice by a crash. How
a try ended is written before the next one to that webhook begins:

1. taken: sent, for good.
2. again (429, 5xx, no answer): due later, with exponential backoff and full jitter, or when the
   service asks for it. A service that limits is left alone altogether meanwhile.
3. never (404, 410, a message it refuses in every form): dead, and listed as such.

What is tried in vain for a day is dead as well; so is what is due to a webhook that has not been
configured for so long. The bell (`ring`) is a hint that there may be
something due; the clock and a look every half minute find whatever nobody rang for.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentstate.ground.clock import now_ms
from agentstate.ground.errors import NotFound, StoreError, shorten
from agentstate.ground.events import Delivery, DeliveryState, EventKind
from agentstate.ground.tasks import TaskSet
from agentstate.house.hooks import LIMITS, Hook, Told, tell
from agentstate.house.samples import sample_of
from agentstate.store.base import Store
from agentstate.webhooks.base import Verdict
from agentstate.wire.message import Transport

log = logging.getLogger("agentstate.outbox")

SECOND_MS = 1000
HOUR_MS = 3600 * SECOND_MS
HOOKS_AT_ONCE = 8  # a configuration with more webhooks waits its turn
TRY_S = 2 * LIMITS.total_s  # a message and, where that is refused, its plain form
STOP_S = 5.0  # what a try in flight gets when the proxy stops; the lease covers the rest
TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Pace:
    """How often and how long; the defaults are what runs, tests are in more of a hurry."""

    lease_ms: int = 60 * SECOND_MS  # longer than any try
    first_ms: int = 2 * SECOND_MS  # the ceiling of the first wait; each further one is twice it
    cap_ms: int = HOUR_MS  # of that ceiling, and of what a service may ask for
    dead_after_ms: int = 24 * HOUR_MS  # from the event on: by then whoever was to know does
    # However old an event is: what waited while this proxy was off gets a few minutes all the same.
    tries_min: int = 10
    look_every_s: float = 30.0
    # Between two messages. Slack: one a second for each webhook (docs.slack.dev/apis/web-api/
    # rate-limits, 2026-01). Discord: five in two seconds (docs.discord.com, Rate Limits, 2026-01).
    gap_ms: tuple[tuple[str, int], ...] = (("slack", SECOND_MS), ("discord", SECOND_MS // 2))

    def gap_of(self, hook: Hook) -> int:
        """Return the milliseconds between two messages to a webhook."""
        return dict(self.gap_ms).get(hook.format.name, 0)


class Outbox:
    """The loop that sends. Made before it runs; belongs to one event loop from `start` on."""

    def __init__(
        self,
        store: Store,
        hooks: Sequence[Hook],
        transport: Transport,
        *,
        keys: Sequence[str] = (),
        pace: Pace | None = None,
        clock_ms: Callable[[], int] = now_ms,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`keys`: configured keys, struck from what is sent. `chance`: from 0 up to 1, the jitter.

        Tell the store who is subscribed before anything happens: `subscribe`.
        """
        self.hooks = {hook.name: hook for hook in hooks}
        self._store = store
        self._transport = transport
        self._keys = tuple(keys)
        self._pace = pace or Pace()
        self._now_ms = clock_ms
        self._chance = chance
        self._root = ""
        self._bell = asyncio.Event()
        self._sending = TaskSet()
        self._busy: set[str] = set()  # webhooks something is being sent to
        self._rest: dict[str, int] = {}  # webhook -> when it may be sent to again
        self._loop: asyncio.Task[None] | None = None  # None = not started, or stopped
        self._tasks = TaskSet()
        self._is_stopping = False

    def start(self, root: str) -> None:
        """Begin to send. `root` is the address people reach the server at, for links."""
        assert self._loop is None, "it runs"
        self._root = root
        self._loop = self._tasks.start(self._run(), "outbox")

    def adopt(self, hooks: Sequence[Hook]) -> None:
        """Send to these from now on; tell the store as well. What is being sent goes on."""
        known, self.hooks = self.hooks, {hook.name: hook for hook in hooks}
        # What asked to be left alone was the service behind the old address.
        self._rest = {
            name: until_ms
            for name, until_ms in self._rest.items()
            if name in self.hooks and known[name].url == self.hooks[name].url
        }
        self._bell.set()

    def ring(self) -> None:
        """Say that something may be due. Never waits and never fails."""
        self._bell.set()

    async def stop(self, patience_s: float = STOP_S) -> None:
        """Claim nothing more and let what is being sent end, bounded. May be called again."""
        self._is_stopping = True
        self._bell.set()
        await self._tasks.close(patience_s)  # the loop only ever waits for the store
        late = await self._sending.close(patience_s)
        if late:
            log.info("%d webhook deliveries were cut off; they are sent at the next start", late)

    async def test(self, name: str, kind: EventKind) -> Told:
        """Send a sample to a webhook now, once, past the record.

        Raises:
            NotFound: there is no such webhook.
        """
        hook = self.hooks.get(name)
        if hook is None:
            raise NotFound(f"There is no webhook {shorten(name)!r}.")
        event = sample_of(kind, self._now_ms())
        return await tell(hook, event, self._transport, self._root, clock_ms=self._now_ms)

    def rests_until_ms(self, name: str) -> int | None:
        """Return until when a webhook is left alone since it asked for that; None = it is not."""
        until_ms = self._rest.get(name, 0)
        return until_ms if until_ms > self._now_ms() else None

    # --- the loop -----------------------------------------------------------------------------

    async def _run(self) -> None:
        wait_s = 0.0
        while not self._is_stopping:
            if wait_s > 0:
                await self._sleep(wait_s)
            self._bell.clear()  # before looking: what becomes due after it rings
            try:
                wait_s = await self._send_due()
            except StoreError as error:
                log.warning("the outbox cannot read the record: %s", error.message)
                wait_s = self._pace.look_every_s

    async def _sleep(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._bell.wait()
        except TimeoutError:
            return

    async def _send_due(self) -> float:
        """Begin to send what is due; return how long there is nothing to do, in seconds."""
        while not self._is_stopping:
            if len(self._busy) >= HOOKS_AT_ONCE:
                return self._pace.look_every_s  # the next one to end rings
            # Looked for before it is claimed: a claim is a write, and mostly there is nothing.
            due_ms = await self._store.next_due_ms(but_not=self._unavailable())
            now = self._now_ms()
            if due_ms is None or due_ms > now:
                soonest = [*self._rest.values(), *([] if due_ms is None else [due_ms])]
                wait_ms = min(soonest, default=now + HOUR_MS) - now
                return min(max(wait_ms, 1) / 1000, self._pace.look_every_s)
            claimed = await self._store.claim_deliveries(
                at_ms=now,
                lease_ms=self._pace.lease_ms,
                limit=1,
                but_not=self._unavailable(),
            )
            for delivery in claimed:
                await self._begin(delivery)
            if not claimed:  # the clock was set back, or another outbox was faster
                return 1.0
        return self._pace.look_every_s

    async def _begin(self, delivery: Delivery) -> None:
        hook = self.hooks.get(delivery.hook)
        if hook is None:
            await self._put_off(delivery)
            return
        self._busy.add(hook.name)
        self._sending.start(self._deliver(hook, delivery), f"delivery {delivery.delivery_id}")

    def _unavailable(self) -> frozenset[str]:
        now = self._now_ms()
        self._rest = {name: until_ms for name, until_ms in self._rest.items() if until_ms > now}
        return frozenset(self._busy) | frozenset(self._rest)

    async def _put_off(self, delivery: Delivery) -> None:
        """Keep what is due to a webhook that is not configured: its row may come back today."""
        at_ms = self._now_ms()
        next_ms = at_ms + self._pace.cap_ms
        is_old = next_ms > delivery.event.created_ms + self._pace.dead_after_ms
        await self._store.settle_delivery(
            delivery.delivery_id,
            state="dead" if is_old else "due",
            at_ms=at_ms,
            next_ms=None if is_old else next_ms,
            error="the configuration has no webhook of this name",
        )

    # --- one delivery -------------------------------------------------------------------------

    async def _deliver(self, hook: Hook, delivery: Delivery) -> None:
        try:
            told = await self._try(hook, delivery)
            await self._settle(hook, delivery, told)
        except StoreError as error:
            # The lease runs out, and it is sent again under the same id.
            log.warning("a delivery to %s could not be noted: %s", hook.name, error.message)
        finally:
            self._busy.discard(hook.name)
            self._bell.set()

    async def _try(self, hook: Hook, delivery: Delivery) -> Told:
        try:
            async with asyncio.timeout(TRY_S):
                return await tell(
                    hook,
                    delivery.event,
                    self._transport,
                    self._root,
                    keys=self._keys,
                    clock_ms=self._now_ms,
                )
        except TimeoutError:
            return Told(Verdict("again", why=f"there was no whole answer in {TRY_S:.0f} s"))
        except Exception:  # top of a task: one event that we cannot send must not be tried for ever
            log.exception("delivery %d to %s failed", delivery.delivery_id, hook.name)
            return Told(Verdict("again", why="a fault of ours kept it here; see the log"))

    async def _settle(self, hook: Hook, delivery: Delivery, told: Told) -> None:
        verdict, at_ms = told.verdict, self._now_ms()
        self._let_rest(hook, at_ms + self._pace.gap_of(hook))
        next_ms = None
        if verdict.outcome == "again":
            next_ms = at_ms + self._wait_ms(delivery, told)
            if told.status == TOO_MANY or verdict.after_s is not None:
                self._let_rest(hook, next_ms)
            is_old = next_ms > delivery.event.created_ms + self._pace.dead_after_ms
            if is_old and delivery.tries >= self._pace.tries_min:
                next_ms = None
        state: DeliveryState = "sent"
        if not told.is_taken:
            state = "dead" if next_ms is None else "due"
            _tell_people(hook, delivery, told, next_ms)
        await self._store.settle_delivery(
            delivery.delivery_id,
            state=state,
            at_ms=at_ms,
            next_ms=next_ms,
            status=told.status,
            error=verdict.why or None,
        )

    def _let_rest(self, hook: Hook, until_ms: int) -> None:
        self._rest[hook.name] = max(self._rest.get(hook.name, 0), until_ms)

    def _wait_ms(self, delivery: Delivery, told: Told) -> int:
        """Return how long to wait before the next try."""
        pace, asked_s = self._pace, told.verdict.after_s
        if asked_s is not None:
            return min(int(asked_s * 1000) + 1, pace.cap_ms)
        # A number this large is no longer shifted: the cap is reached long before.
        ceiling_ms = min(pace.first_ms << min(delivery.tries - 1, 32), pace.cap_ms)
        # A limit that says nothing of its length is given the whole of it: there is no crowd to
        # spread, there is one sender that was too fast.
        return ceiling_ms if told.status == TOO_MANY else int(ceiling_ms * self._chance()) + 1


def _tell_people(hook: Hook, delivery: Delivery, told: Told, next_ms: int | None) -> None:
    what = (hook.name, delivery.event.kind, delivery.event.event_id)
    why = told.verdict.why or "no reason given"
    if next_ms is None:
        log.warning("webhook %s: %s (%s) is given up: %s", *what, why)
    elif delivery.tries == 1:
        log.warning("webhook %s: %s (%s) is tried again: %s", *what, why)
    else:
        log.info("webhook %s: %s (%s) is tried again: %s", *what, why)
