"""`VirtualServer`: the result of a `VirtualLoop`'s `create_server`: a port of the virtual network as an asyncio server.

One per call. Invariant: it never listens on a real socket; one that it is given only lends its port and is closed with it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol


class Listener(Protocol):
    """`VirtualListener`, as much as a server needs of it."""

    port: int
    is_open: bool


class BoundAddress:
    """A stand-in for the server's socket, for code that asks for the port."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self.family = socket.AF_INET

    def getsockname(self) -> tuple[str, int]:
        """Return host and port."""
        return self._address

    def close(self) -> None:
        """Ignore the call: there is nothing to close."""


class VirtualServer(asyncio.AbstractServer):
    """A port that takes connections until it is closed; those it has go on."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listener: Listener, bound: BoundAddress | socket.socket
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._bound = bound
        self._is_closed = False

    @property
    def sockets(self) -> tuple[BoundAddress | socket.socket, ...]:
        """Where it listens; nowhere once it is closed."""
        return () if self._is_closed else (self._bound,)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the run."""
        return self._loop

    def is_serving(self) -> bool:
        """Return whether the server accepts connections."""
        return self._listener.is_open and not self._is_closed

    async def start_serving(self) -> None:
        """Take connections."""
        self._listener.is_open = not self._is_closed

    async def serve_forever(self) -> None:
        """Take connections until cancelled."""
        await self.start_serving()
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Take no more."""
        if not self._is_closed:
            self._is_closed = True
            self._listener.is_open = False
            self._bound.close()

    async def wait_closed(self) -> None:
        """Return at once: `close` leaves nothing to wait for."""
