"""One client's connection at one mock broker: frames in, one request served at a time, answers in order.

Made by the broker's listening socket, one per accepted connection. The rule that shapes it is broker: 4.5, 4.8: the
next request is not looked at before the one before it is answered, waits and throttles included. So there is at most
one task per connection, and none while requests can be answered at once.

Invariants: at most one request is being served; whatever bytes come in, the worst that happens is that this
connection is closed; what is buffered is bounded by `READ_AHEAD_BYTES` and the largest frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from struct import pack
from typing import Final, cast

from aiokprod.errors import ProtocolError
from aiokprod.logs import GuardedLogger
from aiokprod.testing.mock.answering import Pause, Reply, Step, Then
from aiokprod.testing.mock.broker_core import BrokerCore
from aiokprod.testing.mock.handlers.api import Channel, HangUpError, SilenceError
from aiokprod.testing.mock.sasl_gate import SaslGate
from aiokprod.testing.mock.service import serve
from aiokprod.wire.frames import FrameReader

READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Frames kept while another is served; beyond it the socket is left unread, as a broker does."""

CRASHES_KEPT: Final = 20
"""The number of crashes kept, so that a client that keeps trying does not fill the log."""

_LINGER_0: Final = pack("ii", 1, 0)

log = GuardedLogger(__name__)


class MockConnection(asyncio.Protocol, Channel):
    """The server's end of a connection.

    Args:
        broker: that it leads to.
        number: the connection's number at its broker, counted from 1.
        opened: told when the client is there.
        closed: told when the connection is gone.
    """

    def __init__(
        self,
        broker: BrokerCore,
        number: int,
        opened: Callable[[MockConnection], None],
        closed: Callable[[MockConnection], None],
    ) -> None:
        self.broker = broker
        self.number = number
        self._opened = opened
        self._closed = closed
        self.gate = SaslGate(broker.sasl_mechanisms, broker.users, broker.session_lifetime_s)
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(broker.max_frame_bytes)
        self._frames: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_muted = False
        self._is_dead = False
        self._is_mute = False  # what it writes is lost
        self._may_write = True
        self._unsent: list[Reply] = []  # of a frozen broker
        self._closes_after_answer = False

    def __repr__(self) -> str:
        return f"<MockConnection broker={self.broker.node_id} number={self.number} waiting={len(self._frames)}>"

    # ------------------------------------------------------------------ asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport of a client that has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        try:
            frames = self._reader.feed(data)
        except ProtocolError as refused:
            self._refuse(str(refused))  # broker: 13.2
            return
        for frame in frames:
            self._frames.append(frame)
            self._waiting_bytes += len(frame)
        self._serve()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the client, the broker or the network has ended the connection."""
        self._transport = None
        self._frames.clear()
        if self._task is not None:
            self._task.cancel()
        self._closed(self)

    def pause_writing(self) -> None:
        """Stop serving for now: the client does not read."""
        self._may_write = False

    def resume_writing(self) -> None:
        """Go on serving: the client reads again."""
        self._may_write = True
        self._serve()

    # ------------------------------------------------------------------ the broker's side

    def close(self) -> None:
        """Close with FIN, after all that was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close with RST, as a killed process does (broker: 15.5)."""
        if self._transport is None:
            return
        # Linger 0 makes the kernel send RST; over TLS too, which has the same socket below.
        with contextlib.suppress(OSError, AttributeError):
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        self._transport.abort()

    def close_after_answer(self) -> None:
        """Close as soon as the request in hand is answered."""
        self._closes_after_answer = True

    def write_no_more(self) -> None:
        """Lose all answers from now on, and keep the connection open."""
        self._is_mute = True

    def thawed(self) -> None:
        """Go on after a freeze: write the answers that were ready, serve the requests that came in."""
        unsent, self._unsent = self._unsent, []
        for reply in unsent:
            self._write(reply)
        self._serve()

    @property
    def is_serving(self) -> bool:
        """Return whether a request waits for its answer, or none is taken up for another reason."""
        return self._task is not None or self._is_muted or self._is_dead or self.broker.is_frozen

    def _serve(self) -> None:
        while self._frames and not self.is_serving and self._may_write and self._is_open:
            frame = self._frames.popleft()
            self._waiting_bytes -= len(frame)
            self._one(frame)
        if self._reader.failure is not None and not self._frames and not self.is_serving:
            self._refuse(str(self._reader.failure))  # what came before the bad frame is answered. broker: 13.2
        self._read_or_not()

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _one(self, frame: bytes) -> None:
        try:
            step = serve(self, frame)
        except HangUpError as closing:
            self._refuse(str(closing))
        except SilenceError:
            self._is_dead = True
        except ProtocolError as broken:
            self._refuse(str(broken))
        except Exception as crash:
            self._crashed(crash)
        else:
            if isinstance(step, Reply):
                self._write(step)
            else:
                task = self.broker.spawn(self._later(step), f"mock-{self.broker.node_id}-{self.number}")
                if not task.done():  # an eager one may be, and have served the frames behind it
                    self._task = task

    async def _later(self, step: Step) -> None:
        try:
            while isinstance(step, Pause):
                step = await step.wait()
            self._write(step)
        except HangUpError as closing:
            self._refuse(str(closing))
        except SilenceError:
            self._is_dead = True
        except ProtocolError as broken:
            self._refuse(str(broken))
        except Exception as crash:
            self._crashed(crash)
        finally:
            self._task = None
        self._serve()

    def write(self, data: bytes) -> None:
        """Write bytes to the client, unless answers are lost."""
        if self._transport is not None and not self._is_mute:
            self._transport.write(data)

    def _write(self, reply: Reply) -> None:
        if self._transport is None:
            return
        if self.broker.is_frozen:
            self._unsent.append(reply)
            return
        if reply.frame is not None:
            self.write(reply.frame)
        if reply.then is Then.RESET:
            self._refuse("the fault script resets it", abort=True)
        elif reply.then is Then.CLOSE or self._closes_after_answer:
            self._refuse("of the fault script, or its answer was its last")
        elif reply.mute_s > 0:
            # The answer is out at once, the next request is read only after the throttle. broker: 14.1, 14.2
            self._is_muted = True
            self.broker.later(reply.mute_s, self._unmute)

    def _unmute(self) -> None:
        self._is_muted = False
        self._serve()

    def _refuse(self, reason: str, *, abort: bool = False) -> None:
        log.debug("connection %d of broker %d: OPEN -> CLOSED because %s", self.number, self.broker.node_id, reason)
        self._frames.clear()
        self._waiting_bytes = 0
        self.abort() if abort else self.close()

    def _crashed(self, crash: Exception) -> None:
        # A mistake of the mock or of a test's callable: it must be seen, and must not take the loop with it.
        crashes = self.broker.counters.crashes
        if len(crashes) < CRASHES_KEPT:
            log.error("broker %d: a handler crashed", self.broker.node_id, exc_info=crash)
            crashes.append(crash)
        self._refuse(f"a handler crashed: {type(crash).__name__}")

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._waiting_bytes > READ_AHEAD_BYTES:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
