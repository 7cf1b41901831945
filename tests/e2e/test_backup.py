"""A backup that is made while a server writes holds all that was answered before it began."""

from __future__ import annotations

import http.client
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.proxy import ROOT, Proxy
from tests.helpers.upstream import Received, Reply, Upstream, json_reply

pytestmark = pytest.mark.slow


class Model(Upstream):
    """Never says the same twice."""

    def __init__(self) -> None:
        super().__init__()
        self.paid = 0

    def reply_to(self, request: Received) -> Reply:
        self.paid += 1
        message = {"role": "assistant", "content": f"Answer {self.paid}. " + "x" * 2000}
        return json_reply({
            "id": f"c-{self.paid}", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        })  # fmt: skip


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as upstream:
        yield upstream


def ask(proxy: Proxy, session: str, number: int) -> tuple[Any, str | None]:
    """Return an answer, and the rung of the record that gave it."""
    connection = http.client.HTTPConnection(*proxy.address, timeout=30)
    try:
        body = {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}]}
        headers = {"content-type": "application/json", "x-agent-session-id": session}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        found = json.loads(response.read())
        assert response.status == 200, found
        return found, response.getheader("x-agentstate-replay")
    finally:
        connection.close()


def verb(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentstate", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_backup_under_load_is_whole_and_answers_for_the_record(
    model: Model, tmp_path: Path
) -> None:
    record, copy = tmp_path / "record.db", tmp_path / "copy.db"
    with Proxy(upstream_url=model.url, db=record) as proxy:
        before = [ask(proxy, "s", number)[0] for number in range(20)]
        is_over = threading.Event()
        written: list[int] = []

        def write(lane: int) -> None:
            number = 0
            while not is_over.is_set():
                ask(proxy, f"lane-{lane}", number)
                written.append(number)
                number += 1

        lanes = [threading.Thread(target=write, args=(lane,)) for lane in range(3)]
        for lane in lanes:
            lane.start()
        try:
            made = [verb("backup", copy, "--db", record, "--force") for _ in range(3)]
        finally:
            is_over.set()
            for lane in lanes:
                lane.join(60)

    assert [each.returncode for each in made] == [0, 0, 0], made
    assert written
    assert "checked, and on the disk" in made[-1].stdout
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]
    checked = verb("check", "copy.db", cwd=tmp_path)
    assert (checked.returncode, checked.stdout.strip()) == (0, "copy.db: sound.")
    paid = model.paid
    with Proxy(upstream_url=model.url, db=copy) as proxy:
        again = [ask(proxy, "s", number) for number in range(20)]
    assert again == [(answer, "exact") for answer in before]
    assert model.paid == paid


def test_what_is_there_is_not_written_over_and_nothing_is_left_behind(
    model: Model, tmp_path: Path
) -> None:
    record, copy = tmp_path / "record.db", tmp_path / "copy.db"
    copy.write_text("mine")
    with Proxy(upstream_url=model.url, db=record) as proxy:
        ask(proxy, "s", 1)

        refused = verb("backup", copy, "--db", record)
        onto_itself = verb("backup", record, "--db", record, "--force")
        nowhere = verb("backup", tmp_path / "no" / "copy.db", "--db", record)
        nothing = verb("backup", tmp_path / "x.db", "--db", tmp_path / "none.db")
        other = verb("backup", tmp_path / "x.db", "--db", copy)

    for found, why in (
        (refused, "is there already"),
        (onto_itself, "is the record itself"),
        (nowhere, "No such file or directory"),
        (nothing, "There is no file"),
        (other, "it is not a database"),
    ):
        assert found.returncode != 0
        assert why in found.stderr, found.stderr
        assert "Traceback" not in found.stderr
    assert copy.read_text() == "mine"
    assert not list(tmp_path.glob("*.part*"))
    assert not (tmp_path / "x.db").exists()


def damaged(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update answer set content = x'00' where id = 1", "The content of answer 1 is damaged"),
        ("update session set steps = 7", "Session 's' says 7 steps and has 1."),
        ("delete from prompt", "refers to a row of prompt that is not there"),
    ],
)
def test_a_damaged_record_is_found(model: Model, tmp_path: Path, statement: str, said: str) -> None:
    record = tmp_path / "record.db"
    with Proxy(upstream_url=model.url, db=record) as proxy:
        ask(proxy, "s", 1)
    assert verb("check", "--db", record).returncode == 0

    damaged(record, statement)

    found = verb("check", "--db", record)
    assert found.returncode == 1
    assert said in found.stdout
    assert "What to do" in found.stdout


def test_a_file_with_lost_pages_is_found_and_not_backed_up(model: Model, tmp_path: Path) -> None:
    record = tmp_path / "record.db"
    with Proxy(upstream_url=model.url, db=record) as proxy:
        for number in range(30):
            ask(proxy, "s", number)
    raw = bytearray(record.read_bytes())
    for place in range(len(raw) // 2, len(raw) - 2048, 4096):
        raw[place : place + 2048] = bytes(2048)
    record.write_bytes(raw)

    found = verb("check", "--db", record)
    refused = verb("backup", tmp_path / "copy.db", "--db", record)

    assert found.returncode == 1, found.stdout
    assert "damaged" in found.stdout
    assert refused.returncode != 0
    assert "is damaged" in refused.stderr, refused.stderr
    assert not (tmp_path / "copy.db").exists()
