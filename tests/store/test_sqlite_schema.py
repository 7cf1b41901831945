"""Migrations go forward, whole or not at all, and only over our own files."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agentstate.ground.budget import Spent
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import Change, Place
from agentstate.ground.errors import StoreError
from agentstate.ground.records import Query
from agentstate.store import sqlite_schema
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_migrations import MIGRATIONS, Migration
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_schema import (
    APPLICATION_ID,
    check_owner,
    migrate,
    split_statements,
)
from tests.store.contract import START_MS, answer_of, checkpoint_of, claim_of, identity_of
from tests.store.contract_events import event_of, wants
from tests.store.contract_gate import FAR_MS, question_of, rejection_of

SECOND = Migration(
    "second",
    "a test",
    """
    alter table session add column color text;  -- with a comment
    update session set color = 'red';
    """,
)

# As it was written before ids of sessions that are being removed had to be passed over.


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        yield connection


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])


def test_a_new_file_gets_all_migrations(connection: sqlite3.Connection) -> None:
    migrate(connection)

    rows = connection.execute("select version, name, reason from migration").fetchall()
    noted = [(number, one.name, one.reason) for number, one in enumerate(MIGRATIONS, start=1)]
    assert rows == noted
    assert version_of(connection) == len(MIGRATIONS)
    assert connection.execute("pragma application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("pragma foreign_key_check").fetchall() == []


def test_a_current_file_is_left_alone(connection: sqlite3.Connection) -> None:
    migrate(connection)
    before = connection.total_changes

    migrate(connection)

    assert connection.total_changes == before


def test_an_older_file_keeps_its_rows(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(connection)
    connection.execute("insert into session (name, created_ms, updated_ms) values ('s', 1, 1)")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", (*MIGRATIONS, SECOND))

    migrate(connection)

    assert connection.execute("select name, color from session").fetchall() == [("s", "red")]
    assert version_of(connection) == len(MIGRATIONS) + 1


@contextmanager
def old_file(
    path: Path, versions: int, write: Callable[[Recorder], None]
) -> Iterator[sqlite3.Connection]:
    """Make a file as it was after so many migrations, with what `write` records in it: written by
    today's recorder, without what later migrations added."""
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        with pytest.MonkeyPatch.context() as past:
            past.setattr(sqlite_schema, "MIGRATIONS", MIGRATIONS[:versions])
            migrate(old)
        kept = {
            name: [row[1] for row in old.execute(f"pragma table_info({name})")]
            for (name,) in old.execute("select name from sqlite_master where type = 'table'")
            if name not in ("migration", "pulse", "sqlite_sequence")
        }
        with closing(sqlite3.connect(path.with_name("new.db"), isolation_level=None)) as new:
            migrate(new)
            write(Recorder(new))
        old.execute("attach ? as new", (str(path.with_name("new.db")),))
        for name, columns in kept.items():
            listed = ", ".join(columns)
            old.execute(f"insert into main.{name} ({listed}) select {listed} from new.{name}")
        old.execute("detach new")
        assert version_of(old) == versions
        yield old


def test_a_file_from_before_the_gate_goes_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    call = (0, ToolCall(0, "call_0", "send_email", '{"to": "a@example.org"}'))

    def write(recorder: Recorder) -> None:
        for text in ("answered", "in flight"):
            recorder.claim_step(claim_of(text, run_id="r", step_number=5))
        recorder.record_answer(checkpoint_of(1, tool_calls=(call,)))

    with old_file(path, 1, write):
        pass

    async def scenario() -> None:
        store = SqliteStore(path)
        assert await store.open() == 1
        (candidate,) = await store.find_candidates("s", "exact", identity_of("answered").exact)
        assert (candidate.answer_id, candidate.calls_tools) == (1, True)
        assert await store.read_answer(1) == answer_of()
        session = await store.read_session("s")
        assert session is not None
        assert (session.status, session.steps, session.cost_microusd) == ("RUNNING", 2, 25)
        assert await store.list_refusals("s") == ()
        assert len((await store.find_emitters("s", ("call_0",)))["call_0"]) == 1

        (approval,) = await store.open_approvals(1, 1, (question_of(),), at_ms=START_MS)
        await store.decide(approval.approval_id, rejection_of(), at_ms=START_MS)
        round_id = await store.record_round(checkpoint_of(1), 1, 1)

        assert await store.rounds_of(1) == (round_id,)
        assert len(await store.list_refusals("s")) == 1
        assert len((await store.list_steps(Query(session="s"))).rows) == 2
        await store.close()

    asyncio.run(scenario())

    with closing(sqlite3.connect(path)) as new:
        assert version_of(new) == len(MIGRATIONS)
        versions = new.execute("select version from migration order by version").fetchall()
        assert versions == [(number,) for number in range(1, len(MIGRATIONS) + 1)]
        assert new.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert new.execute("pragma foreign_key_check").fetchall() == []


OLD_APPROVAL = """
    insert into approval (
      name, session_id, step_id, answer_id, kind, choice, position, digest, generation, tool, rule,
      why, on_reject, created_ms, asked_ms, size, arguments
    )
    values (
      'apr_old', 1, 1, 1, 'tool_call', 0, 0, ?, 0, 'send_email', '', '', 'stop', 1, 1, 2, x'7b7d'
    )
    """


def test_a_file_from_before_events_goes_on_with_them(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    question = question_of(deadline_ms=None)

    def write(recorder: Recorder) -> None:
        for session in ("s", "quiet"):
            recorder.claim_step(claim_of(session=session))
        for step_id in (1, 2):
            recorder.record_answer(checkpoint_of(step_id))

    with old_file(path, 2, write) as old:
        old.execute(OLD_APPROVAL, (question.digest,))

    async def scenario() -> None:
        store = SqliteStore(path)
        store.subscribe((wants(),))
        assert await store.open() == 0
        (approval,) = await store.open_approvals(1, 1, (question,), at_ms=START_MS)
        assert (approval.approval_id, approval.question.is_quiet) == ("apr_old", False)
        assert (await store.list_deliveries(Query())).rows == ()  # it was told before

        await store.decide("apr_old", rejection_of(then="stop"), at_ms=START_MS)
        (idle,) = await store.find_idle(idle_since_ms=FAR_MS, limit=9)
        assert idle.session == "quiet"
        await store.note_idle(event_of(kind="session.completed", session="quiet"))

        rows = (await store.list_deliveries(Query(newest_first=False))).rows
        kinds = ["approval.decided", "session.failed", "session.completed"]
        assert [one.event.kind for one in rows] == kinds
        session = await store.read_session("quiet")
        assert session is not None
        assert session.status == "COMPLETED"
        await store.close()

    asyncio.run(scenario())

    with closing(sqlite3.connect(path)) as new:
        assert version_of(new) == len(MIGRATIONS)
        assert new.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert new.execute("pragma foreign_key_check").fetchall() == []


def test_the_first_migration_is_as_it_was_written() -> None:
    """Files have had it: a change would be seen by new files only. Add a migration instead."""
    statements = "".join(split_statements(MIGRATIONS[0].sql))
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == "48cae421450b9f5f"


def test_the_second_migration_is_as_it_was_written() -> None:
    statements = "".join(split_statements(MIGRATIONS[1].sql))
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == "ab004dc5eecabde4"


def test_the_third_migration_is_as_it_was_written() -> None:
    statements = "".join(split_statements(MIGRATIONS[2].sql))
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == "fee8db065fe2795b"


def test_the_fourth_migration_is_as_it_was_written() -> None:
    statements = "".join(split_statements(MIGRATIONS[3].sql))
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == "996fc3bc9ed2a02f"


def test_the_migration_of_edits_is_as_it_was_written() -> None:
    [migration] = [each for each in MIGRATIONS if each.name == "edits and reruns"]
    statements = "".join(split_statements(migration.sql))
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == "0ab547b0ae9a86e0"


def test_the_migration_of_what_replays_saved_is_as_it_was_written() -> None:
    """By its name, since its place among those made beside it may still move."""
    (migration,) = (one for one in MIGRATIONS if one.name == "what replays saved")
    statements = "".join(split_statements(migration.sql))
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == "154c3affb187039f"


def write_three_steps(recorder: Recorder) -> None:
    for number in range(3):
        recorder.claim_step(claim_of(str(number)))
        recorder.record_answer(checkpoint_of(number + 1))


def test_a_file_from_before_budgets_knows_what_was_paid(tmp_path: Path) -> None:
    path = tmp_path / "old.db"

    def write(recorder: Recorder) -> None:
        write_three_steps(recorder)
        recorder.record_round(checkpoint_of(1, cost_microusd=None), 1, 1)
        recorder.record_failure(3, (), START_MS)  # its answer is taken back
        recorder.claim_step(claim_of("open"))

    number = [one.name for one in MIGRATIONS].index("budgets")
    with old_file(path, number, write):
        pass

    async def scenario() -> None:
        store = SqliteStore(path)
        await store.open()
        budget = await store.read_budget("s")
        assert budget.spent == Spent(steps=3, tokens=42, cost_microusd=50, unknown_costs=1)
        assert not store.may_have_budget("s")
        session = await store.read_session("s")
        assert session is not None
        assert (session.status, session.status_ms) == ("RUNNING", None)
        await store.close()

    asyncio.run(scenario())


def test_a_file_from_before_control_goes_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with old_file(path, 3, write_three_steps):
        pass

    async def scenario() -> None:
        store = SqliteStore(path)
        assert await store.open() == 0
        row = await store.roll_back("s", Place(step_number=1), at_ms=START_MS)
        assert row is not None
        assert row.taken == ((1, 2),)
        await store.restore("s", None, at_ms=START_MS)
        await store.pause("s", at_ms=START_MS)
        await store.change_session("s", Change(name="n", tags=(("k", "v"),)), at_ms=START_MS)
        session = await store.read_session("s")
        assert session is not None
        assert (session.status, session.name, session.steps) == ("PAUSED", "n", 3)
        await store.close()

    asyncio.run(scenario())

    with closing(sqlite3.connect(path)) as new:
        assert version_of(new) == len(MIGRATIONS)
        assert new.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert new.execute("pragma foreign_key_check").fetchall() == []


def test_a_migration_that_fails_leaves_nothing(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(connection)
    broken = Migration("broken", "a test", "create table made (x);\nselect * from nowhere;\n")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", (*MIGRATIONS, broken, SECOND))

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection)

    assert not connection.in_transaction
    assert version_of(connection) == len(MIGRATIONS)
    names = {row[0] for row in connection.execute("select name from sqlite_master")}
    assert "made" not in names


def test_a_newer_file_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection)
    connection.execute(f"pragma user_version = {len(MIGRATIONS) + 1}")

    with pytest.raises(StoreError, match="newer version"):
        migrate(connection)


@pytest.mark.parametrize(
    "statement",
    ["create table theirs (x)", "pragma user_version = 3", "pragma application_id = 7"],
)
def test_a_database_of_something_else_is_refused(
    connection: sqlite3.Connection, statement: str
) -> None:
    connection.execute(statement)

    with pytest.raises(StoreError, match="something else"):
        check_owner(connection)


def test_statements_are_split_without_comments() -> None:
    script = """
    create table a (
      x text,  -- why
      y text
    );
    -- alone
    insert into a values ('1;2', ';');
    """

    assert list(split_statements(script)) == [
        "create table a ( x text, y text );",
        "insert into a values ('1;2', ';');",
    ]


def test_a_script_ends_with_a_semicolon() -> None:
    with pytest.raises(AssertionError):
        list(split_statements("select 1; select 2"))


def test_every_migration_says_why() -> None:
    assert all(one.name and one.reason for one in MIGRATIONS)
    assert len({one.name for one in MIGRATIONS}) == len(MIGRATIONS)


def test_the_migration_of_durable_tools_is_as_it_was_written() -> None:
    [migration] = [one for one in MIGRATIONS if one.name == "durable tools"]
    statements = "".join(split_statements(migration.sql))
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == "73e05a5647ddf271"


def test_approvals_from_before_durable_tools_are_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    names = [one.name for one in MIGRATIONS]
    columns = (
        "name, session_id, step_id, answer_id, kind, choice, position, digest, generation, tool, "
        "call_id, rule, why, on_reject, deadline_ms, created_ms, asked_ms, is_approved, "
        "decided_ms, decided_by, reason, follows, is_quiet, edited_size, edited, size, arguments"
    )
    decided = ("apr_1", 1, 1, 1, "tool_call", 0, 1, b"d", 0, "send_email", "c", "r", "w", "stop",
               None, 1, 2, 1, 3, "ann", "why", "continue", 0, 2, b"{}", 4, b"{  }")  # fmt: skip
    asked = ("apr_2", 1, 2, None, "request", 0, 0, b"d", 0, "m", None, "r", "", "continue",
             FAR_MS, 1, 2, None, None, None, None, None, 1, None, None, 0, b"")  # fmt: skip

    def write(recorder: Recorder) -> None:
        for number in range(2):
            recorder.claim_step(claim_of(str(number)))
        recorder.record_answer(checkpoint_of(1))

    with old_file(path, names.index("durable tools"), write) as old:
        marks = ", ".join("?" * len(decided))
        for row in (decided, asked):
            old.execute(f"insert into approval ({columns}) values ({marks})", row)
        indexes = "select name from sqlite_master where type = 'index' and tbl_name = 'approval'"
        had = set(old.execute(indexes).fetchall())

    async def scenario() -> None:
        store = SqliteStore(path)
        await store.open()
        page = await store.list_approvals(Query(newest_first=False), at_ms=START_MS)
        first, second = page.rows
        assert (first.approval_id, first.answer_id, first.step_id) == ("apr_1", 1, 1)
        assert first.decision is not None
        assert (first.decision.by, first.decision.arguments) == ("ann", "{}")
        assert (second.approval_id, second.answer_id, second.question.is_quiet) == (
            "apr_2", None, True,
        )  # fmt: skip
        await store.decide("apr_2", rejection_of(), at_ms=START_MS)
        await store.close()

    asyncio.run(scenario())
    with closing(sqlite3.connect(path)) as new:
        rows = new.execute(f"select {columns} from approval order by id limit 1").fetchall()
        assert rows == [decided]
        assert set(new.execute(indexes).fetchall()) - had == {
            ("approval_durable",),
            ("approval_budget",),  # of a later one
        }
        assert had - set(new.execute(indexes).fetchall()) == set()
        assert new.execute("pragma foreign_key_check").fetchall() == []
