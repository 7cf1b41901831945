"""What was acknowledged is there: by the order of system calls, after a kill, on a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agentstate.ground.canonical import JSON, canonical
from agentstate.ground.chat import ToolCall, Usage
from agentstate.ground.records import Attempt, Claim, Query, RecordedAnswer, RequestRecord
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import START_MS, checkpoint_of, claim_of, message, part, request_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KILLS = 10
IN_FLIGHT_MAX = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


def program(script: str, *arguments: object) -> list[str]:
    """Return the command that runs a script with this interpreter."""
    head = "import asyncio, os, sys\nfrom agentstate.store.sqlite import SqliteStore\n"
    head += "from tests.store.contract import answer_of, claim_of, checkpoint_of, answered\n"
    head += "from tests.store.contract_events import wants\n"
    head += "from tests.store.contract_gate import approval_of, question_of, rejection_of\n"
    return [sys.executable, "-c", head + script, *map(str, arguments)]


# --- the order of system calls --------------------------------------------------------------------

THREE_STEPS = """
async def main():
    store = SqliteStore(sys.argv[1], durability=sys.argv[2])
    await store.open()
    os.write(1, b"mark opened\\n")
    for place in range(3):
        claimed = await store.claim_step(claim_of(str(place)))
        os.write(1, b"mark claimed\\n")
        await store.record_answer(checkpoint_of(claimed.step_id))
        os.write(1, b"mark answered\\n")
    os.kill(os.getpid(), 9)  # what closing would sync is not asked for
asyncio.run(main())
"""

GATE = """
async def main():
    store = SqliteStore(sys.argv[1], durability=sys.argv[2])
    await store.open()
    claimed = await store.claim_step(claim_of())
    answer_id = await store.record_answer(checkpoint_of(claimed.step_id))
    os.write(1, b"mark answered\\n")
    step = (claimed.step_id, answer_id)
    (approval,) = await store.open_approvals(*step, (question_of(),), at_ms=1)
    os.write(1, b"mark asked\\n")
    await store.decide(approval.approval_id, rejection_of(), at_ms=1)
    os.write(1, b"mark decided\\n")
    await store.record_round(checkpoint_of(claimed.step_id), answer_id, 1)
    os.write(1, b"mark round\\n")
    await store.record_delivered(answer_id, answer_of(b"instead"))
    os.write(1, b"mark delivered\\n")
    await store.record_release(answer_id, None, at_ms=1)
    os.write(1, b"mark released\\n")
    await store.open_approvals(*step, (question_of(),), at_ms=1)
    os.write(1, b"mark found\\n")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""

MARK = re.compile(r'write\(1<.*"mark (\w+)')
LOG_WRITE = re.compile(r"pwrite64\(\d+<[^>]*-wal>")
# With two threads a call is printed in two halves if another one comes between.
SYNCED = re.compile(r"(?:f(?:data)?sync\(\d+<[^>]*-wal>\)|<\.\.\. f(?:data)?sync resumed>\)) += 0")


def trace(path: Path, durability: str, script: str) -> list[tuple[str, str]]:
    """Return what happened before each mark: "w" a write to the log, "s" a sync that is done."""
    if shutil.which("strace") is None and not os.environ.get("CI"):
        pytest.skip("needs strace")
    output = path.with_name("trace")
    calls = "trace=fsync,fdatasync,write,pwrite64"
    tracer = ["strace", "-f", "-y", "-e", calls, "-o", str(output)]
    traced = [*tracer, *program(script, path, durability)]
    subprocess.run(traced, cwd=ROOT, check=False, capture_output=True)
    happened: list[tuple[str, str]] = []
    events = ""
    for line in output.read_text().splitlines():
        if mark := MARK.search(line):
            happened.append((mark[1], events))
            events = ""
        elif LOG_WRITE.search(line):
            events += "w"
        elif SYNCED.search(line):
            events += "s"
    return happened[1:]  # without the opening, which makes the file


def test_an_answer_is_on_the_disk_before_it_is_acknowledged(path: Path) -> None:
    happened = trace(path, "full", THREE_STEPS)
    assert [name for name, _ in happened] == ["claimed", "answered"] * 3
    for name, events in happened:
        if name == "answered":
            assert re.fullmatch("w+s", events)
        else:
            assert re.fullmatch("w+", events), "a claim waits for no disk"


def test_without_full_durability_nothing_waits_for_the_disk(path: Path) -> None:
    happened = trace(path, "normal", THREE_STEPS)
    assert len(happened) == 6
    for _, events in happened:
        assert re.fullmatch("w+", events)


def test_questions_and_decisions_are_on_the_disk_before_they_are_acknowledged(path: Path) -> None:
    happened = trace(path, "full", GATE)
    assert [name for name, _ in happened[:4]] == ["asked", "decided", "round", "delivered"]
    for _, events in happened[:4]:
        assert re.fullmatch("w+s", events)
    (_, released), (_, found) = happened[4:]
    assert re.fullmatch("w+", released), "a release waits for no disk"
    assert found == "", "what is there is not written again"


# --- kill -9 --------------------------------------------------------------------------------------

WITHOUT_END = """
async def work(store, lane):
    for place in range(100_000):
        claimed = await answered(store, f"{lane} {place} {os.getpid()}", session=f"s{lane}")
        os.write(1, b"%d\\n" % claimed.step_id)
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await asyncio.gather(*(work(store, lane) for lane in range(int(sys.argv[2]))))
asyncio.run(main())
"""

COUNTS = """
    select count(*), sum(step.state = 'complete'), sum(answer.cost_microusd)
    from step
    left join answer on answer.id = step.answer_id
    """


def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    chance = random.Random(3)
    acknowledged: set[int] = set()
    for _ in range(KILLS):
        process = subprocess.Popen(
            program(WITHOUT_END, path, IN_FLIGHT_MAX), cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 300)):
            acknowledged.add(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        # A number cut off by the kill was not acknowledged.
        rest = process.stdout.read().rpartition(b"\n")[0].split()
        acknowledged.update(map(int, rest))
        process.wait()
        _check_record(path, acknowledged)
    assert len(acknowledged) > KILLS


def _check_record(path: Path, acknowledged: set[int]) -> None:
    async def look() -> None:
        store = SqliteStore(path)
        interrupted_count = await store.open()
        assert interrupted_count <= IN_FLIGHT_MAX
        for step_id in acknowledged:
            assert await store.read_answer(step_id) is not None
        sessions = (await store.list_sessions(Query(limit=1000))).rows
        await store.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            assert connection.execute("pragma foreign_key_check").fetchall() == []
            steps, complete, cost = connection.execute(COUNTS).fetchone()
        assert complete >= len(acknowledged)
        assert sum(row.steps for row in sessions) == steps
        assert sum(row.cost_microusd for row in sessions) == cost

    asyncio.run(look())


GATE_WITHOUT_END = """
async def work(store, lane):
    for place in range(100_000):
        name = f"{lane} {place} {os.getpid()}"
        claimed = await store.claim_step(claim_of(name, session=f"s{lane}"))
        answer_id = await store.record_answer(checkpoint_of(claimed.step_id))
        step = (claimed.step_id, answer_id)
        questions = (question_of(deadline_ms=None), question_of(position=1, deadline_ms=None))
        first, second = await store.open_approvals(*step, questions, at_ms=1)
        os.write(1, f"asked {first.approval_id} {second.approval_id}\\n".encode())
        await store.decide(first.approval_id, approval_of(arguments=name), at_ms=2)
        os.write(1, f"approved {first.approval_id}\\n".encode())
        await store.decide(second.approval_id, rejection_of(), at_ms=2)
        os.write(1, f"rejected {second.approval_id} {answer_id}\\n".encode())
        round_id = await store.record_round(checkpoint_of(claimed.step_id), answer_id, 1)
        await store.record_delivered(answer_id, answer_of(name.encode()))
        release_id = await store.record_release(answer_id, name, at_ms=3)
        os.write(1, f"released {answer_id} {round_id} {release_id}\\n".encode())
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await asyncio.gather(*(work(store, lane) for lane in range(int(sys.argv[2]))))
asyncio.run(main())
"""


def test_what_was_asked_and_decided_survives_a_kill(path: Path) -> None:
    chance = random.Random(5)
    acknowledged: set[bytes] = set()
    for _ in range(KILLS // 2):
        process = subprocess.Popen(
            program(GATE_WITHOUT_END, path, IN_FLIGHT_MAX), cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 100)):
            acknowledged.add(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        # A line cut off by the kill was not acknowledged.
        acknowledged.update(process.stdout.read().rpartition(b"\n")[0].splitlines())
        process.wait()
        _check_gate(path, [line.decode().split() for line in acknowledged])
    assert len(acknowledged) > KILLS // 2


def _check_gate(path: Path, acknowledged: list[list[str]]) -> None:
    async def look() -> None:
        store = SqliteStore(path)
        await store.open()
        for verb, *names in acknowledged:
            await _check_acknowledged(store, verb, names)
        sessions = (await store.list_sessions(Query(limit=1000))).rows
        pending_count = await store.count_pending(at_ms=START_MS)
        assert pending_count <= 2 * IN_FLIGHT_MAX * KILLS
        assert any(row.status == "WAITING" for row in sessions) == (pending_count > 0)
        await store.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            assert connection.execute("pragma foreign_key_check").fetchall() == []
            (cost,) = connection.execute("select sum(cost_microusd) from answer").fetchone()
        assert sum(row.cost_microusd for row in sessions) == cost

    asyncio.run(look())


async def _check_acknowledged(store: SqliteStore, verb: str, names: list[str]) -> None:
    if verb == "released":
        answer_id, round_id, release_id = map(int, names)
        assert await store.rounds_of(answer_id) == (round_id,)
        assert await store.read_answer_by_id(round_id) is not None
        (release,) = await store.list_releases(answer_id)
        delivered = await store.read_delivered(answer_id)
        assert delivered is not None
        assert (release.release_id, release.run_id) == (release_id, delivered.content.decode())
        return
    for name in names[:2] if verb == "asked" else names[:1]:
        approval = await store.read_approval(name)
        assert approval is not None
        if verb != "asked":
            assert approval.decision is not None
            assert approval.decision.is_approved == (verb == "approved")
    if verb == "rejected":
        refusals = await store.list_refusals(approval.session)
        assert int(names[1]) in [one.answer_id for one in refusals]


EVENTS_WITHOUT_END = """
HOUR_MS = 3_600_000
async def ask(store, lane):
    for place in range(100_000):
        name = f"{lane} {place} {os.getpid()}"
        claimed = await store.claim_step(claim_of(name, session=f"s{lane}"))
        answer_id = await store.record_answer(checkpoint_of(claimed.step_id))
        step = (claimed.step_id, answer_id)
        (one,) = await store.open_approvals(*step, (question_of(deadline_ms=None),), at_ms=1)
        os.write(1, f"approval.required {one.approval_id}\\n".encode())
        await store.decide(one.approval_id, rejection_of(then="stop"), at_ms=2)
        os.write(1, f"session.failed {one.approval_id}\\n".encode())
async def send(store):
    while True:
        for one in await store.claim_deliveries(at_ms=9, lease_ms=HOUR_MS, limit=3):
            os.write(1, f"claimed {one.delivery_id}\\n".encode())
            if one.delivery_id % 2:
                await store.settle_delivery(one.delivery_id, state="sent", at_ms=10, status=200)
                os.write(1, f"sent {one.delivery_id}\\n".encode())
        await asyncio.sleep(0)
async def main():
    store = SqliteStore(sys.argv[1])
    store.subscribe((wants(),))
    await store.open()
    lanes = (ask(store, lane) for lane in range(int(sys.argv[2])))
    await asyncio.gather(send(store), *lanes)
asyncio.run(main())
"""
HOUR_MS = 3_600_000


def test_what_is_to_be_told_survives_a_kill(path: Path) -> None:
    """An event is there with its cause; a delivery that was claimed is due after its lease."""
    chance = random.Random(7)
    acknowledged: set[tuple[str, str]] = set()
    for _ in range(KILLS // 3):
        process = subprocess.Popen(
            program(EVENTS_WITHOUT_END, path, IN_FLIGHT_MAX), cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(50, 200))]
        process.send_signal(signal.SIGKILL)
        # A line cut off by the kill was not acknowledged.
        lines += process.stdout.read().rpartition(b"\n")[0].splitlines()
        process.wait()
        for line in lines:
            verb, _, name = line.decode().strip().partition(" ")
            acknowledged.add((verb, name))
        _check_events(path, acknowledged)
    verbs = {verb for verb, _ in acknowledged}
    assert verbs == {"approval.required", "session.failed", "claimed", "sent"}


def _check_events(path: Path, acknowledged: set[tuple[str, str]]) -> None:
    async def look() -> None:
        store = SqliteStore(path)
        await store.open()
        written: set[tuple[str, str | None]] = set()
        after: str | None = None
        while True:
            page = await store.list_deliveries(Query(after=after, limit=1000))
            written |= {(one.event.kind, one.event.approval_id) for one in page.rows}
            after = page.next_cursor
            if after is None:
                break
        approvals = (await store.list_approvals(Query(limit=1000), at_ms=1)).rows
        # Both ways: whatever is on record has its event, acknowledged or not.
        assert {("approval.required", one.approval_id) for one in approvals} <= written
        decided = {one.approval_id for one in approvals if one.decision is not None}
        assert {("approval.decided", name) for name in decided} <= written
        for verb, name in acknowledged:
            if verb in ("claimed", "sent"):
                delivery = await store.read_delivery(int(name))
                assert delivery is not None
                is_sent = ("sent", name) in acknowledged
                assert not is_sent or delivery.state == "sent"
                assert delivery.tries >= 1
                if delivery.state == "due":
                    assert delivery.leased_ms == 9 + HOUR_MS
            else:
                assert (verb, name) in written
        # Not before its lease ends, and then once.
        soon = await store.claim_deliveries(at_ms=8 + HOUR_MS, lease_ms=0, limit=100_000)
        assert all(one.tries == 1 for one in soon)  # none of them was claimed before
        await _check_leases(store, {int(name) for verb, name in acknowledged if verb == "claimed"})
        await store.close()

    asyncio.run(look())


async def _check_leases(store: SqliteStore, claimed: set[int]) -> None:
    open_ones = set()
    for delivery_id in claimed:
        delivery = await store.read_delivery(delivery_id)
        assert delivery is not None
        if delivery.state == "due":
            open_ones.add(delivery_id)
    again = await store.claim_deliveries(at_ms=9 + HOUR_MS, lease_ms=0, limit=100_000)
    assert open_ones <= {one.delivery_id for one in again}


# --- a full disk ----------------------------------------------------------------------------------

FULL_DISK = """
import resource
from agentstate.ground.errors import StoreError
def limit(size):
    # Python ignores SIGXFSZ, so a write beyond the limit fails as on a full disk: with an error.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    kept = [(await answered(store, "before")).step_id]
    limit(os.stat(sys.argv[1] + "-wal").st_size + 20_000)
    refused = 0
    for place in range(200):
        try:
            kept.append((await answered(store, f"{place} " + os.urandom(400).hex())).step_id)
        except StoreError as error:
            refused += 1
    limit(0)
    try:
        await store.check()
    except StoreError as error:
        print(error.message)
    for step_id in kept:
        assert await store.read_answer(step_id) is not None
    limit(resource.RLIM_INFINITY)
    await store.check()
    kept.append((await answered(store, "after")).step_id)
    await store.close()
    print(refused, *kept)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_FSIZE")
def test_a_full_disk_refuses_and_recovers(path: Path) -> None:
    done = subprocess.run(
        program(FULL_DISK, path), cwd=ROOT, check=True, capture_output=True, text=True
    )

    message, numbers = done.stdout.splitlines()
    refused, *kept = map(int, numbers.split())
    assert str(path) in message
    assert refused > 100
    assert len(kept) >= 2
    _check_record(path, set(kept))


# --- the size of a run ----------------------------------------------------------------------------

WORDS = """
    the agent reads a file and finds that two tests fail because their fixture was moved so it looks
    for callers in every module then writes what changed and why runs them once more with output of
    each line number error value expected path server request answer while others wait until nothing
    is left open after time goes by people ask how much money such work may cost when many small
    steps follow one another without rest or sleep before morning comes again
    """


class Prose:
    """Text as agents read and write it, the same at each run."""

    def __init__(self) -> None:
        self._chance = random.Random(11)
        self._words = WORDS.split()

    def text(self, chars: int) -> str:
        words: list[str] = []
        while chars > 0:
            words.append(self._chance.choice(self._words))
            chars -= len(words[-1]) + 1
        return " ".join(words)

    def name(self, prefix: str) -> str:
        return prefix + self._chance.randbytes(12).hex()


async def play_run(path: Path, steps: int, chars_per_step: int) -> int:
    """Record an agent's run whose prompt grows with each step; return the bytes it sent."""
    prose, store = Prose(), SqliteStore(path)
    await store.open()
    tools: JSON = [{"name": f"tool_{n}", "description": prose.text(400)} for n in range(10)]
    request = request_of(
        message(prose.text(2000), "system"), message(prose.text(600)), shared={"tools": tools}
    )
    body_bytes = len(canonical(tools)) + sum(len(canonical(one.value)) for one in request.chain)
    sent_bytes = 0
    for place in range(steps):
        sent_bytes += body_bytes
        claimed = await store.claim_step(_claim(prose, place, request))
        said = prose.text(400)
        call = ToolCall(0, prose.name("call_"), "read_file", json.dumps({"path": prose.text(60)}))
        await store.record_answer(
            replace(
                checkpoint_of(claimed.step_id, answer=_answer(prose, said, call), text=said),
                tool_calls=((0, call),),
                usage=Usage(place * 100, 120),
                response_id=prose.name("chatcmpl-"),
                attempts=(Attempt("openai", "gpt-4o-mini", START_MS, START_MS + 900, 200),),
            )
        )
        result = prose.text(chars_per_step)
        new = (
            part({"role": "assistant", "content": said, "tool_calls": _calls(call)}),
            part({"role": "tool", "tool_call_id": call.call_id, "content": result}),
        )
        body_bytes += sum(len(canonical(one.value)) for one in new)
        request = replace(request, chain=request.chain + new)
    await store.close()
    return sent_bytes


def _calls(call: ToolCall) -> JSON:
    function: JSON = {"name": call.name, "arguments": call.arguments}
    return [{"id": call.call_id, "type": "function", "function": function}]


def _claim(prose: Prose, place: int, request: RequestRecord) -> Claim:
    return claim_of(
        str(place),
        session="a run of some length",
        run_id="5a0d1c3e-77aa-4e2c-8c52-0a4c6f0a2f11",
        call_id=prose.name("call-"),
        step_number=place,
        request=request,
        prompt="Find out why the tests fail and mend it.",
    )


def _answer(prose: Prose, said: str, call: ToolCall) -> RecordedAnswer:
    spoken: JSON = {"role": "assistant", "content": said, "tool_calls": _calls(call)}
    choice: JSON = {"index": 0, "message": spoken, "finish_reason": "tool_calls"}
    usage: JSON = {"prompt_tokens": 100, "completion_tokens": 120, "total_tokens": 220}
    body: JSON = {
        "id": prose.name("chatcmpl-"),
        "object": "chat.completion",
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [choice],
        "usage": usage,
    }
    headers = (
        (b"content-type", b"application/json"),
        (b"openai-version", b"2020-10-01"),
        (b"x-request-id", prose.name("req_").encode()),
        (b"x-ratelimit-remaining-requests", b"9871"),
    )
    return RecordedAnswer(200, headers, "body", json.dumps(body).encode())


def test_a_run_takes_little_room_and_grows_by_what_is_new(tmp_path: Path) -> None:
    sizes: dict[int, int] = {}
    for steps in (0, 100, 500):
        path = tmp_path / f"{steps}.db"
        sent_bytes = asyncio.run(play_run(path, steps, chars_per_step=5200))
        sizes[steps] = sum(one.stat().st_size for one in tmp_path.glob(f"{steps}.db*"))
        if steps == 100:
            assert 29e6 < sent_bytes < 32e6

    # Each table and index takes a page before it has a row, whatever a run is.
    assert sizes[0] <= 194_000
    assert sizes[100] - sizes[0] <= 360_000
    assert sizes[500] - sizes[0] <= 5.5 * (sizes[100] - sizes[0])
