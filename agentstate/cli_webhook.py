"""`agentstate webhook test`: sends samples to the configured webhooks and prints what they say.

It needs no server: what is tried out is the configuration and the way from this machine. Nothing is
put on record. Printed is the host of a webhook, never the rest of its URL.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentstate.app import http_client
from agentstate.cli_table import cell, print_table
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import SettingError
from agentstate.ground.events import EVENT_KINDS, EventKind
from agentstate.ground.load import nearest
from agentstate.ground.settings import Loaded
from agentstate.house.hooks import Hook, Told, build_hooks, tell
from agentstate.house.outbox import Pace
from agentstate.house.samples import sample_of
from agentstate.wire.message import Transport

WHY_CHARS = 120
WAIT_MAX_S = 10.0  # for a service that limits: somebody sits at the terminal
TRIES = 3

HINT = (
    "Set WEBHOOK_URL to the address that Slack or Discord gives you, or write a [[webhook]] into "
    "agentstate.toml."
)


@dataclass(frozen=True, slots=True)
class Tested:
    """One sample and what became of it."""

    hook: Hook
    kind: EventKind
    told: Told


def print_tests(loaded: Loaded, name: str | None, kind: EventKind | None, *, as_json: bool) -> int:
    """Send one kind of event, or all, to one webhook, or all; return 1 if one was not taken.

    Raises:
        SettingError: no such webhook is configured.
    """
    hooks = build_hooks(loaded.settings.webhooks)
    if not hooks:
        raise SettingError("No webhook is configured.", hint=HINT)
    if name is not None:
        names = [hook.name for hook in hooks]
        if name not in names:
            raise SettingError(f"There is no webhook {name!r}. {nearest(name, names)}")
        hooks = tuple(hook for hook in hooks if hook.name == name)
    kinds = EVENT_KINDS if kind is None else (kind,)
    found = asyncio.run(_test_all(loaded, hooks, kinds))
    if as_json:
        print(json.dumps([_row(each) for each in found], indent=2))
    else:
        head = ("WEBHOOK", "FORMAT", "HOST", "EVENT", "STATUS", "ANSWER")
        print_table(head, [_cells(each) for each in found])
    return 0 if all(each.told.is_taken for each in found) else 1


async def _test_all(
    loaded: Loaded, hooks: Sequence[Hook], kinds: Sequence[EventKind]
) -> list[Tested]:
    settings = loaded.settings
    server = settings.server
    root = server.public_url or f"http://{server.host}:{server.port}"
    client = http_client(settings.forward, loaded.network)
    try:
        of_each = await asyncio.gather(*(_test(hook, kinds, client, root) for hook in hooks))
        return [tested for of_one in of_each for tested in of_one]
    finally:
        await client.close()


async def _test(
    hook: Hook, kinds: Sequence[EventKind], transport: Transport, root: str
) -> list[Tested]:
    """Send the samples one after another, at the pace of the service."""
    found: list[Tested] = []
    for kind in kinds:
        if found:
            await asyncio.sleep(Pace().gap_of(hook) / 1000)
        event = sample_of(kind, now_ms())
        for _ in range(TRIES):
            told = await tell(hook, event, transport, root)
            after_s = told.verdict.after_s
            if after_s is None or after_s > WAIT_MAX_S:
                break
            await asyncio.sleep(after_s)
        found.append(Tested(hook, kind, told))
    return found


def _row(tested: Tested) -> dict[str, object]:
    hook, told = tested.hook, tested.told
    return {
        "name": hook.name,
        "format": hook.format.name,
        "host": hook.host,
        "kind": tested.kind,
        "is_taken": told.is_taken,
        "status": told.status,
        "why": told.verdict.why,
    }


def _cells(tested: Tested) -> tuple[str, ...]:
    hook, told = tested.hook, tested.told
    said = told.verdict.why or ("taken" if told.is_taken else "no reason given")
    return (
        hook.name,
        hook.format.name,
        cell(hook.host),
        tested.kind,
        "-" if told.status is None else str(told.status),
        cell(said, WHY_CHARS),
    )
