"""Which steps of a session are the ends of its conversations. A theory of operation.

A *leaf* is a step whose conversation (its request and its answer) no other step continues. Each
request has a place in the record, as has each of its beginnings; so the step that a request goes on
from is the one at the longest of these, found by walking up a few places. No texts are compared:

    place of a request → places of ever fewer messages → first one at which a step was asked → it

The message after that place says whether the answer was taken up: it must be the model's. Where
several steps were asked the same (a run made twice, a call tried again with another outcome), it is
compared with their answers, by the ids of calls, else by the text without white space. Agents
rewrite what models said (they cut out thinking, trim, write arguments anew), so where one step only
was asked it is continued by whatever answer follows it, and its own was edited away.

What an upstream keeps (Responses: `previous_response_id`) is followed by the id. A text that stands
for one message has no place; what begins with a message of that text goes on from it.

Invariant: of a session only some seventy bytes a step are kept, whatever the steps hold, and each
step is looked at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Chains, Dialect
from agentstate.dialects.lenient import as_object
from agentstate.dialects.neutral import Called, Refused, TellsFaults, Text, Turn, translates
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, Choice
from agentstate.ground.lineage import PLACES_MAX, Lineage
from agentstate.house.export_base import Wanted
from agentstate.house.export_table import Table
from agentstate.steps import aside
from agentstate.steps.reading import read_recorded
from agentstate.steps.said import MODELS, OTHERS, calm, only_text, read_turns
from agentstate.steps.target import MOCK
from agentstate.store.base import Store

BATCH = 200  # steps read at once
PLACES_BATCH = 1000  # places read at once, where the next step is far up
WALKED_MAX = 100_000  # places of long ways kept, so that many steps far below one do not walk anew
SAID_MAX = 16  # messages read of an answer that is compared; items of Responses are many
SAME_MAX = 64  # steps compared that were asked the same
HEARD_MAX = 1024  # answers kept that were read to be compared

# What is known of a step, as bits.
WANTED = 1  # its conversation is wanted
CONTINUED = 2  # a wanted step goes on from it
TOUCHED = 4  # a person decided or edited something in its conversation
JUDGED = 8  # something was decided about its own answer, or a person wrote it
LINKED = 16  # it goes on from an answer by its id
LOST = 32  # what it goes on from is not on record

NONE = -1


class Threads:
    """The steps of one session that have an answer, numbered by order of arrival (`at`)."""

    def __init__(self) -> None:
        self.step_ids = array("q")
        self.before = array("i")  # the step it goes on from; NONE = it begins
        self.costs = array("q")  # of its conversation; NONE = not known
        self.bits = array("B")
        self.left_out: dict[str, int] = {}  # steps that are not wanted, by reason
        self.has_mock = self.has_real = False

    def __len__(self) -> int:
        return len(self.step_ids)

    def is_leaf(self, at: int) -> bool:
        """Say whether no wanted step goes on from a wanted one."""
        return self.bits[at] & (WANTED | CONTINUED) == WANTED

    def leaves(self) -> Iterator[int]:
        """Yield the leaves."""
        return filter(self.is_leaf, range(len(self)))

    def wanted(self) -> Iterator[int]:
        """Yield the wanted steps."""
        return (at for at, bits in enumerate(self.bits) if bits & WANTED)

    def judged(self) -> Iterator[int]:
        """Yield the wanted steps about whose answer a person said something."""
        return (at for at in self.wanted() if self.bits[at] & JUDGED)

    def path(self, at: int) -> Iterator[int]:
        """Yield a step and those it goes on from, back to the first."""
        while at != NONE:
            yield at
            at = self.before[at]


async def trace(store: Store, session: str, wanted: Wanted) -> Threads:
    """Find out how the steps of a session hang together.

    What the mock said is wanted of a session in which nobody else spoke, as in a demo.
    """
    found = await _Tracer(store, session, wanted, mocks=True).run()
    if found.has_mock and found.has_real:
        found = await _Tracer(store, session, wanted, mocks=False).run()
    return found


def why_unwanted(row: Lineage, dialect: Dialect | None, wanted: Wanted) -> str | None:
    """Say why a step's conversation is left out, in a word; None = it is wanted."""
    if dialect is None or not translates(dialect):
        return "no_conversation"
    if row.is_rolled_back and not wanted.include_rolled_back:
        return "rolled_back"
    reason = Answer((Choice(0, finish_reason=row.finish_reason),))
    is_cut = dialect.ending(reason) in ("length", "filtered")
    if isinstance(dialect, TellsFaults):
        is_cut = is_cut or dialect.model_fault(reason) is not None
    if (is_cut or row.is_taken_back) and not wanted.include_cut:
        return "cut"
    return "undecided" if row.is_waiting else None


@dataclass(slots=True)
class _Way:
    """How a step was found to hang on another one; NONE = not yet, or on none."""

    at: int
    row: Lineage
    place: int = 0  # of the step before
    below: tuple[int, ...] = ()  # the places from there on, the shortest first


class _Tracer:
    def __init__(self, store: Store, session: str, wanted: Wanted, *, mocks: bool) -> None:
        self._store = store
        self._session = session
        self._wanted = wanted
        self._mocks = mocks
        self._threads = Threads()
        self._places = Table()  # → the last step at a place
        self._texts = Table()  # → the last step that asked with a text
        self._ids = Table()  # the provider's → the step it answered
        self._same = array("i")  # the step before at the same place, or with the same text
        self._answer_ids = array("q")
        self._envelope_ids = array("q")
        self._dialects: dict[str, Dialect | None] = {}  # by name, in the order they came
        # Which of them chain; `isinstance` looks at every member of a protocol, for each step.
        self._chained: dict[str, Chains | None] = {}
        self._dialect_of = array("B")
        self._walked = Table()  # places of long ways → where they lead, in `_ends`
        self._ends: list[tuple[int, tuple[int, ...]]] = []
        self._heard: OrderedDict[int, _Heard] = OrderedDict()  # by step

    async def run(self) -> Threads:
        after = -1
        while True:
            rows = await self._store.list_lineage(self._session, after, BATCH)
            ways = [await self._add(row) for row in rows]
            await self._join(ways)
            if len(rows) < BATCH:
                return self._threads
            after = rows[-1].index

    # --- taking in ----------------------------------------------------------------------------

    async def _add(self, row: Lineage) -> _Way:
        """Take in a step; return where to look for the one before it."""
        threads, at = self._threads, len(self._threads)
        dialect = self._dialect_named(row.dialect)
        threads.step_ids.append(row.step_id)
        threads.before.append(NONE)
        threads.costs.append(NONE if row.cost_microusd is None else row.cost_microusd)
        threads.bits.append(self._first_bits(row, dialect))
        self._answer_ids.append(row.answer_id)
        self._envelope_ids.append(row.envelope_id)
        self._dialect_of.append(list(self._dialects).index(row.dialect))
        self._same.append(NONE)
        envelope = as_object(row.envelope)
        way = _Way(at, row)
        chained = self._chained[row.dialect]
        link = None if chained is None else chained.link(envelope)
        if link is not None:
            threads.bits[at] |= LINKED
            before = self._ids.get(_key(link))
            if before is None:
                threads.bits[at] |= LOST
            else:
                self._hang(at, before)
        elif row.place:
            way.place, way.below = await self._walk(row)
            self._enter(self._places, row.place, at)
            if self._walked.get(row.place) is not None:
                self._forget_ways()  # they lead here from now on
        elif dialect is not None and isinstance(text := envelope.get(dialect.list_key), str):
            self._enter(self._texts, _key(text), at)
        for response_id in row.response_ids:
            self._ids.put(_key(response_id), at)
        return way

    def _dialect_named(self, name: str) -> Dialect | None:
        if name not in self._dialects:
            dialect = self._dialects[name] = dialect_by_name(name)
            self._chained[name] = dialect if isinstance(dialect, Chains) else None
        return self._dialects[name]

    def _first_bits(self, row: Lineage, dialect: Dialect | None) -> int:
        threads = self._threads
        why = why_unwanted(row, dialect, self._wanted)
        if why is None:
            is_mock = row.provider == MOCK
            threads.has_mock |= is_mock
            threads.has_real |= not is_mock
            why = "mock" if is_mock and not self._mocks else None
        if why is not None:
            threads.left_out[why] = threads.left_out.get(why, 0) + 1
        bits = WANTED if why is None else 0
        bits |= TOUCHED if row.is_touched or row.is_edited else 0
        return bits | (JUDGED if row.is_decided or row.is_edited else 0)

    def _enter(self, table: Table, key: int, at: int) -> None:
        before = table.get(key)
        self._same[at] = NONE if before is None else before
        table.put(key, at)

    async def _walk(self, row: Lineage) -> tuple[int, tuple[int, ...]]:
        """Return the nearest place above a step's at which another one was asked, 0 = there is
        none; and the first places on the way from there to the step's own."""
        way = [row.place]  # from its own place upward
        above: Sequence[int] = row.above
        is_last = len(above) < PLACES_MAX
        while True:
            for place in above:
                if self._places.get(place) is not None:
                    return self._arrived(place, way)
                if (known := self._walked.get(place)) is not None:
                    return self._ends[known]
                way.append(place)
            if is_last:
                return self._arrived(0, way)
            above = await self._store.list_places(way[-1], PLACES_BATCH)
            is_last = len(above) < PLACES_BATCH

    def _arrived(self, place: int, way: list[int]) -> tuple[int, tuple[int, ...]]:
        """Return where a way led, and remember it for all that is far below, if there is any."""
        end = (place, tuple(way[: -SAID_MAX - 1 : -1]))
        far = way[1:-SAID_MAX]
        if far:
            if len(self._walked) + len(far) > WALKED_MAX:
                self._forget_ways()
            self._ends.append(end)
            for each in far:
                self._walked.put(each, len(self._ends) - 1)
        return end

    def _forget_ways(self) -> None:
        self._walked, self._ends = Table(), []

    # --- joining ------------------------------------------------------------------------------

    async def _join(self, ways: Sequence[_Way]) -> None:
        """Find, for steps that were taken in together, which one each goes on from."""
        firsts = tuple(way.below[0] for way in ways if way.below and (way.place or self._texts))
        said = dict(zip(firsts, await self._store.read_messages(firsts), strict=True))
        for number, way in enumerate(ways):
            if number % 16 == 15:
                await asyncio.sleep(0)  # a few tens of microseconds each
            if way.below and way.below[0] in said:
                before = await self._find_before(way, said[way.below[0]])
                if before is not None:
                    self._hang(way.at, before)
            await self._follow_twin(way.at)
            self._sum_up(way.at)

    def _hang(self, at: int, before: int) -> None:
        """Note that a step goes on from another one."""
        threads = self._threads
        threads.before[at] = before
        if threads.bits[at] & (WANTED | CONTINUED):
            self._mark(before)

    def _mark(self, at: int) -> None:
        """Note that a step is continued, and so are those that it goes on from: it may not be
        wanted itself."""
        bits, before = self._threads.bits, self._threads.before
        while at != NONE and not bits[at] & CONTINUED:
            bits[at] |= CONTINUED
            at = before[at]

    def _sum_up(self, at: int) -> None:
        """Take over what is known of the conversation before a step."""
        threads = self._threads
        before = threads.before[at]
        if before == NONE:
            return
        threads.bits[at] |= threads.bits[before] & (TOUCHED | LOST)
        if NONE in (threads.costs[at], threads.costs[before]):
            threads.costs[at] = NONE
        else:
            threads.costs[at] += threads.costs[before]

    async def _find_before(self, way: _Way, first: JSON) -> int | None:
        """Return the step whose answer a step goes on from."""
        dialect = self._dialect_named(way.row.dialect)
        if dialect is None or not translates(dialect):
            return None
        if way.place:
            candidates, below = self._asked_at(self._places.get(way.place), way), way.below
        else:
            # It begins here, unless its first message was asked as a bare text before.
            text = only_text(read_turns(dialect, [first]))
            candidates = [] if text is None else self._asked_at(self._texts.get(_key(text)), way)
            first, below = None, way.below[1:]
        role = as_object(first).get("role")
        if not candidates or not below or role in OTHERS:
            return None
        is_sole = len(candidates) == 1 and not self._wanted.include_replaced
        if is_sole and role in MODELS:
            return candidates[0]
        turns = read_turns(dialect, await self._store.read_messages(below))
        if not turns or turns[0].role != "assistant":
            return None
        return candidates[0] if is_sole else await self._compare(way.at, candidates, turns[0])

    async def _compare(self, at: int, candidates: Sequence[int], turn: Turn) -> int | None:
        """Return which of several steps said what stands in the request of a later one; all that
        said it are continued."""
        equal = _equal([(each, await self._hear(each)) for each in candidates], _hear_turn(turn))
        if not equal:
            return None if self._wanted.include_replaced else candidates[0]
        if self._threads.bits[at] & WANTED:
            for each in equal[1:]:
                self._mark(each)
        return equal[0]

    def _asked_at(self, last: int | None, way: _Way) -> list[int]:
        """Return the steps before a step that were asked the same, the last one first."""
        found: list[int] = []
        at = NONE if last is None else last
        while at != NONE and len(found) < SAME_MAX:
            if at < way.at and self._dialect_of[at] == self._dialect_of[way.at]:
                found.append(at)
            at = self._same[at]
        return found

    async def _follow_twin(self, at: int) -> None:
        """Count a step as continued whose request and answer are those of an earlier one that is:
        a run that was made again and ended here."""
        bits = self._threads.bits
        if not bits[at] & WANTED or bits[at] & CONTINUED:
            return
        twin, looked_at = self._same[at], 0
        while twin != NONE and looked_at < SAME_MAX:
            looked_at += 1
            is_same = self._envelope_ids[twin] == self._envelope_ids[at]
            if is_same and bits[twin] & CONTINUED and bits[twin] & WANTED:
                mine, other = await self._hear(at), await self._hear(twin)
                if mine.texts & other.texts and mine.call_count == other.call_count:
                    bits[at] |= CONTINUED
                    return
            twin = self._same[twin]

    async def _hear(self, at: int) -> _Heard:
        """Return what a step's answer said."""
        if at in self._heard:
            self._heard.move_to_end(at)
            return self._heard[at]
        answer_id = self._answer_ids[at]
        dialect = list(self._dialects.values())[self._dialect_of[at]]
        recorded = await self._store.read_borrowed(answer_id)
        if recorded is None:
            recorded = await self._store.read_answer_by_id(answer_id)
        if dialect is None or recorded is None:
            heard = _Heard()
        else:
            work = partial(read_recorded, dialect, recorded)
            heard = _hear_answer(await aside.run(work, len(recorded.content)))
        self._heard[at] = heard
        if len(self._heard) > HEARD_MAX:
            self._heard.popitem(last=False)
        return heard


# --- what was said --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Heard:
    """As much of an answer, or of a message of the model, as tells it from others."""

    call_ids: frozenset[str] = frozenset()
    texts: frozenset[bytes] = frozenset()  # digests, one for each alternative
    call_count: int = 0


def _equal(candidates: Sequence[tuple[int, _Heard]], said: _Heard) -> list[int]:
    """Return whose answers were said later, the surest first.

    1. Words and calls are the same; where that is so of several, the ids of the calls tell.
    2. The ids are: arguments were written anew. Some models begin with call_0 every time.
    """
    by_words = [each for each in candidates if each[1].texts & said.texts]
    by_ids = [each for each in by_words or candidates if each[1].call_ids & said.call_ids]
    return [at for at, _ in dict.fromkeys((*by_ids, *by_words))]


def _hear_answer(answer: Answer) -> _Heard:
    calls = [call for _, call in answer.tool_calls if not call.runs_upstream]
    return _Heard(
        frozenset(call.call_id for call in calls if call.call_id),
        frozenset(
            _digest(
                choice.text + (choice.refusal or ""),
                [
                    (call.name, call.arguments)
                    for call in choice.tool_calls
                    if not call.runs_upstream
                ],
            )
            for choice in answer.choices
        ),
        len(calls),
    )


def _hear_turn(turn: Turn) -> _Heard:
    calls = [item for item in turn.items if isinstance(item, Called)]
    text = "".join(item.text for item in turn.items if isinstance(item, Text | Refused))
    return _Heard(
        frozenset(call.call_id for call in calls),
        frozenset((_digest(text, [(call.name, call.arguments) for call in calls]),)),
        len(calls),
    )


def _digest(text: str, calls: Sequence[tuple[str, str]]) -> bytes:
    """Name what was said, however it is spaced and arguments are written."""
    said = ["".join(text.split()), *(each for call in calls for each in (call[0], calm(call[1])))]
    return hashlib.sha256("\0".join(said).encode("utf-8", "surrogatepass")).digest()


def _key(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
