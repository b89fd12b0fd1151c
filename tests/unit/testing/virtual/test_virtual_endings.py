"""A connection in virtual time ends as one of asyncio on sockets does: each ending is played on both."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from aiokprod.testing.virtual import VirtualNetwork, run_virtual

MUCH_BYTES = 16 * 1024 * 1024
"""More than the kernel buffers of a connection hold."""


class End(asyncio.Protocol):
    """A protocol that notes its calls."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost: list[Exception | None] = []
        self.keeps_open = False
        self.is_eof = False
        self.raises: type[BaseException] | None = None
        self.has_read_eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.raises is not None:
            raise self.raises("of the test")

    def eof_received(self) -> bool:
        self.is_eof = True
        self.has_read_eof.set_result(None)
        if self.raises is not None:
            raise self.raises("of the test")
        return self.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        self.is_ended.set_result(None)

    def linger_not(self) -> None:
        """Make closing send a reset."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset(self) -> None:
        self.linger_not()
        self.transport.abort()


class Turns:
    """The visible state of a transport between two turns of the loop."""

    def __init__(self, end: End) -> None:
        self.seen: list[tuple[bool, bool]] = []
        self._end = end
        loop: Any = asyncio.get_running_loop()
        turn = loop._run_once

        def watched() -> None:
            turn()
            self._look()

        loop._run_once = watched
        self._look()

    def _look(self) -> None:
        now = (self._end.transport.is_closing(), bool(self._end.lost))
        if not self.seen or self.seen[-1] != now:
            self.seen.append(now)


OPEN, CLOSING, TOLD = (False, False), (True, False), (True, True)


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[End, End, Turns]]:
    """Yield both ends, and the turns of the first; both are gone at the end."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[End] = loop.create_future()

    class Accepted(End):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            accepted.set_result(self)

    async with asyncio.timeout(60):
        server = await loop.create_server(Accepted, "127.0.0.1", 0)
        _, near = await loop.create_connection(End, "127.0.0.1", server.sockets[0].getsockname()[1])
        far = await accepted
        turns = Turns(near)
        await asyncio.sleep(0)  # the first turn that is watched
        yield near, far, turns
        for end in (near, far):
            if not end.is_ended.done():
                end.transport.abort()
        await asyncio.gather(near.is_ended, far.is_ended)
        server.close()
        await server.wait_closed()


Play = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def on_sockets(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(scenario())


def in_memory(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def played(network: VirtualNetwork, random: Random) -> None:
        await scenario()

    for seed in range(5):
        run_virtual(played, seed=seed)


@pytest.fixture(params=[on_sockets, in_memory])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    yield request.param


async def until(condition: Callable[[], bool], *, meanwhile: Callable[[], None] = lambda: None) -> None:
    while not condition():
        await asyncio.sleep(0.0001)  # lets bytes pass, on sockets as in memory
        meanwhile()


async def own_close(near: End, far: End) -> None:
    near.transport.close()


async def own_abort(near: End, far: End) -> None:
    near.transport.abort()


async def eof(near: End, far: End) -> None:
    far.transport.close()


async def abort_of_the_peer(near: End, far: End) -> None:
    far.transport.abort()  # without lingering off it is an EOF


async def reset(near: End, far: End) -> None:
    far.reset()


async def write_after_a_reset(near: End, far: End) -> None:
    near.transport.pause_reading()
    far.reset()
    await until(near.transport.is_closing, meanwhile=lambda: near.transport.write(b"x"))


async def peer_closes_with_something_unread(near: End, far: End) -> None:
    far.transport.pause_reading()
    near.transport.write(b"unread")
    await asyncio.sleep(0.01)  # longer than any way in memory; on sockets it has arrived already
    far.transport.close()


async def error_while_reading(near: End, far: End) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    near.raises = ZeroDivisionError
    far.transport.write(b"x")


async def error_at_the_eof(near: End, far: End) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    near.raises = ZeroDivisionError
    far.transport.close()


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        (own_close, None),
        (own_abort, None),
        (eof, None),
        (abort_of_the_peer, None),
        (reset, ConnectionResetError),
        (write_after_a_reset, ConnectionResetError),
        (peer_closes_with_something_unread, ConnectionResetError),
        (error_while_reading, ZeroDivisionError),
        (error_at_the_eof, ZeroDivisionError),
    ],
)
def test_a_transport_is_closing_for_a_turn_before_its_protocol_is_told(
    play: Play, ending: Callable[[End, End], Awaitable[None]], cause: type[Exception] | None
) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, turns):
            await ending(near, far)
            assert near.lost == [], "never in the step that ends it"
            await near.is_ended
        assert turns.seen == [OPEN, CLOSING, TOLD]
        assert [type(error) for error in near.lost] == [type(None) if cause is None else cause]

    play(scenario)


def test_bytes_that_wait_in_the_transport_leave_before_a_close_is_over(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, turns):
            far.transport.pause_reading()
            near.transport.write(bytes(MUCH_BYTES))
            near.transport.close()
            await near_is_closing(turns)
            assert near.transport.get_write_buffer_size() > 0 and not near.lost
            far.transport.resume_reading()
            await far.is_ended
            assert len(far.data) == MUCH_BYTES and far.is_eof
            assert near.lost == far.lost == [None]

    play(scenario)


async def near_is_closing(turns: Turns) -> None:
    await until(lambda: turns.seen[-1] == CLOSING)


def test_an_abort_throws_away_what_waits_in_the_transport_and_nothing_else(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, _):
            far.transport.pause_reading()
            near.transport.write(bytes(MUCH_BYTES))
            near.transport.abort()
            await near.is_ended
            far.transport.resume_reading()
            await far.is_ended
            assert 0 < len(far.data) < MUCH_BYTES and far.is_eof
            assert near.lost == far.lost == [None]

    play(scenario)


def test_a_reset_reaches_what_waits_in_the_transport_while_nothing_is_read(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, turns):
            near.transport.pause_reading()
            far.transport.pause_reading()
            near.transport.write(bytes(MUCH_BYTES))
            far.reset()
            await near.is_ended
            assert isinstance(near.lost[0], ConnectionError)
            assert turns.seen == [OPEN, CLOSING, TOLD]

    play(scenario)


def test_a_protocol_that_keeps_half_of_it_open_learns_of_the_rest_by_writing(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, turns):
            near.keeps_open = True
            far.transport.close()
            await until(lambda: near.is_eof)
            assert not near.transport.is_closing() and near.transport.is_reading()
            await until(near.transport.is_closing, meanwhile=lambda: near.transport.write(b"x"))
            await near.is_ended
            assert turns.seen == [OPEN, CLOSING, TOLD]
            assert isinstance(near.lost[0], BrokenPipeError)

    play(scenario)


def test_one_direction_can_be_ended_alone(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, _):
            assert near.transport.can_write_eof()
            far.keeps_open = True
            near.transport.write(bytes(MUCH_BYTES))
            near.transport.write_eof()
            near.transport.write_eof()
            with pytest.raises(RuntimeError, match="after write_eof"):
                near.transport.write(b"x")
            await far.has_read_eof
            assert len(far.data) == MUCH_BYTES
            far.transport.write(b"still")
            await until(lambda: near.data == b"still")
            far.transport.close()
            await near.is_ended
            assert near.lost == [None]

    play(scenario)


def test_nothing_is_noticed_while_reading_is_paused(play: Play) -> None:
    async def scenario() -> None:
        for end in (End.reset, lambda far: far.transport.close()):
            async with connection() as (near, far, turns):
                near.transport.pause_reading()
                near.transport.pause_reading()
                far.transport.write(b"before")
                end(far)
                await far.is_ended
                await asyncio.sleep(0.01)  # it has arrived, in virtual time certainly
                assert turns.seen == [OPEN] and not near.data
                near.transport.resume_reading()
                near.transport.resume_reading()
                await near.is_ended
                assert turns.seen == [OPEN, CLOSING, TOLD]

    play(scenario)


def test_what_is_written_to_one_that_ends_is_dropped_and_it_ends_once(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, turns):
            near.transport.write(b"before")
            near.transport.close()
            near.transport.write(b"after")
            near.transport.write_eof()
            near.transport.close()
            near.transport.abort()
            await far.is_ended
            near.transport.write(b"long after")
            assert far.data == b"before" and turns.seen == [OPEN, CLOSING, TOLD]
        assert near.lost == far.lost == [None]

    play(scenario)


def test_only_bytes_are_written(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, _):
            with pytest.raises(TypeError, match="bytes-like"):
                near.transport.write("text")  # type: ignore[arg-type]
            near.transport.write(b"")
            near.transport.writelines([b"a", memoryview(b"b"), bytearray(b"c")])
            await until(lambda: far.data == b"abc")

    play(scenario)


def test_a_protocol_may_bring_its_own_buffer(play: Play) -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.room = bytearray(3)
            self.data = b""

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.room

        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.room[:nbytes]

    async def scenario() -> None:
        async with connection() as (near, far, _):
            buffered = Buffered()
            near.transport.set_protocol(buffered)
            assert near.transport.get_protocol() is buffered
            far.transport.write(b"eight by")
            await until(lambda: buffered.data == b"eight by")
            near.transport.set_protocol(near)

    play(scenario)


def test_the_ends_know_their_addresses(play: Play) -> None:
    async def scenario() -> None:
        async with connection() as (near, far, _):
            assert near.transport.get_extra_info("peername") == far.transport.get_extra_info("sockname")
            sock = near.transport.get_extra_info("socket")
            assert sock.getpeername() == near.transport.get_extra_info("peername")
            assert sock.getsockname()[0] == "127.0.0.1"
            assert (sock.family, sock.type) == (socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

    play(scenario)


def test_a_firewall_resets_both_ends() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        async with connection() as (near, far, turns):
            assert network.reset() == 2
            assert not near.transport.is_closing(), "the loop has not looked yet"
            await asyncio.gather(near.is_ended, far.is_ended)
            assert turns.seen == [OPEN, CLOSING, TOLD]
            assert {type(error) for error in near.lost + far.lost} == {ConnectionResetError}

    for seed in range(5):
        run_virtual(scenario, seed=seed)


def test_nothing_passes_a_silent_port_and_bytes_of_a_connection_that_is_gone_arrive_later() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        for end in (End.reset, lambda near: near.transport.abort()):
            async with connection() as (near, far, _):
                network.silence(far.transport.get_extra_info("sockname")[1], 5.0)
                near.transport.write(b"late")
                end(near)
                await near.is_ended
                await asyncio.sleep(4.9)
                assert not far.data and not far.lost
                await far.is_ended
                if end is not End.reset:
                    assert far.data == b"late"

    for seed in range(5):
        run_virtual(scenario, seed=seed)
