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
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agentstate.ground.errors import StoreError
from agentstate.store.lock import FileLock
from agentstate.store.sqlite_file import open_reader, store_error
from agentstate.store.sqlite_pack import unpack, unpack_after
from agentstate.store.sqlite_schema import check_owner

PAGES_AT_ONCE = 2_000  # between two looks at Ctrl-C: 4 MB
_LEFT_OPEN = ("-wal", "-journal")  # what SQLite keeps beside a database that is not closed
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
    _check_target(source, target, replaces=replaces)
    part = target.with_name(target.name + ".part")
    with _held(target):
        return _write(source, target, part, progress, replaces=replaces)


def _write(source: Path, target: Path, part: Path, progress: Progress, *, replaces: bool) -> Copied:
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        copied = _copy(source, part, progress)
        _keep(part, target, replaces=replaces)
    except FileExistsError as error:
        raise StoreError(f"{target} was made meanwhile, by another program.") from error
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        for name in (part, Path(f"{part}-journal")):
            with suppress(OSError):
                name.unlink(missing_ok=True)
    return copied


def _check_target(source: Path, target: Path, *, replaces: bool) -> None:
    at, record = target.resolve(), source.resolve()
    own = [record, *(_beside(record, ending) for ending in (*_LEFT_OPEN, "-shm", ".lock"))]
    if at in own or (at.exists() and at.samefile(record)):
        raise StoreError(f"{target} is the record itself. Name another file.")
    if target.exists() and not replaces:
        raise StoreError(f"{target} is there already. Name another file, or replace it: --force.")
    for ending in _LEFT_OPEN:
        if _beside(at, ending).exists():  # SQLite would play it into what has the name then
            raise StoreError(
                f"{target} is open, or was not closed: there is {_beside(at, ending).name} beside "
                "it. Name another file."
            )


@contextmanager
def _held(target: Path) -> Iterator[None]:
    """Hold off servers from a database that is about to be replaced. Raises `StoreBusy`."""
    at = target.resolve()
    if not _beside(at, ".lock").exists():
        yield
        return
    lock = FileLock(at)
    lock.take()
    try:
        yield
    finally:
        lock.release()


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


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
            # As `check` does: the pages of a record whose answers are damaged may be sound.
            if (fault := next(_faults(writer, progress), None)) is not None:
                raise StoreError(
                    f"it is damaged, and so would be the copy: {fault} Look with "
                    "`agentstate check`, and restore an earlier backup."
                )
    except sqlite3.Error as error:
        raise store_error(error, source) from error
    except StoreError as error:
        raise type(error)(f"{source}: {error.message}") from error
    return Copied(part.stat().st_size, sessions, steps)


def _keep(part: Path, target: Path, *, replaces: bool) -> None:
    """Give a copy its name once it is on the disk, and have the name be there, too."""
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if replaces:
        part.replace(target)
    else:
        _rename_to_free(part, target)
    if os.name == "posix":
        folder = os.open(target.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _rename_to_free(part: Path, target: Path) -> None:
    """Rename, unless somebody has made a file of that name meanwhile. Raises `FileExistsError`."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError as error:  # not every file system lets a file have two names
        if target.exists():
            raise FileExistsError(str(target)) from error
        part.replace(target)


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
    yield from _dangling(reader)
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


_TABLES = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"

# Sessions that are being removed, or made as forks: their rows are there without them.
_PENDING = "select id from leftover where kind in ('session', 'fork')"


def _dangling(reader: sqlite3.Connection) -> Iterator[str]:
    """Say which rows refer to what is not there. SQLite's own pragma would also name those of a
    session that is being removed, which may: see `sqlite_removal.py`."""
    tables = [name for (name,) in reader.execute(_TABLES)]
    for table in tables:
        for row in reader.execute(f"pragma foreign_key_list({table})").fetchall():
            parent, column = row[2], row[3]
            is_pending = parent == "session" and "leftover" in tables
            (count,) = reader.execute(
                f"""
                select count(*)
                from {table} as child
                where child.{column} is not null
                  and not exists (select 1 from {parent} where id = child.{column})
                  {f"and child.{column} not in ({_PENDING})" if is_pending else ""}
                """
            ).fetchone()
            if count:
                yield f"{column} of {table} refers to a row of {parent} that is not there: {count}."
