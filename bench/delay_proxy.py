"""A TCP proxy that lets bytes arrive later: `python bench/delay_proxy.py SECONDS FROM TO [FROM TO ...]` (ports).

A process of its own. Each byte is passed on, in order, so many seconds after it arrived. The buffer has no bound, so the
proxy adds latency and does not limit throughput. Its processor time tells what it costs (`run.py` reads it).
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from functools import partial

HOST = "127.0.0.1"


class End(asyncio.Protocol):
    """One end of a connection; bytes that arrive here leave at the other end."""

    def __init__(self, delay_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._is_ending = False
        self._has_timer = False
        self.transport: asyncio.Transport | None = None
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.pump()

    def data_received(self, data: bytes) -> None:
        self._waiting.append((self._loop.time() + self._delay_s, data))
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_ending = True
        self.pump()

    def pump(self) -> None:
        """Pass on the bytes that are due, and schedule a call for when the next are."""
        other = self.other
        if self._has_timer or other is None or other.transport is None:
            return
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now + 0.0002:
            other.transport.write(self._waiting.popleft()[1])
        if self._waiting:
            self._has_timer = True
            self._loop.call_at(self._waiting[0][0], self._rung)
        elif self._is_ending:
            other.transport.close()

    def _rung(self) -> None:
        self._has_timer = False
        self.pump()


class FrontEnd(End):
    """The end of the connection that was accepted: it dials the broker."""

    def __init__(self, delay_s: float, port: int) -> None:
        super().__init__(delay_s)
        self._port = port
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dialling = asyncio.ensure_future(self._dial())

    async def _dial(self) -> None:
        back = End(self._delay_s)
        back.other = self
        await self._loop.create_connection(lambda: back, HOST, self._port)
        self.other = back
        self.pump()


async def serve(delay_s: float, ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    for front, behind in zip(ports[::2], ports[1::2], strict=True):
        await loop.create_server(partial(FrontEnd, delay_s, behind), HOST, front)
    print("ready", flush=True)
    await loop.create_future()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(float(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
