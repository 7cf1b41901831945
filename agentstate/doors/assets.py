"""The dashboard's files, from `web/`, with ETags and a strict content security policy."""

from __future__ import annotations

import hashlib
import mimetypes

from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.resources import list_web, read_web
from agentstate.wire.message import Pair, Request, Response

PREFIX = "/dashboard"

# Everything from here and nothing from elsewhere; `data:` for the icon that carries a count.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
_GUARDS: tuple[Pair, ...] = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-cache"),  # keep, but ask each time: the ETag makes it cheap
)
# The platform's own table may lack these or, on Windows, have them wrong.
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Assets:
    """Answers under /dashboard. All files are small and stay in memory once asked for."""

    def __init__(self) -> None:
        self._names = frozenset(list_web())
        self._files: dict[str, tuple[bytes, bytes]] = {}  # name → (content, etag)

    def answer(self, request: Request) -> Response:
        """Answer with a file, 304 if the client has it, or the index page for the bare path.

        Raises:
            NotFound: there is no such file.
        """
        name = request.path.removeprefix(PREFIX).strip("/") or "index.html"
        if name not in self._names:
            raise NotFound(f"There is no dashboard file {shorten(name)!r}.")
        if request.path == PREFIX:
            # Relative links in the page need the slash.
            return Response(308, [(b"location", b"/dashboard/"), *_GUARDS])
        content, etag = self._load(name)
        headers: list[Pair] = [(b"content-type", _type_of(name)), (b"etag", etag), *_GUARDS]
        if request.headers.get(b"if-none-match") == etag:
            return Response(304, headers)
        return Response(200, headers, content)

    def _load(self, name: str) -> tuple[bytes, bytes]:
        found = self._files.get(name)
        if found is None:
            content = read_web(name)
            found = content, b'"%s"' % hashlib.sha256(content).hexdigest()[:32].encode()
            self._files[name] = found
        return found


def _type_of(name: str) -> bytes:
    suffix = name[name.rfind(".") :]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    text = kind.startswith("text/") or kind == "image/svg+xml"
    return (kind + ("; charset=utf-8" if text else "")).encode()
