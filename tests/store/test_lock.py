"""One server per file, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentstate.ground.errors import StoreBusy, StoreError
from agentstate.store.lock import FileLock

HOLD = """
import sys
from pathlib import Path
from agentstate.store.lock import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


def start_holder(database: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds the lock until its input ends."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_a_lock_is_taken_once(database: Path) -> None:
    first, second = FileLock(database), FileLock(database)
    first.take()

    with pytest.raises(StoreBusy, match=f"process {os.getpid()}.*--db") as caught:
        second.take()

    assert str(database) in caught.value.message
    first.release()
    second.take()
    second.release()


def test_a_lock_can_be_released_twice_and_taken_again(database: Path) -> None:
    lock = FileLock(database)
    for _ in range(2):
        lock.take()
        lock.release()
        lock.release()


def test_two_files_have_two_locks(database: Path) -> None:
    locks = [FileLock(database), FileLock(database.with_name("other.db"))]
    for lock in locks:
        lock.take()
    for lock in locks:
        lock.release()


def test_the_lock_file_stays(database: Path) -> None:
    lock = FileLock(database)
    lock.take()
    lock.release()

    assert database.with_name("record.db.lock").read_text() == f"{os.getpid()}\n"


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere") as caught:
        FileLock(tmp_path / "nowhere" / "record.db").take()

    assert not isinstance(caught.value, StoreBusy)


@pytest.mark.slow
def test_another_process_is_kept_out_until_it_is_killed(database: Path) -> None:
    holder = start_holder(database)
    with pytest.raises(StoreBusy, match=f"process {holder.pid}"):
        FileLock(database).take()

    holder.send_signal(signal.SIGKILL)
    holder.wait()

    lock = FileLock(database)
    lock.take()
    lock.release()


@pytest.mark.slow
def test_a_program_started_meanwhile_does_not_keep_the_lock(database: Path) -> None:
    lock = FileLock(database)
    lock.take()
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    lock.release()

    again = FileLock(database)
    again.take()

    again.release()
    sleeper.communicate(b"")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_keep_the_lock(database: Path) -> None:
    lock = FileLock(database)
    lock.take()
    reading, writing = os.pipe()
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:  # lives until the parent closes its end
        os.close(writing)
        os.write(begins, b"x")
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        assert os.read(begun, 1) == b"x"
        lock.release()
        again = FileLock(database)
        again.take()
        again.release()
    finally:
        for descriptor in (writing, begun, begins):
            os.close(descriptor)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_take_the_lock_away(database: Path) -> None:
    lock = FileLock(database)
    lock.take()
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

    with pytest.raises(StoreBusy):
        FileLock(database).take()

    lock.release()
