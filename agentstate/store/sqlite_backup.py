"""A copy of the record while it is written to, and whether a file is sound.

A copy is of one moment: the reading connection keeps one view of the file from its first page to
its last, whoever writes meanwhile (WAL), so nothing has to be stopped and nobody waits. It gets its
name when it is whole, checked and on the disk; until then it is FILE.part. Copied page by page, so
that Ctrl-C is heard and a person sees how far it is.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from agentstate.ground.errors import StoreError
from agentstate.store.sqlite_file import open_reader, store_error
from agentstate.store.sqlite_pack import unpack, unpack_after
from agentstate.store.sqlite_schema import check_owner

PAGES_AT_ONCE = 2_000  # between two looks at Ctrl-C: 4 MB
FAULTS_MAX = 20  # a damaged file has thousands of them, and two tell enough

Progress = Callable[[int, int], None]  # given what is done and what there is, in any unit


@dataclass(frozen=True, slots=True)
class Copied:
    """What a backup holds."""

    bytes: int
    sessions: int
    steps: int


def back_up(source: Path, target: Path, progress: Progress, *, replaces: bool = False) -> Copied:
    """Copy a record into a new file, for its owner only; a server may be writing to it.

    Raises:
        StoreError: it cannot be read or is none of ours; the target is there already (unless
            `replaces`), cannot be written, or is not sound.
    """
    if not source.is_file():
        raise StoreError(f"There is no file {source}. Name the record with --db.")
    if target.resolve() == source.resolve():
        raise StoreError(f"{target} is the record itself. Name another file.")
    if target.exists() and not replaces:
        raise StoreError(f"{target} is there already. Name another file, or replace it: --force.")
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        copied = _copy(source, part, progress)
        _keep(part, target)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        for name in (part, Path(f"{part}-journal")):
            with suppress(OSError):
                name.unlink(missing_ok=True)
    return copied


def _copy(source: Path, part: Path, progress: Progress) -> Copied:
    try:
        with (
            closing(open_reader(source.absolute())) as reader,
            closing(sqlite3.connect(part)) as writer,
        ):
            if check_owner(reader) == 0:
                raise StoreError("it has no record in it yet; there is nothing to back up")
            reader.execute("begin")  # one view, from here to the end
            (sessions,) = reader.execute("select count(*) from session").fetchone()
            (steps,) = reader.execute("select count(*) from step").fetchone()

            def tell(_: int, left: int, total: int) -> None:
                progress(total - left, total)

            reader.backup(writer, pages=PAGES_AT_ONCE, progress=tell, sleep=0)
            # One file with nothing beside it, until a server opens it.
            writer.execute("pragma journal_mode = delete")
            (verdict,) = writer.execute("pragma quick_check(1)").fetchone()
            if verdict != "ok":
                raise StoreError(
                    f"{source} is damaged, and so would be the copy: {verdict}. Look with "
                    "`agentstate check`, and restore an earlier backup."
                )
    except sqlite3.Error as error:
        raise store_error(error, source) from error
    except StoreError as error:
        raise type(error)(f"{source}: {error.message}") from error
    return Copied(part.stat().st_size, sessions, steps)


def _keep(part: Path, target: Path) -> None:
    """Give a copy its name once it is on the disk, and have the name be there, too."""
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.replace(target)
    if os.name == "posix":
        folder = os.open(target.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# --- is it sound? ---------------------------------------------------------------------------------

# What is packed, and with what; each row is (table, its key, size, content, the answer it repeats).
_PACKED = (
    ("answer", "select id, size, content, null, null from answer"),
    ("answer_tail", "select answer_id, size, content, null, null from answer_tail"),
    ("envelope", "select id, size, content, null, null from envelope"),
    (
        "blob",
        """
        select blob.id, blob.size, blob.content, answer.size, answer.content
        from blob
        left join answer on answer.id = blob.answer_id
        """,
    ),
)
_COUNT_PACKED = """
    select (select count(*) from answer) + (select count(*) from answer_tail)
      + (select count(*) from envelope) + (select count(*) from blob)
    """
# What is written together must agree; see the invariant of `sqlite_record.py`.
_SUMS = """
    select name, steps, (select count(*) from step where session_id = session.id)
    from session
    where steps <> (select count(*) from step where session_id = session.id)
    """


def check_file(path: Path, progress: Progress) -> list[str]:
    """Return what is wrong with a record, in sentences; [] = it is sound. Reads all of it; a server
    may be writing to it.

    Raises:
        StoreError: it cannot be opened, or is none of ours.
    """
    if not path.is_file():
        raise StoreError(f"There is no file {path}. Name the record with --db.")
    faults: list[str] = []
    try:
        with closing(open_reader(path.absolute())) as reader:
            check_owner(reader)
            reader.execute("begin")
            for fault in _faults(reader, progress):
                faults.append(fault)
                if len(faults) >= FAULTS_MAX:
                    break
    except sqlite3.DatabaseError as error:
        if faults or getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
            return [*faults, f"It cannot be read on: {error}."]
        raise store_error(error, path) from error
    except StoreError as error:
        raise type(error)(f"{path}: {error.message}") from error
    return faults


def _faults(reader: sqlite3.Connection, progress: Progress) -> Iterator[str]:
    for (verdict,) in reader.execute(f"pragma integrity_check({FAULTS_MAX})"):
        if verdict != "ok":
            yield f"SQLite: {verdict}"
    for table, row, parent, _ in reader.execute("pragma foreign_key_check"):
        yield f"A row of {table} ({row}) refers to a row of {parent} that is not there."
    for name, said, found in reader.execute(_SUMS):
        yield f"Session {name!r} says {said} steps and has {found}."
    (total,) = reader.execute(_COUNT_PACKED).fetchone()
    done = 0
    for table, statement in _PACKED:
        for key, size, content, answer_size, answer in reader.execute(statement):
            done += 1
            progress(done, total)
            try:
                if answer is None:
                    unpack(size, content)
                else:
                    unpack_after(size, content, unpack(answer_size, answer))
            except zlib.error as error:
                yield f"The content of {table} {key} is damaged: {error}."
