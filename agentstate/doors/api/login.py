"""Logging in: a browser gives its token once and keeps a cookie for it.

The token comes in the body of a POST, never in a URL: those stand in logs and histories. The link
that the server prints has it behind the `#`, which browsers keep to themselves.
"""

from __future__ import annotations

from agentstate.doors.api.reply import check_is_json, json_response, read_params
from agentstate.doors.guard import COOKIE, Guard
from agentstate.ground.access import cookie_of
from agentstate.ground.canonical import parse
from agentstate.ground.errors import BadRequest
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Pair, Request, Response

BODY_BYTES_MAX = 4096
KEPT_S = 30 * 24 * 3600


class LoginEndpoints:
    """Answers `/api/login` and `/api/logout`."""

    def __init__(self, guard: Guard, *, is_tls: bool) -> None:
        self._guard = guard
        self._secure = "; Secure" if is_tls else ""

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table; all open: who logs in is nobody yet."""
        return (
            Endpoint(
                "GET",
                "/api/login",
                self.show,
                "Say whether a token is needed, and what the one that came with this may do.",
                errors=(401, 429),
                needs="anybody",
            ),
            Endpoint(
                "POST",
                "/api/login",
                self.log_in,
                "Change a token for a cookie.",
                body=(Field("token", "a token of this server", is_needed=True),),
                errors=(401, 429),
                needs="anybody",
            ),
            Endpoint(
                "POST",
                "/api/logout",
                self.log_out,
                "Forget the cookie.",
                body=(),
                needs="anybody",
            ),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with who asks."""
        read_params(request, frozenset())
        role = self._guard.role_of(request)
        return json_response({"needs_token": not self._guard.is_open, "role": role})

    async def log_in(self, request: Request, params: Params) -> Response:
        """Set the cookie, if the token is right."""
        check_is_json(request, "A login")
        sent = parse(await request.body(BODY_BYTES_MAX))
        token = sent.get("token") if isinstance(sent, dict) else None
        if not isinstance(token, str) or not token:
            raise BadRequest('A login takes {"token": "..."}.', param="token")
        if self._guard.is_open:
            return json_response({"needs_token": False, "role": "admin"})
        role = self._guard.prove(request, token.strip())
        return json_response(
            {"needs_token": True, "role": role},
            headers=self._cookie(cookie_of(token.strip()), KEPT_S),
        )

    async def log_out(self, request: Request, params: Params) -> Response:
        """Take the cookie back."""
        check_is_json(request, "A logout")
        return json_response({"role": None}, headers=self._cookie("", 0))

    def _cookie(self, value: str, age_s: int) -> tuple[Pair, ...]:
        text = f"{COOKIE}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{self._secure}"
        return ((b"set-cookie", text.encode("ascii")),)
