"""The doctor's probes of this machine: port, database, certificates, proxies.

They change nothing: no file is made, no database opened as one (SQLite would put files beside it),
and a port is bound for a moment but never listened on. They judge nothing either.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import sys
from pathlib import Path

from agentstate.dialects.lenient import Unreadable, as_object, read
from agentstate.ground.errors import SettingError, UpstreamError
from agentstate.ground.settings import ForwardSettings, Network, ServerSettings
from agentstate.house.doctor_seen import (
    CertificatesSeen,
    DatabaseSeen,
    Kind,
    Openness,
    PortSeen,
    ProxiesSeen,
    ServerSeen,
)
from agentstate.wire.client import HTTPClient, Proxies, read_proxies, tls_context
from agentstate.wire.message import Headers, Origin, OutCall, TimeLimits

if sys.platform != "win32":
    import fcntl

HEALTH_LIMIT_S = 3.0  # a server on this machine; its disk may be slow
HEALTH_BYTES_MAX = 64 * 1024
HEAD_BYTES = 108  # of a database: the file's header and that of its first page
OWNER_BYTES_MAX = 64  # of a lock file: a process id


async def look_at_port(settings: ServerSettings) -> PortSeen:
    """Try to bind the address as the server would, and ask who has it."""
    host, port = settings.host, settings.port
    try:
        # Not listening: nobody can connect to what is about to go away.
        bound = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, host, port, start_serving=False
        )
    except UnicodeError:  # it can be no name at all
        return PortSeen(host, port, "no_address")
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                return await _look_at_holder(host, port)
            case errno.EACCES:
                return PortSeen(host, port, "forbidden")
            case _:
                return PortSeen(host, port, "no_address")
    bound.close()
    return PortSeen(host, port, "free")


def look_at_database(path: Path) -> DatabaseSeen:
    """Look at the file and its folder, through the names a server would use."""
    path = path.resolve()  # as the store does: the lock is beside the file itself
    folder = path.parent
    free_bytes = _free_bytes(folder)
    openness = _openness(folder)
    if openness == "missing":
        return DatabaseSeen(path, "missing", openness, free_bytes=free_bytes)
    beside = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm", ".lock")]
    rights = os.R_OK | os.W_OK
    closed = tuple(each.name for each in beside if _exists(each) and not _may(each, rights))
    is_held, holder = _look_at_lock(beside[-1])
    kind = _kind(path)
    head = _head(path) if kind == "file" else b""
    return DatabaseSeen(path, kind, openness, closed, head, is_held, holder, free_bytes)


def look_at_certificates(network: Network) -> CertificatesSeen:
    """Load the certificates as the client would."""
    places = [
        f"{name}={value}"
        for name, value in (
            ("SSL_CERT_FILE", network.ssl_cert_file),
            ("SSL_CERT_DIR", network.ssl_cert_dir),
        )
        if value
    ]
    source = " and ".join(places) or "the certifi package"
    try:
        context = tls_context(network.ssl_cert_file, network.ssl_cert_dir)
    except SettingError as error:
        return CertificatesSeen(source, problem=error.message)
    count = context.cert_store_stats()["x509"]
    # OpenSSL reads a folder only when it looks for one of its certificates, and takes any name.
    if network.ssl_cert_dir and not network.ssl_cert_file:
        count = _count_files(network.ssl_cert_dir)
        if not count:
            problem = f"SSL_CERT_DIR names {network.ssl_cert_dir}, where there is no file to read."
            return CertificatesSeen(source, problem=problem)
    return CertificatesSeen(source, count)


def look_at_proxies(network: Network) -> ProxiesSeen:
    """Read the proxy variables as the client would."""
    try:
        proxies = proxies_of(network)
    except SettingError as error:
        return ProxiesSeen(problem=error.message)
    http, https = proxies.http, proxies.https
    return ProxiesSeen(
        None if http is None else str(http.origin), None if https is None else str(https.origin)
    )


def proxies_of(network: Network) -> Proxies:
    """Return the proxies that the environment names.

    Raises:
        SettingError: a variable names none that can be used.
    """
    named = {
        "http_proxy": network.http_proxy,
        "https_proxy": network.https_proxy,
        "no_proxy": ",".join(network.no_proxy),
    }
    return read_proxies({name: value for name, value in named.items() if value})


async def _look_at_holder(host: str, port: int) -> PortSeen:
    """Ask who listens; what is none of ours is known by what it calls itself."""
    client = HTTPClient(ForwardSettings())
    call = OutCall("GET", Origin("http", host, port), b"/healthz", ())
    limits = TimeLimits(HEALTH_LIMIT_S, HEALTH_LIMIT_S, HEALTH_LIMIT_S, HEALTH_LIMIT_S)
    try:
        exchange = await client.send(call, limits)
        raw = await exchange.read(HEALTH_BYTES_MAX)
    except UpstreamError:
        return PortSeen(host, port, "taken")
    finally:
        await client.close()
    server = _read_health(raw)
    return PortSeen(host, port, "taken", server, _name_of(exchange.headers, exchange.status))


def _name_of(headers: Headers, status: int) -> str:
    return headers.text(b"server") or f"HTTP, status {status}"


def _read_health(raw: bytes) -> ServerSeen | None:
    """Read an answer of /healthz; None = it is none of ours."""
    try:
        body = as_object(read(raw))
    except Unreadable:
        return None
    status, version, reason = body.get("status"), body.get("version"), body.get("reason")
    if status not in ("ok", "degraded") or not isinstance(version, str):
        return None
    return ServerSeen(version, None if status == "ok" else str(reason))


def _look_at_lock(lock: Path) -> tuple[bool, str]:
    """Say whether a server holds the lock, and which process that is.

    The lock is tried shared and let go at once, so two doctors do not see each other.
    """
    if sys.platform == "win32":
        return False, ""  # there a server is found by its port alone
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return False, ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, OWNER_BYTES_MAX).strip()
        return True, owner.decode() if owner.isdigit() else ""
    except OSError:
        return False, ""  # a disk without locks; the server says so itself
    finally:
        os.close(descriptor)  # which lets go of it
    return False, ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the way there is closed
        return False


def _openness(folder: Path) -> Openness:
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except PermissionError:  # the way there is closed
        return "closed"
    except OSError:
        return "missing"
    if not is_folder:
        return "missing"
    return "open" if _may(folder, os.W_OK | os.X_OK) else "closed"


def _may(path: Path, rights: int) -> bool:
    """Say whether this user may, as opening it would."""
    return os.access(path, rights, effective_ids=os.access in os.supports_effective_ids)


def _kind(path: Path) -> Kind:
    try:
        mode = path.stat().st_mode
    except OSError:
        return "missing"
    # Anything else, a pipe say, is not opened: that could wait for ever.
    return "file" if stat.S_ISREG(mode) else "other"


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""  # it is among the closed ones


def _free_bytes(folder: Path) -> int | None:
    place = next((each for each in (folder, *folder.parents) if os.path.isdir(each)), None)
    try:
        return None if place is None else shutil.disk_usage(place).free
    except OSError:
        return None


def _count_files(folder: str) -> int:
    try:
        return sum(1 for each in Path(folder).iterdir() if each.is_file())
    except OSError:
        return 0
