"""Every setting: name, type, default, bounds, flag, environment names, help.

A field of these dataclasses is a row of the table that `settings_table.py` makes of them. Order of
authority: flags > environment > file > defaults; `load.py` carries it out. Only this module reads
the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentstate.ground.access import TOKEN_CHARS_MIN
from agentstate.ground.budget import Caps, microusd_of
from agentstate.ground.events import EventKind

MIB = 1024 * 1024
ENV_PREFIX = "AGENTSTATE_"

# People paste these from examples; they mean "use what is configured, or the mock".
PLACEHOLDER_KEYS = frozenset(("mock-key", "your-api-key"))

SHORTEST_WAIT_S = 0.1  # below it a healthy client on a busy machine is cut off
READ_BYTES = 64 * 1024  # one read of a socket: a smaller window could never hold it

Kind = Literal["text", "integer", "number", "switch", "list"]
# Of text, and of the items of a list.
Form = Literal["plain", "pattern", "glob", "condition", "url"]
Value = str | int | float | bool | tuple[str, ...] | None


def setting(
    default: Any,
    help_text: str,
    *,
    flag: str | None = None,
    env: tuple[str, ...] = (),
    least: float = 0,
    most: float | None = None,
    form: Form = "plain",
    is_secret: bool = False,
) -> Any:
    """Declare one setting. Besides `env`, AGENTSTATE_<SECTION>_<KEY> always works.

    `least` and `most` bound numbers (`most` None = no upper bound), `form` says what text must be,
    `is_secret` values are never shown, not even by `repr`.
    """
    meta = {
        "help": help_text,
        "flag": flag,
        "env": env,
        "least": least,
        "most": most,
        "form": form,
        "is_secret": is_secret,
    }
    return field(default=default, metadata=meta, repr=not is_secret)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """[server]"""

    host: str = setting("127.0.0.1", "address to listen on", flag="--host")
    port: int = setting(
        8080, "port to listen on; 0 = any free one", flag="--port", env=("PORT",), most=65535
    )
    hosts: tuple[str, ...] = setting((), "further names this server answers to (Host header)")
    public_url: str | None = setting(
        None, "where people reach it, for links in messages; none = where it listens", form="url"
    )
    token: str | None = setting(
        None,
        "asked of people and programs for the dashboard and the API; auto = one that is made once "
        "and kept beside the database; none = it listens on this machine alone",
        flag="--token",
        env=("AGENTSTATE_TOKEN",),
        is_secret=True,
    )
    approve_tokens: tuple[str, ...] = setting(
        (), "tokens that may only read, and decide what waits for a person", is_secret=True
    )
    read_tokens: tuple[str, ...] = setting((), "tokens that may only read", is_secret=True)
    client_tokens: tuple[str, ...] = setting(
        (),
        "tokens of agents, for /v1; none = on this machine alone agents need none",
        is_secret=True,
    )
    tls_cert: str | None = setting(
        None, "certificate chain (PEM) to serve HTTPS with", flag="--tls-cert"
    )
    tls_key: str | None = setting(None, "its key (PEM)", flag="--tls-key")
    require_session: bool = setting(False, "refuse calls that name no session")
    body_max_mb: int = setting(
        64, "largest request body of a recorded call, MiB, also unpacked", least=1
    )
    header_max_kb: int = setting(64, "largest request head, KiB", least=1)
    idle_timeout_s: float = setting(
        75.0, "idle time after which a kept-alive connection closes", least=SHORTEST_WAIT_S
    )
    head_timeout_s: float = setting(
        20.0, "time a client has to send its request head", least=SHORTEST_WAIT_S
    )
    body_gap_timeout_s: float = setting(
        60.0, "longest silence while a client sends its body", least=SHORTEST_WAIT_S
    )
    write_timeout_s: float = setting(
        120.0, "longest time a client may not read what is sent", least=SHORTEST_WAIT_S
    )
    connections_max: int = setting(4096, "open client connections at once", least=1)
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
    retention_days: float | None = setting(
        None,
        "days after which a session that nobody used is deleted; none given = never",
        # None goes that was active in the last hour; and 0 may be meant as no limit.
        least=0.05,
    )
    steps_max: int | None = setting(
        None, "steps on record, over which the longest unused sessions are deleted", least=1
    )
    size_max_mb: int | None = setting(
        None, "size of the record, MiB, over which the longest unused sessions are deleted", least=1
    )


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """[replay]"""

    mode: Literal["pinned", "exact", "off"] = setting("pinned", "how recorded steps are matched")
    speed: Literal["instant", "recorded"] = setting("instant", "how fast a recorded stream replays")
    mask: tuple[str, ...] = setting(
        (), "regular expressions for what `masked` ignores in prompts", form="pattern"
    )
    offline: bool = setting(
        False, "answer only from the record: nothing goes out, a miss fails", flag="--offline"
    )
    # The run of calls that send no run id. None = they have none. No setting: only `record` and
    # `replay` know that what they start is one run.
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class RedactSettings:
    """[redact]"""

    patterns: tuple[str, ...] = setting(
        (), "regular expressions for what else is written of no request", form="pattern"
    )


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """[[gate.rule]]: one row per rule."""

    tool: str = setting("*", "glob of tool names, e.g. stripe_*", form="glob")
    when: str | None = setting(
        None,
        'condition on the arguments, e.g. args.amount > 5000 and args.currency == "eur"',
        form="condition",
    )
    action: Literal["ask", "deny", "allow"] = setting("ask", "what to do with a call it matches")
    then: Literal["stop", "continue"] | None = setting(
        None, "what follows a deny; none given = as header or gate.on_reject say"
    )
    reason: str | None = setting(None, "what the model or the client is told of a deny")


@dataclass(frozen=True, slots=True)
class GateSettings:
    """[gate]"""

    tools: tuple[str, ...] = setting(
        ("send_email", "execute_command", "delete_database", "stripe_charge"),
        "globs of tools that a person must approve where no rule says otherwise",
        form="glob",
    )
    timeout_s: float = setting(3600.0, "time a person has to decide; 0 = no limit")
    on_reject: Literal["stop", "continue"] = setting(
        "stop", "after a rejection: end the call with 403, or tell the model and go on"
    )
    heartbeat_s: float = setting(
        10.0, "longest silence towards a client that waits for a decision", least=SHORTEST_WAIT_S
    )
    rerelease: Literal["release", "ask"] = setting(
        "release", "a call that was approved and given to an earlier run: release it, or ask again"
    )
    strict: bool = setting(False, "refuse paths on which tool calls cannot be held")
    interim: Literal["known", "always", "never"] = setting(
        "known", "send 102 while a call is held: to clients known to take it, to all, to none"
    )
    rules: tuple[RuleSettings, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """[tools]"""

    unknown: Literal["ask", "run", "skip"] = setting(
        "ask",
        "a durable tool call that was begun and never reported: ask a person, run it again, or go "
        "on without it",
    )


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """[budget]: caps for each session"""

    steps: int | None = setting(None, "answers a session may pay for")
    tokens: int | None = setting(None, "tokens it may pay for, in and out")
    cost_usd: float | None = setting(None, "dollars it may pay, as far as prices are known")
    repeats: int | None = setting(
        None, "how often in a row the model may ask for the same tool calls", least=1
    )
    action: Literal["hold", "refuse"] = setting(
        "hold", "at a cap: ask a person whether it goes on, or answer 429"
    )

    @property
    def caps(self) -> Caps:
        """The same as caps of a session."""
        cost = None if self.cost_usd is None else microusd_of(self.cost_usd)
        return Caps(self.steps, self.tokens, cost, self.repeats, self.action)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """[stream]"""

    tool_calls: Literal["live", "hold"] = setting(
        "live", "tool calls no rule names: release as they come, or only once they are on record"
    )
    spool_bytes_max: int = setting(
        16 * MIB, "read ahead of the fastest client of a stream, bytes", least=READ_BYTES
    )
    answer_bytes_max: int = setting(
        64 * MIB, "largest answer that is recorded, bytes", least=READ_BYTES
    )


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """[[forward.route]]: one row per kind of model."""

    model: str = setting("*", "glob of model names as they are asked for, e.g. gpt-*", form="glob")
    fallback: tuple[str, ...] = setting((), "models to try after one of these, in order")


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """[forward]"""

    retries: int = setting(2, "further tries at one target after a failure that may pass", most=10)
    retry_after_max_s: float = setting(
        30.0, "longest pause an upstream may ask for; of a longer one the next target is tried"
    )
    retry_total_s: float = setting(
        60.0, "time after which no target is tried again; the next one still is"
    )
    fallback: tuple[str, ...] = setting(
        (),
        "models to try, in order, after the one that was asked for; model or provider/model",
        env=("FALLBACK_MODEL",),
    )
    fallback_on_filter: bool = setting(
        False, "try the next model also where a content filter refused"
    )
    cooldown_after: int = setting(
        3, "failures in a row after which a target rests, where there is another one", least=1
    )
    cooldown_s: float = setting(30.0, "how long it rests")
    commit_after_s: float = setting(
        10.0, "time after which a stream's client is answered though nothing has come yet"
    )
    connect_timeout_s: float = setting(10.0, "time to reach an upstream; 0 = no limit")
    first_byte_timeout_s: float = setting(
        600.0, "time an upstream may think before its first byte; 0 = no limit"
    )
    gap_timeout_s: float = setting(300.0, "longest silence inside an answer; 0 = no limit")
    total_timeout_s: float = setting(3600.0, "longest answer; 0 = no limit")
    detached_timeout_s: float = setting(300.0, "time an answer may take after its client left")
    pool_max: int = setting(256, "connections kept per upstream", least=1)
    pool_idle_s: float = setting(55.0, "idle time after which a pooled upstream connection closes")
    routes: tuple[RouteSettings, ...] = ()


@dataclass(frozen=True, slots=True)
class LogSettings:
    """[log]"""

    format: Literal["text", "json"] = setting("text", "form of the log lines", flag="--log")
    level: Literal["debug", "info", "warning", "error"] = setting("info", "least level logged")


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """[sweep]"""

    stalled_after_s: float = setting(
        900.0,
        "silence after which a session that owes tool results, or a try, is stalled; 0 = never",
    )
    completed_after_s: float = setting(
        120.0, "silence after which any other session is completed; 0 = never"
    )


# What somebody should be told if they say no more than a URL: what waits for them or went wrong.
DEFAULT_EVENTS: tuple[EventKind, ...] = (
    "approval.required", "session.failed", "session.stalled", "budget.reached"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """[[webhook]]: one row per webhook."""

    name: str = setting("", "what it is called; none given = webhook-1, webhook-2, ...")
    url: str = setting(
        "", "where events are posted, or env:NAME; it is never shown or logged", is_secret=True
    )
    format: Literal["slack", "discord", "json"] | None = setting(
        None, "what it is sent; none given = as its URL says, else json"
    )
    events: tuple[str, ...] = setting(DEFAULT_EVENTS, "kinds of events it is told of")
    sessions: tuple[str, ...] = setting((), "globs of sessions it is told of; none given = all")
    secret: str | None = setting(
        None, "signs what json webhooks are sent, or env:NAME", is_secret=True
    )


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """[[provider]]: one row per provider."""

    name: str = setting("", "what it is called, as in `name/model` and /p/name/v1")
    dialect: tuple[str, ...] = setting(
        (),
        "wire forms it speaks, best first: openai_chat, openai_responses, anthropic_messages, "
        "gemini, ollama_chat; none given = openai_chat",
    )
    base_url: str = setting("", "as the vendor's SDK writes it: OpenAI's ends in /v1")
    api_key: str | None = setting(
        None, "its key, or env:NAME; none = the caller's key is used", is_secret=True
    )
    models: tuple[str, ...] = setting((), "patterns of the models it answers, e.g. claude-*")


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it, checked."""

    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    redact: RedactSettings = field(default_factory=RedactSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    tools: ToolSettings = field(default_factory=ToolSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    stream: StreamSettings = field(default_factory=StreamSettings)
    forward: ForwardSettings = field(default_factory=ForwardSettings)
    sweep: SweepSettings = field(default_factory=SweepSettings)
    log: LogSettings = field(default_factory=LogSettings)
    webhooks: tuple[WebhookSettings, ...] = ()
    providers: tuple[ProviderSettings, ...] = ()
    mock: bool = setting(False, "every provider is the offline mock provider", flag="--mock")
    crash_at: str = setting(
        "", "for tests: kill this process at a named point, as in before_commit:3 (third pass)"
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys and tokens that are configured: what leaves the record must not hold them."""
        keys = [row.api_key for row in self.providers]
        server = self.server
        tokens = (server.token, *server.approve_tokens, *server.read_tokens, *server.client_tokens)
        keys += [text for text in tokens if text and len(text) >= TOKEN_CHARS_MIN]  # not "auto"
        hooks = [text for row in self.webhooks for text in (row.secret, row.url)]
        return tuple(dict.fromkeys(text for text in (*keys, *hooks) if text))


@dataclass(frozen=True, slots=True)
class Network:
    """What the environment says about reaching the outside; the usual names, none of them ours."""

    http_proxy: str | None = None  # None = connect directly
    https_proxy: str | None = None
    no_proxy: tuple[str, ...] = ()  # hosts, .suffixes or "*", lower case
    ssl_cert_file: str | None = None  # None = the certificates of certifi
    ssl_cert_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, where each came from, and what a person should be told about them."""

    settings: Settings
    # "server.port" -> "--port", "PORT", "agentstate.toml:3" or "default"; providers as
    # "provider.openai.base_url", webhooks likewise, rules and routes by their number from 1 as
    # "gate.rule.1.tool".
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    network: Network = Network()


@dataclass(frozen=True, slots=True)
class FileRow:
    """One `[[provider]]` or `[[webhook]]` of the file, its values checked one by one but not
    together."""

    values: Mapping[str, Value]
    places: Mapping[str, str]  # "file:line" of each
    place: str  # of the row itself


def read_environment() -> dict[str, str]:
    """Return a copy of the process's environment. The only place that looks at it."""
    return dict(os.environ)


def read_network(environ: Mapping[str, str]) -> Network:
    """Read proxies and certificate places; lower-case names win over upper-case ones, as in curl.

    HTTP_PROXY in capitals is ignored under CGI, where a client's Proxy header can set it (httpoxy,
    CVE-2016-5385).
    """

    def first(*names: str) -> str | None:
        return next((environ[name] for name in names if environ.get(name)), None)

    plain = ("http_proxy",) if "REQUEST_METHOD" in environ else ("http_proxy", "HTTP_PROXY")
    hosts = (first("no_proxy", "NO_PROXY") or "").split(",")
    return Network(
        http_proxy=first(*plain, "all_proxy", "ALL_PROXY"),
        https_proxy=first("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
        no_proxy=tuple(host.strip().lower() for host in hosts if host.strip()),
        ssl_cert_file=first("SSL_CERT_FILE"),
        ssl_cert_dir=first("SSL_CERT_DIR"),
    )
