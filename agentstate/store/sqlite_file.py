"""The file: how it is opened, what its connections are set to, and what its errors mean.

Only this module and the `sqlite_*` ones beside it know `sqlite3`. Its exceptions end here:
`store_error` is the seam between them and `StoreError`.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from agentstate.ground.errors import StoreError
from agentstate.store.sqlite_schema import check_owner, migrate

SQLITE_LEAST = (3, 31, 0)  # January 2020; what is used here is older, what is tested is not
BUSY_S = 5.0  # another program, say a backup, may hold the file; sqlite3's own default
# Statements kept ready per connection. About fifty are in use; falling out of this cache would
# cost a parse per call and show only as slowness.
STATEMENTS_MAX = 256
# Half of SQLite's default: packed messages and answers have about this size, so larger pages hold
# gaps, and every commit writes twice as much to the log. Measured in DESIGN.md.
PAGE_BYTES = 2048
WRITER_CACHE_KIB = 8 * 1024  # the upper levels of every index of a record of a million steps
CHECKPOINT_PAGES = 2000  # of log, before it is folded into the file: 20 ms for who waits then
LOG_BYTES_MAX = 32 * 1024 * 1024  # a log that a long reader let grow is cut back to this

_MAGIC = b"SQLite format 3\0"  # https://sqlite.org/fileformat.html, section 1.3.1

# SQLite's primary result codes: what each means to a person, and what to do.
_MEANING = {
    sqlite3.SQLITE_FULL: "the disk is full. Make room; what was acknowledged is safe",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write. See the system's log; make room",
    sqlite3.SQLITE_READONLY: "it cannot be written. Check its permissions and its mount",
    sqlite3.SQLITE_PERM: "it cannot be written. Check its permissions and its mount",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Its directory must exist and be writable",
    sqlite3.SQLITE_CORRUPT: "it is damaged. Restore a backup, or save what `.recover` can read",
    sqlite3.SQLITE_NOTADB: "it is not a database. Move it away, or name another file with --db",
    sqlite3.SQLITE_BUSY: "another program keeps it locked. Close the tools that have it open",
    sqlite3.SQLITE_LOCKED: "another program keeps it locked. Close the tools that have it open",
    sqlite3.SQLITE_PROTOCOL: "another program keeps it locked. Close the tools that have it open",
    sqlite3.SQLITE_INTERRUPT: "reading was cut off because the record is being closed",
}


class FileIdentity:
    """Which files are open under the record's names; notices when the names lead elsewhere.

    A writer whose file was deleted goes on writing without an error, to a file that is gone as soon
    as it is closed.
    """

    def __init__(self, path: Path) -> None:
        self._paths = (str(path), f"{path}-wal")  # text: this runs with every group
        self._identities = [self._read(name) for name in self._paths]

    def check(self) -> None:
        """Raise `StoreError` if a name no longer leads to the file that is open."""
        for name, identity in zip(self._paths, self._identities, strict=True):
            if self._read(name) != identity:
                raise StoreError(
                    f"{name} was replaced under the running server, which now writes to a file "
                    "without a name. Restart the server."
                )

    def _read(self, name: str) -> tuple[int, int]:
        try:
            found = os.stat(name)
        except OSError as error:
            raise StoreError(
                f"{name} is gone: {error.strerror}. Put it back if it was moved, or restart the "
                "server to begin a new record."
            ) from error
        return found.st_dev, found.st_ino


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the one connection that writes, and bring the file's tables forward.

    The caller holds the `FileLock`; the connection belongs to the calling thread.

    Raises:
        StoreError: it cannot be opened, is not ours, or is from a newer version.
    """
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        least = ".".join(map(str, SQLITE_LEAST))
        raise StoreError(
            f"This Python has SQLite {sqlite3.sqlite_version}; {least} or later is needed."
        )
    _make_private(path)
    connection = _connect(path, "rw")
    try:
        # A wrong file is refused before anything in it changes.
        if check_owner(connection) == 0:
            connection.execute(f"pragma page_size = {PAGE_BYTES}")
            # Lets a later deletion give its room back to the disk without copying the file.
            connection.execute("pragma auto_vacuum = incremental")
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"pragma journal_size_limit = {LOG_BYTES_MAX}")
        connection.execute(f"pragma cache_size = -{WRITER_CACHE_KIB}")
        connection.execute("pragma synchronous = full")
        # What is sorted or matched in passing needs no directory that can be written.
        connection.execute("pragma temp_store = memory")
        migrate(connection)
    except StoreError as error:
        connection.close()
        raise type(error)(f"{path} cannot be used: {error.message}") from error
    except sqlite3.Error as error:
        connection.close()
        raise store_error(error, path) from error
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write. One thread at a time may use it.

    Raises:
        StoreError: it cannot be opened.
    """
    return _connect(path, "ro")


def store_error(error: Exception, path: Path) -> Exception:
    """Return the `StoreError` that says what SQLite's error means; raise it `from` the cause.

    An error that says nothing about the disk is a mistake of ours and comes back as it is.
    """
    if not isinstance(error, sqlite3.Error):
        return error
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:  # Python's own wrapper refused: a mistake of ours
        return error
    meaning = _MEANING.get(code & 0xFF)  # the upper bits only say more precisely what failed
    if meaning is None:
        return error
    return StoreError(f"{path}: {meaning} ({error.sqlite_errorname}).")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            f"{path.as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,  # transactions begin where the code says so
            check_same_thread=False,  # readers go from thread to thread, one at a time
            cached_statements=STATEMENTS_MAX,
        )
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def _make_private(path: Path) -> None:
    """Make the file if it is missing, for its owner only: it will hold prompts and answers.

    Only before SQLite has it open: closing a descriptor would drop SQLite's locks on the file.

    Raises:
        StoreError: that cannot be done, or the file is something else. SQLite itself takes a file
            of a few bytes for an empty database and overwrites it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "rb") as file:
            beginning = file.read(len(_MAGIC))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened: {error.strerror}. It must be a file that can be written, in "
            "a directory that exists."
        ) from error
    if beginning not in (b"", _MAGIC):
        raise StoreError(f"{path}: {_MEANING[sqlite3.SQLITE_NOTADB]}.")
