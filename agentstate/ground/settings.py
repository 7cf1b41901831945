"""Every setting, in one table: name, type, default, unit, flag, environment names, help.

The table is these dataclasses: a field is a row. From it come the checks of `agentstate.toml`, the
environment names, `--help` and the README's table (`settings_table`). Order of authority: flags >
environment > file > defaults. Only this module reads the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

MIB = 1024 * 1024


def setting(
    default: Any, help_text: str, *, flag: str | None = None, env: tuple[str, ...] = ()
) -> Any:
    """Declare one setting. Besides `env`, AGENTSTATE_<SECTION>_<KEY> always works."""
    meta = {"help": help_text, "flag": flag, "env": env}
    if isinstance(default, (list, tuple, dict)):
        return field(default_factory=lambda: default, metadata=meta)
    return field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """[server]"""

    host: str = setting("127.0.0.1", "address to listen on", flag="--host", env=("HOST",))
    port: int = setting(8080, "port to listen on; 0 = any free one", flag="--port", env=("PORT",))
    hosts: tuple[str, ...] = setting((), "further names this server answers to (Host header)")
    require_session: bool = setting(False, "refuse calls that name no session")
    body_max_mb: int = setting(64, "largest request body of a recorded call, MiB, also unpacked")
    header_max_kb: int = setting(64, "largest request head, KiB")
    idle_timeout_s: float = setting(75.0, "idle time after which a kept-alive connection closes")
    head_timeout_s: float = setting(20.0, "time a client has to send its request head")
    body_gap_timeout_s: float = setting(60.0, "longest silence while a client sends its body")
    write_timeout_s: float = setting(120.0, "longest time a client may not read what is sent")
    connections_max: int = setting(4096, "open client connections at once")
    drain_timeout_s: float = setting(30.0, "time calls in flight get to finish after SIGTERM")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """[store]"""

    path: str = setting(
        "agentstate.db", "the SQLite file; made if missing", flag="--db", env=("AGENTSTATE_DB",)
    )
    durability: Literal["full", "normal"] = setting(
        "full", "full: every answer is fsynced before its end reaches the agent"
    )
    on_failure: Literal["refuse", "forward"] = setting(
        "refuse", "when the disk fails: refuse calls with 503, or forward them unrecorded"
    )


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """[replay]"""

    mode: Literal["pinned", "exact", "off"] = setting("pinned", "how recorded steps are matched")
    speed: Literal["instant", "recorded"] = setting("instant", "how fast a recorded stream replays")
    mask: tuple[str, ...] = setting((), "regular expressions for what `masked` ignores in prompts")


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """[stream]"""

    spool_bytes_max: int = setting(16 * MIB, "read ahead of the fastest client of a stream, bytes")
    answer_bytes_max: int = setting(64 * MIB, "largest answer that is recorded, bytes")


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """[forward]"""

    retries: int = setting(2, "further tries per target", env=())
    connect_timeout_s: float = setting(10.0, "time to reach an upstream")
    first_byte_timeout_s: float = setting(600.0, "time an upstream may think before its first byte")
    gap_timeout_s: float = setting(300.0, "longest silence inside an answer")
    total_timeout_s: float = setting(3600.0, "longest answer")
    detached_timeout_s: float = setting(300.0, "time an answer may take after its client left")
    pool_max: int = setting(256, "connections kept per upstream")
    pool_idle_s: float = setting(55.0, "idle time after which a pooled upstream connection closes")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """[log]"""

    format: Literal["text", "json"] = setting("text", "form of the log lines", flag="--log")
    level: Literal["debug", "info", "warning", "error"] = setting("info", "least level logged")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """[[provider]]: one row per provider."""

    name: str = setting("", "what it is called, as in `name/model` and /p/name/v1")
    dialect: tuple[str, ...] = setting((), "wire forms it speaks")
    base_url: str = setting("", "as the vendor's SDK writes it: OpenAI's ends in /v1")
    api_key: str | None = setting(None, "its key, or env:NAME; None = the caller's key is used")
    models: tuple[str, ...] = setting((), "patterns of the models it answers, e.g. claude-*")


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it, checked."""

    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    stream: StreamSettings = field(default_factory=StreamSettings)
    forward: ForwardSettings = field(default_factory=ForwardSettings)
    log: LogSettings = field(default_factory=LogSettings)
    providers: tuple[ProviderSettings, ...] = ()
    mock: bool = False  # --mock: every provider is the mock provider
