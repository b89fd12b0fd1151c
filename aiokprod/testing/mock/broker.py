"""One mock broker: its listening socket, its connections and their tasks.

Made and owned by the cluster, one per node id; it lives on when stopped, so that it can be started again on its port.
All methods run on the cluster's loop, except that the port is bound when the cluster is built up. While a broker is
down its port stays bound without listening: a client is refused, and no other process can take the port.

Invariant: after `stop` no task, timer or connection of the broker is left in the loop.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokprod.testing.mock.broker_core import BrokerCore, BrokerSettings
from aiokprod.testing.mock.connection import MockConnection
from aiokprod.testing.mock.listening import Listening, MemoryListening, SocketListening

CLOSING_TURNS: Final = 5
"""Turns of the loop a connection gets to close by itself (TLS says goodbye first); then it is aborted."""


class MockBroker(BrokerCore):
    """A broker on a real socket."""

    def __init__(self, node_id: int, settings: BrokerSettings, port: int = 0) -> None:
        super().__init__(node_id, settings)
        self.host = settings.host
        network = settings.network
        self._listening: Listening = (
            SocketListening(settings.host, port, settings.ssl_context, self._accept)
            if network is None
            else MemoryListening(network, port, self._accept)
        )
        self.port = self._listening.port
        self._connections: dict[MockConnection, None] = {}  # in the order they came
        self._accepted = 0
        self.is_listening = False

    def __repr__(self) -> str:
        state = "up" if self.is_listening else "down"
        return f"<MockBroker {self.node_id} {self.host}:{self.port} {state} connections={len(self._connections)}>"

    @property
    def connections(self) -> tuple[MockConnection, ...]:
        """Open connections."""
        return tuple(self._connections)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Listen. Clients that connect before the next turn of the loop wait in the backlog."""
        self.is_listening = True
        self.is_frozen = False
        self._listening.open()

    def stop(self, *, abort: bool) -> None:
        """Close every connection (RST with `abort`, else FIN) and listen no more; the port stays ours."""
        self.is_listening = False
        self._listening.shut()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        self.close_connections(abort=abort)

    def refuse_connections(self) -> None:
        """Listen no more; open connections go on, and the port stays ours."""
        self._listening.shut()
        self.reserve_port()

    def allow_connections(self) -> None:
        """Listen again, if the broker is up."""
        if self.is_listening:
            self._listening.open()

    def freeze(self) -> None:
        """Stop answering until `thaw`."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Go on where it stopped."""
        self.is_frozen = False
        for connection in self.connections:
            connection.thawed()

    def reserve_port(self) -> None:
        """Bind the port again after `stop`, without listening."""
        if isinstance(self._listening, SocketListening):
            self._listening.reserve()

    async def close(self) -> None:
        """Stop for good and wait until nothing is left."""
        self.stop(abort=False)
        await self._listening.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)  # FIN goes out, connection_lost comes in
        while self._connections:
            for connection in self.connections:
                connection.abort()
            await asyncio.sleep(0)

    def close_connections(self, *, abort: bool = False) -> int:
        """Close the connections there are; returns how many."""
        open_now = self.connections
        for connection in open_now:
            connection.abort() if abort else connection.close()
        return len(open_now)

    # ------------------------------------------------------------------ connections

    def _accept(self) -> MockConnection:
        self._accepted += 1
        return MockConnection(self, self._accepted, self._opened, self._closed)

    def _opened(self, connection: MockConnection) -> None:
        """Note that a client has connected."""
        self.counters.connections[self.node_id] += 1
        self._connections[connection] = None
        if not self.is_listening or self.faults.refuses_connection(self.node_id):
            connection.abort()

    def _closed(self, connection: MockConnection) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(connection, None)
