"""The front door: checks who may come in, and shows each request to the right room.

/v1, /s/..., /p/... are the proxy; /api and /healthz the management API; /dashboard the files.
Errors leave here in the shape of the room they belong to.
"""

from __future__ import annotations

import logging

from agentstate.doors.api.reply import error_reply
from agentstate.doors.assets import PREFIX, Assets
from agentstate.doors.proxy import ProxyDoor, read_address
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AgentStateError, Forbidden, NotFound, shorten
from agentstate.wire.endpoint import Router
from agentstate.wire.message import Request, Response

log = logging.getLogger("agentstate.access")

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))


class FrontDoor:
    """The handler the server calls."""

    def __init__(
        self, proxy: ProxyDoor, router: Router, assets: Assets, hosts: tuple[str, ...]
    ) -> None:
        """`hosts`: further names this server answers to, besides the loopback ones."""
        self._proxy = proxy
        self._router = router
        self._assets = assets
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in hosts}

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        try:
            response = await self._answer(request)
        except AgentStateError as error:
            response = error_reply(error)
        if log.isEnabledFor(logging.INFO):
            self._log(request, response)
        return response

    async def _answer(self, request: Request) -> Response:
        if request.path == "/healthz":
            return await self._api(request)
        self._check_host(request)
        if (address := read_address(request.path)) is not None:
            return await self._proxy.answer(request, address)
        if request.path == PREFIX or request.path.startswith(PREFIX + "/"):
            return self._page(request)
        if request.path == "/":
            return Response(307, [(b"location", b"/dashboard/")])
        if request.path.startswith("/api/"):
            return await self._api(request)
        raise NotFound(
            f"There is nothing at {shorten(request.path)}. Agents use /v1, people /dashboard, "
            "tools /api. A client that leaves out /v1 needs it in its base URL."
        )

    async def _api(self, request: Request) -> Response:
        endpoint, params = self._router.find(request.method, request.path)
        return await endpoint.handler(request, params)

    def _page(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise NotFound(f"{shorten(request.path)} is a page: GET it.")
        return self._assets.answer(request)

    def _check_host(self, request: Request) -> None:
        """Refuse names that are not ours: a page in a browser may have bound one to 127.0.0.1."""
        host = (request.headers.text(b"host") or "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in self._hosts:
            raise Forbidden(
                f"This server answers to {', '.join(sorted(self._hosts))}; the Host header says "
                f"{shorten(name)!r}. Add it to server.hosts if it is yours."
            )

    def _log(self, request: Request, response: Response) -> None:
        marks = {
            name: value.decode("latin-1")
            for name, value in response.headers
            if name.startswith(b"x-agentstate-")
        }
        log.info(
            "%s %s %d %.1f ms",
            request.method,
            shorten(request.path, 200),
            response.status,
            (monotonic_s() - request.started_s) * 1000,
            extra={
                "session": marks.get(b"x-agentstate-session"),
                "step": marks.get(b"x-agentstate-step"),
                "replay": marks.get(b"x-agentstate-replay"),
            },
        )
