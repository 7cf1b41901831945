"""What is configured and where it came from, to read. Of a secret only whether it is set.

Made from the one table of settings (`ground/settings_table.py`), so a new setting is here by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from agentstate.doors.api.reply import json_response, read_params
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.settings import Loaded
from agentstate.ground.settings_table import REPEATED, Row, owners_of, settings_table
from agentstate.wire.endpoint import Endpoint, Params
from agentstate.wire.message import Request, Response

# They are for our own tests and say nothing to a person.
_UNSHOWN = ("crash_at",)


class SettingsEndpoints:
    """Answers `/api/settings`."""

    def __init__(self, in_force: Callable[[], Loaded], version: str) -> None:
        """`in_force`: what is configured at the moment; some of it is read again on SIGHUP."""
        self._in_force = in_force
        self._version = version

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/settings",
                self.show,
                "Show every setting, its value and where it came from; secrets are never shown.",
            ),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with `{"version", "warnings", "sections"}`; a section has a title and settings."""
        read_params(request, frozenset())
        loaded = self._in_force()
        return json_response(
            {
                "version": self._version,
                "warnings": list(loaded.warnings),
                "sections": sections_json(loaded),
            }
        )


def sections_json(loaded: Loaded) -> list[JSON]:
    """Render the settings as a file would have them: top level, sections, then what comes in
    rows."""
    table = [row for row in settings_table() if row.name not in _UNSHOWN]
    names = dict.fromkeys(row.section for row in table)
    found: list[JSON] = []
    for name in names:
        rows = [row for row in table if row.section == name]
        title = f"[[{name}]]" if name in REPEATED else f"[{name}]" if name else ""
        for whole, owner in owners_of(loaded.settings, name):
            found.append(_section_json(whole, title, rows, owner, loaded.sources))
    return found


def _section_json(
    name: str, title: str, rows: Sequence[Row], owner: Any, sources: Mapping[str, str]
) -> JSON:
    assert is_dataclass(owner), "a section is a dataclass"
    has = {member.name for member in fields(owner)}
    settings: list[JSON] = []
    for row in rows:
        if row.key not in has:
            continue
        value = getattr(owner, row.key)
        whole = f"{name}.{row.key}" if name else row.key
        settings.append(
            {
                "key": row.key,
                "name": whole,
                "value": None if row.is_secret else _shown(row, value),
                "is_set": value not in (None, (), ""),
                "is_secret": row.is_secret,
                "source": sources.get(whole, "default"),
                "default": None if row.is_repeated else _shown(row, row.default),
                "help": row.help,
            }
        )
    return {"name": name, "title": title, "settings": settings}


def _shown(row: Row, value: Any) -> JSON:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    if isinstance(value, float):
        return parse(f"{value:g}".encode())  # as people write it: 30, 0.5
    if isinstance(value, str) and "://" in value:
        return without_secrets(value)
    shown: JSON = value
    return shown


def without_secrets(url: str) -> str:
    """Return a URL without what may be secret in it: who asks, and its query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
