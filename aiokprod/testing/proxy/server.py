"""`FaultProxy`: a TCP proxy before every broker that knows Kafka's frames and breaks what it is told to break.

One per test cluster. It runs an event loop of its own on a thread of its own, so a synchronous test, an asyncio test
and a blocked loop under test can all use it; every public method may be called from any thread.

    with FaultProxy({1: ("127.0.0.1", 9092)}) as proxy:
        lost_ack = proxy.add(ProxyRule(action="cut_after", api="Produce", nth=2))
        ...
        lost_ack.wait_hit()

Brokers must advertise the proxy's address, or clients go past it: `KafkaCluster(proxied=True)` sees to that.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

from aiokprod.testing.proxy.link import Address, Link, LinkOwner
from aiokprod.testing.proxy.rules import Action, ActiveRule, Direction, ProxyFrame, ProxyRule

HOST: Final = "127.0.0.1"
FRAMES_KEPT: Final = 10_000
CALL_TIMEOUT_S: Final = 10.0


class FaultProxy(LinkOwner):
    """One listener per broker."""

    def __init__(
        self, upstreams: Mapping[int, Address], *, ports: Mapping[int, int] | None = None, framed: bool = True
    ) -> None:
        """Nothing listens yet.

        Args:
            upstreams: the brokers' own addresses, by node id.
            ports: of the proxy's listeners; free ones if not given.
            framed: False where the stream is encrypted: then rules see chunks and no api.
        """
        self._upstreams = dict(upstreams)
        self._ports = dict(ports or {})
        self._framed = framed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: asyncio.Event | None = None
        self._servers: dict[int, asyncio.Server] = {}
        self._links: dict[Link, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # rules and counters: written on the proxy's thread, read on a test's
        self._rules: list[ActiveRule] = []
        self._requests: Counter[tuple[int, str | None]] = Counter()
        self._connections: Counter[int] = Counter()
        self._frames: deque[ProxyFrame] = deque(maxlen=FRAMES_KEPT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Listen on 127.0.0.1, one port per broker.

        Raises:
            OSError: a port is taken.
        """
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="kafka-fault-proxy", daemon=True
        )
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def close(self) -> None:
        """Stop listening and end every connection. May be called twice."""
        if self._thread is None or self._loop is None or self._end is None:
            return
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._thread = None

    # Where it is, and what went through.

    def address(self, broker: int) -> Address:
        """Where clients reach this broker through the proxy."""
        return HOST, self._ports[broker]

    @property
    def bootstrap_servers(self) -> str:
        """Every listener, "host:port,..."."""
        return ",".join(f"{HOST}:{self._ports[broker]}" for broker in self._upstreams)

    def requests(self, api: str | None = None, broker: int | None = None) -> int:
        """Requests seen so far, of this api, for this broker; None: any."""
        with self._lock:
            return sum(
                count
                for (node, name), count in self._requests.items()
                if api in (None, name) and broker in (None, node)
            )

    def connections(self, broker: int | None = None) -> int:
        """Connections taken so far, refused ones included."""
        with self._lock:
            return self._connections.total() if broker is None else self._connections[broker]

    def open_connections(self, broker: int | None = None) -> int:
        """Connections open now."""
        return sum(1 for node in tuple(self._links.values()) if broker in (None, node))

    def frames(self, api: str | None = None, direction: Direction | str | None = None) -> list[ProxyFrame]:
        """The last 10,000 frames, oldest first, with the time each was seen."""
        with self._lock:
            kept = list(self._frames)
        return [each for each in kept if api in (None, each.api) and direction in (None, each.direction)]

    # Faults.

    def add(self, rule: ProxyRule) -> ActiveRule:
        """Arm a rule; its frames are counted from now on."""
        active = ActiveRule(rule, self._started_loop())
        with self._lock:
            self._rules.append(active)
        return active

    def clear(self) -> None:
        """Remove every rule and let go of everything that is held."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def cut(self, broker: int | None = None, *, reset: bool = False) -> None:
        """End the connections that are open now; new ones are taken."""
        self._call(lambda: self._cut(broker, reset))

    def refuse(self, broker: int) -> None:
        """Listen no more for this broker: new connections are refused. Open ones go on."""
        self._call(lambda: self._refuse(broker))

    def allow(self, broker: int) -> None:
        """Listen again after `refuse`, on the same port."""
        self._call(lambda: self._listen(broker))

    # On the proxy's own loop.

    def noticed(self, frame: ProxyFrame, payload: bytes) -> ActiveRule | None:
        with self._lock:
            self._frames.append(frame)
            if frame.direction is Direction.REQUEST:
                self._requests[frame.broker, frame.api] += 1
            rules = tuple(self._rules)
        # Outside the lock: a condition of the test's own runs here.
        return next((each for each in rules if each.takes(each.rule.is_about(frame, payload))), None)

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        try:
            for broker in self._upstreams:
                await self._listen(broker)
        except OSError as cause:
            for server in self._servers.values():
                server.close()
            started.set_exception(cause)
            return
        started.set_result(None)
        await self._end.wait()
        for server in self._servers.values():
            server.close()
        for link in tuple(self._links):
            link.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, broker: int) -> None:
        if broker in self._servers:
            return

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._run_link(broker, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(connected, HOST, self._ports.get(broker, 0))
        self._servers[broker] = server
        self._ports[broker] = server.sockets[0].getsockname()[1]

    async def _refuse(self, broker: int) -> None:
        if (server := self._servers.pop(broker, None)) is not None:
            server.close()

    async def _cut(self, broker: int | None, reset: bool) -> None:
        for link, node in tuple(self._links.items()):
            if broker in (None, node):
                link.end(reset=reset)

    async def _run_link(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, broker, next(self._numbers), self._framed)
        self._links[link] = broker
        try:
            if self._refuses(broker):
                link.refuse(writer)
            else:
                await link.run(reader, writer, self._upstreams[broker])
        finally:
            del self._links[link]

    def _refuses(self, broker: int) -> bool:
        with self._lock:
            self._connections[broker] += 1
            rules = tuple(self._rules)
        return any(
            each.takes(each.rule.action == Action.REFUSE and each.rule.broker in (None, broker)) for each in rules
        )

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        if self._thread is None or self._loop is None:
            raise RuntimeError("the proxy is not started")
        return self._loop

    def _call(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run this on the proxy's loop and wait for it."""
        loop = self._started_loop()
        asyncio.run_coroutine_threadsafe(work(), loop).result(CALL_TIMEOUT_S)
