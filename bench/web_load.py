"""A load generator, one request at a time per connection: `python bench/web_load.py PORT SECONDS CONNECTIONS`.

A process of its own that does as little as possible, so that the application is the limit and not the load. Prints
JSON: requests, seconds, p50_ms, p99_ms.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial

BODY = b"v" * 100
REQUEST = b"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n" + BODY
ANSWERED = b'{"state":"taken"}'


class Caller(asyncio.Protocol):
    """One connection: sends the next request when the last is answered."""

    def __init__(self, until: float, latencies_s: list[float], done: asyncio.Future[None]) -> None:
        self._until = until
        self._latencies_s = latencies_s
        self._done = done
        self._asked_at = 0.0
        self._transport: asyncio.WriteTransport | None = None
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        self._asked_at = time.perf_counter()
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._answer.endswith(ANSWERED):
            if self._answer[:12] not in (b"HTTP/1.1 200"[: len(self._answer)], b"HTTP/1.1 200"):
                self._done.set_exception(AssertionError(self._answer))
            return
        now = time.perf_counter()
        self._answer = b""
        self._latencies_s.append(now - self._asked_at)
        if now < self._until:
            self._ask()
        elif not self._done.done():
            self._done.set_result(None)


async def load(port: int, seconds: float, connections: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    latencies_s: list[float] = []
    began = time.perf_counter()
    callers = [loop.create_future() for _ in range(connections)]
    transports = []
    for done in callers:
        made, _ = await loop.create_connection(partial(Caller, began + seconds, latencies_s, done), "127.0.0.1", port)
        transports.append(made)
    await asyncio.gather(*callers)
    took = time.perf_counter() - began
    for transport in transports:
        transport.close()
    latencies_s.sort()
    return {
        "requests": len(latencies_s),
        "seconds": took,
        "p50_ms": latencies_s[len(latencies_s) // 2] * 1e3,
        "p99_ms": latencies_s[int(len(latencies_s) * 0.99)] * 1e3,
    }


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(load(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))))
