"""This machine, and nothing that only looks like it."""

import pytest

from agentstate.ground.addresses import is_loopback


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.0.0.2", "::1", "[::1]"]
)
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "127.corp.example", "localhost.evil.example", "10.0.0.1", "127.1"]
)
def test_not_this_machine(host: str) -> None:
    assert not is_loopback(host)
