"""Where a mock broker takes connections: a real socket of this machine, or a port of a network in memory.

One per broker, for as long as the broker exists. While it is shut a client is refused, and on a real socket the port
stays bound, so that nobody else can take it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

BACKLOG: Final = 128

Accept = Callable[[], asyncio.Protocol]


class MemoryListener(Protocol):
    """A port of a network in memory."""

    port: int
    is_open: bool


class MemoryNetwork(Protocol):
    """`aiokprod.testing.virtual.VirtualNetwork`, as much as a broker needs of it."""

    def listen(self, port: int, accept: Accept) -> MemoryListener:
        """Bind a port; 0: a free one."""
        ...


class Listening:
    """A bound port that can be opened and shut."""

    port: int

    def open(self) -> None:
        """Take connections. Clients that connect before the next turn of the loop wait in the backlog."""
        raise AssertionError("abstract")

    def shut(self) -> None:
        """Take no more; the port stays ours."""
        raise AssertionError("abstract")

    async def close(self) -> None:
        """Shut for good, and give the port back."""
        raise AssertionError("abstract")


class SocketListening(Listening):
    """A TCP port of this machine."""

    def __init__(self, host: str, port: int, ssl_context: ssl.SSLContext | None, accept: Accept) -> None:
        self._host = host
        self._ssl_context = ssl_context
        self._accept = accept
        self._socket: socket.socket | None = self._bind(port)
        self.port = int(self._socket.getsockname()[1])
        self._server: asyncio.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_open = False

    def open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        if self._task is not None and not self._task.done():
            return  # shut and opened within one turn of the loop: that listener will do
        listener = self._socket or self._bind(self.port)
        self._socket = None
        listener.listen(BACKLOG)
        self._task = asyncio.get_running_loop().create_task(self._listen(listener), name=f"mock-listen-{self.port}")

    async def _listen(self, listener: socket.socket) -> None:
        # Never cancelled: it lasts one turn of the loop, and the listener it holds must end up in a server.
        server = await asyncio.get_running_loop().create_server(self._accept, sock=listener, ssl=self._ssl_context)
        if self._is_open:
            self._server = server
        else:
            server.close()

    def shut(self) -> None:
        self._is_open = False
        if self._server is not None:
            self._server.close()
            self._server = None

    def reserve(self) -> None:
        """Bind the port again after `shut`, once connections are closed."""
        if self._socket is None and not self._is_open:
            with contextlib.suppress(OSError):
                self._socket = self._bind(self.port)

    async def close(self) -> None:
        self.shut()
        if self._task is not None:
            await self._task
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _bind(self, port: int) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, port))
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener


class MemoryListening(Listening):
    """A port of a network in memory."""

    def __init__(self, network: MemoryNetwork, port: int, accept: Accept) -> None:
        self._listener = network.listen(port, accept)
        self.port = self._listener.port

    def open(self) -> None:
        self._listener.is_open = True

    def shut(self) -> None:
        self._listener.is_open = False

    async def close(self) -> None:
        self.shut()
