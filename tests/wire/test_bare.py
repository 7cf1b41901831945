"""The yardstick answers every request, whole, however it is cut."""

from __future__ import annotations

import h11
import pytest

from agentstate.wire.bare import BareServer

REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"


class Transport:
    """Collects what the server writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def connected() -> tuple[BareServer, Transport]:
    headers = [(b"content-length", b"2"), (b"x-own", b"1")]
    server, transport = BareServer(200, headers, b"ok"), Transport()
    server._transport = transport  # type: ignore[assignment]
    return server, transport


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_each_request_gets_one_answer_in_one_write(size: int) -> None:
    server, transport = connected()
    raw = REQUEST * 3
    for at in range(0, len(raw), size):
        server.data_received(raw[at : at + size])
    assert len(transport.written) == 3
    assert transport.written[0].startswith(b"HTTP/1.1 200 \r\n")
    assert transport.written[0].endswith(b"x-own: 1\r\n\r\nok")


def test_it_parses_for_real() -> None:
    server, _ = connected()
    with pytest.raises(h11.RemoteProtocolError):
        server.data_received(b"this is no request\r\n\r\n")
