"""The yardstick: the smallest honest HTTP server on h11, to measure the proxy against.

It parses every request with h11, body and all, and answers the same response to each, rendered by
h11 too: what any Python server of this kind must pay before it does anything of its own. It is no
part of the proxy; `house/bench.py` runs it beside it on the same machine.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import h11


class BareServer(asyncio.Protocol):
    """One connection."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self._response = h11.Response(status_code=status, headers=headers)
        self._body = h11.Data(data=body)
        self._h11 = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._h11.receive_data(data)
        while (event := self._h11.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.ConnectionClosed):
                return
            if isinstance(event, h11.EndOfMessage):
                parts = (self._response, self._body, h11.EndOfMessage())
                self._transport.write(b"".join(self._h11.send(part) or b"" for part in parts))
                self._h11.start_next_cycle()


async def serve(response: bytes) -> None:
    """Answer with a raw HTTP response, on a free loopback port, until cancelled."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    headers = [(name, value.strip()) for name, _, value in (ln.partition(b":") for ln in lines)]
    status = int(first.split(b" ")[1])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BareServer(status, headers, body), "127.0.0.1", 0)
    print(f"bare h11 listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]).read_bytes()))
