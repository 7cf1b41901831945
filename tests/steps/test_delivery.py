"""The client's side of a hold: who may be told to wait."""

from __future__ import annotations

import pytest

from agentstate.ground.settings import GateSettings
from agentstate.steps.delivery import takes_interim
from tests.steps.scene import FakeRequest

AGENT = (b"user-agent", b"python-httpx/0.28")


def from_here(*more: tuple[bytes, bytes]) -> FakeRequest:
    request = FakeRequest([AGENT, *more], b"")
    request.peer = "127.0.0.1"
    return request


def test_a_known_client_on_this_machine_takes_an_interim_response() -> None:
    assert takes_interim(from_here((b"x-forward", b"1")), GateSettings())


@pytest.mark.parametrize(
    "name", [b"Via", b"Forwarded", b"X-Forwarded-For", b"x-forwarded-port", b"X-Real-IP"]
)
def test_none_is_sent_through_what_stands_between(name: bytes) -> None:
    assert not takes_interim(from_here((name, b"10.0.0.1")), GateSettings())
