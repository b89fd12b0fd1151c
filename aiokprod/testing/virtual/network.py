"""`VirtualNetwork`: connections in memory, with latency, chunks, silence and resets. One per virtual run.

A client dials through `dial` (the producer's `dialer` option), a `MockBroker` listens through `listen`. What is written
arrives later, in order, cut into chunks at random places. A link can go silent (bytes wait, neither end is told), an
address can refuse.

How a connection ends is in `VirtualTransport`. Invariant: what is open is known, in the order in which it was opened.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random

from aiokprod.testing.virtual.loop import NO_TLS
from aiokprod.testing.virtual.threads import VirtualLimitError
from aiokprod.testing.virtual.transport import VirtualTransport

ProtocolFactory = Callable[[], asyncio.Protocol]


class VirtualListener:
    """A port that is bound; it takes connections while `is_open`."""

    def __init__(self, network: VirtualNetwork, port: int, accept: ProtocolFactory) -> None:
        self.port = port
        self.accept = accept
        self.is_open = False
        self._network = network


class VirtualNetwork:
    """The ports and links of a network, with their latency and faults.

    Args:
        loop: the loop of the run.
        random: draws latencies and chunks.
        latency_s: one way, least and most (seconds).
        chunked: cut what is written into chunks at drawn places.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        *,
        latency_s: tuple[float, float] = (0.0001, 0.002),
        chunked: bool = True,
    ) -> None:
        self.loop = loop
        self._random = random
        self._latency_s = latency_s
        self._is_chunked = chunked
        self._listeners: dict[int, VirtualListener] = {}
        self._silent: dict[int, float] = {}
        self._open: dict[VirtualTransport, None] = {}  # in the order they were opened: sets have none
        self._next_port = 9092
        self.dials: dict[int, list[float]] = {}  # times, by port

    # ------------------------------------------------------------------ both ends
    def listen(self, port: int, accept: ProtocolFactory) -> VirtualListener:
        """Bind a port (0: a free one) that calls `accept` for each connection while it is open."""
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        listener = self._listeners[port] = VirtualListener(self, port, accept)
        return listener

    async def dial(
        self, host: str, port: int, ssl_context: ssl.SSLContext | None, protocol_factory: ProtocolFactory
    ) -> asyncio.Transport:
        """Connect to a port, as the producer's `dialer`.

        Raises:
            ConnectionRefusedError: nothing listens there.
            VirtualLimitError: TLS is asked for.
        """
        if ssl_context is not None:
            raise VirtualLimitError(NO_TLS)
        await self.reach(port)
        return self.connect(port, protocol_factory)

    async def reach(self, port: int) -> None:
        """Wait for a round trip to a port.

        Raises:
            ConnectionRefusedError: nothing listens there.
        """
        self.dials.setdefault(port, []).append(self.loop.time())
        await asyncio.sleep(2 * self.latency_s(port))
        while (silent_until := self.silent_until(port)) > self.loop.time():  # noqa: ASYNC110
            await asyncio.sleep(silent_until - self.loop.time())
        self._listener(port)

    def connect(self, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        """Connect a protocol to the listener at a port that was reached.

        Raises:
            ConnectionRefusedError: nothing listens there any more.
        """
        listener = self._listener(port)
        ours, theirs = (VirtualTransport(self, port, is_client=is_client) for is_client in (True, False))
        our_protocol, their_protocol = protocol_factory(), listener.accept()
        ours.join(our_protocol, theirs)
        theirs.join(their_protocol, ours)
        self._open[ours] = self._open[theirs] = None
        their_protocol.connection_made(theirs)
        our_protocol.connection_made(ours)
        return ours

    def _listener(self, port: int) -> VirtualListener:
        listener = self._listeners.get(port)
        if listener is None or not listener.is_open:
            raise ConnectionRefusedError(111, "Connection refused")
        return listener

    def ended(self, transport: VirtualTransport) -> None:
        """Note that one end of a connection has closed."""
        self._open.pop(transport, None)

    @property
    def open_ends(self) -> int:
        """Ends of connections that are open."""
        return len(self._open)

    @property
    def open_ports(self) -> list[int]:
        """The server's port of each of these ends, in the order in which they were opened."""
        return [transport.port for transport in self._open]

    @property
    def listening_ports(self) -> list[int]:
        """Ports that take connections."""
        return sorted(port for port, listener in self._listeners.items() if listener.is_open)

    # ------------------------------------------------------------------ weather
    def latency_s(self, port: int) -> float:
        """Return how long the next chunk takes, one way."""
        return self._random.uniform(*self._latency_s)

    def silent_until(self, port: int) -> float:
        """Return the loop time before which nothing passes to or from this port."""
        return self._silent.get(port, 0.0)

    def silence(self, port: int, seconds: float) -> None:
        """Hold all bytes for this time, in both directions; neither end is told (a frozen broker, a firewall that drops)."""
        self._silent[port] = max(self.silent_until(port), self.loop.time() + seconds)

    def reset(self, port: int | None = None) -> int:
        """Reset the connections of a port, or all, as a firewall does: both ends get an RST. Returns how many were open."""
        ends = [transport for transport in self._open if port in (None, transport.port)]
        for transport in ends:
            transport.reset()
        return len(ends)

    def cut_up(self, data: bytes) -> list[bytes]:
        """Return the chunks in which the bytes of one write arrive."""
        if not self._is_chunked or len(data) < 2 or self._random.random() < 0.7:
            return [data]
        at = self._random.randrange(1, len(data))
        return [data[:at], data[at:]]
