"""Examples for training, out of the record: conversations that nothing continues, or answers that
somebody judged.

    sessions → threads (which steps are leaves) → one conversation at a time → filters → example

Invariant: what is held at once is one conversation and a few numbers for each step of one session
and for each example given, so a record has any size. Sessions come in the order in which they were
first seen, and steps in theirs: the same record gives the same examples in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from agentstate.dialects.neutral import TranslatingDialect
from agentstate.ground.errors import BadRequest, SettingError
from agentstate.ground.globs import Glob
from agentstate.ground.records import SessionRow, StepRow
from agentstate.house.export_base import Example, Untaken, Wanted
from agentstate.house.export_conversations import (
    Message,
    NoConversation,
    Said,
    called_names,
    digest_of,
    root_of,
    write_choice,
)
from agentstate.house.export_preferences import Judged, judge
from agentstate.house.export_reading import Prompt, Reader
from agentstate.house.export_table import Table
from agentstate.house.export_threads import NONE, TOUCHED, Threads, trace
from agentstate.steps.names import exact, exact_readings
from agentstate.store.base import Store

SESSIONS_BATCH = 200  # sessions read at once


async def examples(
    store: Store, wanted: Wanted, left_out: Counter[str] | None = None
) -> AsyncGenerator[Example | Untaken, None]:
    """Yield what is wanted of the record. `left_out` counts what is not, by reason, what could not
    be taken included.

    For dpo an example is a pair of answers, for kto a decided one; a refusal that ends a run sets
    its session to FAILED, so sessions that failed are among these unless `status` says otherwise.

    Raises:
        BadRequest: `model` or `tool` is no glob.
        StoreError: the record cannot be read on.
    """
    counts = Counter[str]() if left_out is None else left_out
    filters, seen = _Filters(wanted), Table()
    async with aclosing(_walk(store, wanted)) as sessions:
        async for session in sessions:
            if not filters.takes_session(session):
                counts["session"] += 1
                continue
            threads = await trace(store, session.session, wanted)
            counts.update(threads.left_out)
            one = _Session(store, threads, wanted, filters, counts)
            async with aclosing(one.examples()) as found:
                async for example in found:
                    if isinstance(example, Untaken):
                        counts[example.reason] += 1
                        yield example
                    elif wanted.dedupe and not _is_new(seen, example):
                        counts["equal"] += 1
                    else:
                        yield example


async def _walk(store: Store, wanted: Wanted) -> AsyncGenerator[SessionRow, None]:
    """Yield the sessions to look through."""
    if wanted.session is not None:
        row = await store.read_session(wanted.session)
        if row is not None:
            yield row
        return
    after: str | None = None
    while True:
        page = await store.walk_sessions(after, SESSIONS_BATCH)
        for row in page.rows:
            yield row
        after = page.next_cursor
        if after is None:
            return


def _is_new(seen: Table, example: Example) -> bool:
    label: list[Message] = [{"label": example.label}]
    try:
        digest = digest_of(example.messages, example.tools, example.rejected, label)
    except NoConversation:
        return True  # too deep to be written: the linter says so
    if seen.get(digest) is not None:
        return False
    seen.put(digest, 0)
    return True


class _Session:
    """The examples of one session."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        wanted: Wanted,
        filters: _Filters,
        left_out: Counter[str],
    ) -> None:
        self._store = store
        self._threads = threads
        self._wanted = wanted
        self._filters = filters
        self._left_out = left_out
        self._reader = Reader(store, threads, images=wanted.images)

    async def examples(self) -> AsyncGenerator[Example | Untaken, None]:
        """Yield them in the order of their steps."""
        for at in self._steps():
            try:
                step, dialect = await self._reader.read_step(at)
                if not self._filters.takes_step(step, self._threads, at):
                    self._left_out["filter"] += 1
                    continue
                answer_ids = await self._answer_ids(at, step)
            except NoConversation as error:
                self._left_out[error.reason] += 1
                continue
            for answer_id in answer_ids:
                for example in await self._of_answer(at, step, dialect, answer_id):
                    if isinstance(example, Untaken) or self._filters.takes_tools(example):
                        yield example
                    else:
                        self._left_out["filter"] += 1

    def _steps(self) -> Iterator[int]:
        if self._wanted.format in _JUDGED_FORMATS:
            return self._threads.judged()
        if self._wanted.include_replaced:
            return self._threads.wanted()
        return self._threads.leaves()

    async def _answer_ids(self, at: int, step: StepRow) -> list[int]:
        """Return the answers to a step's request that are wanted, the one that stands last."""
        assert step.answer_id is not None, "it has an answer"
        found: list[int] = []
        if self._wanted.include_replaced:
            found += await self._store.list_answers(step.step_id)
        is_last = self._threads.is_leaf(at) or self._wanted.format in _JUDGED_FORMATS
        return [each for each in found if each != step.answer_id] + [step.answer_id] * is_last

    async def _of_answer(
        self, at: int, step: StepRow, dialect: TranslatingDialect, answer_id: int
    ) -> Sequence[Example | Untaken]:
        try:
            if self._wanted.format in _JUDGED_FORMATS:
                return await self._judged(at, step, dialect, answer_id)
            return [await self._conversation(at, step, dialect, answer_id)]
        except NoConversation as error:
            return [Untaken(step.session, step.index, error.reason, error.path)]

    async def _conversation(
        self, at: int, step: StepRow, dialect: TranslatingDialect, answer_id: int
    ) -> Example:
        reader = self._reader
        prompt = await reader.read_prompt(at, dialect, await reader.read_body(at))
        answer = await reader.read_answer(answer_id, dialect)
        if not answer.choices:
            raise NoConversation("empty_answer")
        said = write_choice(answer.choices[0], prompt.turn_count)
        if await self._is_refused(answer_id):
            if self._wanted.format != "openai":
                raise NoConversation("refused")  # the other forms cannot say so
            said.message["weight"] = 0
        return await self._make(at, step, prompt, said)

    async def _is_refused(self, answer_id: int) -> bool:
        """Say whether a call of an answer was refused and no agent got anything in its place."""
        approvals = await self._store.approvals_of(answer_id)
        decisions = [each.decision for each in approvals if not each.question.generation]
        if not decisions:  # a fork may not have been asked yet
            earlier = await self._store.precedents_of(answer_id)
            decisions = [each.decision for each in earlier]
        if all(decision is None or decision.is_approved for decision in decisions):
            return False
        return await self._store.read_borrowed(answer_id) is None

    async def _judged(
        self, at: int, step: StepRow, dialect: TranslatingDialect, answer_id: int
    ) -> list[Example]:
        found: list[Example] = []
        compares = self._wanted.format == "dpo"
        for each in await judge(
            self._store, self._reader, at, dialect, answer_id, compares=compares
        ):
            example = await self._judgement(at, step, each)
            if example is not None:
                found.append(example)
        return found

    async def _judgement(self, at: int, step: StepRow, judged: Judged) -> Example | None:
        if self._wanted.format == "kto":
            said = judged.better if judged.is_edited and judged.better else judged.own
            example = await self._make(at, step, judged.prompt, said)
            return replace(example, label=judged.is_good)
        if judged.pair is None:
            return None
        better, worse = judged.pair
        return await self._make(at, step, judged.prompt, better, worse)

    async def _make(
        self, at: int, step: StepRow, prompt: Prompt, last: Said, rejected: Said | None = None
    ) -> Example:
        threads = self._threads
        messages = (*prompt.messages, last.message)
        others = () if rejected is None else (rejected.message,)
        tools = await self._reader.list_tools(at, prompt, [last.message, *others])
        changes = (*prompt.changes, *last.changes_at(len(prompt.messages)))
        if rejected is not None:
            changes += rejected.changes_at(len(messages))
        cost = threads.costs[at]
        return Example(
            session=step.session,
            index=step.index,
            root=root_of(messages),
            messages=messages,
            tools=tools,
            parallel_tool_calls=prompt.parallel_tool_calls if tools else None,
            model=step.model,
            touched=bool(threads.bits[at] & TOUCHED),
            cost_microusd=None if cost == NONE else cost,
            rejected=others or None,
            changes=changes,
        )


_JUDGED_FORMATS = ("dpo", "kto")


class _Filters:
    """What of the record is wanted, as far as it is told by session, step and tools."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._model = _glob(wanted.model, "model")
        self._tool = _glob(wanted.tool, "tool")

    def takes_session(self, row: SessionRow) -> bool:
        """Say whether a session may have examples."""
        wanted = self._wanted
        if wanted.since_ms is not None and row.updated_ms < wanted.since_ms:
            return False
        if wanted.until_ms is not None and row.created_ms >= wanted.until_ms:
            return False
        tags = dict(row.tags)
        if any(name not in tags or value not in (None, tags[name]) for name, value in wanted.tags):
            return False
        if not _is_listed(row, wanted):
            return False
        if wanted.status is not None:
            return row.status == wanted.status
        takes_failed = wanted.include_failed or wanted.format in _JUDGED_FORMATS
        return row.status != "FAILED" or takes_failed

    def takes_step(self, step: StepRow, threads: Threads, at: int) -> bool:
        """Say whether a conversation that ends with a step is wanted."""
        wanted, cost = self._wanted, threads.costs[at]
        is_touched = bool(threads.bits[at] & TOUCHED)
        return (
            (wanted.since_ms is None or step.created_ms >= wanted.since_ms)
            and (wanted.until_ms is None or step.created_ms < wanted.until_ms)
            and (self._model is None or self._model.matches(exact(step.model)))
            and (wanted.cost_max_microusd is None or cost <= wanted.cost_max_microusd)
            and wanted.touched in (None, is_touched)
        )

    def takes_tools(self, example: Example) -> bool:
        """Say whether a tool that is wanted is called."""
        if self._tool is None:
            return True
        names = called_names((*example.messages, *(example.rejected or ())))
        readings = (reading for name in names for reading in exact_readings(name))
        return any(map(self._tool.matches, readings))


def _is_listed(row: SessionRow, wanted: Wanted) -> bool:
    """Say whether a list of sessions with the same filters has it; see `Store.list_sessions`."""
    origin = None if row.origin is None else row.origin.session
    if wanted.parent not in (None, row.parent) or wanted.forked_from not in (None, origin):
        return False
    names = (row.session, row.name or "")
    return wanted.search is None or any(_folded(wanted.search) in _folded(name) for name in names)


def _folded(text: str) -> str:
    """Fold the case of ASCII letters only, as the list does."""
    return "".join(char.lower() if char.isascii() else char for char in text)


def _glob(text: str | None, param: str) -> Glob | None:
    try:
        return None if text is None else Glob(text, exact)
    except SettingError as error:
        raise BadRequest(error.message, param=param) from error
