"""The doctor: looks at a configuration and its surroundings, and says what is wrong and what to do.

First everything is looked at (probes, all network calls at once), then each row of `CHECKS` judges
what was seen. Nothing is made or changed, and no key is in a finding. A new check is one row here
and a verdict.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agentstate.ground.secrets import strike
from agentstate.ground.settings import read_network
from agentstate.house import doctor_providers as providers
from agentstate.house import doctor_verdicts as verdicts
from agentstate.house.doctor_here import (
    look_at_certificates,
    look_at_database,
    look_at_port,
    look_at_proxies,
)
from agentstate.house.doctor_seen import AnswerSeen, Finding, Seen, Subject
from agentstate.house.doctor_upstreams import LIMIT_S, ask_providers

Need = Literal["nothing", "settings", "upstreams"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is judged; it may find several."""

    name: str
    judge: Callable[[Seen], Iterable[Finding]]
    needs: Need = "settings"


CHECKS = (
    Check("python", verdicts.judge_python, "nothing"),
    Check("settings", verdicts.judge_settings, "nothing"),
    Check("port", verdicts.judge_port),
    Check("database", verdicts.judge_database),
    Check("disk", verdicts.judge_disk),
    Check("certificates", verdicts.judge_certificates, "nothing"),
    Check("proxies", verdicts.judge_proxies, "nothing"),
    Check("base urls", providers.judge_base_urls),
    Check("upstreams", providers.judge_upstreams, "upstreams"),
    Check("keys", providers.judge_keys),
    Check("fallback", providers.judge_fallbacks),
    Check("clock", providers.judge_clock, "upstreams"),
    Check("gate", verdicts.judge_gate),
    Check("budget", verdicts.judge_budget),
    Check("webhooks", verdicts.judge_webhooks),
)


async def examine(subject: Subject, *, limit_s: float = LIMIT_S) -> tuple[Finding, ...]:
    """Look at everything and judge it; takes `limit_s` at most, but for what the disk takes."""
    return judge(await look(subject, limit_s=limit_s))


async def look(subject: Subject, *, limit_s: float = LIMIT_S) -> Seen:
    """Observe all that the checks need; judge nothing."""
    network = read_network(subject.environ)
    seen = Seen(
        subject,
        sys.version_info[:3],
        look_at_certificates(network),
        look_at_proxies(network),
    )
    if subject.loaded is None:
        return seen
    settings = subject.loaded.settings
    scheme, mark, rest = settings.store.path.partition("://")
    path = rest if mark else scheme
    if not mark or scheme == "sqlite":
        seen = replace(seen, database=look_at_database(Path(path)))
    port, answers = await asyncio.gather(look_at_port(settings.server), _ask(seen, limit_s))
    return replace(seen, port=port, answers=answers)


def judge(seen: Seen) -> tuple[Finding, ...]:
    """Return what every check finds, in the order of the table. Pure."""
    rows = () if seen.subject.loaded is None else seen.settings.providers
    keys = [row.api_key for row in rows if row.api_key]
    return tuple(
        replace(
            finding,
            found=strike(finding.found, *keys),
            advice=None if finding.advice is None else strike(finding.advice, *keys),
        )
        for check in CHECKS
        for finding in _findings(check, seen)
    )


def _findings(check: Check, seen: Seen) -> Iterator[Finding]:
    reason = _why_not(check, seen)
    if reason is None:
        yield from check.judge(seen)
    else:
        yield Finding(check.name, "skip", reason)


def _why_not(check: Check, seen: Seen) -> str | None:
    """Say why a check cannot be made; None = it can."""
    if check.needs == "nothing":
        return None
    if seen.subject.loaded is None:
        return "the settings must load first"
    if check.needs == "upstreams" and seen.settings.mock:
        return "mock: no model is asked"
    if check.needs == "upstreams" and seen.subject.is_offline:
        return "not asked: --offline"
    return None


async def _ask(seen: Seen, limit_s: float) -> Mapping[str, AnswerSeen]:
    """Ask the providers, unless that is not wanted or cannot work."""
    settings, subject = seen.settings, seen.subject
    is_broken = seen.certificates.problem is not None or seen.proxies.problem is not None
    if settings.mock or subject.is_offline or is_broken:
        return {}
    network = read_network(subject.environ)
    return await ask_providers(settings.providers, network, limit_s=limit_s)
