"""The listening port of a mock broker: a real socket of this machine, or a port of a network in memory.

One per broker, for as long as the broker exists. While it is shut a client is refused, and on a real socket the port
stays bound, so that no other process can take it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from abc import ABC, abstractmethod
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


class Listening(ABC):
    """A bound port that can be opened and shut."""

    port: int

    @abstractmethod
    def open(self) -> None:
        """Take connections. Clients that connect before the next turn of the loop wait in the backlog."""

    @abstractmethod
    def shut(self) -> None:
        """Take no more; the port stays ours."""

    @abstractmethod
    async def close(self) -> None:
        """Close for good, and release the port."""


class SocketListening(Listening):
    """A TCP port of this machine.

    It accepts by itself: an `asyncio.Server` that is closed in the turn in which it accepted loses the connection, open
    and without an owner (Python 3.11), and clients that dial again and again do meet that turn.
    """

    def __init__(self, host: str, port: int, ssl_context: ssl.SSLContext | None, accept: Accept) -> None:
        self._host = host
        self._ssl_context = ssl_context
        self._accept = accept
        self._socket = self._bind(port)
        self.port = int(self._socket.getsockname()[1])
        self._is_open = False
        self._arriving: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        if self._socket.fileno() < 0:
            self._socket = self._bind(self.port)
        self._socket.listen(BACKLOG)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept_all)

    def shut(self) -> None:
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    def reserve(self) -> None:
        """Bind the port again after `shut`, once connections are closed."""
        if self._socket.fileno() < 0:
            with contextlib.suppress(OSError):
                self._socket = self._bind(self.port)

    async def close(self) -> None:
        self.shut()
        self._socket.close()
        await asyncio.sleep(0)  # a client that has just arrived gets its transport, which closes its socket
        for task in self._arriving:
            task.cancel()
        await asyncio.gather(*self._arriving, return_exceptions=True)

    def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                arrived, _ = self._socket.accept()
            except OSError:
                return  # no other client waits, or it has gone again
            arrived.setblocking(False)
            task = loop.create_task(self._take(arrived), name=f"mock-accept-{self.port}")
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _take(self, arrived: socket.socket) -> None:
        with contextlib.suppress(OSError):  # gone already, or no TLS
            await asyncio.get_running_loop().connect_accepted_socket(self._accept, arrived, ssl=self._ssl_context)

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
