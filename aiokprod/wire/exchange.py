"""The exchange of requests and answers on one connection: who is owed what, in which order, since when.

One per connection, made with it and thrown away with it. It holds the FIFO of everything the broker still owes:
requests, and *markers* (chasers), which are places in that queue and never reach the wire.

Invariants:

- A broker answers in the order of the requests (`# broker: 4.8`). An answer that is not the oldest one's, a repeated
  one, one nobody asked for, or a frame that is no frame *poisons* the exchange: nothing that comes later is believed.
- Only the oldest unanswered request has a running clock. The broker does not look at the next one before it answered
  this one (`# broker: 4.5`), so a clock that started at the write would blame a request for its elders.
- A muted connection (KIP-219) has no running clock at all: the broker does not read from it.
- A marker leaves in the very step in which it reaches the front.

Nothing here reads a clock or touches a socket: every method that needs the time is given it, in seconds of any
monotonic clock.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from aiokprod.errors import ProtocolError
from aiokprod.wire.frames import FrameReader, read_response_header

LAST_CORRELATION_ID: Final = 2**31 - 1
"""The field is a signed 32-bit integer; negative ids are legal but some brokers' logs make a mess of them."""


ANY_SIZE: Final = 2**31 - 1


class Entry:
    """One place in the queue of a connection: a request, or a marker (`api_key` -1)."""

    __slots__ = ("api_key", "correlation_id", "flexible_response", "max_answer_bytes", "timeout_s", "token", "version")

    def __init__(
        self,
        token: object,
        api_key: int,
        version: int,
        correlation_id: int,
        timeout_s: float,
        flexible_response: bool,
        max_answer_bytes: int = ANY_SIZE,
    ) -> None:
        self.token = token
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_s = timeout_s
        self.flexible_response = flexible_response
        self.max_answer_bytes = max_answer_bytes

    @property
    def is_marker(self) -> bool:
        return self.api_key < 0

    def __repr__(self) -> str:
        if self.is_marker:
            return f"<Entry marker {self.token!r}>"
        return f"<Entry api={self.api_key} v{self.version} id={self.correlation_id} {self.token!r}>"


class Settled:
    """An entry whose turn came: `body` is its answer (empty for a marker)."""

    __slots__ = ("body", "entry")

    def __init__(self, entry: Entry, body: memoryview) -> None:
        self.entry = entry
        self.body = body

    def __repr__(self) -> str:
        return f"<Settled {self.entry!r} {len(self.body)} bytes>"


NO_BODY: Final = memoryview(b"")


class Exchange:
    """The queue of one connection.

    Args:
        max_frame_bytes: largest answer accepted; a longer one is refused by its length alone (`# faults: H1`). What a
            request allows its own answer (`Entry.max_answer_bytes`) may be less (`# faults: H25`).
        max_mute_s: longest throttle obeyed; a broken broker asks for 24 days (`# faults: H18`).
        first_correlation_id: only tests begin elsewhere than at 0.
    """

    __slots__ = (
        "_frames",
        "_grace_given",
        "_muted_until",
        "_next_correlation_id",
        "_pending",
        "failure",
        "head_clock_started",
        "max_mute_s",
        "requests",
    )

    def __init__(self, *, max_frame_bytes: int, max_mute_s: float, first_correlation_id: int = 0) -> None:
        self._frames = FrameReader(max_frame_bytes)
        self._pending: deque[Entry] = deque()
        self.requests = 0
        """Without an answer; markers are not counted."""
        self.head_clock_started = 0.0
        """Meaningless while nothing is pending."""
        self._next_correlation_id = first_correlation_id
        self._grace_given = 0.0  # to the head
        self._muted_until = 0.0
        self.max_mute_s = max_mute_s
        self.failure: ProtocolError | None = None
        """Why nothing more is believed; set once, by `feed`."""

    # -- asking ---------------------------------------------------------------------------------------------------

    def take_correlation_id(self) -> int:
        """The id for the next request; 0 follows 2**31 - 1."""
        taken = self._next_correlation_id
        self._next_correlation_id = taken + 1 if taken < LAST_CORRELATION_ID else 0
        return taken

    def push(self, entry: Entry, now: float) -> None:
        """Append a request whose bytes are handed to the transport in this same step."""
        if not self._pending:
            self._start_clock(now)
        self._pending.append(entry)
        self.requests += 1

    def push_marker(self, token: object) -> bool:
        """Queue a marker behind what is pending; False if nothing is, and it counts as returned at once."""
        if not self._pending:
            return False
        self._pending.append(Entry(token, -1, -1, -1, 0.0, False))
        return True

    # -- being answered -------------------------------------------------------------------------------------------

    def feed(self, data: bytes | bytearray | memoryview, now: float) -> list[Settled]:
        """Take bytes from the socket; return what they settle, oldest first, markers included.

        Never raises: `failure` says what poisoned the exchange, and later bytes are ignored; answers that came before
        a wrong one are returned. The bodies are views of the frames, valid as long as they are held.
        """
        settled: list[Settled] = []
        if self.failure is not None:
            return settled
        try:
            frames, pending = self._frames, self._pending
            whole = frames.whole(data, pending[0].max_answer_bytes) if pending else None
            if whole is not None:
                self._settle(whole, now, settled)
                return settled
            frames.take(data)
            while True:
                frame = frames.next_frame(pending[0].max_answer_bytes if pending else ANY_SIZE)
                if frame is None:
                    break
                self._settle(frame, now, settled)
            if not self.requests and frames.buffered_bytes:
                raise ProtocolError("the broker began an answer to no request")
        except ProtocolError as error:
            self.failure = error.with_traceback(None)  # it is kept, and would keep the bytes
        return settled

    def _settle(self, frame: bytes, now: float, settled: list[Settled]) -> None:
        pending = self._pending
        if not pending:
            raise ProtocolError(f"the broker sent {len(frame)} bytes that nobody asked for")
        head = pending[0]
        correlation_id, body = read_response_header(frame, head.flexible_response)
        if correlation_id != head.correlation_id:
            raise ProtocolError(
                f"answer with correlation id {correlation_id} where {head.correlation_id} is due"
                f" (api key {head.api_key} version {head.version}): answers must come in order"
            )
        pending.popleft()
        self.requests -= 1
        settled.append(Settled(head, body))
        while pending and pending[0].is_marker:
            settled.append(Settled(pending.popleft(), NO_BODY))
        if pending:
            self._start_clock(now)

    def abandon(self) -> list[Entry]:
        """Empty the queue, oldest first, because the connection is over."""
        abandoned = list(self._pending)
        self._pending.clear()
        self.requests = 0
        return abandoned

    # -- time -----------------------------------------------------------------------------------------------------

    def mute(self, seconds: float, now: float) -> float:
        """Obey a throttle: stop the clock until its end, which is returned.

        Clamped to 0 .. `max_mute_s`. A shorter throttle never ends a longer one.
        """
        until = now + min(max(seconds, 0.0), self.max_mute_s)
        if until > self._muted_until:
            # What the head's clock had counted so far stays counted; only the muted stretch is left out.
            if self._pending:
                self.head_clock_started += until - max(now, self._muted_until)
            self._muted_until = until
        return self._muted_until

    @property
    def muted_until(self) -> float:
        return self._muted_until

    def deadline(self) -> float | None:
        """When the oldest request times out; None while nothing is owed."""
        if not self._pending:
            return None
        return self.head_clock_started + self._pending[0].timeout_s + self._grace_given

    def extend_grace(self, grace_s: float, now: float) -> bool:
        """Give the head at least `grace_s` from now; once per head, else False (and nothing changes)."""
        deadline = self.deadline()
        if deadline is None or self._grace_given or grace_s <= 0.0:
            return False
        self._grace_given = max(now - deadline, 0.0) + grace_s
        return True

    def _start_clock(self, now: float) -> None:
        self.head_clock_started = max(now, self._muted_until)
        self._grace_given = 0.0

    # -- looking --------------------------------------------------------------------------------------------------

    @property
    def head(self) -> Entry | None:
        """The oldest unanswered request."""
        return self._pending[0] if self._pending else None

    @property
    def buffered_bytes(self) -> int:
        """Of an answer that has begun and not ended."""
        return self._frames.buffered_bytes

    def lift_frame_limit(self, max_frame_bytes: int) -> None:
        """Accept larger answers from now on: the broker is who it says it is (`# faults: H21`)."""
        self._frames.max_frame_bytes = max_frame_bytes

    def __repr__(self) -> str:
        state = "poisoned" if self.failure is not None else "open"
        return f"<Exchange {state} requests={self.requests} places={len(self._pending)}>"
