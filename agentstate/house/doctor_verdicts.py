"""The doctor's verdicts on this machine: program, settings, port, record, gate, webhooks. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from agentstate.ground.budget import Budget, limits_of, shown
from agentstate.ground.providers import BUILT_IN
from agentstate.ground.settings import MIB
from agentstate.house.doctor_seen import DatabaseSeen, Finding, PortSeen, Seen, State
from agentstate.house.hooks import build_hooks
from agentstate.store.sqlite_migrations import MIGRATIONS
from agentstate.store.sqlite_schema import APPLICATION_ID

PYTHON_LEAST = (3, 11)
GIB = 1024 * MIB
DISK_BYTES_LEAST = 128 * MIB  # the largest answer that is recorded, and the log it passes through
DISK_BYTES_LOW = GIB
NAMES_MAX = 6  # that are listed in one line
BASE_NAMES = tuple(name for known in BUILT_IN for name in known.base_env)

_MAGIC = b"SQLite format 3\0"  # this and what is read of it: https://sqlite.org/fileformat.html
_PAGE_1 = 100  # where the header of the first page begins, which holds the list of tables
_INTERIOR = 5  # a page that points to others: the list of tables is long


def judge_python(seen: Seen) -> Iterator[Finding]:
    """Judge what it runs on."""
    version = ".".join(map(str, seen.python))
    found = f"AgentState {seen.subject.version} on Python {version}, {sys.platform}"
    if seen.python < PYTHON_LEAST:
        yield Finding("python", "fault", found, "Run it with Python 3.11 or newer.")
    elif sys.platform == "win32":
        yield Finding("python", "warn", found, "It is not tested on Windows; WSL is Linux.")
    else:
        yield Finding("python", "ok", found)


def judge_settings(seen: Seen) -> Iterator[Finding]:
    """Judge whether they load, and say where they come from."""
    subject = seen.subject
    if subject.problem is not None:
        advice = "The server does not start with this. Correct it and look again."
        yield Finding("settings", "fault", subject.problem, advice)
        return
    assert subject.loaded is not None, "neither loaded nor refused"
    values = subject.loaded.sources.values()
    names = sorted({value for value in values if value in subject.environ})
    given = sorted({value for value in values if value.startswith("--")})
    found = subject.place or "no agentstate.toml here"
    if names:
        found += f"; from the environment: {_listed(names)}"
    if given:
        found += f"; from the command line: {_listed(given)}"
    yield Finding("settings", "ok", found)
    for warning in subject.loaded.warnings:
        if not warning.startswith(BASE_NAMES):  # those are told as base URLs
            yield Finding("settings", "warn", warning)


def judge_port(seen: Seen) -> Iterator[Finding]:
    """Judge whether a server can listen, or does."""
    port = seen.port
    assert port is not None, "settings loaded, port not looked at"
    place = f"{port.host}:{port.port}"
    match port.outcome:
        case "free" if port.port == 0:
            yield Finding("port", "ok", f"any free one on {port.host}")
        case "free":
            yield Finding("port", "ok", f"{place} is free")
        case "forbidden":
            found = f"{place} is closed to this user"
            yield Finding("port", "fault", found, "Choose a port above 1023: --port 8080.")
        case "no_address":
            found = f"{place} is no address of this machine"
            yield Finding("port", "fault", found, "Listen on this machine: --host 127.0.0.1.")
        case "taken":
            yield _judge_holder(port, place, seen.subject.version)


def _judge_holder(port: PortSeen, place: str, version: str) -> Finding:
    server = port.server
    if server is None:
        who = f" ({port.answer})" if port.answer else ", which does not speak HTTP"
        return Finding(
            "port",
            "fault",
            f"{place} is taken by another program{who}",
            f"Stop that one (`lsof -i :{port.port}` says which it is), or start here with another "
            "port: --port 8081.",
        )
    found = f"a server is running here: AgentState {server.version} at {place}"
    if server.reason is not None:
        advice = "It refuses calls until that is mended; it need not be restarted."
        return Finding("port", "fault", f"{found} says: {server.reason}", advice)
    if server.version != version:
        advice = "Restart it if it should be the version you have here."
        return Finding("port", "warn", f"{found}, this is {version}", advice)
    return Finding("port", "ok", found)


def judge_database(seen: Seen) -> Iterator[Finding]:
    """Judge whether a server could write the record, or one does."""
    database = seen.database
    if database is None:
        advice = "Nothing survives a restart. Name a file if a run is to be resumed: --db FILE."
        yield Finding("database", "warn", "the record is kept in memory only", advice)
        return
    is_served = seen.port is not None and seen.port.server is not None
    yield _judge_file(database, is_served)


def _judge_file(database: DatabaseSeen, is_served: bool) -> Finding:
    """Judge in this order: in use, where it is, whose it is, what it is."""
    path = database.path
    if database.is_held:
        process = f", process {database.holder}" if database.holder else ""
        found = f"{path} is in use by a running server{process}"
        if is_served:
            return Finding("database", "ok", found)
        advice = (
            "That one listens elsewhere, and a second one does not start on this file. Give it one "
            "of its own (--db FILE), or ask the doctor with the port of the first."
        )
        return Finding("database", "fault", found, advice)
    if database.folder == "missing":
        found = f"{path}: there is no such directory"
        return Finding("database", "fault", found, "Make it, or name another file with --db.")
    # A server that runs as another user may well write what this one cannot.
    state: State = "warn" if is_served else "fault"
    user = "Change its owner or its permissions" + (
        ", if this user is to start the server." if is_served else ", or name another with --db."
    )
    if database.folder == "closed":
        found = f"no file can be made in {path.parent}, and the record needs several"
        return Finding("database", state, found, user)
    if database.kind == "other":
        found = f"{path} is not a file"
        return Finding("database", "fault", found, "Name a file with --db.")
    if database.closed:
        found = f"{_listed(database.closed)} in {path.parent}: this user cannot read and write it"
        return Finding("database", state, found, user)
    if database.kind == "missing":
        return Finding("database", "ok", f"{path} will be made at the first start")
    return _judge_head(database)


def _judge_head(database: DatabaseSeen) -> Finding:
    """Judge a file by its first bytes, as `sqlite_schema.check_owner` does by SQL."""
    path, head = database.path, database.head
    away = "Move it away, or name another file with --db."
    if not head:
        return Finding("database", "ok", f"{path} is empty and will be filled")
    if not head.startswith(_MAGIC) or len(head) <= _PAGE_1 + 5:
        return Finding("database", "fault", f"{path} is not a database", away)
    version = int.from_bytes(head[60:64])
    application_id = int.from_bytes(head[68:72])
    has_tables = head[_PAGE_1] == _INTERIOR or any(head[_PAGE_1 + 3 : _PAGE_1 + 5])
    if application_id != APPLICATION_ID:
        if has_tables or version or application_id:
            return Finding("database", "fault", f"{path} is a database of something else", away)
        return Finding("database", "ok", f"{path} is an empty database and will be filled")
    if version > len(MIGRATIONS):
        return Finding(
            "database",
            "fault",
            f"{path} was written by a newer version (its schema is number {version}, this one "
            f"knows {len(MIGRATIONS)})",
            "Start the newer version, or name another file with --db.",
        )
    if version < len(MIGRATIONS):
        found = f"{path} is from an older version and will be brought forward at the next start"
        advice = "Keep a copy if you may want to go back: the older version will not read it."
        return Finding("database", "ok", found, advice)
    return Finding("database", "ok", f"{path} can be written")


def judge_disk(seen: Seen) -> Iterator[Finding]:
    """Judge whether there is room."""
    database = seen.database
    if database is None or database.free_bytes is None:
        yield Finding("disk", "skip", "it does not tell how much is free")
        return
    free = database.free_bytes
    found = f"{_size(free)} free for {database.path.parent}"
    if free < DISK_BYTES_LEAST:
        advice = "Make room there: without it calls are refused with 503."
        yield Finding("disk", "fault", found, advice)
    elif free < DISK_BYTES_LOW:
        yield Finding("disk", "warn", found, "Make room there soon.")
    else:
        yield Finding("disk", "ok", found)


def judge_certificates(seen: Seen) -> Iterator[Finding]:
    """Judge whether https upstreams can be checked at all."""
    certificates = seen.certificates
    if certificates.problem is not None:
        advice = "No https upstream can be reached like this."
        yield Finding("certificates", "fault", certificates.problem, advice)
        return
    yield Finding("certificates", "ok", f"{certificates.count} from {certificates.source}")


def judge_proxies(seen: Seen) -> Iterator[Finding]:
    """Judge the proxy variables."""
    proxies = seen.proxies
    if proxies.problem is not None:
        yield Finding("proxies", "fault", proxies.problem, "The server does not start like this.")
    elif proxies.http == proxies.https:
        way = f"all upstreams through {proxies.https}" if proxies.https else "none"
        yield Finding("proxies", "ok", way)
    else:
        ways = [
            f"{scheme} through {proxy}" if proxy else f"{scheme} straight"
            for scheme, proxy in (("https", proxies.https), ("http", proxies.http))
        ]
        yield Finding("proxies", "ok", ", ".join(ways))


def judge_gate(seen: Seen) -> Iterator[Finding]:
    """Say what waits for a person."""
    gate = seen.settings.gate
    parts = []
    if gate.tools:
        parts.append(f"a person decides on {_listed(gate.tools)}")
    if gate.rules:
        parts.append(f"{len(gate.rules)} rule" + ("s" if len(gate.rules) > 1 else ""))
    if parts:
        yield Finding("gate", "ok", "; ".join(parts))
        return
    yield Finding(
        "gate",
        "warn",
        "holds nothing: gate.tools is empty and there is no rule",
        "Name what must not happen by itself: gate.tools in agentstate.toml.",
    )


def judge_budget(seen: Seen) -> Iterator[Finding]:
    """Say what each session may pay for; nothing where there are no caps."""
    caps = seen.settings.budget.caps
    limits = limits_of(Budget(), caps, None)
    if not limits:
        return
    told = ", ".join(f"{limit.cap} {shown(limit.cap, limit.amount):,}" for limit in limits)
    said = f"{told} for each session; then {'a person is asked' if caps.action == 'hold' else 429}"
    if [limit.cap for limit in limits] != ["cost_usd"]:
        yield Finding("budget", "ok", said)
        return
    yield Finding(
        "budget",
        "warn",
        f"{said}. Models without a price cost nothing in its eyes",
        "Set budget.tokens or budget.steps as well: they count every answer.",
    )


def judge_webhooks(seen: Seen) -> Iterator[Finding]:
    """Say who is told; nobody is called."""
    hooks = build_hooks(seen.settings.webhooks)
    if hooks:
        named = [f"{hook.name} ({hook.format.name} at {hook.host})" for hook in hooks]
        advice = "`agentstate webhook test` sends each a sample."
        yield Finding("webhooks", "ok", f"{_listed(named)}; not called", advice)
        return
    found = "none: who waits for a decision is seen in the dashboard and `approvals watch` only"
    yield Finding("webhooks", "ok", found)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _size(size_bytes: int) -> str:
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:.1f} GiB"
    return f"{size_bytes / MIB:.0f} MiB"
