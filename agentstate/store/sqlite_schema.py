"""Brings the tables of the SQLite record forward; what they are is in `sqlite_migrations.py`.

A migration runs in the transaction that records it, in `user_version` and as a row a person can
read. A file from a newer version, or a database of something else, is refused before anything in it
is touched. Settings of a connection are not here but in `sqlite_file.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from agentstate.ground.clock import now_ms
from agentstate.ground.errors import StoreError
from agentstate.store.sqlite_migrations import MIGRATIONS

APPLICATION_ID = 0x41675374  # "AgSt"; `file` and other tools can tell whose database it is

_RECORD_MIGRATION = "insert into migration (version, name, reason, applied_ms) values (?, ?, ?, ?)"


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database forward to the last migration; on a current one it writes nothing.

    Raises:
        StoreError: it is from a newer version, or a database of something else.
    """
    version = check_owner(connection)
    for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.execute("begin immediate")
        try:
            for statement in split_statements(migration.sql):
                connection.execute(statement)
            noted = (number, migration.name, migration.reason, now_ms())
            connection.execute(_RECORD_MIGRATION, noted)
            # Pragmas take no parameters; both values are our own integers.
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {number}")
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:  # some disk errors have rolled back already
                connection.execute("rollback")
            raise


def check_owner(connection: sqlite3.Connection) -> int:
    """Return how many migrations the database has had; reads only.

    Raises:
        StoreError: as `migrate`.
    """
    (version,) = connection.execute("pragma user_version").fetchone()
    (application_id,) = connection.execute("pragma application_id").fetchone()
    if application_id != APPLICATION_ID:
        (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
        if tables or version or application_id:
            raise StoreError(
                "it is a SQLite database of something else. Move it away, or name another file "
                "with --db."
            )
        return 0
    if version > len(MIGRATIONS):
        raise StoreError(
            f"it was written by a newer version (its schema is number {version}, this one knows "
            f"{len(MIGRATIONS)}). Start the newer version, or name another file with --db."
        )
    return int(version)


def split_statements(sql: str) -> Iterator[str]:
    """Yield the statements of a script one by one: `executescript` would commit before it runs.

    Without comments and line breaks, since the file keeps the text: four pages less.
    """
    statement = ""
    for line in sql.splitlines():
        code, _, _ = line.partition("--")
        statement = f"{statement} {code.strip()}".strip()
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement, "a migration ends with a semicolon"
