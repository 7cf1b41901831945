"""The sums on a session are those of its steps, whatever happens in whatever order."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from agentstate.ground.chat import ToolCall, Usage
from agentstate.ground.errors import NotFound
from agentstate.ground.records import Claimed
from agentstate.store.sqlite_pack import read_quote, unpack
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_replays_record import NoteSum
from agentstate.store.sqlite_request import HeavyParts
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import answer_of, attempt_of, checkpoint_of, claim_of, tail_of

SUMS = """
    select steps, next_index, last_step_number, input_tokens, output_tokens, cost_microusd,
      unknown_costs, replays, saved_microusd
    from session
    order by id
    """

# The same, counted anew.
COUNTED = """
    select
      (select count(*) from step where session_id = session.id),
      (select count(*) from step where session_id = session.id),
      (select max(step_number) from step where session_id = session.id),
      coalesce(sum(answer.input_tokens), 0),
      coalesce(sum(answer.output_tokens), 0),
      coalesce(sum(answer.cost_microusd), 0),
      count(answer.id) - count(answer.cost_microusd),
      (select sum(replays) from step where session_id = session.id),
      (select sum(saved_microusd) from step where session_id = session.id)
    from session
    left join step on step.session_id = session.id
    left join answer on answer.step_id = step.id and answer.taken_back_ms is null
    group by session.id
    order by session.id
    """


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def claim(recorder: Recorder, text: str = "hi", **changes: object) -> Claimed:
    claimed = recorder.claim_step(claim_of(text, **changes))
    assert isinstance(claimed, Claimed)
    return claimed


def test_sums_never_drift(connection: sqlite3.Connection) -> None:
    recorder, chance = Recorder(connection), random.Random(7)
    steps: list[tuple[str, int]] = []
    roots: list[tuple[int, int]] = []  # (step id, answer id)

    def usage() -> Usage | None:
        return chance.choice([None, Usage(chance.randrange(100), chance.randrange(100))])

    def cost() -> int | None:
        return chance.choice([None, 0, chance.randrange(1000)])

    for turn in range(1500):
        session, step_id = chance.choice(steps) if steps else ("", 0)
        with suppress(NotFound):  # a tail where no answer stands
            match chance.randrange(13) if roots else chance.choice((0, 4)) if steps else 0:
                case 0 | 1:
                    session = f"s{chance.randrange(4)}"
                    number = chance.choice([None, 3, chance.randrange(50)])
                    claimed = claim(recorder, str(len(steps)), session=session, step_number=number)
                    steps.append((session, claimed.step_id))
                case 2 | 3:
                    claim(recorder, session=session, step_id=step_id)
                case 4 | 5 | 6:
                    answer_id = recorder.record_answer(
                        checkpoint_of(step_id, usage=usage(), cost_microusd=cost())
                    )
                    roots.append((step_id, answer_id))
                case 7 | 8:
                    tail = tail_of(step_id, usage=usage(), cost_microusd=cost())
                    recorder.append_tail(tail)
                case 9 | 10:
                    recorder.record_failure(step_id, (), 5)
                case 11:
                    step_id, root_id = chance.choice(roots)
                    further = checkpoint_of(step_id, usage=usage(), cost_microusd=cost())
                    recorder.record_round(further, root_id, chance.randrange(1, 4))
                case _:
                    recorder.note_replays({(session, step_id): NoteSum(2, 9, 40)})
        if turn % 5 == 0:
            assert connection.execute(SUMS).fetchall() == connection.execute(COUNTED).fetchall()
    assert len(steps) > 100
    assert connection.execute("select count(*) > 50 from round").fetchone() == (True,)
    assert connection.execute("pragma foreign_key_check").fetchall() == []
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


def test_a_step_points_at_the_answer_that_stands(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    step_id = claim(recorder).step_id
    for _ in range(2):
        claim(recorder, step_id=step_id)
        recorder.record_answer(checkpoint_of(step_id))
    points = "select answer_id, state from step"

    assert connection.execute(points).fetchall() == [(2, "complete")]
    recorder.record_failure(step_id, (), 1)
    assert connection.execute(points).fetchall() == [(1, "complete")]
    recorder.record_failure(step_id, (), 1)
    assert connection.execute(points).fetchall() == [(1, "complete")]


def test_ids_are_not_used_twice(connection: sqlite3.Connection) -> None:
    """A decision names a step and an answer; after a deletion it must not meet another one."""
    recorder = Recorder(connection)
    recorder.record_answer(checkpoint_of(claim(recorder).step_id))
    for table in ("answer", "step"):
        connection.execute(f"delete from {table}")

    step_id = claim(recorder, "next").step_id
    recorder.record_answer(checkpoint_of(step_id))

    assert step_id == 2
    assert connection.execute("select id from answer").fetchall() == [(2,)]


def test_a_heavy_claim_writes_nothing_until_it_is_packed(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    heavy = claim_of("x" * 100_000)
    before = connection.total_changes

    outcome = recorder.claim_step(heavy)

    assert isinstance(outcome, HeavyParts)
    assert connection.total_changes == before
    assert isinstance(recorder.claim_step(heavy, outcome.pack()), Claimed)


def test_a_prompt_that_stays_is_stored_once(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    for place, prompt in enumerate(["do it", "do it", "do it", "and that", "do it"]):
        claim(recorder, str(place), prompt=prompt)

    rows = connection.execute(
        "select prompt.text from step join prompt on prompt.id = step.prompt_id order by step.id"
    ).fetchall()

    assert [row[0] for row in rows] == ["do it", "do it", "do it", "and that", "do it"]
    assert connection.execute("select count(*) from prompt").fetchone() == (3,)


def test_tool_calls_are_stored_exactly(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    step_id = claim(recorder).step_id
    quoted, other = '{"to":"someone@example.org"}', '{"half": "\ud83d of a pair", "n": 1.0}'
    calls = ((0, ToolCall(0, "c1", "send", quoted)), (1, ToolCall(0, None, "x", other, "custom")))
    answer = answer_of(b'{"arguments":"{\\"to\\":\\"someone@example.org\\"}"}')
    recorder.record_answer(checkpoint_of(step_id, answer=answer, tool_calls=calls))

    rows = connection.execute(
        """
        select choice, tool_call.position, call_id, name, kind, quote_offset, quote_length,
          tool_call.size, arguments, answer.size, answer.content
        from tool_call
        join answer on answer.id = tool_call.answer_id
        order by choice
        """
    ).fetchall()

    first, second = rows
    assert first[:5] == (0, 0, "c1", "send", "function")
    assert read_quote(unpack(*first[9:]), first[5:7]) == quoted
    assert second[:7] == (1, 0, None, "x", "custom", None, None)
    assert unpack(*second[7:9]).decode("utf-8", "surrogatepass") == other


def test_attempts_are_numbered_across_claims(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    step_id = claim(recorder).step_id
    recorder.record_failure(step_id, (attempt_of(), attempt_of()), 1)
    claim(recorder, step_id=step_id)
    recorder.record_answer(checkpoint_of(step_id))

    positions = connection.execute("select position from attempt order by position").fetchall()

    assert positions == [(0,), (1,), (2,)]


def test_only_claims_are_interrupted(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    lost, failed, kept, refreshed = (claim(recorder, text).step_id for text in "abcd")
    recorder.record_failure(failed, (), 1)
    for step_id in (kept, refreshed):
        recorder.record_answer(checkpoint_of(step_id))
    claim(recorder, step_id=refreshed)

    assert recorder.mark_interrupted() == 1
    assert recorder.mark_interrupted() == 0

    states = dict(connection.execute("select id, state from step").fetchall())
    assert states == {
        lost: "interrupted",
        failed: "failed",
        kept: "complete",
        refreshed: "complete",
    }
