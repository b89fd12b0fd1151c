"""`VirtualLoop`: an asyncio event loop without sockets and without waiting. One per virtual run.

What is connected or served by asyncio's own means (`create_connection`, `create_server`, streams) goes to its `network`.

When nothing is ready the clock jumps to the next timer, so a minute of timeouts takes a moment. With a seed the ready
callbacks run in a random order: those of one object (a task, a connection, a stage) keep the order in which they were
scheduled, as asyncio promises; those of different objects are mixed.

Invariants: nothing here reads a real clock or makes a thread; the same seed gives the same order. A loop with nothing
ready and no timer has deadlocked, and says so at once.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import ipaddress
import math
import socket
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, Final, Protocol, cast
from weakref import WeakKeyDictionary

from aiokprod.testing.virtual.handles import callback_of, describe
from aiokprod.testing.virtual.server import BoundAddress, Listener, VirtualServer
from aiokprod.testing.virtual.threads import WAITS_FOR_LOOP, VirtualLimitError, VirtualThreads
from aiokprod.testing.virtual.turns import DeadlockError, Turns
from aiokprod.testing.virtual.work import WorkCount

EPOCH_S: Final = 1_700_000_000.0
"""What the wall clock shows when a virtual run begins, seconds since 1970."""

LOOPBACK: Final = "127.0.0.1"

THREADSAFE: Final = f"{asyncio.run_coroutine_threadsafe.__qualname__}."

NO_TLS: Final = "no TLS in virtual time: connect in plaintext; test TLS with MockCluster(ssl_context=...) on sockets"


class Network(Protocol):
    """`VirtualNetwork`, as much as the loop needs of it."""

    async def reach(self, port: int) -> None:
        """Wait for a round trip to a port."""
        ...

    def connect(self, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        """Connect a protocol to the listener there."""
        ...

    def listen(self, port: int, accept: Callable[[], asyncio.Protocol]) -> Listener:
        """Bind a port; 0: a free one."""
        ...


class _JumpingSelector:
    """A selector for BaseEventLoop that makes the clock jump instead of waiting for sockets."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set: every waiting task waits for ever")
        self._loop.jump(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time and a random order of callbacks.

    Args:
        random: draws the order of ready callbacks; None keeps asyncio's own.
    """

    def __init__(self, random: Random | None = None) -> None:
        super().__init__()
        self._selector = _JumpingSelector(self)
        self._now = 0.0
        self._random = random
        self._turns = Turns()
        self._rings_within()
        self.threads = VirtualThreads(self)
        """What stands where threads would."""
        self.network: Network | None = None
        """Where connections go that are made by asyncio's own means."""
        self._reached: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()
        self.faults: list[dict[str, Any]] = []  # what reached the loop's exception handler
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    # ------------------------------------------------------------------ time
    def time(self) -> float:
        return self._now

    def wall_s(self) -> float:
        """Return the wall clock of the run, seconds since 1970."""
        return EPOCH_S + self._now

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        if seconds > 0:
            self._now += seconds
            self._rings_within()

    def _rings_within(self) -> None:
        # Timers within a loop's resolution ring early: of a clock that stands still meanwhile it would stay early, and a
        # wait "until then" that looks at the clock would begin again for ever.
        self._clock_resolution = math.ulp(self._now)

    # ------------------------------------------------------------------ order
    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = cast("deque[asyncio.Handle]", self._ready)  # type: ignore[attr-defined]
        self._turns.begin(self._now, ready, self._scheduled)  # type: ignore[attr-defined]
        if self._random is not None and len(ready) > 1:
            taken = [ready.popleft() for _ in range(len(ready))]  # a thread of the user's may add to it meanwhile
            ready.extendleft(reversed(_mixed(taken, self._random)))
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, event_list: list[Any]) -> None:
        """Ignore the events: there are no sockets."""

    def _write_to_self(self) -> None:
        """Return at once: the loop never waits, so there is no thread to wake."""

    # ------------------------------------------------------------------ what is looked at
    def counting_work(self) -> WorkCount:
        """Return a context in which the work of each callback is counted."""
        return WorkCount()

    def timers(self) -> list[str]:
        """Return descriptions of the timers that are set, soonest first."""
        timers: list[asyncio.TimerHandle] = sorted(self._scheduled)  # type: ignore[attr-defined]
        return [f"{timer.when():.3f} s: {describe(timer)}" for timer in timers if not timer.cancelled()]

    # ------------------------------------------------------------------ connections
    async def getaddrinfo(  # type: ignore[override]
        self, host: str | bytes | None, port: int | str | None, *, family: int = 0, type: int = 0, **flags: int
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """Resolve the names of this machine, and addresses, without a resolver.

        Raises:
            socket.gaierror: any other name.
        """
        name = host.decode() if isinstance(host, bytes) else host or LOOPBACK
        address = LOOPBACK if name == "localhost" else name
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            raise socket.gaierror(socket.EAI_NONAME, f"{name}: in virtual time there are no names") from None
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port or 0)))]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Reach the port in the virtual network; the socket itself is never connected."""
        await self._joined_network().reach(address[1])
        self._reached[sock] = address[1]

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: socket.socket | None = None,
        **_ignored: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection in the virtual network, by address or by a socket that `sock_connect` has prepared.

        Raises:
            ConnectionRefusedError: nothing listens there.
            VirtualLimitError: TLS is asked for, or the loop has no network.
        """
        network = self._joined_network()
        if ssl:
            raise VirtualLimitError(NO_TLS)
        if sock is not None:
            at = self._reached.pop(sock)
            sock.close()  # a transport would own it
        else:
            ((*_family, (_address, at)),) = await self.getaddrinfo(host, port)
            await network.reach(at)
        transport = network.connect(at, protocol_factory)
        return transport, transport.get_protocol()

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: object = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        ssl: object = None,
        start_serving: bool = True,
        **_ignored: object,
    ) -> VirtualServer:
        """Listen on a port of the virtual network: the socket's, this one, or a free one. Every host is this machine."""
        network = self._joined_network()
        if ssl:
            raise VirtualLimitError(NO_TLS)
        listener = network.listen(port or 0 if sock is None else sock.getsockname()[1], protocol_factory)
        server = VirtualServer(self, listener, BoundAddress(LOOPBACK, listener.port) if sock is None else sock)
        if start_serving:
            await server.start_serving()
        return server

    def _joined_network(self) -> Network:
        if self.network is None:
            raise VirtualLimitError("this loop has no network to connect by: run_virtual gives it one")
        return self.network

    # ------------------------------------------------------------------ threads
    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the work as a step of this loop, without threads: see `VirtualThreads`."""
        return self.threads.execute(executor, functools.partial(func, *args))

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function soon, also from work for a thread.

        Raises:
            VirtualLimitError: such work wants a coroutine to be run, and it could never see the result.
        """
        if self.threads.is_at_work and getattr(callback, "__qualname__", "").startswith(THREADSAFE):
            inspect.getclosurevars(callback).nonlocals["coro"].close()
            raise VirtualLimitError(WAITS_FOR_LOOP)
        return super().call_soon_threadsafe(callback, *args, context=context)


def _mixed(ready: list[asyncio.Handle], random: Random) -> list[asyncio.Handle]:
    """Return the handles in a random order in which those of one owner keep theirs."""
    lines: dict[int, deque[asyncio.Handle]] = {}
    for handle in ready:
        lines.setdefault(_owner(handle), deque()).append(handle)
    if len(lines) == 1:
        return ready
    waiting = list(lines.values())
    mixed: list[asyncio.Handle] = []
    while waiting:
        at = random.randrange(len(waiting))
        line = waiting[at]
        mixed.append(line.popleft())
        if not line:
            waiting[at] = waiting[-1]
            waiting.pop()
    return mixed


def _owner(handle: asyncio.Handle) -> int:
    callback = callback_of(handle)
    return id(getattr(callback, "__self__", callback))
