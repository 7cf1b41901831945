"""The front door: checks who may come in, and shows each request to the right room.

/v1, /s/..., /p/... are the proxy; /api, /metrics, /healthz and /readyz the management API;
/dashboard the files.
Errors leave here in the shape of the room they belong to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from agentstate.doors.api.reply import error_reply
from agentstate.doors.assets import PREFIX, Assets
from agentstate.doors.guard import Guard
from agentstate.doors.proxy import ProxyDoor, read_address
from agentstate.ground.access import Tokens
from agentstate.ground.addresses import is_loopback
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    TooManyTries,
    Unauthorized,
    shorten,
)
from agentstate.ground.logs import Call, is_logged, log_call
from agentstate.ground.meters import Meters
from agentstate.wire.endpoint import Router
from agentstate.wire.message import Abort, Request, Response

_PAGE_METHODS = ("GET", "HEAD")


class FrontDoor:
    """The handler the server calls."""

    def __init__(
        self,
        proxy: ProxyDoor,
        router: Router,
        assets: Assets,
        hosts: tuple[str, ...],
        guard: Guard | None = None,
        meters: Meters | None = None,
    ) -> None:
        """`hosts`: further names this server answers to, besides those of this machine. `guard`:
        who asks for tokens; None = nobody. `meters`: count requests; None = nobody is told."""
        self._meters = meters or Meters()
        self._guard = guard or Guard(Tokens(()))
        self._proxy = proxy
        self._router = router
        self._assets = assets
        self._hosts = frozenset(host.lower() for host in hosts)

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        began_s = request.started_s  # what is held while its session is paused may move that on
        try:
            response = await self._answer(request)
        except AgentStateError as error:
            response = error_reply(error)
        if is_agents(request.path):
            self._count(response)
        if not is_logged(response.status):
            return response
        if isinstance(response.body, bytes):
            log_call(_call_of(request, response, began_s, None))
        else:
            response.body = _Told(
                response.body, lambda error: log_call(_call_of(request, response, began_s, error))
            )
        return response

    def _count(self, response: Response) -> None:
        replay, overhead = "", None
        for name, value in response.headers:
            if name == b"x-agentstate-replay":
                replay = value.decode("ascii")
            elif name == b"x-agentstate-overhead-ms":
                overhead = float(value)
        self._meters.note_request(replay, response.status, overhead)

    async def _answer(self, request: Request) -> Response:
        if request.path == "*":  # RFC 9110 section 9.3.7: is anybody there?
            return Response(200, [(b"allow", b"GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE")])
        if request.path in ("/healthz", "/readyz"):
            return await self._api(request)
        try:
            address = read_address(request.path)
        except BadRequest as error:
            return self._proxy.refuse(None, error)
        if address is not None:
            try:
                self._check_origin(request)
                if not self._guard.agents_need_one:
                    self._check_host(request)  # then a name that is bound here needs none either
                self._guard.check_agent(request)
            except (Forbidden, TooManyTries, Unauthorized) as error:
                return self._proxy.refuse(address, error)
            return await self._proxy.answer(request, address)
        self._check_origin(request)
        is_page = request.path == PREFIX or request.path.startswith(PREFIX + "/")
        if is_page or request.path == "/":
            return self._page(request)
        if request.path.startswith("/api/") or request.path == "/metrics":
            return await self._api(request)
        raise NotFound(
            f"There is nothing at {shorten(request.path)}. Agents use /v1, people /dashboard, "
            "tools /api. A client that leaves out /v1 needs it in its base URL."
        )

    async def _api(self, request: Request) -> Response:
        endpoint, params = self._router.find(request.method, request.path)
        needed = endpoint.needed
        if needed == "agent" and not self._guard.agents_need_one and self._is_ours(request):
            needed = "anybody"  # who may call models may tell of its run
        if needed != "anybody":
            self._guard.check(request, needed)
        return await endpoint.handler(request, params)

    def _page(self, request: Request) -> Response:
        if request.method not in _PAGE_METHODS:
            raise MethodNotAllowed(
                f"{shorten(request.path)} is a page: GET it.", allowed=_PAGE_METHODS
            )
        if request.path == "/":
            return Response(307, [(b"location", b"/dashboard/")])
        return self._assets.answer(request)

    def _check_host(self, request: Request) -> None:
        """Refuse names that are not ours. Raises `Forbidden`."""
        if not self._is_ours(request):
            raise Forbidden(
                f"This server answers to the names of this machine and to server.hosts; the Host "
                f"header says {shorten(_name_of(request))!r}. Add it there if it is yours."
            )

    def _is_ours(self, request: Request) -> bool:
        name = _name_of(request)
        return is_loopback(name) or name in self._hosts

    def _check_origin(self, request: Request) -> None:
        """Refuse changes that a page of another origin asks for, and where nobody needs a token
        also names that are not ours.

        A page in a browser may have bound its own name to 127.0.0.1, or may simply send a form
        here: the browser says where it comes from.

        Raises:
            Forbidden: the Host or the Origin header names somebody else.
        """
        # Where a token is needed a page that bound its name to this address has none.
        if self._guard.is_open:
            self._check_host(request)
        host = _host_of(request)
        origin = request.headers.text(b"origin")
        if origin is None or request.method in ("GET", "HEAD"):
            return
        if origin.lower().partition("://")[2] != host:
            raise Forbidden(
                f"A page of {shorten(origin)!r} may not ask for this: only the server's own pages "
                "may. Agents send no Origin header."
            )


def is_agents(path: str) -> bool:
    """Say whether a path is one that agents call models on."""
    return path.startswith(("/v1", "/s/", "/p/"))


def _host_of(request: Request) -> str:
    return (request.headers.text(b"host") or "").lower()


def _name_of(request: Request) -> str:
    """Return the host without its port."""
    host = _host_of(request)
    return host if host.endswith("]") else host.rpartition(":")[0] or host


class _Told:
    """A streamed body that tells when it ended, so that its call is logged with its whole time."""

    def __init__(self, body: AsyncIterator[bytes], tell: Callable[[str | None], None]) -> None:
        self._body = body
        self._tell = tell
        self._is_told = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._body)
        except StopAsyncIteration:
            self._end(None)
            raise
        except Abort:
            self._end("cut")
            raise

    async def aclose(self) -> None:
        """Close the body under it: its end was not reached, or this changes nothing."""
        self._end("left")
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()

    def _end(self, error: str | None) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(error)


def _call_of(request: Request, response: Response, began_s: float, error: str | None) -> Call:
    marks = {name: value for name, value in response.headers if name.startswith(b"x-agentstate-")}

    def text(name: bytes) -> str | None:
        value = marks.get(b"x-agentstate-" + name)
        return None if value is None else value.decode("latin-1")

    step, overhead_ms, attempts = text(b"step"), text(b"overhead-ms"), text(b"attempts")
    return Call(
        method=request.method,
        path=request.path,
        status=response.status,
        duration_ms=(monotonic_s() - began_s) * 1000,
        overhead_ms=float(overhead_ms) if overhead_ms else None,
        session=text(b"session"),
        step=int(step) if step else None,
        replay=text(b"replay"),
        provider=text(b"provider"),
        model=text(b"model"),
        attempts=int(attempts) if attempts else None,
        error=error,
    )
