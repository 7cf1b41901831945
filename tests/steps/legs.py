"""Targets, calls and responses for one leg of a call: no sockets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.ground.canonical import parse
from agentstate.ground.meters import Meters
from agentstate.ground.prices import Prices
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.settings import ForwardSettings
from agentstate.steps.cooldown import Cooldowns
from agentstate.steps.forward import Transports
from agentstate.steps.leg import Outgoing
from agentstate.steps.target import Target
from agentstate.steps.tries import Road
from agentstate.wire.message import Headers, Origin, OutCall, Pair, TimeLimits
from tests.steps.pairs import bound
from tests.steps.scene import FakeExchange, FakeTransport

ORIGIN = Origin("https", "up.example", 443)
PLAIN = Target("up", "gpt-4o-mini", ORIGIN, "/v1", False, None, takes_callers_key=True)
MESSAGES = Target(
    "claude", "theirs", ORIGIN, "", True, "k", b"x-api-key", dialect="anthropic_messages",
    is_stranger=True,
)  # fmt: skip
NATIVE = replace(PLAIN, base_path="", keeps_v1=True, is_native=True, model="gemini-2.5-flash")
BUSY = b'{"error": {"message": "Busy."}}'
AT_ONCE: Pair = (b"retry-after-ms", b"0")
# Arguments that are no JSON: a form that wants an object cannot say them.
UNSAYABLE = (
    b'{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}, {"role": '
    b'"assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", '
    b'"arguments": "{"}}]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]}'
)
RAW = b'{ "model":"gpt-4o-mini", "messages":[{"role":"user","content":"hi"}], "seed":1.50 }'


def outgoing(
    raw: bytes = RAW, *, headers: list[Pair] | None = None, query: str = "", **fields: Any
) -> Outgoing:
    """Make a call in the chat form."""
    dialect, _ = bound("openai_chat", streams=False)
    ask = dialect.read_ask(parse(raw))
    return Outgoing(
        dialect, ask, Headers(headers or []), "/v1/chat/completions", query, raw, **fields
    )


def sample(caller: str, *, streams: bool = False) -> Outgoing:
    """Make a call of the sample request of a dialect."""
    dialect, body = bound(caller, streams=streams)
    ask = dialect.read_ask(body)
    return Outgoing(dialect, ask, Headers(), "/v1/x", "", json.dumps(body).encode())


def exchange(
    status: int = 200, body: bytes = b"", kind: bytes = b"application/json", *more: Pair
) -> FakeExchange:
    """Make a response with its whole body."""
    found = FakeExchange(status, kind)
    found.headers = Headers([(b"content-type", kind), *more])
    found.give(body, None)
    return found


def said_by(caller: str, refused: RecordedAnswer) -> str:
    """Return what an error response says to its caller."""
    dialect = dialect_by_name(caller)
    assert dialect is not None
    facts = dialect.read_error(refused.content)
    assert facts is not None
    return facts.message


class Upstreams(FakeTransport):
    """Answers each host's calls in turn as told; what is left over is answered with 200."""

    def __init__(self, **answers: Sequence[FakeExchange | Exception]) -> None:
        super().__init__()
        self._answers = {name: list(each) for name, each in answers.items()}
        self.limits: list[TimeLimits] = []
        self.warmed: list[Origin] = []
        self.given: list[FakeExchange] = []

    @property
    def asked(self) -> str:
        """The providers that were asked, in order."""
        return "".join(call.origin.host[0] for call in self.calls)

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Note for whom a connection would be made."""
        self.warmed.append(origin)

    async def send(self, call: OutCall, limits: TimeLimits) -> FakeExchange:
        """Answer a call."""
        self.calls.append(call)
        self.limits.append(limits)
        left = self._answers.get(call.origin.host[0], [])
        answer = left.pop(0) if left else exchange(200, b"fine")
        if isinstance(answer, Exception):
            raise answer
        self.given.append(answer)
        return answer


class Clock:
    """A time that passes only in pauses, which are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        self.pauses: list[float] = []
        monkeypatch.setattr("agentstate.steps.tries.monotonic_s", lambda: self.now_s)
        monkeypatch.setattr("agentstate.steps.tries.asyncio.sleep", self._sleep)

    async def _sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s


def busy(status: int = 503, *headers: Pair, body: bytes = BUSY) -> FakeExchange:
    """Make an error response; with no other headers it asks to be asked again at once."""
    return exchange(status, body, b"application/json", *(headers or (AT_ONCE,)))


def road(
    upstreams: FakeTransport, *, prices: Prices | None = None, cooldowns: Cooldowns | None = None,
    mock: FakeTransport | None = None, **settings: Any,
) -> Road:  # fmt: skip
    """Make what calls share, with these settings."""
    return Road(
        Transports(upstreams, mock or FakeTransport()),
        ForwardSettings(**settings),
        prices or Prices({}),
        cooldowns or Cooldowns(after=100, rest_s=30),
        Meters(),
    )
