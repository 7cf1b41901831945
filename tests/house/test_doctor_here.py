"""The probes of this machine: real sockets and files, and nothing is changed by looking."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate.ground.settings import Network, ServerSettings
from agentstate.house.doctor_here import (
    look_at_certificates,
    look_at_database,
    look_at_port,
    look_at_proxies,
)
from agentstate.house.doctor_seen import PortSeen, ServerSeen
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_migrations import MIGRATIONS
from agentstate.store.sqlite_schema import APPLICATION_ID
from tests.helpers.upstream import Reply, Upstream
from tests.wire.far import OK, Peer, far_end, replying

NOBODY = 65534
JSON = ((b"content-type", b"application/json"),)


def port_of(port: int, host: str = "127.0.0.1") -> PortSeen:
    return asyncio.run(look_at_port(ServerSettings(host=host, port=port)))


# -- port


def test_a_free_port_is_free_and_stays_so() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    assert port_of(port) == PortSeen("127.0.0.1", port, "free")
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


def test_any_port_is_free() -> None:
    assert port_of(0).outcome == "free"


def test_a_server_of_ours_is_known_by_its_health() -> None:
    health = b'{"status": "ok", "version": "9.9", "steps": 3}'
    with Upstream([Reply(200, JSON, (health,))]) as ours:
        seen = port_of(ours.port)

    assert (seen.outcome, seen.server) == ("taken", ServerSeen("9.9", None))
    assert ours.received[0].target == "/healthz"


def test_a_server_of_ours_that_fails_says_why() -> None:
    health = b'{"status": "degraded", "reason": "the disk is full", "version": "9.9"}'
    with Upstream([Reply(503, JSON, (health,))]) as ours:
        assert port_of(ours.port).server == ServerSeen("9.9", "the disk is full")


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"status": "ok"}', b'{"status": "UP"}'])
def test_another_server_is_named_as_it_names_itself(body: bytes) -> None:
    with Upstream([Reply(200, ((b"server", b"nginx/1.2"),), (body,))]) as other:
        seen = port_of(other.port)

    assert (seen.outcome, seen.server, seen.answer) == ("taken", None, "nginx/1.2")


def test_what_speaks_no_http_has_the_port_all_the_same() -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            peer.send(b"220 mail.example ESMTP\r\n\r\n")

        async with far_end(script) as far:
            seen = await look_at_port(ServerSettings(port=far.origin.port))
            assert (seen.outcome, seen.server, seen.answer) == ("taken", None, "")

    asyncio.run(main())


@pytest.mark.parametrize("host", ["192.0.2.1", "no..host"])
def test_an_address_of_elsewhere_is_told(host: str) -> None:
    assert port_of(8080, host).outcome == "no_address"


# -- database


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in folder.iterdir()}


def test_a_missing_database_is_not_made(tmp_path: Path) -> None:
    seen = look_at_database(tmp_path / "a.db")

    assert (seen.kind, seen.folder, seen.closed, seen.is_held) == ("missing", "open", (), False)
    assert seen.free_bytes is not None
    assert seen.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_told_with_the_room_where_it_would_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("no/such/a.db", "file/a.db"):
        seen = look_at_database(tmp_path / name)
        assert (seen.kind, seen.folder) == ("missing", "missing")
        assert seen.free_bytes is not None


def test_a_database_of_ours_is_read_by_its_head_and_left_alone(tmp_path: Path) -> None:
    async def fill() -> None:
        store = SqliteStore(tmp_path / "a.db")
        await store.open()
        await store.close()

    asyncio.run(fill())
    before = snapshot(tmp_path)
    seen = look_at_database(tmp_path / "a.db")

    assert (seen.kind, seen.is_held, seen.closed) == ("file", False, ())
    assert int.from_bytes(seen.head[60:64]) == len(MIGRATIONS)
    assert int.from_bytes(seen.head[68:72]) == APPLICATION_ID
    assert snapshot(tmp_path) == before


def test_a_wal_database_gets_no_files_beside_it(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t (x)")
    connection.close()

    look_at_database(tmp_path / "a.db")

    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]


def test_a_held_database_is_told_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"")
    with (tmp_path / "a.db.lock").open("w+b") as lock:
        lock.write(b"4242\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen = look_at_database(tmp_path / "a.db")
        assert (seen.is_held, seen.holder) == (True, "4242")

    assert not look_at_database(tmp_path / "a.db").is_held


def test_looking_leaves_the_lock_to_be_taken(tmp_path: Path) -> None:
    with (tmp_path / "a.db.lock").open("w+b") as lock:
        look_at_database(tmp_path / "a.db")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.db")

    assert look_at_database(tmp_path / "a.db").kind == "other"
    assert look_at_database(tmp_path).kind == "other"


@pytest.fixture
def as_somebody() -> Iterator[Path]:
    """A folder that all can reach, looked at by a user for whom permissions count."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in" / "a.db").write_bytes(b"")
        folder.chmod(0o755)
        was = os.geteuid()
        if was == 0:
            os.chown(folder / "in", NOBODY, NOBODY)
            os.chown(folder / "in" / "a.db", NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder / "in"
        finally:
            os.chmod(folder / "in", 0o700)
            os.seteuid(was)


def test_a_folder_that_cannot_be_written_is_closed(as_somebody: Path) -> None:
    as_somebody.chmod(0o500)

    assert look_at_database(as_somebody / "a.db").folder == "closed"


def test_a_folder_that_cannot_be_reached_is_closed_and_not_missing(as_somebody: Path) -> None:
    (as_somebody / "deep").mkdir()
    as_somebody.chmod(0o000)

    seen = look_at_database(as_somebody / "deep" / "a.db")

    assert (seen.folder, seen.closed) == ("closed", ())


def test_files_that_cannot_be_written_are_named(as_somebody: Path) -> None:
    (as_somebody / "a.db").chmod(0o400)
    (as_somebody / "a.db.lock").touch(0o000)

    seen = look_at_database(as_somebody / "a.db")

    assert (seen.folder, seen.closed) == ("open", ("a.db", "a.db.lock"))


# -- certificates and proxies


def test_certifi_s_certificates_load() -> None:
    seen = look_at_certificates(Network())

    assert (seen.source, seen.problem) == ("the certifi package", None)
    assert seen.count > 50


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_that_holds_no_certificates_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)

    seen = look_at_certificates(Network(ssl_cert_file=str(path)))

    assert seen.problem is not None
    assert str(path) in seen.problem
    assert "SSL_CERT_FILE" in seen.problem


def test_an_empty_folder_of_certificates_is_told(tmp_path: Path) -> None:
    seen = look_at_certificates(Network(ssl_cert_dir=str(tmp_path)))
    missing = look_at_certificates(Network(ssl_cert_dir=str(tmp_path / "no")))
    (tmp_path / "one.pem").write_bytes(b"")
    found = look_at_certificates(Network(ssl_cert_dir=str(tmp_path)))

    assert seen.problem is not None
    assert missing.problem is not None
    assert (found.count, found.problem) == (1, None)


def test_a_proxy_is_shown_without_its_password() -> None:
    seen = look_at_proxies(Network(https_proxy="http://ada:s3cret@proxy.corp:3128"))

    assert (seen.http, seen.https) == (None, "http://proxy.corp:3128")


def test_a_proxy_that_cannot_be_used_is_told() -> None:
    seen = look_at_proxies(Network(https_proxy="socks5://proxy.corp:1080"))

    assert seen.problem is not None
    assert "https_proxy" in seen.problem


def test_a_server_that_answers_something_short_is_not_ours() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far:
            seen = await look_at_port(ServerSettings(port=far.origin.port))
            assert (seen.server, seen.answer) == (None, "HTTP, status 200")

    asyncio.run(main())
