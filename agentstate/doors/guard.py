"""Who is at the door: reads the token a request brings, and says whether it may go on.

Where no token is configured everybody is let in, and only loopback is listened on (`app.py`).
A browser brings a cookie, made at its login; everything else brings the token itself.

Guessing is slowed down: after `TRIES_MAX` wrong tokens within `WINDOW_S` an address gets no answer
about a further one. Tokens that were right before go on working from there, so that nobody can lock
out the agents beside them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from agentstate.ground.access import Role, Tokens, may
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import Forbidden, TooManyTries, Unauthorized
from agentstate.wire.message import Request

COOKIE = "agentstate"
TRIES_MAX = 10
WINDOW_S = 60.0
ADDRESSES_MAX = 4096  # remembered; the one that tried least lately is forgotten
_OURS = b"x-agentstate-token"
# Where SDKs put the key they are given: OpenAI, Anthropic, Google, Azure.
_KEYS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")
_DOING: dict[Role, str] = {
    "agent": "tell of a run",
    "read": "read the record",
    "approve": "decide what waits for a person",
    "admin": "change anything",
}


class Guard:
    """The checks of one server."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        agents_need_one: bool = False,
        now_s: Callable[[], float] = monotonic_s,
    ) -> None:
        """`agents_need_one`: calls of models, and what agents tell of their runs, need a token."""
        self._tokens = tokens
        self.agents_need_one = agents_need_one
        self._now_s = now_s
        self._proved: set[str] = set()  # tokens and cookies that were right
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()  # address → when

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in."""
        return not self._tokens

    def role_of(self, request: Request) -> Role | None:
        """Return who asks; None = a token is needed and none was brought.

        Raises:
            Unauthorized: what was brought is no token of ours.
            TooManyTries: the address guessed too often.
        """
        if self.is_open:
            return "admin"
        token = request.headers.text(_OURS) or _bearer(request.headers.text(b"authorization"))
        if token is not None:
            return self._prove(request, token, self._tokens.role_of)
        cookie = _cookie(request)
        if cookie is not None:
            try:
                return self._prove(request, cookie, self._tokens.role_of_cookie)
            except Unauthorized:
                return None  # of a token that was replaced: the page asks for the new one
        return None

    def prove(self, request: Request, token: str) -> Role:
        """Return what a token stands for that a request brings in its body.

        Raises:
            Unauthorized, TooManyTries: as `role_of`.
        """
        return self._prove(request, token, self._tokens.role_of)

    def check(self, request: Request, needed: Role) -> None:
        """Let a request to the management API go on.

        Raises:
            Unauthorized, TooManyTries: as `role_of`, or no token was brought.
            Forbidden: it is one that may not do this.
        """
        role = self.role_of(request)
        if role is None:
            raise Unauthorized(
                "This needs a token, as `Authorization: Bearer ...` or `x-agentstate-token: ...`. "
                "It is what the server was started with (server.token)."
            )
        if not may(role, needed):
            raise Forbidden(
                f"A token of role {role} may not do this: to {_DOING[needed]} one of role {needed} "
                "is needed."
            )

    def check_agent(self, request: Request) -> None:
        """Let a call of a model go on. A token in the place of the provider's key is taken out, so
        that no upstream gets it and the configured key is used.

        Raises:
            Unauthorized: it brings no token of an agent.
            Forbidden: it brings one of somebody else.
            TooManyTries: the address guessed too often.
        """
        if not self.agents_need_one:
            return
        given = request.headers.text(_OURS)
        if given is not None:
            self._check_agents_role(self._prove(request, given, self._tokens.role_of))
            return
        for name in _KEYS:
            value = request.headers.text(name)
            if value is None:
                continue
            token = _bearer(value) or value if name == _KEYS[0] else value
            role = self._prove(request, token, self._tokens.role_of)
            self._check_agents_role(role)
            request.headers = request.headers.without(frozenset((name,)))
            return
        raise Unauthorized(
            "Calls need an agent's token (server.client_tokens): in the header x-agentstate-token, "
            "or in place of the API key, and then the key that is configured here is used."
        )

    def _check_agents_role(self, role: Role) -> None:
        if not may(role, "agent"):
            raise Forbidden(f"A token of role {role} may not call models; agents have their own.")

    def _prove(self, request: Request, value: str, role_of: Callable[[str], Role | None]) -> Role:
        """Return what a token or cookie stands for, unless its address has guessed too often."""
        if value not in self._proved and self._is_guessing(request.peer):
            raise TooManyTries(
                f"Over {TRIES_MAX} wrong tokens came from this address within {WINDOW_S:.0f} "
                "seconds. Wait a minute, and bring the right one."
            )
        role = role_of(value)
        if role is None:
            self._note_wrong(request.peer)
            raise Unauthorized(
                "The token is none of this server's. If it is your provider's key: agents bring "
                "theirs beside it, in the header x-agentstate-token."
            )
        self._proved.add(value)
        return role

    def _is_guessing(self, peer: str) -> bool:
        wrong = self._wrong.get(peer)
        if wrong is None:
            return False
        while wrong and wrong[0] <= self._now_s() - WINDOW_S:
            wrong.popleft()
        return len(wrong) >= TRIES_MAX

    def _note_wrong(self, peer: str) -> None:
        self._wrong.setdefault(peer, deque(maxlen=TRIES_MAX)).append(self._now_s())
        self._wrong.move_to_end(peer)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)


def _bearer(value: str | None) -> str | None:
    scheme, _, token = (value or "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _cookie(request: Request) -> str | None:
    # Not by `http.cookies`: it leaves off at the first one it finds odd, and a browser sends along
    # what every other program on this machine's name has set, whatever the port.
    for line in request.headers.all(b"cookie"):
        for item in line.split(b";"):
            name, _, value = item.partition(b"=")
            if name.strip(b" \t") == COOKIE.encode():
                return value.strip(b' \t"').decode("latin-1")
    return None
