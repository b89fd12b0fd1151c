"""`Listener`: a server of a test, whose connections end with it, also one that was let in a moment ago."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

CLOSING_TURNS = 5

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """On 127.0.0.1 unless told otherwise; each connection has its handler in a task of its own, and is aborted behind it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0, host: str = "127.0.0.1", **options: Any) -> int:
        """The port it listens on."""
        self._server = await asyncio.start_server(self._connected, host, port, **options)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Nobody is let in any more, and all connections end."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        await self.hang_up()

    async def hang_up(self) -> None:
        """End all connections."""
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)  # who was let in just now is connected
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:  # a task that was cancelled before it began did not come to it
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0.001)  # uvloop closes a handle on the turn after

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client hung up, or the test is over
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
