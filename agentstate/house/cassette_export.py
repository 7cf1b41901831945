"""From the record to a cassette: which steps it has, and what of them.

It has the steps that answer: those that are complete and not rolled back. Of each it has what the
agent got, which after a decision may be something else than what the model said; the decisions
themselves stay here. What no agent ever got (a person refused it, or has not decided yet) is left
out, and counted.

Two looks at the record. In the first nothing is written: it finds out whether secrets can be taken
out (`cassette_secrets.py`), so that a refusal is an answer and no file that breaks off. The second
writes what the first has seen, and nothing that came since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Dialect
from agentstate.ground.control import About
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.records import Candidate, Query, RecordedAnswer, SessionRow, StepRow
from agentstate.house.cassette import Take, Taped, Timing
from agentstate.house.cassette_secrets import Censor
from agentstate.house.cassette_write import (
    StepWriter,
    write_end,
    write_head,
    write_session,
)
from agentstate.steps import aside
from agentstate.store.base import LIST_LIMIT_MAX, Store

LeftOut = Literal["refused", "waiting", "censored"]
# refused  a person or a rule refused it, and the run ended there
# censored  a key was taken out of it, so it is not what the agent saw
# waiting  a person has not decided, or the agent has not come back for what was decided


@dataclass(frozen=True, slots=True)
class TapeOrder:
    """What is wanted of a cassette."""

    keeps_secrets: bool = False  # leave answers as they came
    has_timing: bool = False  # how long answers took, and how fast streams came
    keys: tuple[str, ...] = field(default=(), repr=False)  # known secrets, whatever their form


class Cassette:
    """A cassette that is about to be written. `look` first, then `lines` once."""

    def __init__(self, store: Store, sessions: Sequence[str], order: TapeOrder) -> None:
        self._store = store
        self._names = tuple(sessions)
        self._order = order
        self._seen: list[tuple[SessionRow, Censor, list[int]]] = []
        self._left_out: Counter[str] = Counter()

    @property
    def steps(self) -> int:
        """How many steps it has, once it was looked at."""
        return sum(len(step_ids) for _, _, step_ids in self._seen)

    async def look(self) -> None:
        """Find out what is to be written.

        Raises:
            NotFound: there is no such session.
            SecretsInAnswers: secrets can neither be taken out nor left in unasked.
        """
        for name in self._names:
            row = await self._store.read_session(name)
            if row is None:
                raise NotFound(f"There is no session {shorten(name)!r}.")
            censor = Censor(self._order.keys, keeps_answers=self._order.keeps_secrets)
            step_ids: list[int] = []
            async for step in self._answered(name):
                found = await self._read(step)
                if isinstance(found, str):
                    self._left_out[found] += 1
                    continue
                take, dialect = found
                place = f"step {take.step_number}"
                look = partial(censor.look_at, place, take.request, dialect, take.answer)
                await aside.run(look, len(take.answer.content))
                step_ids.append(step.step_id)
            censor.check()
            self._seen.append((row, censor, step_ids))

    async def lines(self) -> AsyncGenerator[bytes]:
        """Yield the file, a line each."""
        yield write_head()
        secrets: Counter[str] = Counter()
        count = sessions = 0
        for row, censor, step_ids in self._seen:
            if not step_ids:
                continue
            sessions += 1
            yield write_session(_taped(row, censor))
            writer = StepWriter()
            for step_id in step_ids:
                step = await self._store.read_step(step_id)
                found = None if step is None else await self._read(step)
                if found is None or isinstance(found, str):
                    continue  # it was rolled back, or is asked again, since the first look
                take, dialect = found
                count += 1
                write = partial(_write, writer, take, dialect, censor)
                yield await aside.run(write, len(take.answer.content))
            secrets += censor.counts
        yield write_end(sessions, count, secrets, self._left_out)

    async def _answered(self, session: str) -> AsyncGenerator[StepRow]:
        """Yield the steps that answer, in order."""
        query = Query(session=session, limit=LIST_LIMIT_MAX, newest_first=False)
        while True:
            page = await self._store.list_steps(query)
            for row in page.rows:
                if row.state == "complete" and row.rolled_back_ms is None:
                    yield row
            if page.next_cursor is None:
                return
            query = replace(query, after=page.next_cursor)

    async def _read(self, row: StepRow) -> tuple[Take, Dialect] | LeftOut:
        """Return a step as an agent that asks for it again gets it; or why it gets none."""
        step = await self._find(row)
        dialect = dialect_by_name(row.dialect)
        if step is None or step.answer_id is None or dialect is None:
            return "waiting"
        if step.is_censored:
            return "censored"
        answer = await self._read_answer(row.step_id, step.answer_id)
        if not isinstance(answer, RecordedAnswer):
            return answer
        end = b"" if answer.is_sealed or answer.form == "body" else dialect.done_frame()
        kept = tuple(pair for pair in answer.headers if pair[0].lower() == b"content-type")
        timing = None
        if self._order.has_timing:
            timing = Timing(row.latency_ms or 0, row.first_content_ms)
        take = Take(
            step_number=row.step_number,
            dialect=row.dialect,
            path=row.path,
            model=step.model,
            streams=step.streams,
            is_mock=step.is_mock,
            identity=step.identity,
            request=await self._store.read_request(row.step_id),
            answer=replace(
                answer,
                headers=kept,
                content=answer.content + end,
                pace=answer.pace if timing is not None and not end else b"",
                is_sealed=True,
            ),
            provider=step.provider or "",
            answered_by=step.answer_model or step.model,
            cost_microusd=step.cost_microusd,
            timing=timing,
        )
        return take, dialect

    async def _find(self, row: StepRow) -> Candidate | None:
        """Return a step with its keys; None = it answers nobody any more."""
        found = await self._store.find_candidates(row.session, "exact", row.fingerprint)
        return next((each for each in found if each.step_id == row.step_id), None)

    async def _read_answer(self, step_id: int, answer_id: int) -> RecordedAnswer | LeftOut:
        """Return what the agent got in the end."""
        delivered = await self._store.read_borrowed(answer_id)
        if delivered is not None:
            return delivered
        decisions = [each.decision for each in await self._store.approvals_of(answer_id)]
        # In a fork nothing may be asked yet that was refused where it comes from.
        earlier = () if decisions else await self._store.precedents_of(answer_id)
        decisions += [each.decision for each in earlier]
        if any(each is not None and not each.is_approved for each in decisions):
            return "refused"
        if any(each is None or each.arguments is not None for each in decisions):
            return "waiting"
        return await self._store.read_answer(step_id) or "waiting"


def _taped(row: SessionRow, censor: Censor) -> Taped:
    tags = tuple((name, censor.text(value)) for name, value in row.tags)
    name = None if row.name is None else censor.text(row.name)
    return Taped(row.session, About(name, row.parent, tags))


def _write(writer: StepWriter, take: Take, dialect: Dialect, censor: Censor) -> bytes:
    return writer.write(
        replace(
            take,
            path=censor.text(take.path),
            request=censor.request(take.request),
            answer=censor.answer(dialect, take.answer),
        )
    )
