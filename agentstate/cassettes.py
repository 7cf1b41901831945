"""A proxy of its own for one cassette: its settings, what it is given, what is left of it.

For whoever starts one: `cli_run.py` beside a command, `tape_proxy.py` within a test. All calls that
come to it are one run, so the n-th of several equal ones gets the n-th recorded answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentstate.cli_export import open_output
from agentstate.cli_table import inert
from agentstate.ground.canonical import parse
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import SettingError
from agentstate.ground.records import Query, StepRow
from agentstate.ground.redaction import redact_text
from agentstate.ground.settings import GateSettings, Settings, StoreSettings
from agentstate.house.cassette_export import Cassette, TapeOrder
from agentstate.house.cassette_import import Imported
from agentstate.steps.offline import Missed
from agentstate.store import open_store
from agentstate.store.base import LIST_LIMIT_MAX, Store

# A variable whose name ends so holds a secret, if its value looks like one.
SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
SECRET_CHARS_MIN = 16


def private_settings(
    settings: Settings, folder: Path, *, run_id: str, is_offline: bool
) -> Settings:
    """Return settings for a proxy that nobody else knows of, whose record is in `folder`."""
    replaying = settings.replay
    mode = "pinned" if replaying.mode == "off" else replaying.mode
    settings = replace(
        settings,
        # The command is the only agent, and brings whatever key it has; its clients know no
        # certificate of ours.
        server=replace(
            settings.server,
            host="127.0.0.1",
            port=0,
            public_url=None,
            client_tokens=(),
            tls_cert=None,
            tls_key=None,
        ),
        store=StoreSettings(path=str(folder / "record.db"), durability="normal"),
        replay=replace(replaying, mode=mode, offline=is_offline, run_id=run_id),
    )
    if not is_offline:
        return settings
    # Nobody is there to decide. What the agent got then was decided then.
    return replace(settings, gate=GateSettings(tools=()), webhooks=())


async def load_tape(settings: StoreSettings, tape: Imported) -> None:
    """Write a cassette into a record that no server has open."""
    store = open_store(settings)
    await store.open()
    try:
        await store.import_sessions(tape.sessions, at_ms=now_ms(), replaces=False, by=None)
    finally:
        await store.close()


async def write_tape(
    settings: StoreSettings, file: Path, order: TapeOrder
) -> dict[str, Any] | None:
    """Write a record that no server has open to a file; return what its last line says. None =
    there was no call, and the file is as it was.

    Raises:
        SecretsInAnswers: see `Cassette.look`; the file is as it was.
        SettingError: it cannot be written.
    """
    store = open_store(settings)
    await store.open()
    try:
        # In an order that is the same next time, whichever came first.
        cassette = Cassette(store, sorted(await _names(store)), order)
        await cassette.look()
        if not cassette.steps:
            return None
        _make_folder(file)
        line = b""
        with open_output(file) as output:
            async for line in cassette.lines():
                output.write(line)
    finally:
        await store.close()
    said = parse(line)
    assert isinstance(said, dict), "the last line is an object"
    end = said["end"]
    assert isinstance(end, dict), "it says what there was"
    return end


def _make_folder(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"{inert(str(file))} cannot be written: {error.strerror}.") from error


async def list_unasked(settings: StoreSettings) -> Sequence[StepRow]:
    """Return the recorded steps that no call got; no server has the record open."""
    store = open_store(settings)
    await store.open()
    try:
        return [row async for row in _steps(store) if not row.replays]
    finally:
        await store.close()


def missed_lines(missed: Missed) -> Iterator[str]:
    """Yield what is to be said of a call that nothing answered, secrets taken out."""
    yield f"  {inert(missed.what)}"
    yield f"    {inert(missed.why)}"
    if missed.near is not None:
        for name, value in (("sent", missed.near.sent), ("recorded", missed.near.recorded)):
            yield f"    {name:<9} {inert(redact_text(value))}"


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the environment holds of secrets, by the names of its variables."""
    return tuple(
        value
        for name, value in environ.items()
        if name.upper().endswith(SECRET_NAMES)
        and len(value) >= SECRET_CHARS_MIN
        and any(char.isdigit() for char in value)
    )


async def _names(store: Store) -> list[str]:
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.walk_sessions(cursor, LIST_LIMIT_MAX)
        names += [row.session for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def _steps(store: Store) -> AsyncIterator[StepRow]:
    for name in await _names(store):
        query = Query(session=name, limit=LIST_LIMIT_MAX, newest_first=False)
        while True:
            page = await store.list_steps(query)
            for row in page.rows:
                yield row
            if page.next_cursor is None:
                break
            query = replace(query, after=page.next_cursor)
