"""What came of tool calls: the results that stand in later requests. A theory of operation.

An agent tells the model what its tools gave by asking again: with all that was said before, what
the model answered, and the results after that. So the results of a call stand a few messages below
the place of the request that was answered with it, whoever asked there:

    place of a request → the model's message → results → (the model's next message: too far)

Walking down from that place tells calls apart that have one id: some models begin with call_0 every
time. Where several answers were given at one place (a step rolled back and asked again, a refresh)
the model's message says whose results these are, by the ids, names and arguments of its calls.

After a crash tools may tell something else, and a call is answered from the record all the same.
The request after it then has the same answer at another place, where it is followed as well.

Some agents rewrite what they sent before (the time in a system message, cache markers that move),
so that a request grows out of none. There the end of a request is looked at: the last answer in it,
and the results after that, are those of the last answer before it that made just these calls.

What an upstream keeps (Responses: `previous_response_id`) is no list that grows: there the id of
the response leads to its answer, and the ids of calls to their results.

Nothing of it is written down when a call is made; it is worked out when somebody wants to see it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Chains
from agentstate.dialects.lenient import as_object
from agentstate.ground.calls import Calling, Growth
from agentstate.ground.canonical import JSON
from agentstate.steps.said import read_turns
from agentstate.steps.tool_matches import (
    WAY_MAX,
    CallName,
    End,
    Family,
    Way,
    are_plain,
    begins,
    families_of,
    results_on,
    told,
    whose,
    whose_end,
)
from agentstate.store.base import Store

FOLLOWING_MAX = 2000  # steps looked at after a call, before all are
ALL_STEPS = 10**9
TAILED_MAX = 64  # steps looked at for those that end with results, where no request grew
LINKED_MAX = 1000  # steps looked at for those that go on from an answer by its id
BRANCHES_MAX = 16  # of one place that are followed
TWINS_MAX = 16  # other steps asked at the same place that are compared
ANSWERS_MAX = 16  # of one step that are compared
WAYS_MAX = 10_000  # followed at once


@dataclass(frozen=True, slots=True)
class Came:
    """One result of a call."""

    index: int  # of the first step whose request has it
    step_number: int
    content: JSON  # as the agent sent it
    is_error: bool  # it says so; no form but Anthropic's can
    place: int  # of its message: results at one place are one


@dataclass(slots=True)
class Results:
    """What was found."""

    # Of each call by step, without repetition; a call without a result is not there.
    by_call: dict[CallName, list[Came]] = field(default_factory=dict)
    # Answers (`Calling.root_id`) of which some request goes on, whether or not with results.
    continued: set[int] = field(default_factory=set)
    is_all: bool = True  # there are no later steps than those that were looked at


async def find_results(store: Store, session: str, callings: Sequence[Calling]) -> Results:
    """Return what came of the calls of answers, which should be all answers of their steps."""
    search = _Search(store, session, callings)
    found = await search.run(FOLLOWING_MAX)
    await search.look_at_ends()
    if not found.is_all:
        missing = [
            member
            for family in families_of(callings)
            if any(call.wants_result and call.name not in found.by_call for call in family.calls)
            for member in family.members
        ]
        more = await _Search(store, session, missing).run(ALL_STEPS)
        found.by_call.update(more.by_call)
        found.continued |= more.continued
    for results in found.by_call.values():
        results.sort(key=lambda came: (came.index, came.place))
    return found


class _Search:
    def __init__(self, store: Store, session: str, callings: Sequence[Calling]) -> None:
        self._store = store
        self._session = session
        self._families = families_of(callings)
        self._found = Results()
        self._growth: Growth | None = None
        self._elsewhere: list[Way] = []  # the same answers, where what came before is another
        self._seen: set[int] = set()  # places at which these begin

    async def run(self, limit: int) -> Results:
        """Look at the first `limit` steps after the first call."""
        if self._families:
            after = min(family.index for family in self._families)
            await self._walk_down(after, limit)
            await self._follow_links(after, min(limit, LINKED_MAX))
        return self._found

    # --- lists that grow ----------------------------------------------------------------------

    async def _walk_down(self, after: int, limit: int) -> None:
        places = tuple({family.place for family in self._families})
        growth = await self._store.read_growth(self._session, places, after, limit)
        self._growth, self._found.is_all = growth, growth.is_all
        at_place = await self._gather(growth)
        texts = await self._read_texts([family for family in self._families if not family.place])
        ways = [
            Way(place, dialect, max(len(family.calls) for family in families))
            for (place, name), families in at_place.items()
            if (dialect := dialect_by_name(name)) is not None
        ]
        while ways:
            going_on = await self._go_on(ways, growth)
            ended = [way for way, longer in zip(ways, going_on, strict=True) if not longer]
            ways = [way for longer in going_on for way in longer][:WAYS_MAX]
            for way in (*ended, *(way for way in ways if way.is_full)):
                families = at_place[way.top, way.dialect.name]
                if not way.top:
                    families = [one for one in families if begins(way, texts.get(one.index))]
                self._take(way, families, growth)
            ways = [way for way in ways if not way.is_full] + self._elsewhere
            self._elsewhere = []

    async def _go_on(self, ways: Sequence[Way], growth: Growth) -> list[list[Way]]:
        """Return the ways that go on from each by one message."""
        steps = [
            (at, below)
            for at, way in enumerate(ways)
            for below in growth.below.get(way.last, ())[:BRANCHES_MAX]
        ]
        read = await self._store.read_messages(tuple(below for _, below in steps))
        found: list[list[Way]] = [[] for _ in ways]
        for (at, below), message in zip(steps, read, strict=True):
            longer = ways[at].with_message(below, message)
            if longer is not None:
                found[at].append(longer)
        return found

    async def _gather(self, growth: Growth) -> dict[tuple[int, str], list[Family]]:
        """Return the families at each place, with those of other steps that were asked there."""
        at_place: dict[tuple[int, str], list[Family]] = {}
        for family in self._families:
            at_place.setdefault((family.place, family.dialect), []).append(family)
        known = {family.index for family in self._families}
        for (place, name), families in at_place.items():
            twins = [index for index in growth.asked.get(place, ()) if index not in known]
            for index in twins[:TWINS_MAX] if place else ():
                rows = await self._store.list_callings(
                    self._session, (index, 0), ANSWERS_MAX, last=index
                )
                same = [row for row in rows if row.dialect == name]
                families += families_of(same)
        return at_place

    async def _read_texts(self, families: Sequence[Family]) -> dict[int, str]:
        """Return what was asked as a bare text, by the index of the step."""
        texts: dict[int, str] = {}
        for family in families:
            dialect = dialect_by_name(family.dialect)
            body = await self._store.read_request(family.members[0].step_id)
            text = None if dialect is None else as_object(body).get(dialect.list_key)
            if isinstance(text, str):
                texts[family.index] = text
        return texts

    def _take(self, way: Way, families: Sequence[Family], growth: Growth) -> None:
        if not way.messages:
            return
        turns = () if are_plain(way, families) else read_turns(way.dialect, way.messages)
        for family, calls in whose(way, turns, families):
            if growth.first_after(way.last, family.index) is not None:
                self._found.continued.add(family.root_id)
            self._look_elsewhere(way, growth)
            for place, name, content in results_on(way, turns, family, calls):
                index = growth.first_after(place, family.index)
                if index is not None:
                    self._add(name, Came(index, growth.numbers[index], *told(content), place))

    def _look_elsewhere(self, way: Way, growth: Growth) -> None:
        """Follow an answer also where it stands after other results: there it was replayed."""
        first = way.places[0]
        for place in growth.alike.get(first, ()) if way.top else ():
            is_own = growth.asked.get(growth.above.get(place) or 0)
            if not is_own and place not in self._seen:
                self._seen.add(place)
                again = Way(way.top, way.dialect, way.wanted).with_message(place, way.messages[0])
                assert again is not None, "it was the model's there"
                self._elsewhere.append(again)

    def _add(self, name: CallName, came: Came) -> None:
        results = self._found.by_call.setdefault(name, [])
        if came.place not in [one.place for one in results]:
            results.append(came)

    # --- lists that were rewritten --------------------------------------------------------------

    async def look_at_ends(self) -> None:
        """Find results in the ends of requests, for answers that none grew out of."""
        growth, continued = self._growth, self._found.continued
        lost = [family for family in self._families if family.root_id not in continued]
        if growth is None or not lost:
            return
        places: dict[int, int] = {}  # by index of a step that comes soon after one of these
        indexes = sorted(family.index for family in lost)
        for place, asked in growth.asked.items():
            for index in asked:
                at = bisect_left(indexes, index)
                if at and index - indexes[at - 1] <= TAILED_MAX:
                    places[index] = place
        ends = [
            End(index, dialect, place)
            for index, place in sorted(places.items())
            for dialect in {family.dialect for family in lost}
        ]
        await self._read_ends(ends, growth)
        for end in ends:
            self._take_end(end, growth.numbers[end.index])

    async def _read_ends(self, ends: Sequence[End], growth: Growth) -> None:
        """Read requests from their ends up to the last answer in them."""
        reading = list(ends)
        while reading:
            read = await self._store.read_messages(tuple(end.next for end in reading))
            for end, message in zip(reading, read, strict=True):
                end.take(message, growth.above.get(end.next) or 0)
            reading = [end for end in reading if end.next]

    def _take_end(self, end: End, number: int) -> None:
        found = whose_end(end, [one for one in self._families if one.index < end.index])
        if found is not None:
            family, results = found
            self._found.continued.add(family.root_id)
            for place, name, content in results:
                self._add(name, Came(end.index, number, *told(content), place))

    # --- what an upstream keeps -----------------------------------------------------------------

    async def _follow_links(self, after: int, limit: int) -> None:
        by_dialect: dict[str, dict[str, Family]] = {}
        for family in self._families:
            for member in family.members:
                if member.response_id is not None:
                    by_dialect.setdefault(family.dialect, {})[member.response_id] = family
        for name, by_id in by_dialect.items():
            dialect = dialect_by_name(name)
            if dialect is None or not isinstance(dialect, Chains):
                continue
            for asked in await self._store.list_requests(self._session, name, after, limit):
                linked = by_id.get(dialect.link(as_object(asked.envelope)) or "")
                if linked is None or not asked.place or asked.index <= linked.index:
                    continue
                self._found.continued.add(linked.root_id)
                above = await self._store.list_places(asked.place, WAY_MAX)
                places = (asked.place, *above)[::-1]
                messages = await self._store.read_messages(places)
                by_call = {one.call.call_id: one.name for one in linked.calls}
                for place, message in zip(places, messages, strict=True):
                    for call_id, content in dialect.tool_results(message):
                        if call_id and call_id in by_call:
                            came = Came(asked.index, asked.step_number, *told(content), place)
                            self._add(by_call[call_id], came)
