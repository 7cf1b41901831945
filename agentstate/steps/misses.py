"""What a call that was not found came near to: the recorded step, and the first place they differ.

Only for people to read: nothing here decides anything. The counterpart is `ladder.py`, which looks
calls up. Most calls go on from one before, and that is seen from memory.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass
from operator import eq

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.records import Query
from agentstate.ground.secrets import MARK
from agentstate.steps.identify import Sought
from agentstate.store.base import Store

ALIKE_MAX = 4  # recorded requests a miss is explained with
# A failure is explained with as many of the call's length, and as many others.
NEAREST_MAX = 200
_NUMBERS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+")  # ids, clocks
# What is remembered of recent requests, to see at no cost that a call only goes on.
SESSIONS_REMEMBERED_MAX = 256
REQUESTS_REMEMBERED_MAX = 16  # per session: as many agents may take turns in it
# Of a message's digest; enough to tell the messages of one session apart, and as wide as a number.
NAME_BYTES = 8


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


class Misses:
    """Explains misses. One per server: it remembers recent requests."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: OrderedDict[str, deque[_Recent]] = OrderedDict()  # by session

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

    async def nearest(self, sought: Sought) -> Miss | None:
        """Return the recorded step that a call is most like, and where they differ; None = there is
        none of its form. For a call that fails by it, so it may take its time."""
        caller, depth = sought.caller, len(sought.chain)
        number = None if caller.run_id is not None else caller.step_number
        alike = await self._store.find_alike(caller.session, depth, number, NEAREST_MAX)
        first = Query(session=caller.session, limit=NEAREST_MAX, newest_first=False)
        others = await self._store.list_steps(first)
        steps = dict.fromkeys([each.step_id for each in alike])
        steps |= dict.fromkeys(row.step_id for row in others.rows if row.rolled_back_ms is None)
        best: tuple[tuple[int, int], Miss] | None = None
        for step_id in steps:
            found = await self._compare(sought, step_id, is_placed=True, is_patient=True)
            if found is None:
                continue
            # As long as the call, or nearly: a longer one that begins alike comes after it.
            rank = (found[0], -abs(found[2] - depth))
            if best is None or rank > best[0]:
                best = (rank, found[1])
        return None if best is None else best[1]

    def remember(self, sought: Sought, step_id: int, step_number: int) -> None:
        """Remember a call that was claimed, to see at no cost that the next one goes on from it."""
        session = sought.caller.session
        recent = self._recent.setdefault(session, deque(maxlen=REQUESTS_REMEMBERED_MAX))
        self._recent.move_to_end(session)
        if len(self._recent) > SESSIONS_REMEMBERED_MAX:
            self._recent.popitem(last=False)
        recent.append(_Recent(_names(sought.chain), step_id, step_number))

    def forget(self, session: str) -> None:
        """Forget the requests of a session: some of them were rolled back, or are active again."""
        self._recent.pop(session, None)

    async def _compare(
        self, sought: Sought, step_id: int, *, is_placed: bool, is_patient: bool = False
    ) -> tuple[int, Miss, int] | None:
        """Return (messages they share, the difference, messages of the recorded one); None if they
        have nothing in common."""
        step = await self._store.read_step(step_id)
        body = await self._store.read_request(step_id)
        if step is None or step.dialect != sought.dialect.name:
            return None
        try:
            old = sought.dialect.read_ask(body)
        except BadRequest:
            return None  # redacted, or of a form that is no longer spoken
        new = sought.ask
        shared = sum(
            first_difference(mine, theirs) is None
            for mine, theirs in zip(new.messages, old.messages, strict=False)
        )
        if not shared and not is_placed:
            return None
        list_key = sought.dialect.list_key
        sent_body, old_body = (
            {**each.envelope, list_key: list(each.messages)} for each in (new, old)
        )
        difference = None
        if is_patient:
            # A clock or a tool's result differs mostly besides, and is not why.
            difference = first_difference(_calm(sought.dialect, new), _calm(sought.dialect, old))
        # Where nothing else differs it is a secret that does, and of the recorded one only the
        # place is known.
        difference = difference or first_difference(sent_body, old_body)
        if difference is None and not await self._is_same(sought, step_id):
            difference = first_difference(sent_body, old_body, forgives=False)
        if difference is None:
            return None  # the same, and not replayable: failed, rolled back, or from the mock
        path, sent, recorded = difference
        sent = sought.redactor.value(sent)  # before it is cut: half a key is one to nobody's eyes
        path = sought.redactor.text(path)
        miss = Miss(step.step_number, step.index, path, _shown(sent), _shown(recorded))
        return shared, miss, len(old.messages)

    async def _is_same(self, sought: Sought, step_id: int) -> bool:
        """Say whether a step was asked just this, secrets included."""
        exact = sought.identity.exact
        same = await self._store.find_candidates(sought.caller.session, "exact", exact)
        return any(each.step_id == step_id for each in same)


def first_difference(
    theirs: JSON, recorded: JSON, path: str = "", *, forgives: bool = True
) -> tuple[str, JSON, JSON] | None:
    """Return (path, theirs, recorded) of the first place two bodies differ; None if they do not.

    Objects are compared in the order of the recorded one's keys, then what is new. What one side
    lacks is None there. `forgives`: where a secret was taken out of the recorded one, any text is
    equal.
    """
    if isinstance(theirs, dict) and isinstance(recorded, dict):
        for key in (*recorded, *(key for key in theirs if key not in recorded)):
            inner = f"{path}.{key}" if path else key
            if (key in theirs) != (key in recorded):
                return inner, theirs.get(key), recorded.get(key)
            found = first_difference(theirs[key], recorded[key], inner, forgives=forgives)
            if found is not None:
                return found
        return None
    if isinstance(theirs, list) and isinstance(recorded, list):
        for index, (mine, old) in enumerate(zip(theirs, recorded, strict=False)):
            found = first_difference(mine, old, f"{path}[{index}]", forgives=forgives)
            if found is not None:
                return found
        index = min(len(theirs), len(recorded))
        if len(theirs) > index:
            return f"{path}[{index}]", theirs[index], None
        if len(recorded) > index:
            return f"{path}[{index}]", None, recorded[index]
        return None
    if type(theirs) is type(recorded) and theirs == recorded:
        return None
    are_texts = isinstance(theirs, str) and isinstance(recorded, str)
    if forgives and are_texts and is_but_for_secrets(str(theirs), str(recorded)):
        return None
    return path, theirs, recorded


def _calm(dialect: Dialect, ask: Ask) -> dict[str, JSON]:
    """Return a body without the content of tool results, and without numbers in system texts."""
    messages: list[JSON] = []
    for message in ask.messages:
        blank = dialect.tool_result_blank(message)
        still = dialect.masked(message, _without_numbers)
        messages.append(next((each for each in (blank, still) if each is not None), message))
    envelope = dialect.mask_envelope(ask.envelope, _without_numbers)
    return {**(ask.envelope if envelope is None else envelope), dialect.list_key: messages}


def _without_numbers(text: str) -> str:
    return _NUMBERS.sub("0", text)


def is_but_for_secrets(text: str, recorded: str) -> bool:
    """Say whether a text is a recorded one, out of which secrets were taken."""
    pieces = MARK.split(recorded)
    if len(pieces) == 1:
        return text == recorded
    if len(text) < sum(map(len, pieces)) or not text.startswith(pieces[0]):
        return False
    at, end = len(pieces[0]), len(text) - len(pieces[-1])
    for piece in pieces[1:-1]:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return text.endswith(pieces[-1])


def _names(chain: tuple[bytes, ...]) -> bytes:
    return b"".join(each[:NAME_BYTES] for each in chain)


def _stands_beside(old: _Recent, names: bytes, number: int | None) -> bool:
    return len(old.names) == len(names) if number is None else old.step_number == number


def _shared(old: bytes, new: bytes) -> int:
    """Return how many messages two requests have in common, place by place."""
    # As numbers, so that no name is cut out: each call of a lane of its own is compared with all
    # that are remembered.
    return sum(map(eq, memoryview(old).cast("Q"), memoryview(new).cast("Q")))


def _shown(value: JSON) -> str:
    return shorten(value if isinstance(value, str) else encode(value).decode("ascii"))
