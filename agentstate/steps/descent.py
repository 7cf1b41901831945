"""Which later steps of a session go on from an answer of a step. A theory of operation.

A request has a place in the record, as has each of its beginnings (`ground/lineage.py`). So one
walk up from a later step's place says whether its request begins with what was asked; what stands
below that must be the answer. Each place is looked at once, and once it is known whether the answer
stands at it or above it, all below it share that. Of a session where each request goes on from the
one before, no message but one is read.

Where a request does not begin so (agents trim and rewrite what they send), it is told by what it
holds, message by message, from the first one on that no earlier step knew:

1. the result of a tool call which this answer made, or one that goes on from it, and no other;
2. words of the answer, if they are more than a few and were not there before;
3. words of an answer that goes on from it.

What follows right after the request of another step is that one's answer, and no evidence: parallel
lanes often say the same. What an upstream keeps is followed by its id.

Invariant: no request is rebuilt that is a list of messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Chains, Dialect
from agentstate.dialects.lenient import as_object
from agentstate.dialects.neutral import Called, Refused, Text, translates
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.control import Ranges, ranges_of
from agentstate.ground.lineage import PLACES_MAX
from agentstate.ground.records import StepRow
from agentstate.ground.redaction import NOTHING_KNOWN
from agentstate.ground.revisions import Placed
from agentstate.steps import aside
from agentstate.steps.reading import read_recorded
from agentstate.store.base import Store

BATCH = 500  # steps read at once
PLACES_BATCH = 1000  # places read at once, where the next known one is far up
MESSAGES_BATCH = 64  # messages of one step read at once
NEW_MAX = 2  # messages that a step mostly adds, besides its own last one
SAID_MAX = 16  # messages read to see what an answer was; items of Responses are many
# Shorter texts are said by many: "OK, I have sent it." tells nothing.
WORDS_CHARS_MIN = 24
# Of a later answer the record has this much at hand (`checkpoint.TEXT_CHARS_MAX`); without white
# space a little less of it is sure to be there.
BEGINNING_CHARS = 400

_MODELS = ("assistant", "model")  # whose message it is, in the words of all dialects


@dataclass(slots=True)
class Said:
    """What an answer said, as far as it tells it from others."""

    call_ids: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)  # without white space

    @staticmethod
    def of(answer: Answer) -> Said:
        """Return what an answer said."""
        return Said(
            {call.call_id for _, call in answer.tool_calls if call.call_id},
            {calm_words(choice.text + (choice.refusal or "")) for choice in answer.choices},
        )

    def add(self, other: Said) -> None:
        """Take in what another answer of the step said."""
        self.call_ids |= other.call_ids
        self.texts |= other.texts

    @property
    def words(self) -> frozenset[str]:
        """The texts that are enough to know it by."""
        return frozenset(text for text in self.texts if len(text) >= WORDS_CHARS_MIN)


class Descent:
    """Finds the steps that go on from one. Asked again it looks at what came since."""

    def __init__(self, store: Store, step: StepRow, said: Said, request: JSON) -> None:
        """`said`: what any of the step's answers said; `request`: its body."""
        self._store = store
        self._step = step
        self._said = said
        # What was there before is no evidence.
        before = "".join(map(packed, texts_in(request)))
        self._words = frozenset(text for text in said.words if text not in before)
        self.seen = 0  # the index after the last step that was looked at
        self._found: set[int] = set()  # indexes
        self._found_ids: set[int] = {step.step_id}
        self._links: set[str] = set()  # the provider's ids of all that was found
        self._later: set[str] = set()  # how their answers begin, without white space
        self._unheard: list[int] = []  # steps that were found and whose answers were not read
        self._known: dict[int, bool] = {}  # by place: the answer stands at it or above it
        self._origin = 0  # the place of the step; 0 = it has no list of messages
        self._asked: dict[int, int] = {}  # places of other active steps → their ids
        self._dialects: dict[str, Dialect | None] = {}
        self._ahead: deque[Placed] = deque()  # steps that were read and not looked at
        self._messages: dict[int, JSON] = {}  # by place: what was read of them in one go

    async def run(self) -> Ranges:
        """Return the indexes of the active steps that go on from it."""
        while True:
            rows = await self._store.list_placed(self._step.session, self.seen - 1, BATCH)
            self._ahead.extend(rows)
            self._messages.clear()
            while self._ahead:
                await self._take(self._ahead.popleft())
            if rows:
                self.seen = rows[-1].index + 1
            if len(rows) < BATCH:
                return ranges_of(sorted(self._found))
            await asyncio.sleep(0)

    async def _take(self, row: Placed) -> None:
        """Take in one step."""
        if row.step_id == self._step.step_id:
            self._origin = row.place
            self._links.update(row.response_ids)
            return
        if not row.is_active:
            return
        if row.index < self._step.index:
            # What was asked before it was answered holds nothing of it.
            if row.place and row.place != self._origin:
                self._known.setdefault(row.place, False)
            if row.place:
                self._asked[row.place] = row.step_id
            return
        if await self._goes_on(row):
            self._found.add(row.index)
            self._found_ids.add(row.step_id)
            self._links.update(row.response_ids)
            self._unheard.append(row.step_id)
        elif row.place:
            self._asked[row.place] = row.step_id

    async def _goes_on(self, row: Placed) -> bool:
        dialect = self._dialect(row.dialect)
        if isinstance(dialect, Chains):
            link = dialect.link(as_object(row.envelope))
            if link is not None and link in self._links:
                return True
        if dialect is None:
            return False
        if row.place:
            return await self._is_below(dialect, row)
        request = await self._store.read_request(row.step_id)
        texts = [packed(text) for text in texts_in(request)]
        return self._has_words(texts) or await self._has_later(texts)

    def _dialect(self, name: str) -> Dialect | None:
        if name not in self._dialects:
            self._dialects[name] = dialect_by_name(name)
        return self._dialects[name]

    # --- by place -----------------------------------------------------------------------------

    async def _is_below(self, dialect: Dialect, row: Placed) -> bool:
        """Say whether the answer stands at a place or above it; remember it for all on the way."""
        way: list[int] = []  # from its own place upward, as far as it is not known
        stop, verdict = 0, False
        async for place in self._upward(row):
            if place in self._known or place == self._origin:
                stop = place
                break
            way.append(place)
        if not way:
            # The same as was asked before: a call made twice, or the answer is not in it.
            return self._known.get(stop, False) if stop != self._origin else False
        way.reverse()
        if stop and stop == self._origin:
            verdict = await self._follows(dialect, way)
        elif stop:
            verdict = self._known[stop]
        if verdict:
            self._known.update(dict.fromkeys(way, True))
            return True
        return await self._holds(dialect, stop, way)

    async def _upward(self, row: Placed) -> AsyncIterator[int]:
        """Yield its own place and all above it."""
        yield row.place
        above: Sequence[int] = row.above
        is_last = len(above) < PLACES_MAX
        last = row.place
        while True:
            for place in above:
                last = place
                yield place
            if is_last:
                return
            above = await self._store.list_places(last, PLACES_BATCH)
            is_last = len(above) < PLACES_BATCH

    async def _follows(self, dialect: Dialect, way: Sequence[int]) -> bool:
        """Say whether what stands after the step's own request is an answer of its."""
        messages = list(await self._store.read_messages(tuple(way[:SAID_MAX])))
        heard = _said_first(dialect, messages)
        if heard is None:
            return False
        if heard.call_ids & self._said.call_ids or heard.texts & self._said.texts - {""}:
            return True
        # Another step that was asked the same may have said it; else the agent has rewritten it.
        return self._origin not in self._asked

    # --- by what it holds ---------------------------------------------------------------------

    async def _holds(self, dialect: Dialect, stop: int, way: Sequence[int]) -> bool:
        """Say whether one of the messages at these places shows the answer."""
        above, is_own = stop, False
        for first in range(0, len(way), MESSAGES_BATCH):
            places = way[first : first + MESSAGES_BATCH]
            messages = await self._read(places)
            for place, message in zip(places, messages, strict=True):
                results = [call_id for call_id, _ in dialect.tool_results(message)]
                role = as_object(message).get("role", "assistant")  # items need not say it
                is_models = role in _MODELS and not results
                # Right after what another step asked stands what that one was answered.
                is_own = is_models and (above in self._asked or is_own)
                above = place
                if not is_own and await self._shows(results, message):
                    self._known.update(dict.fromkeys(way[way.index(place) :], True))
                    return True
                self._known[place] = False
        return False

    async def _read(self, places: Sequence[int]) -> list[JSON]:
        """Return the messages at these places. Where one is not at hand, those of the steps ahead
        are read with it: where one step has to be read, most that follow have."""
        if any(place not in self._messages for place in places):
            wanted = dict.fromkeys(places)
            for row in self._ahead:
                wanted.update(dict.fromkeys(self._way_ahead(row)))
            found = await self._store.read_messages(tuple(wanted))
            self._messages = dict(zip(wanted, found, strict=True))
        return [self._messages[place] for place in places]

    def _way_ahead(self, row: Placed) -> Iterator[int]:
        """Yield the places of a step that are new with it, as far as that is at hand."""
        for place in (row.place, *row.above[:NEW_MAX]) if row.is_active else ():
            if not place or place in self._known or place in self._asked:
                return
            yield place

    async def _shows(self, results: Sequence[str], message: JSON) -> bool:
        """Say whether a message shows it; `results`: the ids of the calls it has results of."""
        ids = tuple(call_id for call_id in results if call_id)
        if ids:
            emitters = await self._store.find_emitters(self._step.session, ids)
            # An id that several answers gave tells nothing.
            sole = (found[0].step_id for found in emitters.values() if len(found) == 1)
            if any(step_id in self._found_ids for step_id in sole):
                return True
        texts = [packed(text) for text in texts_in(message)]
        return self._has_words(texts) or await self._has_later(texts)

    def _has_words(self, texts: Sequence[str]) -> bool:
        return any(words in text for words in self._words for text in texts)

    async def _has_later(self, texts: Sequence[str]) -> bool:
        """Say whether one of these texts is what a step answered that goes on from the answer."""
        candidates = [text for text in texts if len(text) >= WORDS_CHARS_MIN]
        if not candidates:
            return False
        while self._unheard:
            row = await self._store.read_step(self._unheard.pop())
            words = calm_words(row.text) if row is not None else ""
            if len(words) >= WORDS_CHARS_MIN:
                self._later.add(words[:BEGINNING_CHARS])
        return any(text[:BEGINNING_CHARS] in self._later for text in candidates)


# --- pure -----------------------------------------------------------------------------------------


def calm_words(text: str) -> str:
    """Return what an answer said as it stands in later requests: they are on record without
    secrets."""
    return packed(NOTHING_KNOWN.text(text))


def packed(text: str) -> str:
    """Return a text without white space: agents trim, and join pieces as they like."""
    return "".join(text.split())


def texts_in(value: JSON) -> Iterator[str]:
    """Yield all texts in a value, keys left out."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()


def _said_first(dialect: Dialect, messages: list[JSON]) -> Said | None:
    """Return what the model says first in these messages; None = they begin with another side."""
    if not translates(dialect):
        return None
    body: Mapping[str, JSON] = {"model": "", dialect.list_key: messages}
    turns = dialect.read_request(body).turns
    if not turns or turns[0].role != "assistant":
        return None
    calls = [item for item in turns[0].items if isinstance(item, Called)]
    text = "".join(item.text for item in turns[0].items if isinstance(item, Text | Refused))
    return Said({call.call_id for call in calls if call.call_id}, {packed(text)})


async def said_by(store: Store, dialect: Dialect, answer_ids: Sequence[int]) -> Said:
    """Return what any of these answers said, as agents got them."""
    said = Said()
    for answer_id in answer_ids:
        recorded = await store.read_borrowed(answer_id)
        recorded = recorded or await store.read_answer_by_id(answer_id)
        if recorded is not None:
            work = partial(read_recorded, dialect, recorded)
            said.add(Said.of(await aside.run(work, len(recorded.content))))
    return said
