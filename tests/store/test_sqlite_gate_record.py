"""What the gate writes is bound once, and what goes wrong in a method is not half there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentstate.ground.approvals import Question
from agentstate.ground.errors import AlreadyDecided, NotFound
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import START_MS, answer_of, checkpoint_of, claim_of
from tests.store.contract_gate import approval_of, question_of, rejection_of, request_question_of


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


@pytest.fixture
def recorder(connection: sqlite3.Connection) -> Recorder:
    """A recorder of one step, 1, with the answer 1."""
    recorder = Recorder(connection)
    recorder.claim_step(claim_of())
    assert recorder.record_answer(checkpoint_of(1)) == 1
    return recorder


def test_what_is_found_writes_nothing(connection: sqlite3.Connection, recorder: Recorder) -> None:
    questions = (question_of(), question_of(position=1))
    first = recorder.gate.open_approvals(1, 1, questions, START_MS)
    before = connection.total_changes

    assert recorder.gate.open_approvals(1, 1, questions, START_MS + 1) == first

    assert connection.total_changes == before


@pytest.mark.parametrize(
    ("question", "answer_id"), [(question_of(), 1), (request_question_of(), None)]
)
def test_the_file_itself_takes_a_binding_once(
    connection: sqlite3.Connection, recorder: Recorder, question: Question, answer_id: int | None
) -> None:
    recorder.gate.open_approvals(1, answer_id, (question,), START_MS)
    columns = "session_id, step_id, answer_id, kind, choice, position, digest, generation, tool"
    columns += ", rule, why, on_reject, created_ms, asked_ms, size, arguments"

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        connection.execute(
            f"insert into approval (name, {columns}) select 'apr_other', {columns} from approval"
        )


def test_ids_of_releases_are_not_used_twice(
    connection: sqlite3.Connection, recorder: Recorder
) -> None:
    """That one went out whole is noted later, by its id."""
    assert recorder.gate.record_release(1, None, START_MS) == 1
    connection.execute("delete from released")
    assert recorder.gate.record_release(1, None, START_MS) == 2


def test_a_session_that_did_not_fail_keeps_its_status_over_a_claim(
    connection: sqlite3.Connection, recorder: Recorder
) -> None:
    for status, after in (("PAUSED", "PAUSED"), ("FAILED", "RUNNING"), ("RUNNING", "RUNNING")):
        for step_id in (None, 1):
            connection.execute("update session set status = ?", (status,))
            recorder.claim_step(claim_of(status, step_id=step_id))
            assert connection.execute("select status from session").fetchall() == [(after,)]


def test_edited_arguments_that_are_empty_are_not_none(
    connection: sqlite3.Connection, recorder: Recorder
) -> None:
    asks = (question_of(), question_of(position=1))
    empty, none = recorder.gate.open_approvals(1, 1, asks, START_MS)
    recorder.gate.decide(empty.approval_id, approval_of(arguments=""), START_MS)
    recorder.gate.decide(none.approval_id, approval_of(), START_MS)

    rows = connection.execute("select edited_size, edited from approval order by id").fetchall()
    assert rows == [(0, b""), (None, None)]


def test_a_second_decision_tells_the_session_nothing(
    connection: sqlite3.Connection, recorder: Recorder
) -> None:
    (approval,) = recorder.gate.open_approvals(1, 1, (question_of(),), START_MS)
    recorder.gate.decide(approval.approval_id, approval_of(), START_MS + 2000)

    with pytest.raises(AlreadyDecided):
        recorder.gate.decide(approval.approval_id, rejection_of(then="stop"), START_MS + 9000)

    told = connection.execute("select status, updated_ms from session").fetchall()
    assert told == [("RUNNING", START_MS + 2000)]


def test_a_round_of_another_step_is_refused_before_anything_is_written(
    connection: sqlite3.Connection, recorder: Recorder
) -> None:
    recorder.claim_step(claim_of("other"))
    before = connection.total_changes

    with pytest.raises(NotFound):
        recorder.record_round(checkpoint_of(2), 1, 1)

    assert connection.total_changes == before


def test_what_went_out_first_is_kept(connection: sqlite3.Connection, recorder: Recorder) -> None:
    assert recorder.gate.record_delivered(1, answer_of(b"first"))
    assert not recorder.gate.record_delivered(1, answer_of(b"second"))
    assert connection.execute("select count(*) from delivered").fetchone() == (1,)
