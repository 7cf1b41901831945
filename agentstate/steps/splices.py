"""What an agent has not seen, put back into its later requests on their way upstream.

An agent whose call was refused with "continue" got what was left of the answer, or the model's next
one. The model said more than that, and was told of the refusal; without it the conversation that
the agent sends back would make no sense to it. Only requests that descend from such an answer are
touched, and only on their way upstream: fingerprint and record are of what the agent sent.

So with an answer in whose place a person has another one stand: an agent that is still alive has
the old one in its history. What goes upstream has the new one there, as long as both make the same
calls: results of others would answer nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from agentstate.dialects.base import Dialect, Round, Splice, calls_tools
from agentstate.ground import canonical
from agentstate.ground.approvals import Approval
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.redaction import Redactor, is_redacted
from agentstate.ground.revisions import Revised
from agentstate.steps import aside
from agentstate.steps.call import Call
from agentstate.steps.outcome import Changed, GoOn, outcome_of, tell
from agentstate.steps.reading import as_body, read_recorded
from agentstate.store.base import Store

KEPT_MAX = 64  # splices kept in memory: each holds a request, and an agent's loop asks for few


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of putting back."""

    body: dict[str, JSON] | None  # None = the body may go as it came
    missed: tuple[str, ...] = ()  # what had no place, for people


NOTHING = Applied(None)


class Splices:
    """Puts refused calls back into the upstream history."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[int, Splice] = OrderedDict()  # by first answer, by last use

    async def applied(self, call: Call, step_id: int | None) -> Applied:
        """Return the body of a call with all that is missing from it.

        `step_id`: the call's own step, whose answer it does not descend from.
        """
        dialect = call.dialect
        if not calls_tools(dialect):
            return NOTHING
        revised = [
            splice
            for each in await self._store.list_revised(call.caller.session)
            if each.step_id != step_id
            for splice in await self._revisions(dialect, each)
        ]
        refusals = await self._store.list_refusals(call.caller.session)
        found: list[Splice] = []
        for root_id, rows in groupby(refusals, key=lambda row: row.root_id):
            origin = next(rows).step_id
            if origin != step_id:
                splice = await self._find(dialect, root_id, origin)
                if splice is not None:
                    found.append(splice)
        # The last places first: what is put in moves only what comes after it.
        found.sort(key=lambda each: _depth(each.request, dialect.list_key), reverse=True)
        # What takes another answer's place may have lost calls of its own.
        revised.sort(key=lambda each: _depth(each.request, dialect.list_key), reverse=True)
        found = [*revised, *found]
        if not found:
            return NOTHING
        if len(call.raw) > canonical.OFF_LOOP_BYTES:
            return await asyncio.to_thread(_apply, dialect, call, found)
        return _apply(dialect, call, found)

    def forget(self, root_id: int) -> None:
        """Build the splice of an answer anew: what went out instead of it may be another."""
        self._kept.pop(root_id, None)

    async def _revisions(self, dialect: Dialect, revised: Revised) -> list[Splice]:
        """Return what puts the answer that stands in the place of those it stands for."""
        step = await self._store.read_step(revised.step_id)
        request = await self._store.read_request(revised.step_id)
        now = await self._delivered(revised.answer_id)
        if step is None or step.dialect != dialect.name or not isinstance(request, dict):
            return []
        found: list[Splice] = []
        for answer_id in revised.others if now is not None else ():
            before = await self._delivered(answer_id)
            assert now is not None
            if before is None:
                continue
            work = partial(_replacement, dialect, request, before, now)
            splice = await aside.run(work, len(before.content) + len(now.content))
            if splice is not None:
                found.append(splice)
        return found

    async def _delivered(self, answer_id: int) -> RecordedAnswer | None:
        """Return an answer as an agent got it, or would get it."""
        delivered = await self._store.read_borrowed(answer_id)
        return delivered or await self._store.read_answer_by_id(answer_id)

    async def _find(self, dialect: Dialect, root_id: int, step_id: int) -> Splice | None:
        if root_id in self._kept:
            self._kept.move_to_end(root_id)
            return self._kept[root_id]
        splice = await self._build(dialect, root_id, step_id)
        if splice is not None:
            self._kept[root_id] = splice
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return splice

    async def _build(self, dialect: Dialect, root_id: int, step_id: int) -> Splice | None:
        """Gather what happened to an answer; None = the agent has got nothing of it yet."""
        delivered = await self._store.read_borrowed(root_id)
        step = await self._store.read_step(step_id)
        request = await self._store.read_request(step_id)
        if delivered is None or step is None or not isinstance(request, dict):
            return None
        if step.dialect != dialect.name:
            return None
        rounds: list[Round] = []
        follows: bytes | None = None
        for answer_id in (root_id, *await self._store.rounds_of(root_id)):
            recorded = await self._store.read_answer_by_id(answer_id)
            assert recorded is not None, "an answer that is listed is on record"
            told, follows = await self._round(dialect, answer_id, recorded)
            if told is not None:
                rounds.append(told)
        return Splice(request, tuple(rounds), as_body(dialect, delivered), follows)

    async def _round(
        self, dialect: Dialect, answer_id: int, recorded: RecordedAnswer
    ) -> tuple[Round | None, bytes | None]:
        """Return what the model was told about an answer, and the answer where it was told nothing
        that ends a round."""
        body = as_body(dialect, recorded)
        approvals = await self._store.approvals_of(answer_id)
        decided = [each for each in approvals if each.decision and not each.question.generation]
        if not decided:
            return None, body
        outcome = outcome_of(read_recorded(dialect, recorded), body, decided)
        match outcome:
            case GoOn(told):
                return told, None
            case Changed(changes) if any(new is None for new in changes.values()):
                return refused_beside(body, decided), None
            case Changed(changes):
                assert calls_tools(dialect)
                return None, dialect.changed_body(body, changes)
            case _:
                return None, body


def _apply(dialect: Dialect, call: Call, splices: list[Splice]) -> Applied:
    assert calls_tools(dialect), "its answers called tools"
    body = sent = call.ask.body
    missed: list[str] = []
    for each in splices:
        splice = replace(each, request=_with_secrets(each.request, sent, call.redactor))
        spliced = dialect.spliced(body, splice)
        # Without rounds: the agent has got the answer that stands.
        if spliced is None and splice.rounds and _descends(sent, splice.request, dialect.list_key):
            missed.append(
                "what the model was told of refused calls: the history has no place for it"
            )
        body = spliced or body
    # Where the upstream holds all of it already (Responses), nothing has to be written anew.
    return Applied(None if body == sent else body, tuple(dict.fromkeys(missed)))


def _with_secrets(
    recorded: Mapping[str, JSON], sent: Mapping[str, JSON], redactor: Redactor
) -> Mapping[str, JSON]:
    """Return a recorded request with what was taken out of it, as far as a request that goes on
    from it has it."""
    if not is_redacted(dict(recorded)):
        return recorded

    def whole(kept: JSON, other: JSON) -> JSON:
        return other if redactor.value(other) == kept else kept

    body: dict[str, JSON] = {}
    for key, kept in recorded.items():
        other = sent.get(key)
        if isinstance(kept, list) and isinstance(other, list):
            rest = kept[len(other) :]
            body[key] = [*(whole(*pair) for pair in zip(kept, other, strict=False)), *rest]
        else:
            body[key] = whole(kept, other)
    return body


def _replacement(
    dialect: Dialect, request: Mapping[str, JSON], before: RecordedAnswer, now: RecordedAnswer
) -> Splice | None:
    """Return what puts an answer in another one's place; None = they make other calls, or say the
    same."""
    old, new = read_recorded(dialect, before), read_recorded(dialect, now)
    if _calls_of(old) != _calls_of(new) or old.text == new.text:
        return None
    return Splice(request, (), as_body(dialect, before), as_body(dialect, now))


def _calls_of(answer: Answer) -> list[tuple[int, str | None, str, str]]:
    return [(choice, call.call_id, call.name, call.arguments) for choice, call in answer.tool_calls]


def _descends(sent: Mapping[str, JSON], request: Mapping[str, JSON], list_key: str) -> bool:
    """Say whether a conversation goes on from another one."""
    longer, shorter = sent.get(list_key), request.get(list_key)
    if not (isinstance(longer, list) and isinstance(shorter, list)):
        return False
    return len(longer) > len(shorter) and longer[: len(shorter)] == shorter


def refused_beside(body: bytes, approvals: list[Approval]) -> Round:
    """Return what the model is to be told of calls that were refused beside others."""
    told = {
        each.question.position: tell(each.question.tool, each.decision)
        for each in approvals
        if each.decision is not None and not each.decision.is_approved
        if each.question.choice == 0  # a conversation goes on from one choice
    }
    return Round(body, told)


def _depth(request: Mapping[str, JSON], list_key: str) -> int:
    """Return how much of the conversation stands before an answer."""
    if list_key:
        items = request.get(list_key)
        return len(items) if isinstance(items, list) else 1  # a text is one item, however long
    prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    return len(prompt) if isinstance(prompt, str) else 0
