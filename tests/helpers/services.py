"""Slack, Discord and a receiver of one's own, as scripted servers that enforce their limits.

A body that the real service would refuse is answered as it would, and kept in `faults`: no script
can make one pass. What the script does not say is a success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from agentstate.ground.settings import DEFAULT_EVENTS, WebhookSettings
from tests.helpers.upstream import Received, Reply, Upstream, json_reply
from tests.webhooks.limits import (
    check_discord,
    check_discord_is_inert,
    check_slack,
    check_slack_is_inert,
)

Kind = Literal["slack", "discord", "json"]

TOKEN = "XoXoXoXoXoXoXoXoXoXoXoXo"  # stands in the path of every webhook, and nowhere else
PATH = f"/services/T00000000/B00000000/{TOKEN}"

TAKEN: dict[Kind, Reply] = {
    "slack": Reply(headers=((b"content-type", b"text/plain"),), chunks=(b"ok",)),
    "discord": Reply(status=204),
    "json": Reply(status=202),
}
_CHECKS: dict[Kind, tuple[Callable[[bytes], None], ...]] = {
    "slack": (check_slack, check_slack_is_inert),
    "discord": (check_discord, check_discord_is_inert),
    "json": (),
}


class Service(Upstream):
    """One of them. Use with `with`."""

    def __init__(self, kind: Kind, script: Sequence[Reply] = ()) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.faults: list[str] = []  # why bodies were refused
        self._replies = list(script)

    @property
    def hook_url(self) -> str:
        """The webhook's address."""
        return self.url + PATH

    def settings(
        self,
        name: str = "",
        events: tuple[str, ...] = DEFAULT_EVENTS,
        sessions: tuple[str, ...] = (),
        secret: str | None = None,
    ) -> WebhookSettings:
        """Return the row of a configuration for it."""
        return WebhookSettings(
            name=name or self.kind,
            url=self.hook_url,
            format=self.kind,
            events=events,
            sessions=sessions,
            secret=secret,
        )

    def reply_to(self, request: Received) -> Reply:
        """Refuse what the service would refuse, else play on."""
        try:
            assert (request.method, request.target) == ("POST", PATH)
            for check in _CHECKS[self.kind]:
                check(request.body)
        except AssertionError as error:
            self.faults.append(str(error))
            if self.kind == "slack":
                return Reply(400, chunks=(b"invalid_blocks",))
            return json_reply({"message": "Invalid Form Body", "code": 50035}, status=400)
        return self._replies.pop(0) if self._replies else TAKEN[self.kind]
