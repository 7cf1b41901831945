"""What of a request is written, and how little has to be looked up for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from agentstate.ground.canonical import JSON
from agentstate.ground.records import RequestRecord
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_request import HEAVY_BYTES, HeavyParts, RequestRecorder
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import checkpoint_of, claim_of, message, request_of


class Rig:
    """A record in memory whose statements are counted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.statements: list[str] = []
        self.recorder = Recorder(connection)
        self.requests = RequestRecorder(self._execute)

    def _execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        self.statements.append(sql)
        return self.connection.execute(sql, values)

    def store(self, *messages: JSON) -> tuple[int, int | None]:
        """Store a chat request and forget the statements of those before."""
        self.statements.clear()
        return self.requests.store(self.requests.plan(request_of(*messages)), {})

    def count(self, table: str) -> int:
        return int(self.connection.execute(f"select count(*) from {table}").fetchone()[0])


@pytest.fixture
def rig() -> Iterator[Rig]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield Rig(connection)


LONG: list[JSON] = [message(f"message {place}") for place in range(500)]


def test_equal_requests_are_one(rig: Rig) -> None:
    first = rig.store(*LONG[:5])
    second = rig.store(*LONG[:5])

    assert first == second
    assert (rig.count("node"), rig.count("blob"), rig.count("envelope")) == (5, 5, 1)


def test_two_more_messages_are_two_more_nodes(rig: Rig) -> None:
    rig.store(*LONG[:498])

    rig.store(*LONG)

    assert (rig.count("node"), rig.count("blob")) == (500, 500)
    inserts = [sql for sql in rig.statements if sql.startswith("insert")]
    assert len(inserts) == 4
    assert len(rig.statements) <= 12


@pytest.mark.parametrize("known", [0, 1, 2, 100, 255, 256, 257, 497, 499, 500])
def test_a_known_prefix_of_any_length_is_found(rig: Rig, known: int) -> None:
    _, node_id = rig.store(*LONG[:known])
    rig.statements.clear()

    plan = rig.requests.plan(request_of(*LONG))

    assert (plan.known_count, plan.node_id) == (known, node_id)
    nodes = [sql for sql in rig.statements if "from node" in sql]
    assert len(nodes) <= 20


def test_a_message_in_another_place_is_stored_once(rig: Rig) -> None:
    rig.store(*LONG[:10])

    rig.store(*LONG[5:10], *LONG[:5])

    assert (rig.count("node"), rig.count("blob")) == (20, 10)


def test_a_message_that_comes_twice_is_stored_once(rig: Rig) -> None:
    rig.store(LONG[0], LONG[0], LONG[0])

    assert (rig.count("node"), rig.count("blob")) == (3, 1)


def test_shared_parts_are_stored_once(rig: Rig) -> None:
    tools: JSON = [{"name": "t" * 300}]
    for model in ("a", "b"):
        request = request_of(LONG[0], shared={"tools": tools})
        assert isinstance(request.envelope, dict)
        envelope = request.envelope | {"model": model}
        record = RequestRecord(envelope, request.shared, request.list_key, request.chain)
        rig.requests.store(rig.requests.plan(record), {})

    assert (rig.count("envelope"), rig.count("envelope_part"), rig.count("blob")) == (2, 2, 2)


def test_what_repeats_an_answer_is_packed_with_it(rig: Rig) -> None:
    text = "The answer is that one should look it up in the record. " * 8
    claimed = rig.recorder.claim_step(claim_of(request=request_of(LONG[0])))
    assert not isinstance(claimed, HeavyParts)
    answer = checkpoint_of(claimed.step_id)
    with_text = answer.answer.__class__(200, (), "body", text.encode())
    rig.recorder.record_answer(checkpoint_of(claimed.step_id, answer=with_text))

    rig.store(LONG[0], message(text, "assistant"), message("thanks"))

    rows = rig.connection.execute("select answer_id, size, length(content) from blob order by id")
    (_, echo, _) = rows.fetchall()
    assert echo[0] == 1
    assert echo[2] < echo[1] / 5


def test_a_light_request_is_written_at_once(rig: Rig) -> None:
    plan = rig.requests.plan(request_of(message("x" * (HEAVY_BYTES - 100))))

    assert plan.heavy() is None


@pytest.mark.parametrize(
    "record",
    [
        request_of(message("x" * HEAVY_BYTES)),
        request_of(*(message(f"{place}" + "x" * 1000) for place in range(80))),
        request_of(message("short"), shared={"tools": ["x" * HEAVY_BYTES]}),
        RequestRecord({"input": "x" * HEAVY_BYTES}, (), "", ()),
    ],
)
def test_a_heavy_request_is_to_be_packed_first(rig: Rig, record: RequestRecord) -> None:
    plan = rig.requests.plan(record)

    heavy = plan.heavy()
    assert heavy is not None
    packed = heavy.pack()
    rig.requests.store(plan, packed)

    assert packed.keys() >= plan.new_parts.keys()
    assert rig.requests.plan(record).heavy() is None


def test_planning_writes_nothing(rig: Rig) -> None:
    before = rig.connection.total_changes

    rig.requests.plan(request_of(*LONG))

    assert rig.connection.total_changes == before
