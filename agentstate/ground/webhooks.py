"""Who is told what happened: the rows of `[[webhook]]`, and WEBHOOK_URL.

WEBHOOK_URL alone is enough: it makes a row named "webhook", or is the URL of the row of that name.
Pure. The one invariant: a URL stands in no message, since whoever has it can post as its owner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentstate.ground.addresses import url_problem
from agentstate.ground.errors import SettingError, shorten
from agentstate.ground.events import EVENT_KINDS
from agentstate.ground.globs import check_glob
from agentstate.ground.settings import FileRow, WebhookSettings

URL_ENV = "WEBHOOK_URL"
ENV_NAME = "webhook"  # the row that the environment makes

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")  # it stands in URLs of the management API


@dataclass(slots=True)
class BuiltWebhooks:
    """Webhooks in the order of the file; the environment's own last."""

    webhooks: tuple[WebhookSettings, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)  # "webhook.NAME.KEY" -> its place


def build_webhooks(rows: Sequence[FileRow], environ: Mapping[str, str]) -> BuiltWebhooks:
    """Put the environment over the rows and check each.

    Raises:
        SettingError: a row without an address, a name twice, or a value that is not understood.
    """
    named = _by_name(rows)
    url = environ.get(URL_ENV, "").strip()
    if url and ENV_NAME not in named:
        named[ENV_NAME] = FileRow({}, {}, URL_ENV)
    built = BuiltWebhooks()
    for name, row in named.items():
        values: dict[str, Any] = {**row.values, "name": name}  # by the table: it fits the fields
        places = dict(row.places)
        if url and name == ENV_NAME:
            values["url"], places["url"] = url, URL_ENV
        if "url" not in values:
            raise SettingError(f"{row.place}: webhook {name!r} needs a url.")
        _check(values, places)
        built.webhooks += (WebhookSettings(**values),)
        built.sources |= {f"webhook.{name}.{key}": place for key, place in places.items()}
    return built


def _by_name(rows: Sequence[FileRow]) -> dict[str, FileRow]:
    named: dict[str, FileRow] = {}
    for number, row in enumerate(rows, start=1):
        name = str(row.values.get("name", f"{ENV_NAME}-{number}"))
        place = row.places.get("name", row.place)
        if not _NAME.fullmatch(name):
            raise SettingError(
                f"{place}: webhook.name: expected lower-case letters, digits, dots and dashes, "
                f"found {shorten(name)!r}."
            )
        if name in named:
            raise SettingError(
                f"{place}: the webhook {name!r} stands at {named[name].place} already."
            )
        named[name] = row
    return named


def _check(values: Mapping[str, Any], places: Mapping[str, str]) -> None:
    if problem := url_problem(values["url"], takes_query=True):
        raise SettingError(
            f"{places['url']}: webhook.url: expected a URL as the service gives it, "
            f"https://...; {problem}."
        )
    for kind in values.get("events", ()):
        if kind not in EVENT_KINDS:
            raise SettingError(
                f"{places['events']}: webhook.events: there is no kind of event "
                f"{shorten(kind)!r}. Known are: {', '.join(EVENT_KINDS)}."
            )
    for glob in values.get("sessions", ()):
        try:
            check_glob(glob, of="session names")
        except SettingError as error:
            where = f"{places['sessions']}: webhook.sessions"
            raise SettingError(f"{where}: {error.message}") from error
