"""`VirtualLoop`: an asyncio event loop without sockets and without waiting. One per virtual run.

What is connected or served by asyncio's own means (`create_connection`, `create_server`, streams) goes to its `network`.

When nothing is ready the clock jumps to the next timer, so a minute of timeouts takes a moment. With a seed the ready
callbacks run in a drawn order: those of one object (a task, a connection, a stage) stay in theirs, as asyncio promises
it to whoever schedules them, those of different objects are mixed.

Invariants: nothing here reads a real clock or makes a thread; the same seed gives the same order. A loop with nothing
ready and no timer has deadlocked, and says so at once.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from .server import BoundAddress, Listener, VirtualServer

EPOCH_S: Final = 1_700_000_000.0
"""What the wall clock shows when a virtual run begins, seconds since 1970."""

LOOPBACK: Final = "127.0.0.1"

MOST_TURNS: Final = 5_000_000
"""A run that needs more turns of the loop spins."""


class DeadlockError(RuntimeError):
    """Everybody waits and nothing will ever happen, or the loop spins without end."""


class VirtualLimitError(RuntimeError):
    """Virtual time does not have this, on purpose; the message says where it can be had."""


NO_TLS: Final = "no TLS in virtual time: connect in plaintext; test TLS with MockCluster(ssl_context=...) on sockets"


class Network(Protocol):
    """`VirtualNetwork`, as much as the loop needs of it."""

    async def reach(self, port: int) -> None:
        """The way to a port and back."""

    def connect(self, port: int, protocol_factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """Join a protocol to whoever listens there."""
        ...

    def listen(self, port: int, accept: Callable[[], asyncio.Protocol]) -> Listener:
        """Bind a port; 0: a free one."""
        ...


class _JumpingSelector:
    """Stands where BaseEventLoop waits for sockets: jumps the clock instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set: whoever waits now waits for ever")
        self._loop.jump(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Time as a number, order as a draw.

    Args:
        random: draws the order of ready callbacks; None keeps asyncio's own.
    """

    def __init__(self, random: Random | None = None) -> None:
        super().__init__()
        self._selector = _JumpingSelector(self)
        self._now = 0.0
        self._random = random
        self._turns = 0
        self.network: Network | None = None
        """Where connections go that are made by asyncio's own means."""
        self._reached: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()
        self.faults: list[dict[str, Any]] = []  # what reached the loop's exception handler
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    # ------------------------------------------------------------------ time
    def time(self) -> float:
        return self._now

    def wall_s(self) -> float:
        """The wall clock of the run, seconds since 1970."""
        return EPOCH_S + self._now

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        if seconds > 0:
            self._now += seconds

    # ------------------------------------------------------------------ order
    def _run_once(self) -> None:
        self._turns += 1
        if self._turns > MOST_TURNS:
            self._turns = 0  # whoever cleans up gets its own
            raise DeadlockError(f"{MOST_TURNS} turns of the loop: something spins")
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        early_s: float = self._clock_resolution  # type: ignore[attr-defined]
        if timers and self._now < timers[0].when() < self._now + early_s:
            self._now = timers[0].when()  # it rings now: what it calls may look at the clock to see whether it is time
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if self._random is not None and len(ready) > 1:
            mixed = _mixed(ready, self._random)
            ready.clear()
            ready.extend(mixed)
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There is nobody to wake: the loop never waits."""

    # ------------------------------------------------------------------ connections
    async def getaddrinfo(  # type: ignore[override]
        self, host: str | bytes | None, port: int | str | None, *, family: int = 0, type: int = 0, **flags: int
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """This machine and addresses as they stand; no resolver is asked.

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
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: socket.socket | None = None,
        **_ignored: object,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """A connection in the virtual network, by address or by a socket that `sock_connect` was told of.

        Raises:
            ConnectionRefusedError: nobody listens there.
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
        protocol = transport.get_protocol()
        assert isinstance(protocol, asyncio.Protocol)
        return transport, protocol

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
        """A port of the virtual network: the one of the socket, this one, or a free one. Every host is this machine."""
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
    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """No threads: the work is done on a later turn of the loop."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as failed:
                future.set_exception(failed)

        self.call_soon(work)
        return future


def _mixed(ready: deque[asyncio.Handle], random: Random) -> list[asyncio.Handle]:
    """The handles in a drawn order in which those of one owner keep theirs."""
    lines: dict[int, deque[asyncio.Handle]] = {}
    for handle in ready:
        lines.setdefault(_owner(handle), deque()).append(handle)
    if len(lines) == 1:
        return list(ready)
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
    callback = handle._callback  # type: ignore[attr-defined]
    while isinstance(callback, functools.partial):
        callback = callback.func
    return id(getattr(callback, "__self__", callback))
