"""The exchange of requests and answers on one connection: what the broker still owes, in which order, since when.

One per connection, made and dropped with it. It holds the FIFO queue of everything that the broker still owes: requests,
and *markers* (of chasers), which are entries of that queue and never reach the wire.

Invariants:

- A broker answers in the order of the requests (`# broker: 4.8`). An answer to another request than the oldest one, a
  repeated or unrequested answer, or a malformed frame *poisons* the exchange: later bytes are not trusted.
- Only the oldest unanswered request has a running clock. The broker reads the next request only after it has answered
  this one (`# broker: 4.5`), so a clock that started at the write would charge a request for the time spent on the
  requests ahead of it.
- A muted connection (KIP-219) has no running clock at all: the broker does not read from it.
- A marker leaves in the very step in which it reaches the front.

This module reads no clock and touches no socket: every method that needs the time takes it as an argument, in seconds of
any monotonic clock.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from aiokprod.errors import ProtocolError
from aiokprod.wire.frames import FrameReader, read_response_header

LAST_CORRELATION_ID: Final = 2**31 - 1
"""The field is a signed 32-bit integer; negative ids are legal, but some brokers log them badly."""


ANY_SIZE: Final = 2**31 - 1


class Entry:
    """An entry in the queue of a connection: a request, or a marker (`api_key` -1)."""

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
    """An entry that reached the front; `body` is its answer (empty for a marker)."""

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
        max_frame_bytes: largest accepted answer; a longer one is refused by its length alone (`# faults: H1`). A request
            may allow its answer less (`Entry.max_answer_bytes`, `# faults: H25`).
        max_mute_s: longest obeyed throttle; a broken broker asks for 24 days (`# faults: H18`).
        first_correlation_id: 0 except in tests.
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
        """Number of unanswered requests, without markers."""
        self.head_clock_started = 0.0
        """When the clock of the oldest request started; without meaning while nothing is pending."""
        self._next_correlation_id = first_correlation_id
        self._grace_given = 0.0  # seconds added to the timeout of the head, once
        self._muted_until = 0.0
        self.max_mute_s = max_mute_s
        self.failure: ProtocolError | None = None
        """Why later bytes are not trusted; set once, by `feed`."""

    # ------------------------------------------------------------------ requests

    def take_correlation_id(self) -> int:
        """Return the id for the next request; 0 follows 2**31 - 1."""
        taken = self._next_correlation_id
        self._next_correlation_id = taken + 1 if taken < LAST_CORRELATION_ID else 0
        return taken

    def push(self, entry: Entry, now: float) -> None:
        """Append a request whose bytes are passed to the transport in this same step."""
        if not self._pending:
            self._start_clock(now)
        self._pending.append(entry)
        self.requests += 1

    def push_marker(self, token: object) -> bool:
        """Append a marker behind the pending entries; False if there are none, and the marker counts as returned at once."""
        if not self._pending:
            return False
        self._pending.append(Entry(token, -1, -1, -1, 0.0, False))
        return True

    # ------------------------------------------------------------------ answers

    def feed(self, data: bytes | bytearray | memoryview, now: float) -> list[Settled]:
        """Take bytes from the socket; return the entries they settle, oldest first, markers included.

        Never raises: `failure` says what poisoned the exchange, and later bytes are ignored; answers before the wrong
        one are returned. The bodies are views of the frames, valid as long as they are held.
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
            if not self.requests and frames.buffered_bytes:  # refused now, not once the answer is complete
                raise ProtocolError("the broker began an answer that was not requested")
        except ProtocolError as error:
            self.failure = error.with_traceback(None)  # its traceback would keep the bytes in memory
        return settled

    def _settle(self, frame: bytes, now: float, settled: list[Settled]) -> None:
        pending = self._pending
        if not pending:
            raise ProtocolError(f"the broker sent {len(frame)} bytes that were not requested")
        head = pending[0]
        correlation_id, body = read_response_header(frame, head.flexible_response)
        if correlation_id != head.correlation_id:
            raise ProtocolError(
                f"answer with correlation id {correlation_id}, but {head.correlation_id} is due"
                f" (api key {head.api_key} version {head.version}): answers must come in order"
            )
        pending.popleft()
        self.requests -= 1
        settled.append(Settled(head, body))
        # A marker returns with the answer before it: the next answer may be long in coming, or never come.
        while pending and pending[0].is_marker:
            settled.append(Settled(pending.popleft(), NO_BODY))
        if pending:
            self._start_clock(now)  # the broker reads this request only now (`# broker: 4.5`)

    def abandon(self) -> list[Entry]:
        """Empty the queue because the connection is over; return its entries, oldest first."""
        abandoned = list(self._pending)
        self._pending.clear()
        self.requests = 0
        return abandoned

    # ------------------------------------------------------------------ time

    def mute(self, seconds: float, now: float) -> float:
        """Obey a throttle: stop the clock until the end of the throttle, and return that time.

        The throttle is clamped to 0 .. `max_mute_s`. A shorter throttle never ends a longer one.
        """
        until = now + min(max(seconds, 0.0), self.max_mute_s)
        if until > self._muted_until:
            # The head keeps the time it has used so far; only the muted stretch is not counted.
            if self._pending:
                self.head_clock_started += until - max(now, self._muted_until)
            self._muted_until = until
        return self._muted_until

    @property
    def muted_until(self) -> float:
        return self._muted_until

    def deadline(self) -> float | None:
        """Return when the oldest request times out; None if nothing is pending."""
        if not self._pending:
            return None
        return self.head_clock_started + self._pending[0].timeout_s + self._grace_given

    def extend_grace(self, grace_s: float, now: float) -> bool:
        """Give the head at least `grace_s` from now on; once per head, else return False and change nothing."""
        deadline = self.deadline()
        if deadline is None or self._grace_given or grace_s <= 0.0:
            return False
        self._grace_given = max(now - deadline, 0.0) + grace_s
        return True

    def _start_clock(self, now: float) -> None:
        self.head_clock_started = max(now, self._muted_until)
        self._grace_given = 0.0

    # ------------------------------------------------------------------ state

    @property
    def head(self) -> Entry | None:
        """The oldest entry of the queue, or None."""
        return self._pending[0] if self._pending else None

    @property
    def buffered_bytes(self) -> int:
        """The size of the incomplete answer received so far."""
        return self._frames.buffered_bytes

    def lift_frame_limit(self, max_frame_bytes: int) -> None:
        """Accept larger answers: the broker has been authenticated (`# faults: H21`)."""
        self._frames.max_frame_bytes = max_frame_bytes

    def __repr__(self) -> str:
        state = "poisoned" if self.failure is not None else "open"
        return f"<Exchange {state} requests={self.requests} places={len(self._pending)}>"
