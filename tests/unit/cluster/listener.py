"""`Listener`: a server of a test, whose connections end with it, also one that was let in a moment ago.

Not an `asyncio.Server`: closed in the turn of the loop in which it accepts, one leaves that connection open (CPython 3.11).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """A server, on 127.0.0.1 by default; each connection has its handler in its own task, and is aborted after it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listening: socket.socket | None = None
        self._peers: dict[asyncio.Task[None], socket.socket] = {}

    async def start(self, port: int = 0, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> int:
        """Start listening; return the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = self._listening = socket.create_server((host, port), family=family)
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening, tls)
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Accept no more connections, and end all that are open."""
        if self._listening is None:
            return
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        self._listening = None
        await self.hang_up()

    async def hang_up(self) -> None:
        """End all connections."""
        peers = dict(self._peers)
        for task in peers:
            task.cancel()
        await asyncio.gather(*peers, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # uvloop closes a handle on the turn after

    def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        accepted, _ = listening.accept()
        accepted.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(accepted, tls))
        self._peers[task] = accepted
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        accepted = self._peers.pop(task)
        if task.cancelled():  # before it began
            accepted.close()

    async def _serve(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
        except (OSError, asyncio.CancelledError):  # no TLS, or the test is over
            accepted.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client hung up, or the test is over
        finally:
            writer.close()  # of TLS a transport that is only aborted does not say that it is closed
            transport.abort()
