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
import logging
import socket
from collections import deque
from struct import pack
from typing import TYPE_CHECKING, Final, cast

from aiokprod.errors import ProtocolError
from aiokprod.wire.frames import FrameReader

from .answering import Pause, Reply, Step, Then
from .handlers.api import HangUpError, SilenceError
from .handlers.sasl import SaslGate
from .service import serve

if TYPE_CHECKING:
    from .broker import MockBroker

READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Frames kept while another is served; beyond it the socket is left unread, as a broker does."""

CRASHES_KEPT: Final = 20
"""A client that tries again and again shall not fill the log."""

_LINGER_0: Final = pack("ii", 1, 0)

log = logging.getLogger(__name__)


class MockConnection(asyncio.Protocol):
    """The server's end of a connection."""

    def __init__(self, broker: MockBroker, number: int) -> None:
        self.broker = broker
        self.number = number
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

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        self.broker.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
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
        """The client, the broker or the network ended it."""
        self._transport = None
        self._frames.clear()
        if self._task is not None:
            self._task.cancel()
        self.broker.closed(self)

    def pause_writing(self) -> None:
        """The client does not read: serve nothing more for now."""
        self._may_write = False

    def resume_writing(self) -> None:
        """It reads again."""
        self._may_write = True
        self._serve()

    # ---- the broker's side

    def close(self) -> None:
        """FIN, after what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """RST: as a killed process leaves it (broker: 15.5)."""
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
        """From now on answers are lost, and the connection stays open."""
        self._is_mute = True

    def thawed(self) -> None:
        """The broker goes on: what was ready goes out, what came in is served."""
        unsent, self._unsent = self._unsent, []
        for reply in unsent:
            self._write(reply)
        self._serve()

    @property
    def is_serving(self) -> bool:
        """Whether a request waits for its answer, or none is taken up for another reason."""
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
        """Bytes to the client, unless they are lost."""
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
