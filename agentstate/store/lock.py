"""One server per file: an operating system lock on a small file beside it.

The lock dies with the process, however it ends, so nothing has to be cleaned up after a crash. It
is not on the database file itself: SQLite's own locks are per process and closing any descriptor of
that file would drop them (https://sqlite.org/howtocorrupt.html, section 2.2). The lock file stays
when the lock goes: deleting it would let two servers hold two files of one name.
"""

from __future__ import annotations

import errno
import os
import sys
import weakref
from pathlib import Path

from agentstate.ground.errors import StoreBusy, StoreError

# Windows forbids others to read locked bytes, so the locked one is far behind the text.
_LOCKED_BYTE = 1 << 30
_OWNER_BYTES_MAX = 64
# What the system says when another holds the lock: flock the first, Windows the others.
_HELD = frozenset((errno.EAGAIN, errno.EACCES, errno.EDEADLK))

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        # Not `lockf`: that one does not exclude a second server in the same process, and goes when
        # any other descriptor of the file is closed.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLock:
    """The right to write one database file."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(database.name + ".lock")
        self._descriptor: int | None = None  # None = not held

    def take(self) -> None:
        """Take the lock or say who has it.

        Raises:
            StoreBusy: another server holds it.
            StoreError: the lock file cannot be made.
        """
        assert self._descriptor is None, "taken twice"
        try:
            # Not inheritable (PEP 446): a program that is started from here does not get it.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"The lock file {self._path} cannot be made: {error.strerror}. The directory must "
                "exist and be writable."
            ) from error
        try:
            _try_lock(descriptor)
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, b"%d\n" % os.getpid())
        except OSError as error:
            refusal = self._refusal(error, descriptor)
            os.close(descriptor)
            raise refusal from error
        self._descriptor = descriptor
        if hasattr(os, "register_at_fork"):
            _drop_in_child(self)

    def release(self) -> None:
        """Let go of the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _refusal(self, error: OSError, descriptor: int) -> StoreError:
        if error.errno in _HELD:
            return StoreBusy(
                f"{self._database} is held by another server{_read_owner(descriptor)}. Stop that "
                "one, or start this one with its own file: --db FILE."
            )
        return StoreError(
            f"The lock file {self._path} cannot be locked: {error.strerror}. The record must be on "
            "a local disk with room on it."
        )


def _read_owner(descriptor: int) -> str:
    """Say which process holds the lock, '' where the file does not tell."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, _OWNER_BYTES_MAX).strip()
    return f" (process {text.decode()})" if text.isdigit() else ""


def _drop_in_child(lock: FileLock) -> None:
    """Have a forked child give up its copy, or the lock would live as long as the child."""
    reference = weakref.ref(lock)

    def drop() -> None:
        held = reference()
        if held is not None:
            held.release()

    os.register_at_fork(after_in_child=drop)
