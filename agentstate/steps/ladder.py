"""Look a call up: climb exact → pinned → masked, and say what answered it, or what it came near to.

The looking is here, the choosing in `replay.py`. Between choosing a step and noting that it was
taken nothing waits, so two calls that climb side by side never get one step both: what the store
does not have yet is in `_promised`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground.canonical import JSON, canonical, encode
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.records import Candidate, Emitter, Identity, ReplayNote, Served
from agentstate.steps.identify import Caller
from agentstate.steps.replay import (
    ToolResult,
    choose_exact,
    choose_masked,
    choose_pinned,
    choose_repeated,
    differing_results,
    reusable_row,
)
from agentstate.store.base import Key, Store

Rung = Literal["exact", "pinned", "masked"]

COMPARED_MAX = 64  # recorded requests compared on one rung; each is read from the disk
ALIKE_MAX = 4  # recorded requests a miss is explained with
CONVERSATION_MAX = 2**31  # messages; no conversation has as many, so this is after all of them
# What is remembered of recent requests, to see at no cost that a call only goes on.
SESSIONS_REMEMBERED_MAX = 256
REQUESTS_REMEMBERED_MAX = 16  # per session: as many agents may take turns in it
NAME_BYTES = 8  # of a message's digest; enough to tell the messages of one session apart


@dataclass(frozen=True, slots=True)
class Hit:
    """A recorded step that answers a call, and on which rung it was found."""

    candidate: Candidate
    rung: Rung


@dataclass(frozen=True, slots=True)
class Sought:
    """A call as the ladder needs it."""

    dialect: Dialect
    caller: Caller
    identity: Identity
    ask: Ask
    chain: tuple[bytes, ...]  # digests of its messages
    goes_to_mock: bool


@dataclass(frozen=True, slots=True)
class Miss:
    """What a call came near to and was not."""

    step_number: int
    index: int
    path: str  # of the first difference, e.g. messages[0].content
    sent: str  # value there, shortened
    recorded: str

    def as_json(self) -> JSON:
        """Render for the step."""
        return {
            "step_number": self.step_number,
            "index": self.index,
            "path": self.path,
            "sent": self.sent,
            "recorded": self.recorded,
        }

    def as_header(self) -> str:
        """Render for the response: the place only, since values may be secret."""
        return f"step {self.step_number} differs at {shorten(self.path, 200)}"


@dataclass(frozen=True, slots=True)
class _Recent:
    """A request that was claimed lately."""

    names: bytes  # of its messages, one after another
    step_id: int
    step_number: int


class Ladder:
    """Finds recorded steps. One per server: it remembers what it has promised to whom."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._promised: dict[tuple[str, str], dict[int, Served]] = {}  # (session, run) → by step
        self._recent: OrderedDict[str, deque[_Recent]] = OrderedDict()  # by session
        self._rows_taken: set[int] = set()  # of failed tries, by calls that will claim them
        # Steps in flight: an answer that is committed may still turn out to have no clean end.
        self._in_the_air: set[int] = set()

    async def climb(self, sought: Sought) -> Hit | None:
        """Return the step that answers the call, by the first rung that has one; it is taken."""
        caller = sought.caller
        exact = await self._find(caller, "exact", sought.identity.exact)
        if caller.replay not in ("pinned", "exact"):
            # A client's retry of a call that was refreshed, or not looked up, and has its answer.
            again = choose_repeated(exact, caller, goes_to_mock=sought.goes_to_mock)
            return None if again is None else self._take(caller, Hit(again, "exact"))
        served = await self._served(caller, exact)
        found = choose_exact(exact, caller, served, goes_to_mock=sought.goes_to_mock)
        if found is not None:
            return self._take(caller, Hit(found, "exact"))
        if caller.replay == "exact":
            return None
        return await self._climb_on(sought)

    async def climb_raw(
        self, caller: Caller, candidates: Sequence[Candidate], *, goes_to_mock: bool
    ) -> Hit | None:
        """Return the step whose very bytes a call sent, as `climb` would; None = read them."""
        if caller.run_id is not None:
            # The same meaning may be on record in other bytes and earlier: `climb` sees both.
            candidates = await self._find(caller, "exact", candidates[0].identity.exact)
        served = await self._served(caller, candidates)
        found = choose_exact(candidates, caller, served, goes_to_mock=goes_to_mock)
        return None if found is None else self._take(caller, Hit(found, "exact"))

    async def row_to_reuse(self, sought: Sought) -> int | None:
        """Return the row of an earlier try of this call that gave no answer, or None."""
        caller = sought.caller
        if caller.replay == "off":
            return None
        exact = await self._find(caller, "exact", sought.identity.exact)
        served = await self._served(caller, exact)
        # From here nothing waits: two calls that look side by side never get one row both.
        free = [each for each in exact if each.step_id not in self._rows_taken]
        row = reusable_row(free, caller, served)
        if row is not None:
            self._rows_taken.add(row)
        return row

    def release_row(self, row: int | None) -> None:
        """Give a row back: it was claimed, or the call ended before."""
        if row is not None:
            self._rows_taken.discard(row)

    def note_claimed(self, step_id: int) -> None:
        """Note that a step is in flight: it answers nobody else until it has landed."""
        self._in_the_air.add(step_id)

    def note_landed(self, step_id: int) -> None:
        """Note that a step's flight is over, however it ended."""
        self._in_the_air.discard(step_id)

    async def _find(self, caller: Caller, key: Key, value: bytes) -> tuple[Candidate, ...]:
        """Return the candidates that are not in the air."""
        found = await self._store.find_candidates(caller.session, key, value)
        return tuple(each for each in found if each.step_id not in self._in_the_air)

    async def settle(self, caller: Caller, hit: Hit, exact: bytes) -> None:
        """Write what taking a step changes, before its answer is released."""
        step_id = hit.candidate.step_id
        if hit.rung != "exact":
            await self._store.record_alias(caller.session, exact, step_id)
        await self.record_served(caller, step_id)

    async def record_served(self, caller: Caller, step_id: int) -> None:
        """Write that the caller's run got a step; nothing without a run id."""
        if caller.run_id is None:
            return
        served = Served(step_id, caller.call_id, now_ms(), is_delivered=False)
        try:
            await self._store.record_served(served, caller.session, caller.run_id)
        finally:
            key = (caller.session, caller.run_id)
            promised = self._promised.get(key, {})
            promised.pop(step_id, None)
            if not promised:
                self._promised.pop(key, None)

    def note_delivered(self, caller: Caller, step_id: int) -> None:
        """Note that the caller has its answer whole; nothing without a run id."""
        if caller.run_id is not None:
            self._store.note_delivered(caller.session, caller.run_id, step_id)

    # --- pinned and masked ------------------------------------------------------------------

    async def _climb_on(self, sought: Sought) -> Hit | None:
        caller, identity = sought.caller, sought.identity
        alias = await self._find(caller, "alias", identity.exact)
        served = await self._served(caller, alias)
        again = choose_exact(alias, caller, served, goes_to_mock=sought.goes_to_mock)
        if again is not None:
            return self._take(caller, Hit(again, "pinned"))

        pinned = await self._find(caller, "pinned", identity.pinned)
        masked = await self._find(caller, "masked", identity.masked)
        both = {each.step_id: each for each in (*pinned, *masked)}
        if not both:
            return None
        differing = await self._differing(sought, both.values())
        emitters = await self._emitters(caller, differing.values())
        session = await self._store.read_session(caller.session)
        at_number = 0
        if caller.run_id is None and caller.step_number is not None:
            at_number = await self._store.count_steps_at(caller.session, caller.step_number)
        # Read once more, and last: from here to the taking nothing waits.
        pinned = await self._find(caller, "pinned", identity.pinned)
        masked = await self._find(caller, "masked", identity.masked)
        served = await self._served(caller, (*pinned, *masked))
        found = choose_pinned(
            pinned, caller, served, differing, emitters, goes_to_mock=sought.goes_to_mock
        )
        if found is not None:
            return self._take(caller, Hit(found, "pinned"))
        found = choose_masked(
            masked,
            caller,
            served,
            differing,
            emitters,
            highest_step_number=session.last_step_number if session else None,
            steps_at_number=at_number,
            goes_to_mock=sought.goes_to_mock,
        )
        return None if found is None else self._take(caller, Hit(found, "masked"))

    async def _differing(
        self, sought: Sought, candidates: Iterable[Candidate]
    ) -> dict[int, tuple[ToolResult, ...]]:
        """Return, per candidate that can be compared, the results that differ from its own."""
        # What goes on from something upstream comes after all that is on record.
        before = CONVERSATION_MAX if sought.ask.goes_on_from is not None else 0
        mine = tool_results(sought.dialect, sought.ask.messages, before)
        found: dict[int, tuple[ToolResult, ...]] = {}
        for candidate in list(candidates)[:COMPARED_MAX]:
            if not mine:
                found[candidate.step_id] = ()
                continue
            body = await self._store.read_request(candidate.step_id)
            messages = body.get(sought.dialect.list_key) if isinstance(body, dict) else None
            listed = messages if isinstance(messages, list) else ()
            recorded = tool_results(sought.dialect, listed, before)
            differing = differing_results(mine, recorded)
            if differing is not None:
                found[candidate.step_id] = differing
        return found

    async def _emitters(
        self, caller: Caller, differing: Iterable[Sequence[ToolResult]]
    ) -> dict[str, tuple[Emitter, ...]]:
        names = {result.call_id for results in differing for result in results}
        if not names:
            return {}
        return await self._store.find_emitters(caller.session, tuple(sorted(names)))

    # --- who has what -----------------------------------------------------------------------

    async def _served(self, caller: Caller, candidates: Sequence[Candidate]) -> dict[int, Served]:
        """Return which of the candidates this run has got, promises included."""
        if caller.run_id is None or not candidates:
            return {}
        steps = tuple(each.step_id for each in candidates)
        rows = await self._store.list_served(caller.session, caller.run_id, steps)
        served = {row.step_id: row for row in rows}
        promised = self._promised.get((caller.session, caller.run_id), {})
        return served | {step: promised[step] for step in steps if step in promised}

    def _take(self, caller: Caller, hit: Hit) -> Hit:
        """Note at once that the step was given: the next one to climb sees it."""
        step = hit.candidate
        self._store.note_replay(
            ReplayNote(
                session=caller.session,
                step_id=step.step_id,
                replayed_ms=now_ms(),
                mode=hit.rung,
                saved_microusd=step.cost_microusd or 0,
                run_id=caller.run_id,
            )
        )
        if caller.run_id is not None:
            served = Served(step.step_id, caller.call_id, now_ms(), is_delivered=False)
            key = (caller.session, caller.run_id)
            self._promised.setdefault(key, {})[step.step_id] = served
        return hit

    # --- misses -----------------------------------------------------------------------------

    async def explain(self, sought: Sought) -> Miss | None:
        """Return what a call that was not found came near to; None if it goes on, or is new."""
        if sought.caller.replay in ("refresh", "off"):
            return None  # it was not looked for
        recent = self._recent.get(sought.caller.session, ())
        names = _names(sought.chain)
        if any(0 < len(old.names) < len(names) and names.startswith(old.names) for old in recent):
            return None
        number = None if sought.caller.run_id is not None else sought.caller.step_number
        near = [old for old in recent if _stands_beside(old, names, number)]
        if near:
            best = max(near, key=lambda old: _shared(old.names, names))
            is_near = number is not None or _shared(best.names, names) > 0
            steps: tuple[int, ...] = (best.step_id,) if is_near else ()
        else:
            alike = await self._store.find_alike(
                sought.caller.session, len(sought.chain), number, ALIKE_MAX
            )
            steps = tuple(each.step_id for each in alike)
        found = [await self._compare(sought, step, is_placed=number is not None) for step in steps]
        compared = [each for each in found if each is not None]
        return max(compared, key=lambda each: each[0])[1] if compared else None

    def remember(self, sought: Sought, step_id: int, step_number: int) -> None:
        """Remember a call that was claimed, to see at no cost that the next one goes on from it."""
        session = sought.caller.session
        recent = self._recent.setdefault(session, deque(maxlen=REQUESTS_REMEMBERED_MAX))
        self._recent.move_to_end(session)
        if len(self._recent) > SESSIONS_REMEMBERED_MAX:
            self._recent.popitem(last=False)
        recent.append(_Recent(_names(sought.chain), step_id, step_number))

    async def _compare(
        self, sought: Sought, step_id: int, *, is_placed: bool
    ) -> tuple[int, Miss] | None:
        """Return (messages they share, the difference); None if they have nothing in common."""
        step = await self._store.read_step(step_id)
        body = await self._store.read_request(step_id)
        if step is None:
            return None
        try:
            old = sought.dialect.read_ask(body)
        except BadRequest:
            return None  # redacted, or of a form that is no longer spoken
        new = sought.ask
        shared = sum(
            mine == theirs for mine, theirs in zip(new.messages, old.messages, strict=False)
        )
        if not shared and not is_placed:
            return None
        list_key = sought.dialect.list_key
        difference = first_difference(
            {**new.envelope, list_key: list(new.messages)},
            {**old.envelope, list_key: list(old.messages)},
        )
        if difference is None:
            return None  # the same, and not replayable: failed, rolled back, or from the mock
        path, sent, recorded = difference
        return shared, Miss(step.step_number, step.index, path, _shown(sent), _shown(recorded))


def tool_results(
    dialect: Dialect, messages: Sequence[JSON], before: int = 0
) -> tuple[ToolResult, ...]:
    """Return every tool result of a conversation, in order; `before` messages went ahead of it."""
    return tuple(
        ToolResult(call_id, hashlib.sha256(canonical(content)).digest(), position)
        for position, message in enumerate(messages, before)
        for call_id, content in dialect.tool_results(message)
    )


def first_difference(theirs: JSON, recorded: JSON, path: str = "") -> tuple[str, JSON, JSON] | None:
    """Return (path, theirs, recorded) of the first place two bodies differ; None if they do not.

    Objects are compared in the order of the recorded one's keys, then what is new. What one side
    lacks is None there.
    """
    if isinstance(theirs, dict) and isinstance(recorded, dict):
        for key in (*recorded, *(key for key in theirs if key not in recorded)):
            inner = f"{path}.{key}" if path else key
            if (key in theirs) != (key in recorded):
                return inner, theirs.get(key), recorded.get(key)
            if (found := first_difference(theirs[key], recorded[key], inner)) is not None:
                return found
        return None
    if isinstance(theirs, list) and isinstance(recorded, list):
        for index, (mine, old) in enumerate(zip(theirs, recorded, strict=False)):
            if (found := first_difference(mine, old, f"{path}[{index}]")) is not None:
                return found
        index = min(len(theirs), len(recorded))
        if len(theirs) > index:
            return f"{path}[{index}]", theirs[index], None
        if len(recorded) > index:
            return f"{path}[{index}]", None, recorded[index]
        return None
    if type(theirs) is type(recorded) and theirs == recorded:
        return None
    return path, theirs, recorded


def _names(chain: tuple[bytes, ...]) -> bytes:
    return b"".join(each[:NAME_BYTES] for each in chain)


def _stands_beside(old: _Recent, names: bytes, number: int | None) -> bool:
    return len(old.names) == len(names) if number is None else old.step_number == number


def _shared(old: bytes, new: bytes) -> int:
    """Return how many messages two requests have in common, place by place."""
    places = range(0, min(len(old), len(new)), NAME_BYTES)
    return sum(old[at : at + NAME_BYTES] == new[at : at + NAME_BYTES] for at in places)


def _shown(value: JSON) -> str:
    return shorten(value if isinstance(value, str) else encode(value).decode("ascii"))
