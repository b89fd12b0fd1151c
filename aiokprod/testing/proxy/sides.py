"""`Sides`: the two sockets of a link, the client's and the broker's, and the transfer of bytes between them.

One per link. Invariants: when one side is closed so is the other; a client that has gone is no error, a broker that has
gone ends the link.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final, TypeAlias

from aiokprod.testing.faults import Rule
from aiokprod.testing.faults.effects import damage_of
from aiokprod.testing.faults.passage import passage_of
from aiokprod.testing.proxy.frames import Direction
from aiokprod.testing.proxy.link_conditions import LinkConditions

MAX_FRAME_BYTES: Final = 128 * 1024 * 1024  # more is no Kafka frame: another protocol, passed through as it comes
CHUNK_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 8 * 1024  # bytes are delayed in pieces of this size
MOST_AHEAD_S: Final = 0.5  # at most this much is on its way: then a writer has to wait, as for a socket's buffer

Address: TypeAlias = tuple[str, int]


class LinkEndedError(Exception):
    """An error that ends a link because of a fault."""


class Sides:
    """Both sockets of a link, from the client's dial to the close."""

    def __init__(self, client: asyncio.StreamWriter, *, framed: bool, conditions: LinkConditions | None = None) -> None:
        self._client = client
        self._conditions = conditions or LinkConditions()
        self._last_at: dict[Direction, float] = {}  # when the last bytes that are on their way arrive
        self._upstream: asyncio.StreamWriter | None = None
        self._raw: set[Direction] = set() if framed else {Direction.REQUEST, Direction.ANSWER}
        self._client_has_gone = False

    async def dial(self, address: Address) -> asyncio.StreamReader:
        """Connect to the broker. Raises OSError."""
        reader, self._upstream = await asyncio.open_connection(*address)
        for connected in (self._client, self._upstream):
            connected.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return reader

    # ------------------------------------------------------------------ the end

    def end(self, *, reset: bool = False) -> None:
        """Close both sides now."""
        for side in (self._client, self._upstream):
            if side is not None:
                if reset:
                    _reset_on_close(side)
                side.close()

    def cut(self, *, reset: bool = False) -> LinkEndedError:
        """Close both sides; return the error, which the caller raises to end the link."""
        self.end(reset=reset)
        return LinkEndedError()

    def abort(self) -> None:
        """Close both sides at once; unwritten bytes are lost."""
        for side in (self._client, self._upstream):
            if side is not None:
                side.transport.abort()

    def end_requests(self) -> None:
        """Send EOF to the broker, behind requests that are still on their way; its answers still pass."""
        upstream = self._upstream
        if upstream is not None:
            loop = asyncio.get_running_loop()
            last_at = self._last_at.get(Direction.REQUEST, 0.0)
            if last_at < loop.time():
                _end_requests(upstream)
            else:
                loop.call_at(last_at + 1e-6, _end_requests, upstream)

    async def closed(self) -> None:
        """Wait until both are."""
        for side in (self._client, self._upstream):
            if side is not None:
                with contextlib.suppress(OSError):
                    await side.wait_closed()

    # ------------------------------------------------------------------ bytes

    def is_raw(self, direction: Direction) -> bool:
        """Return whether no frames can be found in this direction: it is TLS, or not Kafka at all."""
        return direction in self._raw

    async def read(self, direction: Direction, reader: asyncio.StreamReader) -> bytes:
        """Read the next frame without its length prefix, or the next chunk; empty at the end."""
        try:
            if direction in self._raw:
                return await reader.read(CHUNK_BYTES)
            prefix = await reader.readexactly(4)
            (length,) = struct.unpack(">i", prefix)
            if 4 <= length <= MAX_FRAME_BYTES:
                return await reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return b""
        except OSError:
            if direction is Direction.REQUEST:
                return b""  # a client that resets its connection is a client that goes
            raise
        self._raw.add(direction)
        return prefix

    async def write(self, direction: Direction, wire: bytes, damaged_by: Rule | None = None) -> None:
        """Write to the broker or the client; in pieces, changed or cut if the rule says so."""
        damage = None if damaged_by is None else damage_of(damaged_by.fault.effect)
        if damaged_by is None or damage is None:
            await self._write(direction, wire)
            return
        is_request = direction is Direction.REQUEST
        passage = passage_of(damage, wire, is_request=is_request, random=damaged_by.random)
        for piece in passage.pieces:
            await asyncio.sleep(piece.pause_s)  # a turn of the loop at least: each write goes out by itself
            await self._write(direction, piece.data)
        if passage.then_closes:
            raise self.cut()

    async def _write(self, direction: Direction, data: bytes) -> None:
        writer = self._upstream if direction is Direction.REQUEST else self._client
        assert writer is not None
        if direction is Direction.ANSWER and self._client_has_gone:
            return
        try:
            if self._conditions.distance is not None or self._last_at:
                await self._travel(direction, writer, data)
            else:
                writer.write(data)
                await writer.drain()
        except OSError:
            if direction is Direction.REQUEST:
                raise
            self._client_has_gone = True

    async def _travel(self, direction: Direction, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Deliver bytes late, or behind bytes that are still delayed: each piece in its time, in order."""
        loop = asyncio.get_running_loop()
        for start in range(0, len(data), PIECE_BYTES):
            piece, now = data[start : start + PIECE_BYTES], loop.time()
            # Timers of one instant go off in no order of ours: no two pieces arrive in one.
            at = max(self._conditions.arrival_s(direction, len(piece), now), self._last_at.get(direction, 0.0) + 1e-6)
            self._last_at[direction] = at
            loop.call_at(at, _arrive, writer, piece)
            ahead_s = at - now - MOST_AHEAD_S
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
        await writer.drain()


def _arrive(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():  # what is on its way when a connection ends is lost
        writer.write(data)


def _end_requests(writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        with contextlib.suppress(OSError):
            writer.write_eof()


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Make closing send RST: a linger of zero seconds."""
    with contextlib.suppress(OSError, ValueError):  # of a socket that is closed already; uvloop's is a ValueError
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
