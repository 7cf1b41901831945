"""Floor 2: what each service is sent. A new format is one new file and one row here."""

from __future__ import annotations

from agentstate.webhooks.base import Format
from agentstate.webhooks.discord import Discord
from agentstate.webhooks.signed_json import SignedJSON
from agentstate.webhooks.slack import Slack

# The first that knows a URL gets it; JSON knows them all.
FORMATS: tuple[Format, ...] = (Slack(), Discord(), SignedJSON())


def format_by_name(name: str) -> Format | None:
    """Return the format that settings call `name`; None if there is none."""
    return next((row for row in FORMATS if row.name == name), None)


def find_format(url: str, name: str | None = None) -> Format:
    """Return the format for a URL, or the one that is named.

    Raises:
        KeyError: no format is called so. Settings are checked with `format_by_name`.
    """
    if name is None:
        return next(row for row in FORMATS if row.matches(url))
    found = format_by_name(name)
    if found is None:
        raise KeyError(name)
    return found
