"""What a running server does when it is told that its configuration has changed (SIGHUP).

It reads the whole of it as at the start, and takes over the policy and the webhooks. What is wrong
changes nothing and is told in the log; what takes a restart is told there as well. The signal
itself is installed in `app.py`, what is taken of two configurations is in `ground/reload.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentstate.ground.errors import SettingError
from agentstate.ground.reload import Reloaded
from agentstate.ground.settings import Loaded, Settings
from agentstate.house.hooks import Hook, build_hooks
from agentstate.steps.policy import Policy

log = logging.getLogger("agentstate.reload")


@dataclass(frozen=True, slots=True)
class Found:
    """A configuration that was read again, with what is made of it."""

    loaded: Loaded
    policy: Policy
    hooks: tuple[Hook, ...]


async def reload_on(
    hangups: asyncio.Event, load: Callable[[], Loaded], adopt: Callable[[Found], Reloaded]
) -> None:
    """Read the configuration again each time `hangups` is set; ends only if it is cancelled.

    `load` raises `SettingError` where a server would not start with what it finds.
    """
    while True:
        await hangups.wait()
        hangups.clear()  # before reading: a file that changes after it is read again
        try:
            # Globs and conditions are compiled, and a folder may be a network's.
            found = await asyncio.to_thread(_read, load)
        except SettingError as error:
            log.error(
                "the configuration was not reloaded, policy and webhooks stay as they were: %s "
                "Mend it and send SIGHUP again.",
                " ".join(part for part in (error.message, error.hint) if part),
            )
            continue
        reloaded = adopt(found)
        log.info("reloaded: %s", ", ".join(_told(reloaded.loaded.settings)))
        for each in reloaded.waits:
            log.warning("not reloaded: %s has changed; it takes a restart", each)


def hooks_of(settings: Settings) -> tuple[Hook, ...]:
    """Return the webhooks that are told of things; offline nobody is."""
    return build_hooks(() if settings.replay.offline else settings.webhooks)


def _read(load: Callable[[], Loaded]) -> Found:
    loaded = load()
    return Found(loaded, Policy(loaded.settings.gate), hooks_of(loaded.settings))


def _told(settings: Settings) -> Iterator[str]:
    """Yield what was taken over, for people."""
    gate = settings.gate
    yield f"gate.tools = {', '.join(gate.tools) or 'none'}"
    yield f"gate.rule = {len(gate.rules) or 'none'}"
    yield f"webhooks = {', '.join(row.name for row in settings.webhooks) or 'none'}"
