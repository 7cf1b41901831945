"""The verdicts on this machine, from what was seen."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from agentstate.ground.load import load_settings
from agentstate.house import doctor_verdicts as verdicts
from agentstate.house.doctor_here import look_at_database
from agentstate.house.doctor_seen import (
    CertificatesSeen,
    DatabaseSeen,
    Finding,
    PortSeen,
    ProxiesSeen,
    Seen,
    ServerSeen,
    Subject,
)
from agentstate.house.doctor_verdicts import DISK_BYTES_LEAST, DISK_BYTES_LOW
from agentstate.store.sqlite import SqliteStore

NOWHERE = Path("/nonexistent")
FREE = PortSeen("127.0.0.1", 8080, "free")
TAKEN = replace(FREE, outcome="taken")
SERVED = replace(TAKEN, server=ServerSeen("1.0", None))


def seen_of(toml: str = "", environ: dict[str, str] | None = None, *, folder: Path) -> Seen:
    (folder / "agentstate.toml").write_text(toml)
    loaded = load_settings({"server.port": "8080"}, environ or {}, folder, None)
    subject = Subject("1.0", environ or {}, "agentstate.toml", loaded)
    return Seen(subject, (3, 12, 1), CertificatesSeen("certifi", 100), ProxiesSeen(), FREE)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return seen_of(folder=tmp_path)


def only(findings: Iterable[Finding]) -> Finding:
    [finding] = findings
    return finding


# -- program and settings


def test_an_old_python_is_a_fault(seen: Seen) -> None:
    assert only(verdicts.judge_python(seen)).state == "ok"
    old = only(verdicts.judge_python(replace(seen, python=(3, 10, 9))))
    assert (old.state, "3.10.9" in old.found) == ("fault", True)


def test_settings_say_where_they_come_from(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": "sk-secret-secret", "AGENTSTATE_DB": "x.db", "HOME": "/"}
    found = only(verdicts.judge_settings(seen_of("", environ, folder=tmp_path))).found

    assert found == (
        "agentstate.toml; from the environment: AGENTSTATE_DB, OPENAI_API_KEY; "
        "from the command line: --port"
    )


def test_settings_that_do_not_load_are_told_in_their_own_words() -> None:
    subject = Subject("1.0", {}, "agentstate.toml", None, "agentstate.toml:3: unknown key 'prot'.")
    seen = Seen(subject, (3, 12, 1), CertificatesSeen(""), ProxiesSeen())
    finding = only(verdicts.judge_settings(seen))

    assert (finding.state, finding.found) == ("fault", "agentstate.toml:3: unknown key 'prot'.")


# -- port


@pytest.mark.parametrize(
    ("port", "state", "found", "advice"),
    [
        (FREE, "ok", "127.0.0.1:8080 is free", None),
        (PortSeen("127.0.0.1", 0, "free"), "ok", "any free one on 127.0.0.1", None),
        (replace(FREE, outcome="forbidden"), "fault", "closed to this user", "--port 8080"),
        (replace(FREE, outcome="no_address"), "fault", "no address of this", "--host 127.0.0.1"),
        (TAKEN, "fault", "another program, which does not speak HTTP", "lsof -i :8080"),
        (replace(TAKEN, answer="nginx"), "fault", "another program (nginx)", "--port 8081"),
        (SERVED, "ok", "a server is running here: AgentState 1.0", None),
        (replace(TAKEN, server=ServerSeen("0.9", None)), "warn", "this is 1.0", "Restart"),
        (replace(TAKEN, server=ServerSeen("1.0", "disk full")), "fault", "disk full", "mended"),
    ],
)
def test_a_port(seen: Seen, port: PortSeen, state: str, found: str, advice: str | None) -> None:
    finding = only(verdicts.judge_port(replace(seen, port=port)))

    assert (finding.state, found in finding.found) == (state, True), finding
    assert finding.advice is None if advice is None else advice in (finding.advice or "")


# -- database


def judge(
    seen: Seen, database: DatabaseSeen | None, port: PortSeen = FREE
) -> tuple[str, str, str | None]:
    finding = only(verdicts.judge_database(replace(seen, database=database, port=port)))
    return finding.state, finding.found, finding.advice


def test_a_record_in_memory_is_a_warning(seen: Seen) -> None:
    assert judge(seen, None)[0] == "warn"


@pytest.mark.parametrize(
    ("database", "state", "found"),
    [
        (DatabaseSeen(NOWHERE, "missing", "missing"), "fault", "no such directory"),
        (DatabaseSeen(NOWHERE, "missing", "open"), "ok", "will be made"),
        (DatabaseSeen(NOWHERE, "file", "closed"), "fault", "no file can be made"),
        (DatabaseSeen(NOWHERE, "other", "open"), "fault", "is not a file"),
        (DatabaseSeen(NOWHERE, "file", "open", ("a.db-wal",)), "fault", "a.db-wal in /"),
        (DatabaseSeen(NOWHERE, "file", "open"), "ok", "is empty"),
        (DatabaseSeen(NOWHERE, "file", "open", head=b"SQLite"), "fault", "is not a database"),
        (DatabaseSeen(NOWHERE, "file", "open", head=b"x" * 200), "fault", "is not a database"),
    ],
)
def test_a_place_for_a_database(seen: Seen, database: DatabaseSeen, state: str, found: str) -> None:
    verdict = judge(seen, database)

    assert (verdict[0], found in verdict[1]) == (state, True), verdict
    assert (verdict[2] is not None) == (state == "fault")


def test_a_held_database_is_fine_where_its_server_listens(seen: Seen) -> None:
    held = DatabaseSeen(NOWHERE, "file", "closed", ("a",), b"x" * 200, True, "42")

    assert judge(seen, held, SERVED)[0::2] == ("ok", None)
    state, found, advice = judge(seen, held)
    assert (state, "process 42" in found) == ("fault", True)
    assert advice is not None
    assert "listens elsewhere" in advice


def test_what_only_the_running_server_can_write_is_no_fault(seen: Seen) -> None:
    for database in (
        DatabaseSeen(NOWHERE, "file", "closed"),
        DatabaseSeen(NOWHERE, "file", "open", ("a.db",)),
    ):
        assert judge(seen, database, SERVED)[0] == "warn"


def _ours(path: Path) -> None:
    async def fill() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(fill())


def _changed(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        _ours(path)
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()

    return change


def _made(*statements: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()

    return make


MANY = tuple(f"create table t{n} (a_rather_long_name_{n} text)" for n in range(200))


@pytest.mark.parametrize(
    ("make", "state", "found"),
    [
        (_ours, "ok", "can be written"),
        (_changed("pragma user_version = 999"), "fault", "by a newer version (its schema is numbe"),
        (_changed("pragma user_version = 1"), "ok", "from an older version"),
        (_made("create table t (x)"), "fault", "of something else"),
        (_made(*MANY), "fault", "of something else"),
        (_made("pragma user_version = 3"), "fault", "of something else"),
        (_made("pragma application_id = 7"), "fault", "of something else"),
        (_made("create table t (x)", "drop table t"), "ok", "an empty database"),
    ],
)
def test_a_database_file(
    seen: Seen, tmp_path: Path, make: Callable[[Path], None], state: str, found: str
) -> None:
    make(tmp_path / "a.db")

    verdict = judge(seen, look_at_database(tmp_path / "a.db"))

    assert (verdict[0], found in verdict[1]) == (state, True), verdict


def test_a_disk(seen: Seen) -> None:
    def state(free_bytes: int | None) -> str:
        database = DatabaseSeen(NOWHERE, "missing", "open", free_bytes=free_bytes)
        return only(verdicts.judge_disk(replace(seen, database=database))).state

    sizes = (None, 0, DISK_BYTES_LEAST - 1, DISK_BYTES_LEAST, DISK_BYTES_LOW - 1, DISK_BYTES_LOW)
    states = ["skip", "fault", "fault", "warn", "warn", "ok"]
    assert [state(size) for size in sizes] == states
    assert only(verdicts.judge_disk(seen)).state == "skip"


# -- what is around


def test_certificates(seen: Seen) -> None:
    assert only(verdicts.judge_certificates(seen)).state == "ok"
    broken = replace(seen, certificates=CertificatesSeen("x", problem="no PEM"))
    assert only(verdicts.judge_certificates(broken)).state == "fault"


@pytest.mark.parametrize(
    ("proxies", "state", "found"),
    [
        (ProxiesSeen(), "ok", "none"),
        (ProxiesSeen("http://a:1", "http://a:1"), "ok", "all upstreams through http://a:1"),
        (ProxiesSeen(None, "http://a:1"), "ok", "https through http://a:1, http straight"),
        (ProxiesSeen(problem="no URL"), "fault", "no URL"),
    ],
)
def test_proxies(seen: Seen, proxies: ProxiesSeen, state: str, found: str) -> None:
    finding = only(verdicts.judge_proxies(replace(seen, proxies=proxies)))

    assert (finding.state, finding.found) == (state, found)


@pytest.mark.parametrize(
    ("toml", "state", "found"),
    [
        ("", "ok", "a person decides on send_email, "),
        ("[gate]\ntools = []", "warn", "holds nothing"),
        ('[gate]\ntools = []\n[[gate.rule]]\ntool = "x"', "ok", "1 rule"),
        ('[gate]\ntools = ["a"]\n[[gate.rule]]\n[[gate.rule]]', "ok", "decides on a; 2 rules"),
        ('[gate]\ntools = ["a","b","c","d","e","f","g","h"]', "ok", "a, b, c, d, e, f and 2 more"),
    ],
)
def test_a_gate(tmp_path: Path, toml: str, state: str, found: str) -> None:
    finding = only(verdicts.judge_gate(seen_of(toml, folder=tmp_path)))

    assert (finding.state, found in finding.found) == (state, True), finding


@pytest.mark.parametrize(
    ("toml", "states", "said"),
    [
        ("", [], ""),
        ("steps = 2000\ncost_usd = 1.5", ["ok"], "steps 2,000, cost_usd 1.5 for each session"),
        ('tokens = 9\naction = "refuse"', ["ok"], "tokens 9 for each session; then 429"),
        ("cost_usd = 5.0", ["warn"], "Models without a price"),
    ],
)
def test_a_budget_is_said_and_one_that_is_blind_warned_of(
    tmp_path: Path, toml: str, states: list[str], said: str
) -> None:
    found = list(verdicts.judge_budget(seen_of(f"[budget]\n{toml}", folder=tmp_path)))
    assert [one.state for one in found] == states
    assert all(said in one.found for one in found)


def test_webhooks_are_named_and_their_addresses_are_not(tmp_path: Path) -> None:
    none = only(verdicts.judge_webhooks(seen_of(folder=tmp_path)))
    toml = '[[webhook]]\nname = "ops"\nurl = "https://hooks.slack.com/services/T0/B0/s3cret"'
    one = only(verdicts.judge_webhooks(seen_of(toml, folder=tmp_path)))

    assert (none.state, one.state) == ("ok", "ok")
    assert one.found == "ops (slack at hooks.slack.com); not called"
