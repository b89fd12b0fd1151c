"""`VirtualTransport`: one end of a connection in memory, which ends as asyncio's transports on sockets end.

It is CPython's `_SelectorSocketTransport` with a kernel made of two queues: what is written goes into the network as far as
the send buffer has room, the rest waits in the transport's own buffer; what arrives waits until the protocol reads.

How a connection ends, and what can be seen on the way (asyncio/selector_events.py of CPython 3.11):

- `close()`, `abort()`, EOF, a reset and a write to a connection that was reset mark the transport closing at once and call
  `connection_lost` on a LATER turn of the loop. In between `is_closing()` is True and the protocol has been told nothing.
- `close()` with bytes in the transport's buffer waits until they are out; `connection_lost` then comes with the last of them.
- The peer learns when the socket is closed, right after `connection_lost`: EOF, or a reset if SO_LINGER is 0 or something
  was left unread. Bytes for a socket that is closed are answered with a reset.
- While reading is paused neither EOF nor a reset is noticed, until reading resumes or something is written.

Invariants: bytes of one direction arrive in order or not at all; `connection_lost` is called once.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

SEND_BUFFER_BYTES: Final = 32 * 1024
"""Bytes of one direction that are on their way or unread; what is written beyond them waits in the transport."""


class Weather(Protocol):
    """`VirtualNetwork`, as much as a transport needs of it."""

    host: str
    loop: asyncio.AbstractEventLoop

    def latency_s(self, port: int) -> float:
        """Return how long the next chunk takes, one way."""
        ...

    def silent_until(self, port: int) -> float:
        """Return the loop time before which nothing passes to or from this port."""
        ...

    def cut_up(self, data: bytes) -> list[bytes]:
        """Return the chunks in which the bytes of one write arrive."""
        ...

    def ended(self, transport: VirtualTransport) -> None:
        """Note that one end of a connection has closed."""


class VirtualSocket:
    """A stand-in for a transport's socket: addresses, and options that are noted."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, sockname: tuple[str, int], peername: tuple[str, int]) -> None:
        self._sockname = sockname
        self._peername = peername
        self._options: dict[tuple[int, int], int | bytes] = {}

    def fileno(self) -> int:
        """Return -1: there is no file descriptor."""
        return -1

    def getsockname(self) -> tuple[str, int]:
        """Return host and port of this end."""
        return self._sockname

    def getpeername(self) -> tuple[str, int]:
        """Return host and port of the other end."""
        return self._peername

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Note an option; SO_LINGER is obeyed."""
        self._options[level, option] = value

    def getsockopt(self, level: int, option: int, size_bytes: int = 0) -> int | bytes:
        """Return an option as it was set; 0 if it was not."""
        return self._options.get((level, option), bytes(size_bytes) if size_bytes else 0)

    @property
    def is_reset_by_close(self) -> bool:
        """Return whether closing sends a reset: SO_LINGER is on, with 0 seconds."""
        linger = self._options.get((socket.SOL_SOCKET, socket.SO_LINGER), b"")
        if not isinstance(linger, bytes) or len(linger) < struct.calcsize("ii"):
            return False
        is_on, seconds = struct.unpack_from("ii", linger)
        return bool(is_on) and seconds == 0


class VirtualTransport(asyncio.transports._FlowControlMixin):  # pyright: ignore[reportPrivateUsage] - as asyncio's own
    """One end of a connection."""

    _loop: asyncio.AbstractEventLoop
    _protocol: asyncio.Protocol | asyncio.BufferedProtocol

    def __init__(self, weather: Weather, port: int, *, is_client: bool) -> None:
        here, there = ((weather.host, 0), (weather.host, port))[:: 1 if is_client else -1]
        self.socket = VirtualSocket(here, there)
        extra = {"socket": self.socket, "sockname": here, "peername": there}
        super().__init__(extra, weather.loop)
        self.port = port
        """Of the server, at both ends."""
        self._weather = weather
        # Written by this end.
        self._buffer = bytearray()
        self._unread_by_peer_bytes = 0
        self._is_eof_written = False
        # On its way to this end, and arrived here; None: EOF.
        self._under_way: deque[bytes | None] = deque()
        self._incoming: deque[bytes | None] = deque()
        self._arrives_at = 0.0  # of the last chunk to this end: the next one is not earlier
        self._reset_by: OSError | None = None  # what reading and writing raise since a reset has arrived
        self._is_eof_read = False
        # As asyncio names them.
        self._is_paused = False
        self._is_closing = False
        self._is_loss_due = False  # `connection_lost` is scheduled, or has been called
        self._is_gone = False  # the socket is closed

    def join(self, protocol: asyncio.BaseProtocol, peer: VirtualTransport) -> None:
        """Give this end its protocol and its other end."""
        self.set_protocol(protocol)
        self._peer = peer

    # ------------------------------------------------------------------ reading
    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        if self.is_reading():
            self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused and not self._is_closing:
            self._is_paused = False
            self._loop.call_soon(self._read_ready)

    def _read_ready(self) -> None:
        """Read what has arrived: bytes, then EOF or what a reset left."""
        while self._incoming and self._can_read:
            chunk = self._incoming.popleft()
            if chunk is None:
                self._read_eof()
                return
            self._peer._taken(len(chunk))
            try:
                self._hand_over(chunk)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._fatal_error(error, "Fatal error: protocol.data_received() call failed.")
        if self._reset_by is not None and self._can_read:
            self._fatal_error(self._reset_by, "Fatal read error on socket transport")

    def _hand_over(self, chunk: bytes) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            asyncio.protocols._feed_data_to_buffered_proto(self._protocol, chunk)  # type: ignore[attr-defined]
        else:
            self._protocol.data_received(chunk)

    @property
    def _can_read(self) -> bool:
        return self.is_reading() and not self._is_eof_read

    def _read_eof(self) -> None:
        self._is_eof_read = True
        try:
            keep_open = self._protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.eof_received() call failed.")
            return
        if not keep_open:
            self.close()

    # ------------------------------------------------------------------ writing
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._is_eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._is_loss_due:
            return
        if self._reset_by is not None:
            self._fatal_error(self._reset_by, "Fatal write error on socket transport")
            return
        sent_bytes = 0 if self._buffer else self._send(data)
        if sent_bytes < len(data):
            self._buffer += memoryview(data)[sent_bytes:]
        self._maybe_pause_protocol()  # type: ignore[attr-defined]

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._is_closing or self._is_eof_written:
            return
        self._is_eof_written = True
        if not self._buffer:
            self._peer._expect(None)

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        """Hand the network as many bytes as the send buffer has room for, and return how many these are."""
        with memoryview(data) as view:
            sent = bytes(view[: max(0, SEND_BUFFER_BYTES - self._unread_by_peer_bytes)])
        self._unread_by_peer_bytes += len(sent)
        if sent:
            for chunk in self._weather.cut_up(sent):
                self._peer._expect(chunk)
        return len(sent)

    def _taken(self, size_bytes: int) -> None:
        """Note that the other end has read so much."""
        self._unread_by_peer_bytes -= size_bytes
        if self._buffer:
            self._loop.call_soon(self._write_ready)

    def _write_ready(self) -> None:
        """Go on writing: there is room in the send buffer, or a reset has come."""
        if self._is_loss_due or not self._buffer:
            return
        if self._reset_by is not None:
            self._fatal_error(self._reset_by, "Fatal write error on socket transport")
            return
        del self._buffer[: self._send(self._buffer)]
        self._maybe_resume_protocol()  # type: ignore[attr-defined]  # may write
        if self._buffer:
            return
        if self._is_closing:
            self._is_loss_due = True
            self._call_connection_lost(None)  # in this very step, as asyncio does
        elif self._is_eof_written:
            self._peer._expect(None)

    # ------------------------------------------------------------------ the end
    def close(self) -> None:
        """Read no more, write what is left, then end with EOF."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._buffer:
            self._is_loss_due = True
            self._loop.call_soon(self._call_connection_lost, None)

    def abort(self) -> None:
        """Forget what is in the transport's buffer and end. As with asyncio the peer reads EOF, unless SO_LINGER is 0."""
        self._force_close(None)

    def _fatal_error(self, error: BaseException, message: str) -> None:
        if not isinstance(error, OSError):
            self._loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
        self._force_close(error)

    def _force_close(self, error: BaseException | None) -> None:
        if self._is_loss_due:
            return
        self._buffer.clear()
        self._is_closing = True
        self._is_loss_due = True
        self._loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: Any) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._close_socket()

    def _close_socket(self) -> None:
        """Close as the kernel does: send EOF to the peer, or a reset."""
        self._is_gone = True
        self._weather.ended(self)
        if self._reset_by is None:
            if self.socket.is_reset_by_close or any(self._incoming):
                self._peer._reset_later()
            elif not self._is_eof_written:
                self._peer._expect(None)
        self._incoming.clear()

    # ------------------------------------------------------------------ the wire
    def _expect(self, chunk: bytes | None) -> None:
        """Expect a chunk (None: EOF) that is on its way to this end."""
        if self._is_gone and chunk is None:
            return
        self._arrives_at = max(self._arrives_at, self._loop.time() + self._weather.latency_s(self.port))
        self._under_way.append(chunk)
        self._loop.call_at(self._arrives_at, self._arrive)

    def _arrive(self) -> None:
        """Deliver the next chunk, whichever timer fired: timers of one moment fire in no order."""
        if self._waits_for_silence(self._arrive) or not self._under_way:  # a reset has come first
            return
        chunk = self._under_way.popleft()
        if not self._is_gone:
            self._incoming.append(chunk)
            self._read_ready()
        elif chunk is not None:
            self._peer._reset_later()

    def _waits_for_silence(self, what: Any) -> bool:
        silent_until = self._weather.silent_until(self.port)
        if silent_until <= self._loop.time():
            return False
        self._loop.call_at(silent_until, what)
        return True

    def _reset_later(self) -> None:
        """Expect a reset at this end; chunks on their way that are slower are lost."""
        self._loop.call_later(self._weather.latency_s(self.port), self._reset_arrives)

    def _reset_arrives(self) -> None:
        if not self._waits_for_silence(self._reset_arrives):
            self.reset()

    def reset(self) -> None:
        """Take a reset: the loop notices it at its next look at the socket, or at an earlier write."""
        if self._is_gone or self._reset_by is not None:
            return
        self._reset_by = (
            BrokenPipeError(errno.EPIPE, "Broken pipe")
            if self._is_eof_read
            else ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        )
        self._under_way.clear()
        self._loop.call_soon(self._write_ready if self._buffer else self._read_ready)
