"""What the doctor looks at and what it says: values that probes return and verdicts read.

Probes (`doctor_here.py`, `doctor_upstreams.py`) do I/O and judge nothing; verdicts
(`doctor_verdicts.py`, `doctor_providers.py`) judge and do no I/O; `doctor.py` puts both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentstate.ground.addresses import is_loopback
from agentstate.ground.settings import Loaded, ProviderSettings, Settings
from agentstate.wire.message import Origin

State = Literal["ok", "warn", "fault", "skip"]
# ok     as it should be             fault  something will not work
# warn   works, and may surprise     skip   not looked at; `found` says why


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    state: State
    found: str
    advice: str | None = None  # what to do; None = nothing


@dataclass(frozen=True, slots=True)
class Subject:
    """What is examined: a configuration, on this machine, as this user."""

    version: str  # of this program
    environ: Mapping[str, str]
    place: str  # the settings file that was read, '' = there is none
    loaded: Loaded | None  # None = the settings do not load
    problem: str | None = None  # why they are refused; None = they are not
    is_offline: bool = False  # nothing may leave this machine


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """What an AgentState server says at /healthz."""

    version: str
    reason: str | None  # why it does not work; None = it does


@dataclass(frozen=True, slots=True)
class PortSeen:
    """What trying to listen showed."""

    host: str
    port: int  # 0 = any free one
    outcome: Literal["free", "taken", "forbidden", "no_address"]
    server: ServerSeen | None = None  # who has it, if that is one of ours
    answer: str = ""  # what another program calls itself there, '' = it does not speak HTTP


Kind = Literal["missing", "file", "other"]
Openness = Literal["missing", "closed", "open"]  # open = files can be made in it


@dataclass(frozen=True, slots=True)
class DatabaseSeen:
    """The file of the record and its surroundings."""

    path: Path
    kind: Kind
    folder: Openness
    closed: tuple[str, ...] = ()  # names of its files that this user cannot read or write
    head: bytes = b""  # the first `HEAD_BYTES` of it, as far as it can be read
    is_held: bool = False  # by a running server
    holder: str = ""  # its process id, '' = not known
    free_bytes: int | None = None  # on its disk; None = it does not tell


@dataclass(frozen=True, slots=True)
class CertificatesSeen:
    """The certificates that upstreams are checked against."""

    source: str
    count: int = 0
    problem: str | None = None  # None = they were loaded


@dataclass(frozen=True, slots=True)
class ProxiesSeen:
    """Which proxies the environment names; host and port only, never the password."""

    http: str | None = None  # None = straight
    https: str | None = None
    problem: str | None = None


# How a call failed. dns: no such name, or no resolver. unreachable: no route. closed: the peer hung
# up before an answer. garbled: what came was not HTTP.
Failure = Literal[
    "dns", "refused", "unreachable", "connect_timeout", "answer_timeout", "certificate", "tls",
    "tunnel", "closed", "garbled", "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class AnswerSeen:
    """What a provider said when it was asked for its models."""

    failure: Failure | None = None  # None = it answered
    detail: str = ""  # of a failure, in the words of who noticed it
    via: str | None = None  # host and port of the proxy in between; None = none
    status: int = 0
    media_type: str = ""
    blames_key: bool = False  # the text of a 400 says that the key is wrong
    is_loop: bool = False  # what answered is an AgentState server
    is_open: bool = False  # it gives its list without a key as well
    took_ms: int = 0
    skew_ms: int | None = None  # our clock minus theirs; None = it cannot be told
    doubt_ms: int = 0  # how far off `skew_ms` can be


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was observed."""

    subject: Subject
    python: tuple[int, int, int]
    certificates: CertificatesSeen
    proxies: ProxiesSeen
    port: PortSeen | None = None  # None = the settings do not load
    database: DatabaseSeen | None = None  # None = likewise, or the record is not kept in a file
    answers: Mapping[str, AnswerSeen] = field(default_factory=dict)  # by provider

    @property
    def settings(self) -> Settings:
        """The settings; only for checks that need them."""
        assert self.subject.loaded is not None, "the settings did not load"
        return self.subject.loaded.settings

    def source(self, provider: str, key: str) -> str | None:
        """Return where a provider's value was set; None = it is built in."""
        assert self.subject.loaded is not None, "the settings did not load"
        return self.subject.loaded.sources.get(f"provider.{provider}.{key}")

    def is_chosen(self, row: ProviderSettings) -> bool:
        """Say whether a person configured this provider, be it by its key alone."""
        keys = ("name", "base_url", "api_key", "dialect", "models")
        return any(self.source(row.name, key) is not None for key in keys)


def is_local(row: ProviderSettings) -> bool:
    """Say whether a provider runs on this machine."""
    return is_loopback(Origin.of(row.base_url).host)
