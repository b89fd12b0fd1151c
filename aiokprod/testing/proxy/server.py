"""`FaultProxy`: a TCP proxy before every broker that knows Kafka's frames and injects scripted faults.

One per test cluster. Runs on a thread of its own (`with FaultProxy(...)`), so that a synchronous test, an asyncio test
and a blocked loop under test can all use it, or on the caller's loop (`async with FaultProxy(...)`). Every public method
may be called from any thread. Faults are scripted as those of a MockCluster, by the verbs of `FaultVerbs`.

    with FaultProxy({1: ("127.0.0.1", 9092)}) as proxy:
        lost_ack = proxy.drop_answer("Produce", nth=2)
        ...
        lost_ack.wait_hit()

Brokers must advertise the proxy's address, or clients go past it: `KafkaCluster(proxied=True)` sees to that.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Final, Self

from aiokprod.logs import GuardedLogger
from aiokprod.testing.faults import FaultRules, FaultVerbs
from aiokprod.testing.faults.apis import api_key_of
from aiokprod.testing.own_thread import LoopHome
from aiokprod.testing.proxy.frames import Direction, ProxyFrame
from aiokprod.testing.proxy.link import Link, LinkOwner
from aiokprod.testing.proxy.link_conditions import Distance, LinkConditions
from aiokprod.testing.proxy.script import Script
from aiokprod.testing.proxy.sides import Address, Sides

HOST: Final = "127.0.0.1"
FRAMES_KEPT: Final = 10_000
BACKLOG: Final = 128
CLOSING_TURNS: Final = 5
CRASHES_KEPT: Final = 20
"""The number of crashes kept, so that a client that keeps trying does not fill the log."""

log = GuardedLogger(__name__)
CALL_TIMEOUT_S: Final = 10.0


class FaultProxy(FaultVerbs):
    """A proxy with one listener per broker. `start`, `with` or `async with` opens them.

    Args:
        upstreams: the brokers' own addresses, (host, port) by node id.
        ports: ports of the proxy's listeners by node id; None is free ones.
        framed: False if the stream is encrypted: faults then apply to chunks of bytes, and have no `api`.
    """

    def __init__(
        self, upstreams: Mapping[int, Address], *, ports: Mapping[int, int] | None = None, framed: bool = True
    ) -> None:
        self._upstreams = dict(upstreams)
        self._ports = dict(ports or {})
        self._framed = framed
        self._host = HOST
        self._conditions = {broker: LinkConditions() for broker in upstreams}
        self._home = LoopHome("kafka-fault-proxy")
        self._faults = FaultRules()
        self.script = Script(self._faults)
        self._listeners: dict[int, socket.socket] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._links: dict[Link, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._frozen: dict[int, asyncio.Event] = {}  # set when it thaws
        self._lock = threading.Lock()  # counters: written on the proxy's loop, read on a test's thread
        self._requests: Counter[tuple[int, int]] = Counter()  # by broker and API key
        self._connections: Counter[int] = Counter()
        self._frames: deque[ProxyFrame] = deque(maxlen=FRAMES_KEPT)
        self.crashes: list[Exception] = []
        """What callables of faults have raised; each has ended its connection."""

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._home.adopt_running_loop()
        try:
            self._open()
        except BaseException:
            await self._close()
            self._home.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()
        self._home.leave()

    def start(self) -> None:
        """Listen on 127.0.0.1, one port per broker, on a thread of our own.

        Raises:
            OSError: a port is taken.
        """
        self._home.start_thread()
        try:
            self._home.call(self._open)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening and end every connection. May be called twice."""
        if self._home.is_running:
            self._home.wait(self._close, CALL_TIMEOUT_S)
            self._home.leave()

    # ------------------------------------------------------------------ where it is, and what went through

    def address(self, broker: int) -> Address:
        """Return host and port at which clients reach a broker through the proxy.

        Args:
            broker: node id.
        """
        return self._host, self._ports[broker]

    @property
    def bootstrap_servers(self) -> str:
        """Every listener, "host:port,..."."""
        return ",".join(f"{self._host}:{self._ports[broker]}" for broker in self._upstreams)

    def requests_seen(self, api: str | int | None = None, broker: int | None = None) -> int:
        """Return the number of requests that came.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            broker: node id; None is all brokers.
        """
        key = None if api is None else api_key_of(api)
        with self._lock:
            return sum(
                count
                for (node, seen), count in self._requests.items()
                if key in (None, seen) and broker in (None, node)
            )

    def connections(self, broker: int | None = None) -> int:
        """Return the number of connections that came, refused ones included.

        Args:
            broker: node id; None is all brokers.
        """
        with self._lock:
            return self._connections.total() if broker is None else self._connections[broker]

    def open_connections(self, broker: int | None = None) -> int:
        """Return the number of open connections.

        Args:
            broker: node id; None is all brokers.
        """
        return sum(1 for node in tuple(self._links.values()) if broker in (None, node))

    def frames(self, api: str | None = None, direction: Direction | str | None = None) -> list[ProxyFrame]:
        """Return the last 10,000 frames, oldest first, with the time of each.

        Args:
            api: Kafka's name of the request, as in "Produce"; None is every API.
            direction: "request" or "answer"; None is both.
        """
        with self._lock:
            kept = list(self._frames)
        return [each for each in kept if api in (None, each.api) and direction in (None, each.direction)]

    # ------------------------------------------------------------------ connections and brokers

    def close_connections(self, node: int | None = None, *, abort: bool = False) -> int:
        """Close the open connections of a broker, or of all brokers, on both sides.

        Args:
            node: node id; None is every broker.
            abort: True resets the connections (RST), False ends them in order (FIN).

        Returns:
            The number of connections that were closed.
        """

        def close() -> int:
            chosen = [link for link, broker in self._links.items() if node in (None, broker)]
            for link in chosen:
                link.sides.end(reset=abort)
            return len(chosen)

        return self._home.call(close)

    def freeze_broker(self, node: int) -> None:
        """Pass on nothing to or from a broker; new connections are taken, and wait.

        Args:
            node: node id.
        """
        self._home.call(lambda: self._frozen.setdefault(node, asyncio.Event()))

    def thaw_broker(self, node: int) -> None:
        """Pass on everything that has waited since `freeze_broker`.

        Args:
            node: node id.
        """

        def thaw() -> None:
            if (event := self._frozen.pop(node, None)) is not None:
                event.set()

        self._home.call(thaw)

    def refuse_connections(self, node: int) -> None:
        """Refuse new connections to a broker; open connections stay in use.

        Args:
            node: node id.
        """

        def refuse() -> None:
            self._listeners.pop(node, None)
            if (server := self._servers.pop(node, None)) is not None:
                server.close()

        self._home.call(refuse)

    def allow_connections(self, node: int) -> None:
        """Accept connections again after `refuse_connections`, on the same port.

        Args:
            node: node id.
        """
        self._home.call(lambda: self._listen(node))

    def move(self, host: str) -> int:
        """Listen on another address of this machine, on the same ports, and no longer on the former one.

        Open connections are reset, and refused brokers accept connections again. On Linux, all of 127.0.0.0/8 is this machine.

        Args:
            host: the address.

        Returns:
            The number of connections that were reset.

        Raises:
            OSError: the address is not this machine's, or a port is taken there; the proxy then listens nowhere.
        """

        def move() -> int:
            self._shut()
            self._host = host
            self._open()
            open_now = list(self._links)
            for link in open_now:
                link.sides.end(reset=True)
            return len(open_now)

        return self._home.call(move)

    def set_distance(self, node: int, distance: Distance | None) -> None:
        """Set delay, rate and loss of the way to a broker, also for open connections.

        Args:
            node: node id.
            distance: a `Distance`; None is no distance.
        """
        self._home.call(lambda: self._conditions[node].set_distance(distance))

    def segments(self, node: int) -> tuple[int, int]:
        """Return the number of segments since the distance was set, in both directions, and the number of lost ones.

        Args:
            node: node id.
        """
        return self._home.call(lambda: (self._conditions[node].segments, self._conditions[node].lost))

    # ------------------------------------------------------------------ on the proxy's own loop

    def _noticed(self, frame: ProxyFrame) -> None:
        with self._lock:
            self._frames.append(frame)
            if frame.direction is Direction.REQUEST:
                self._requests[frame.broker, frame.api_key] += 1

    def _crashed(self, crashes: ExceptionGroup[Exception]) -> None:
        # It must be seen, and must not take the other connections with it.
        log.error("a fault crashed", exc_info=crashes)
        self.crashes.extend(one for one in crashes.exceptions if len(self.crashes) < CRASHES_KEPT)

    async def _thawed(self, broker: int) -> None:
        while (frozen := self._frozen.get(broker)) is not None:
            await frozen.wait()

    def _open(self) -> None:
        for broker in self._upstreams:
            self._listen(broker)

    async def _close(self) -> None:
        await asyncio.sleep(0)  # a listener that is being opened becomes a server
        self._shut()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)  # a client that was just accepted gets its link
        while self._tasks:
            for link in tuple(self._links):
                link.sides.abort()
            ending = tuple(self._tasks)
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            self._tasks.difference_update(ending)
        self._faults.clear()
        await asyncio.sleep(0)  # transports that were aborted are told so

    def _shut(self) -> None:
        self._listeners.clear()
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def _listen(self, broker: int) -> None:
        """Listen on the port when this returns; a client that connects at once waits in its backlog."""
        if broker in self._listeners:
            return
        listener = socket.create_server((self._host, self._ports.get(broker, 0)), backlog=BACKLOG)
        self._listeners[broker] = listener
        self._ports[broker] = listener.getsockname()[1]
        self._spawn(self._serve(broker, listener))

    async def _serve(self, broker: int, listener: socket.socket) -> None:
        owner = LinkOwner(self.script, self._noticed, self._crashed, self._thawed)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = Link(
                owner,
                broker,
                next(self._numbers),
                Sides(writer, framed=self._framed, conditions=self._conditions[broker]),
            )
            self._links[link] = broker
            self._spawn(self._run_link(link, broker, reader))

        server = await asyncio.start_server(connected, sock=listener)
        if self._listeners.get(broker) is listener:
            self._servers[broker] = server
        else:  # refused in the same turn of the loop
            server.close()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_link(self, link: Link, broker: int, reader: asyncio.StreamReader) -> None:
        with self._lock:
            self._connections[broker] += 1
        try:
            if self._faults.refuses_connection(broker):
                link.sides.end(reset=True)  # the broker hears nothing of it
            else:
                await link.run(reader, self._upstreams[broker])
        finally:
            del self._links[link]
