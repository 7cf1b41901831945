"""Reads whole conversations of one session from the record.

`export_threads.py` says which step goes on from which; this reads what they hold: the request as
the agent sent it, the answer as the agent got it. A request that goes on from what its upstream
keeps gets that put before it, in neutral form, so that a long chain is read once. What takes long
is done in a thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from agentstate.dialects import dialect_by_name
from agentstate.dialects.lenient import as_list, as_object
from agentstate.dialects.neutral import (
    Called,
    Item,
    Offer,
    Refused,
    Text,
    TranslatingDialect,
    Turn,
    translates,
)
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice
from agentstate.ground.records import RecordedAnswer, StepRow
from agentstate.house.export_base import Change
from agentstate.house.export_conversations import (
    Message,
    NoConversation,
    called_names,
    read_conversation,
    unsaid_changes,
    write_messages,
    write_tool,
)
from agentstate.house.export_threads import LINKED, LOST, Threads
from agentstate.steps import aside
from agentstate.steps.reading import read_recorded
from agentstate.store.base import Store

CHAIN_BYTES_MAX = 64 * 1024 * 1024  # of its requests and answers: about what one request may have
MESSAGES_HERE_MAX = 40  # of a request, read and written within a millisecond on the event loop
TOOLS_LOOKED_FOR_MAX = 8  # earlier requests that are read to find a tool that is called


@dataclass(frozen=True, slots=True)
class Prompt:
    """What stands before an answer."""

    messages: tuple[Message, ...]
    turn_count: int  # of the neutral form
    offers: tuple[Offer, ...]
    parallel_tool_calls: bool | None
    changes: tuple[Change, ...]  # what of it is not as it was sent


class Reader:
    """Reads the conversations of one session. All raise `NoConversation` where there is none."""

    def __init__(self, store: Store, threads: Threads, *, images: bool) -> None:
        self._store = store
        self._threads = threads
        self._images = images

    async def read_step(self, at: int) -> tuple[StepRow, TranslatingDialect]:
        """Return a step of the threads, and its dialect."""
        step = await self._store.read_step(self._threads.step_ids[at])
        dialect = None if step is None else dialect_by_name(step.dialect)
        if step is None or dialect is None or not translates(dialect):
            raise NoConversation("no_conversation")
        return step, dialect

    async def read_body(self, at: int) -> dict[str, JSON]:
        """Return a step's request."""
        return as_object(await self._store.read_request(self._threads.step_ids[at]))

    async def read_prompt(self, at: int, dialect: TranslatingDialect, body: JSON) -> Prompt:
        """Return what a request asks, with all that it goes on from. `body` is the request of the
        step `at`, or one that was made of it."""
        bits = self._threads.bits[at]
        if bits & LOST:
            raise NoConversation("history_elsewhere")
        changes: list[Change] = []
        before = await self._read_chain(at, changes) if bits & LINKED else []
        work = partial(self._make_prompt, dialect, body, before, changes)
        count = len(before) + len(as_list(as_object(body).get(dialect.list_key)))
        return work() if count <= MESSAGES_HERE_MAX else await asyncio.to_thread(work)

    async def read_answer(self, answer_id: int, dialect: TranslatingDialect) -> Answer:
        """Return an answer as the agent got it."""
        recorded = await self._read_delivered(answer_id)
        return await aside.run(partial(read_recorded, dialect, recorded), len(recorded.content))

    async def list_tools(self, at: int, prompt: Prompt, said: list[Message]) -> tuple[Message, ...]:
        """Return the tools that were offered. Of those that are called in a conversation and not
        offered at its end, the offer is looked for in the requests before."""
        tools = {offer.name: offer for offer in prompt.offers}
        missing = called_names((*prompt.messages, *said)) - set(tools)
        for number, earlier in enumerate(self._threads.path(at)):
            if not missing or number > TOOLS_LOOKED_FOR_MAX:
                break
            if number:
                _, dialect = await self.read_step(earlier)
                body = {**await self.read_body(earlier), dialect.list_key: []}
                found = {offer.name: offer for offer in dialect.read_request(body).tools}
                tools |= {name: found[name] for name in sorted(missing & set(found))}
                missing -= set(found)
        return tuple(map(write_tool, tools.values()))

    def _make_prompt(
        self, dialect: TranslatingDialect, body: JSON, before: list[Turn], changes: list[Change]
    ) -> Prompt:
        asked = read_conversation(dialect, body)
        found = [*changes, *unsaid_changes(asked)]
        turns = asked.turns
        if before:
            # Instructions are of their own request only, so those before are left out.
            fields = as_object(body)
            head = dialect.read_request({**fields, dialect.list_key: []}).turns
            turns = (*head, *before, *_read_list(dialect, fields))
        messages = write_messages(turns, images=self._images, changes=found)
        return Prompt(
            tuple(messages), len(turns), asked.tools, asked.calls_in_parallel, tuple(found)
        )

    async def _read_chain(self, at: int, changes: list[Change]) -> list[Turn]:
        """Return the turns of the steps that one goes on from by an id; `changes` gets what they
        have lost."""
        pieces: list[tuple[Turn, ...]] = []  # the last one first
        bytes_left = CHAIN_BYTES_MAX
        while self._threads.bits[at] & LINKED:
            at = self._threads.before[at]
            step, dialect = await self.read_step(at)
            assert step.answer_id is not None, "it is answered"
            body = await self.read_body(at)
            recorded = await self._read_delivered(step.answer_id)
            size, turns, lost = await asyncio.to_thread(_read_link, dialect, body, recorded)
            pieces.append(turns)
            # Paths are those of a request, so they say of which one.
            changes += [replace(each, path=f"step {step.index}: {each.path}") for each in lost]
            bytes_left -= size
            if bytes_left < 0:
                raise NoConversation("too_large")
        return [turn for piece in reversed(pieces) for turn in piece]

    async def _read_delivered(self, answer_id: int) -> RecordedAnswer:
        recorded = await self._store.read_borrowed(answer_id)
        if recorded is None:
            recorded = await self._store.read_answer_by_id(answer_id)
        if recorded is None:
            raise NoConversation("no_conversation")
        return recorded


def _read_list(dialect: TranslatingDialect, body: dict[str, JSON]) -> tuple[Turn, ...]:
    """Return the turns of a request's list alone."""
    return dialect.read_request({dialect.list_key: body.get(dialect.list_key)}).turns


def _read_link(
    dialect: TranslatingDialect, body: dict[str, JSON], recorded: RecordedAnswer
) -> tuple[int, tuple[Turn, ...], list[Change]]:
    """Return how many bytes a step took, what it adds to those that go on from it, and what that
    has lost."""
    asked = read_conversation(dialect, body)  # it raises if something of it is elsewhere
    choices = read_recorded(dialect, recorded).choices
    items = _answer_items(choices[0]) if choices else ()
    answer = (Turn("assistant", items),) if items else ()
    size = len(recorded.content) + len(encode(body))
    return size, (*_read_list(dialect, body), *answer), unsaid_changes(asked)


def _answer_items(choice: Choice) -> tuple[Item, ...]:
    own = [call for call in choice.tool_calls if not call.runs_upstream]
    if any(call.kind not in ("function", "custom") for call in own):
        raise NoConversation("no_chat_form")
    said = (
        *((Text(choice.text),) if choice.text else ()),
        *((Refused(choice.refusal),) if choice.refusal else ()),
    )
    calls = [
        Called(call.call_id or "", call.name, call.arguments, call.kind == "custom") for call in own
    ]
    return (*said, *calls)
