"""`VirtualNetwork`: connections in memory, with latency, chunks, silence and resets. One per virtual run.

A client dials through `dial` (the producer's `dialer` option), a `MockBroker` listens through `listen`. What is written
arrives later, in order, cut into chunks at drawn places. A link can go silent (bytes wait, nobody is told), an address
can refuse.

Invariants: bytes of one direction arrive in order or not at all; both ends hear of the end of a connection once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from .loop import NO_TLS, VirtualLimitError

HIGH_WATER_BYTES: Final = 64 * 1024
"""As asyncio's transports: beyond it the writer is told to pause."""

ProtocolFactory = Callable[[], asyncio.Protocol]


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: VirtualNetwork, port: int) -> None:
        super().__init__({"peername": (network.host, port), "sockname": (network.host, 0)})
        self._network = network
        self._loop = network.loop
        self._protocol: asyncio.Protocol | None = None
        self._peer: VirtualTransport | None = None
        self._port = port
        self._under_way: deque[tuple[bytes | None, VirtualTransport]] = deque()  # to this end, in order
        self._incoming: deque[bytes] = deque()  # arrived, and the protocol has paused reading
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._arrives_at = 0.0  # of the last chunk to this end: the next one is not earlier
        self._under_way_bytes = 0
        self._is_paused = False

    def join(self, protocol: asyncio.Protocol, peer: VirtualTransport) -> None:
        """Both ends know each other from now on."""
        self._protocol = protocol
        self._peer = peer

    # ------------------------------------------------------------------ asyncio's side
    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._deliver)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        peer = self._peer
        assert peer is not None
        raw = bytes(data)
        self._under_way_bytes += len(raw)
        for chunk in self._network.cut_up(raw):
            peer._expect(chunk, self)
        if self._under_way_bytes > HIGH_WATER_BYTES and not self._is_paused:
            self._is_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._under_way_bytes

    def close(self) -> None:
        """FIN: what was written arrives first."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._peer is not None:
            self._peer._expect(None, self)
        self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        """RST: what is under way may be lost."""
        if self._is_lost:
            return
        self._is_closing = True
        if self._peer is not None:
            self._peer._reset_soon()
        self._loop.call_soon(self._lost, None)

    # ------------------------------------------------------------------ the wire
    def _expect(self, chunk: bytes | None, sender: VirtualTransport) -> None:
        """A chunk (None: the end) is on its way to this end."""
        now = self._loop.time()
        self._arrives_at = max(self._arrives_at, now + self._network.latency_s(self._port))
        self._under_way.append((chunk, sender))
        self._loop.call_at(self._arrives_at, self._arrive)

    def _arrive(self) -> None:
        """The next chunk is there, whichever timer rang: timers of one moment ring in no order."""
        silent_until = self._network.silent_until(self._port)
        if silent_until > self._loop.time():
            self._loop.call_at(silent_until, self._arrive)
            return
        chunk, sender = self._under_way.popleft()
        if chunk is None:
            if not self._is_closing:
                self._is_closing = True
                self._loop.call_soon(self._lost, None)
            return
        sender._taken(len(chunk))
        if not self._is_closing:
            self._incoming.append(chunk)
            self._deliver()

    def _deliver(self) -> None:
        while self._incoming and self._is_reading and not self._is_closing:
            assert self._protocol is not None
            self._protocol.data_received(self._incoming.popleft())

    def _taken(self, size_bytes: int) -> None:
        self._under_way_bytes -= size_bytes
        if self._is_paused and self._under_way_bytes <= HIGH_WATER_BYTES // 4:
            self._is_paused = False
            if not self._is_lost and self._protocol is not None:
                self._protocol.resume_writing()

    def _reset_soon(self) -> None:
        self._loop.call_later(self._network.latency_s(self._port), self._reset)

    def _reset(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._lost(ConnectionResetError(104, "Connection reset by peer"))

    def _lost(self, cause: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._incoming.clear()
        self._network.ended(self)
        if self._protocol is not None:
            self._protocol.connection_lost(cause)


class VirtualListener:
    """A port that is bound; it takes connections while `is_open`."""

    def __init__(self, network: VirtualNetwork, port: int, accept: ProtocolFactory) -> None:
        self.port = port
        self.accept = accept
        self.is_open = False
        self._network = network


class VirtualNetwork:
    """Ports, links and their weather.

    Args:
        loop: of the run.
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
        """The producer's `dialer`.

        Raises:
            ConnectionRefusedError: nobody listens there.
            VirtualLimitError: TLS is asked for.
        """
        if ssl_context is not None:
            raise VirtualLimitError(NO_TLS)
        await self.reach(port)
        return self.connect(port, protocol_factory)

    async def reach(self, port: int) -> None:
        """The way to a port and back.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        self.dials.setdefault(port, []).append(self.loop.time())
        await asyncio.sleep(2 * self.latency_s(port))
        while (silent_until := self.silent_until(port)) > self.loop.time():  # noqa: ASYNC110
            await asyncio.sleep(silent_until - self.loop.time())
        self._listener(port)

    def connect(self, port: int, protocol_factory: ProtocolFactory) -> asyncio.Transport:
        """Join a protocol to whoever listens at a port that was reached.

        Raises:
            ConnectionRefusedError: nobody listens there any more.
        """
        listener = self._listener(port)
        ours, theirs = VirtualTransport(self, port), VirtualTransport(self, port)
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
        """One end of a connection is gone."""
        self._open.pop(transport, None)

    @property
    def open_ends(self) -> int:
        """Ends of connections that are open."""
        return len(self._open)

    # ------------------------------------------------------------------ weather
    def latency_s(self, port: int) -> float:
        """How long the next chunk takes, one way."""
        return self._random.uniform(*self._latency_s)

    def silent_until(self, port: int) -> float:
        """Nothing passes to or from this port before then (loop time)."""
        return self._silent.get(port, 0.0)

    def silence(self, port: int, seconds: float) -> None:
        """Let nothing pass for so long, in either direction; nobody is told (a frozen broker, a dropping firewall)."""
        self._silent[port] = max(self.silent_until(port), self.loop.time() + seconds)

    def reset(self, port: int | None = None) -> int:
        """Reset the connections of a port, or all; returns how many ends were open."""
        ends = [transport for transport in self._open if port in (None, transport._port)]
        for transport in ends:
            transport.abort()
        return len(ends)

    def cut_up(self, data: bytes) -> list[bytes]:
        """What one write becomes on its way."""
        if not self._is_chunked or len(data) < 2 or self._random.random() < 0.7:
            return [data]
        at = self._random.randrange(1, len(data))
        return [data[:at], data[at:]]
