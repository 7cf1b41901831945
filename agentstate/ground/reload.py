"""What a running server takes over of a configuration that was read again: policy and webhooks.

Pure: two configurations in, the one in force from then on out. What else has changed needs a
restart (a port is bound, a database open, a cookie made from a token) and is named, not shown: it
may be a key. The counterpart is `load.py`, which has refused by then what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

from agentstate.ground.settings import Loaded, Settings, Value
from agentstate.ground.settings_table import REPEATED, owners_of, settings_table

TAKEN = ("gate", "gate.rule", "webhook")  # sections


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What came of reading a configuration again."""

    loaded: Loaded  # in force from now on
    waits: tuple[str, ...]  # what a restart would change, as "server.port (agentstate.toml:3)"


def take_over(started: Loaded, found: Loaded) -> Reloaded:
    """Return what is in force from now on: `started`, with what is taken of `found`.

    `started` is what the server was started with, however often it has read its file since.
    """
    settings = replace(started.settings, gate=found.settings.gate, webhooks=found.settings.webhooks)
    old, new = _values(started.settings), _values(found.settings)
    changed = {name for name in {**old, **new} if old.get(name) != new.get(name)}
    kept = {name: place for name, place in started.sources.items() if not _is_taken(name)}
    # Where a value stands may have moved with the lines above it.
    moved = {
        name: place
        for name, place in found.sources.items()
        if _is_taken(name) or name not in changed
    }
    waits = tuple(_waits(changed, found))
    warnings = tuple(f"{each} has changed; it takes a restart" for each in waits)
    loaded = replace(
        started,
        settings=settings,
        sources=kept | moved,
        warnings=(*started.warnings, *warnings),
    )
    return Reloaded(loaded, waits)


def _values(settings: Settings) -> dict[str, Value]:
    """Return what is set by its name, as `Loaded.sources` has it, but for what is taken."""
    found: dict[str, Value] = {}
    for section in dict.fromkeys(row.section for row in settings_table()):
        if section in TAKEN:
            continue
        keys = [row.key for row in settings_table() if row.section == section]
        for whole, owner in owners_of(settings, section):
            has = {member.name for member in fields(owner)}
            for key in keys:
                if key in has:
                    found[f"{whole}.{key}" if whole else key] = getattr(owner, key)
    return found


def _is_taken(name: str) -> bool:
    return name.startswith(tuple(f"{section}." for section in TAKEN))


def _waits(changed: set[str], found: Loaded) -> Iterator[str]:
    """Yield what has changed and is not taken, each with its place; a row of several once."""
    whole: dict[str, str | None] = {}
    for name in sorted(changed):
        is_row = name.startswith(tuple(f"{section}." for section in REPEATED))
        shown = name.rpartition(".")[0] if is_row else name
        whole.setdefault(shown, _place_of(name, found.sources))
    for shown, place in whole.items():
        yield shown if place is None else f"{shown} ({place})"


def _place_of(name: str, sources: Mapping[str, str]) -> str | None:
    """Return where a value stands that is not the default; None = nowhere any more."""
    place = sources.get(name)
    return None if place == "default" else place
