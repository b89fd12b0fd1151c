"""`BrokerConnection`: one socket to one broker.

Made by `dialing.handshake`, owned by the pool, used by a flusher (data) or by the cluster client (control). The queue of
unanswered requests lives in `wire.exchange`; this file moves bytes, arms timers and calls the listener.

Invariants:

- Answers are handed over synchronously, inside `data_received`, in the order of the requests.
- The transport is given a fresh `bytes` object that nothing else references: no buffer is reused or changed while it is
  being written (KAFKA-19012). A request is written whole or its connection ends; no connection outlives a half-written
  frame or a timed-out request, so late bytes cannot be matched to a younger request (`# faults: N4, N10`).
- `lost` is called exactly once, with every unanswered request in order, within the call that closes.
- Answers already in the socket are read before a timeout is judged (`# faults: N20, L22`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, cast

from aiokprod.cluster.connection.answer_clock import AnswerClock
from aiokprod.cluster.connection.answer_limits import answer_bytes
from aiokprod.cluster.connection.control_request import ControlCall, RequestMessage, decoded
from aiokprod.cluster.connection.hang_up import HangUp, ended_by_broker, for_one_waiter, timed_out
from aiokprod.cluster.connection.throttle import Throttle
from aiokprod.cluster.hosts import address_of
from aiokprod.config.call_timeouts import LONGEST_S, checked_seconds
from aiokprod.errors import ConnectionLostError, ProtocolError
from aiokprod.forms import mypyc_attr
from aiokprod.liveness import Stall
from aiokprod.logs import StateLog
from aiokprod.waiting import WaitsFor
from aiokprod.wire.exchange import ANY_SIZE, NO_BODY, Entry, Exchange, Settled
from aiokprod.wire.frames import encode_request_header, response_header_flexible
from aiokprod.wire.produce import FLEXIBLE_FROM as PRODUCE_FLEXIBLE_FROM
from aiokprod.wire.versions import ApiVersions

READ_BYTES: Final = 64 * 1024
"""read from the socket at once"""
# As names of this module: an enum's member costs a look-up in its class each time.
CONNECTION: Final = WaitsFor.CONNECTION
THROTTLE: Final = WaitsFor.THROTTLE
SOCKET: Final = WaitsFor.SOCKET


class ConnectionState(Enum):
    """The state of a connection."""

    CONNECTING = "connecting"  # being dialled; versions and credentials are not settled
    OPEN = "open"
    CLOSED = "closed"


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionListener(ABC):
    """The receiver of a connection's events: a flusher; control requests need none.

    Every method is called on the loop, synchronously, and must not block or raise.
    """

    @abstractmethod
    def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
        """Take the answer to the request of this token (empty for a request that expects none).

        A `ProtocolError` raised here closes the connection and puts the token first among the lost ones. Closing the
        connection here leaves this token out of `lost`: the listener already has its answer.
        """

    @abstractmethod
    def chaser_returned(self, connection: BrokerConnection, token: object) -> None:
        """Take back a chaser: everything sent before it has been answered."""

    @abstractmethod
    def lost(self, connection: BrokerConnection, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        """Take back the unanswered requests of a connection that ended; called once, when `is_open` is already False.

        Args:
            connection: the connection that ended.
            tokens: every unanswered request and chaser, in order; True if bytes of it were given to the transport, so
                that the broker may have acted on it.
            cause: the error given to `close`.
        """

    @abstractmethod
    def writable(self, connection: BrokerConnection) -> None:
        """Send more: `is_writable` has become True again."""


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection to one broker.

    Args:
        node_id: the broker's id; negative for a bootstrap address whose id is not known.
        host: the name or address that the user or the metadata gave.
        port: the port that belongs to it.
        client_id: sent in every request header.
        max_frame_bytes: size of the largest answer accepted.
        max_mute_s: longest throttle obeyed; the request timeout (`# faults: H18`).
        loop: the event loop; everything here is called on its thread.
        log: receives the state changes; its limit outlives the connection, so that one that flaps cannot flood the log.
    """

    def __init__(
        self,
        *,
        node_id: int,
        host: str,
        port: int,
        client_id: str,
        max_frame_bytes: int,
        max_mute_s: float,
        loop: asyncio.AbstractEventLoop,
        log: StateLog,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.versions = ApiVersions({}, {})
        self.listener: ConnectionListener | None = None
        self.last_used = loop.time()
        self.session_lifetime_s: float | None = None
        """How long the broker accepts these credentials (KIP-368); None: as long as the connection lives."""
        self.expires_at: float | None = None
        """The end of that time on the loop's clock; the pool closes the connection before it."""
        self._client_id = client_id
        self._loop = loop
        self._log = log
        self._exchange = Exchange(max_frame_bytes=max_frame_bytes, max_mute_s=max_mute_s)
        self._clock = AnswerClock(loop, self._exchange, self._timed_out)
        self._transport: asyncio.Transport | None = None
        self._read: memoryview | None = None  # made for the first read
        self._state = ConnectionState.CONNECTING
        self._cause: Exception | None = None
        self._undelivered: deque[Settled] = deque()  # settled by the exchange, not yet given to the listener
        self._is_delivering = False  # `_deliver` is on the stack; a listener may come back into this object from there
        self._is_paused = False  # by the transport: its buffer is above the high-water mark
        self._is_retired = False  # by the pool: it ends as soon as nothing is in flight
        self._throttle = Throttle(loop, self._tell_writable)
        self._is_authenticated = False
        self._close_callbacks: list[Callable[[BrokerConnection, Exception], None]] = []
        self._hang_up = HangUp(loop)
        self._answers = 0  # since the handshake ended; 0 at a hang-up may mean that the listener wants SASL

    # ------------------------------------------------------------------ opening

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from asyncio's
        if self._cause is not None:
            # A dial that timed out or was cancelled has called `close`, which found no transport to abort. The loop may
            # still finish connecting: without this the socket would stay open with no owner. (faults: B16, L19)
            self._transport.abort()

    def established(self, versions: ApiVersions, max_frame_bytes: int, *, is_authenticated: bool = False) -> None:
        """End the handshake: versions and credentials are settled, and larger answers are accepted from here on.

        Raises:
            ConnectionLostError: the connection has ended meanwhile.
        """
        if self._cause is not None:
            # The last answer of the handshake and the end of the stream can arrive together: the answer's future is
            # done, `close` has run, and only then does the task that waited for the answer come here.
            raise self._lost_error()
        self.versions = versions
        self._is_authenticated = is_authenticated
        # Until here anything that accepts connections may have sent the answers, so they were limited to 64 KiB. (faults: H21)
        self._exchange.lift_frame_limit(max_frame_bytes)
        self._answers = 0
        self._move(ConnectionState.OPEN, "the handshake is done")

    @property
    def is_open(self) -> bool:
        """Return whether requests may be sent: not before there is a transport, and not once it is closing."""
        # A write error makes the transport close itself; `connection_lost` comes one turn of the loop later. In between
        # `_cause` is still None, and a request sent then would be dropped without an error.
        transport = self._transport
        return self._cause is None and transport is not None and not transport.is_closing()

    @property
    def waits_for(self) -> WaitsFor | None:
        """The thing that a request should wait for before it is written here; None: nothing. From any thread."""
        if self._is_retired or not self.is_open:
            return CONNECTION  # another one
        if self._throttle.is_on:
            return THROTTLE  # KIP-219 (faults: P25)
        return SOCKET if self._is_paused else None  # faults: N5

    @property
    def is_writable(self) -> bool:
        """Return whether requests should be sent: the connection is open, not throttled, and the transport keeps up."""
        return self.waits_for is None

    @property
    def in_flight(self) -> int:
        """The number of requests written and not answered."""
        return self._exchange.requests

    @property
    def muted_until(self) -> float:
        """The end of the last throttle, on the loop's clock."""
        return self._exchange.muted_until

    @property
    def head_since(self) -> float:
        """When the time of the oldest unanswered request began; without meaning while none is in flight."""
        return self._exchange.head_clock_started

    @property
    def idle_since(self) -> float | None:
        """The time of the last use, if no answer is due; None while one is."""
        return None if self._exchange.requests else self.last_used

    # ------------------------------------------------------------------ sending

    def send(
        self,
        api_key: int,
        version: int,
        body: Sequence[bytes | bytearray | memoryview],
        token: object,
        *,
        timeout_s: float,
        expects_answer: bool = True,
        flexible_from: int = PRODUCE_FLEXIBLE_FROM,
        max_answer_bytes: int = ANY_SIZE,
    ) -> None:
        """Write a request now.

        The parts of `body` are copied and not kept. `is_writable` is advice: a request sent against it is written
        all the same. The listener is not called for a request that expects no answer (Produce with acks=0).

        Args:
            api_key: Kafka's number of the request.
            version: version of the request.
            body: its encoded body, in parts.
            token: given back with the answer, or with the loss.
            timeout_s: how long the broker may take from the moment this request is the oldest unanswered one; then
                the whole connection is closed.
            expects_answer: False for Produce with acks=0.
            flexible_from: the first version of this API with flexible headers (KIP-482); Produce's if not given.
            max_answer_bytes: a longer answer is refused by its length, and ends the connection.

        Raises:
            ConnectionLostError: the connection is not open; nothing was written and the token is not kept.
            TypeError, ConfigError: the timeout is not a usable number; nothing was written.
        """
        if type(timeout_s) is not float or not -LONGEST_S < timeout_s < LONGEST_S:
            timeout_s = checked_seconds(timeout_s)
        transport = self._transport
        if self._cause is not None or transport is None or transport.is_closing():
            raise self._lost_error()
        now = self._loop.time()
        exchange = self._exchange
        correlation_id = exchange.take_correlation_id()
        header = encode_request_header(api_key, version, correlation_id, self._client_id, version >= flexible_from)
        size_bytes = len(header) + sum(map(len, body))
        # Joining costs 50 µs per megabyte (asyncio's own writelines joins too, uvloop's saves half of that), and
        # leaves no buffer of a batch in the transport: a batch that expires may free its bytes at once. (faults: M11)
        frame = b"".join((size_bytes.to_bytes(4, "big"), header, *body))
        self.last_used = now
        # With acks=0 no answer comes, and the request leaves no entry: that would time out, or the answer to the next request
        # would be taken for one out of order; both end the connection. (faults: P26)
        if expects_answer:
            flexible = response_header_flexible(api_key, version, flexible_from)
            # Before the write: a write may find the socket broken, and then this request counts as sent, because the
            # broker may have received some of its bytes. (faults: N1)
            exchange.push(Entry(token, api_key, version, correlation_id, timeout_s, flexible, max_answer_bytes), now)
            transport.write(frame)
            self._clock.look()
        else:
            transport.write(frame)

    def chase(self, token: object) -> None:
        """Queue a chaser behind all unanswered requests; without any it comes back before this call returns.

        Raises:
            ConnectionLostError: the connection is not open; the token is not kept.
        """
        if not self.is_open:
            raise self._lost_error()
        if self._exchange.push_marker(token):
            return
        # The exchange is empty, yet answers read with one `data_received` may still wait in `_undelivered`: a listener
        # that chases from inside `answered` must get the chaser after those, not before.
        marker = Settled(Entry(token, -1, -1, -1, 0.0, False), NO_BODY)
        self._undelivered.append(marker)
        if not self._is_delivering:
            self._deliver()

    def mute(self, seconds: float) -> None:
        """Obey a throttle (KIP-219): until it ends, nothing is sent and no request's time runs."""
        # The broker answers first and then stops reading from this socket: what was already sent is answered only after
        # the throttle, so its time must not run either. (faults: H18)
        now = self._loop.time()
        until = self._exchange.mute(seconds, now)
        if until > now and self._cause is None:
            self._throttle.last_until(until)

    def retire(self) -> None:
        """Stop being writable, for ever; what is in flight is still answered, or times out."""
        self._is_retired = True

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._tell_writable()

    def _tell_writable(self) -> None:
        # Called when a throttle ends and when the transport's buffer has emptied: one may be over while the other is not.
        if self.listener is not None and self.is_writable:
            self.listener.writable(self)

    def tell_slow(self, after_s: float, slow: Callable[[], None]) -> None:
        """Call `slow()` once for each request that has been the oldest unanswered one for `after_s`."""
        self._clock.tell_slow(after_s, slow)

    def stalls(self, now: float) -> list[Stall | None]:
        """Return what stands still here; None: something moves, or has nothing to do. `now`: the loop's clock."""
        return [self._clock.stall(now), self._throttle.stall(now)]

    # ------------------------------------------------------------------ control requests

    async def request(self, message: RequestMessage, *, timeout_s: object, version: int | None = None) -> Any:
        """Send a generated request and return its decoded answer.

        Annotate the result: `answer: MetadataResponse = await connection.request(MetadataRequest(...), ...)`. A throttle
        in the answer is obeyed.

        Cancellation: the answer will be dropped; the request keeps its place in the queue, and its time runs on.

        Args:
            message: an `XRequest`; its `XResponse` is defined in the same module.
            timeout_s: a float, counted from the moment the request is the oldest unanswered one; then the connection is
                closed.
            version: the version to send; the highest common one if not given.

        Raises:
            ConnectionLostError: the connection was closed before or during the call (`RequestTimeoutError`: by a timeout).
            ProtocolError: the answer cannot be read; the connection is closed.
            UnsupportedVersionError: no common version; nothing was sent.
            TypeError, ConfigError: the timeout is not a usable number; nothing was sent.
        """
        seconds = checked_seconds(timeout_s)
        kind = type(message)
        if version is None:
            version = self.versions.pick(kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION)
        body = await self.call(
            kind, version, message.encode(version), timeout_s=seconds, max_answer_bytes=answer_bytes(message)
        )
        return self.decode(message, body, version)

    def decode(self, message: RequestMessage, body: memoryview, version: int) -> Any:
        """Decode the answer to a request of this connection, and obey its throttle.

        Raises:
            ProtocolError: the answer cannot be read; the connection is closed.
        """
        try:
            answer = decoded(message, body, version)
        except ProtocolError as error:
            broken = error.clone()
        else:
            self.mute(getattr(answer, "throttle_time_ms", 0) / 1000)
            return answer
        # A clone has no traceback of the decoder, and `body` is let go: errors are kept (as the last one of a broker),
        # and a traceback keeps the locals of its frames, here an answer of up to 100 MB. (faults: H25)
        body = NO_BODY
        self.close(broken)
        raise broken

    async def call(
        self,
        kind: type[RequestMessage],
        version: int,
        body: bytes,
        *,
        timeout_s: float,
        max_answer_bytes: int = ANY_SIZE,
    ) -> memoryview:
        """Send an encoded request of the cluster layer and return its encoded answer.

        Waits first for the end of a throttle.

        Cancellation: the answer will be dropped; the request keeps its place in the queue, and its time runs on.

        Raises:
            ConnectionLostError: the connection was closed before or during the call, also by a timeout.
        """
        # A close during this wait ends it too; `send` then finds the connection closed and raises.
        await self._throttle.over()
        # A task that is cancelled here leaves its entry in the exchange: the broker answers the request all the same, and
        # without the entry that answer would end the connection as one out of order.
        return await self.call_now(kind, version, body, timeout_s=timeout_s, max_answer_bytes=max_answer_bytes)

    def call_now(
        self,
        kind: type[RequestMessage],
        version: int,
        body: bytes,
        *,
        timeout_s: float,
        max_answer_bytes: int = ANY_SIZE,
    ) -> asyncio.Future[memoryview]:
        """Send an encoded request as `call` does, without a wait for the end of a throttle: ask `is_writable` before.

        Returns:
            A future of the encoded answer, or of a ConnectionLostError. Cancelling it drops the answer.

        Raises:
            ConnectionLostError: the connection is closed; nothing was sent.
        """
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self.send(
            kind.API_KEY,
            version,
            (body,),
            ControlCall(answer),
            timeout_s=timeout_s,
            flexible_from=kind.FLEXIBLE_FROM,
            max_answer_bytes=max_answer_bytes,
        )
        return answer

    # ------------------------------------------------------------------ being answered

    def get_buffer(self, sizehint: int) -> memoryview:
        # Read into, and copied from. Without it asyncio makes an object of 256 KiB for each read, and shrinks it to the few
        # bytes of an answer: three system calls, which cost more than the copy.
        if self._read is None:
            self._read = memoryview(bytearray(READ_BYTES))
        return self._read

    def buffer_updated(self, nbytes: int) -> None:
        assert self._read is not None
        self.data_received(bytes(self._read[:nbytes]))

    def data_received(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes that have come from the broker; from `StreamedReads`, too."""
        try:
            self._take(data)
        except Exception:
            raise  # the transport closes the connection
        except BaseException as interrupt:
            # For these it does not, and the loop may go on, as a notebook's does: the answers that were about to be given to
            # the listener would be lost, and their requests would wait for ever.
            self.close(ConnectionAbortedError(f"{type(interrupt).__name__} came while answers were dealt with"))
            raise

    def _take(self, data: bytes | bytearray | memoryview) -> None:
        if self._cause is not None:
            # A transport may still deliver what it read before `close`. Those requests have been reported as lost: an answer
            # now would settle a batch twice. (faults: N4)
            return
        now = self._loop.time()
        self.last_used = now
        self._clock.bytes_came()
        exchange = self._exchange
        settled = exchange.feed(data, now)
        if settled:
            self._undelivered.extend(settled)
            self._deliver()
            self._clock.look()
        # After the answers that came before the broken bytes in the same segment: those are good, and not giving them to
        # the listener would make it send their batches again. (faults: H8, N11)
        if exchange.failure is not None:
            self.close(exchange.failure)

    def _deliver(self) -> None:
        """Give the listener what is settled, oldest first; it may send, chase and close meanwhile."""
        if self._is_delivering:
            # Reached from inside a listener: the loop below takes the rest, so that answers keep the order of their
            # requests.
            return
        self._is_delivering = True
        undelivered = self._undelivered
        try:
            while undelivered:
                settled = undelivered.popleft()
                try:
                    self._tell(settled)
                except BaseException as error:
                    # The listener has not taken it, and the exchange no longer holds it: put back, it is among the lost
                    # ones of `close`. If the listener closed before it raised, `lost` has been called already.
                    if self._cause is None:
                        undelivered.appendleft(settled)
                        if isinstance(error, ProtocolError):
                            self.close(error)
                            return
                    raise
        finally:
            self._is_delivering = False

    def _tell(self, settled: Settled) -> None:
        token = settled.entry.token
        if isinstance(token, ControlCall):
            self._answers += 1
            # Done already if the task was cancelled; the answer has had its turn in the queue, and is dropped.
            if not token.answer.done():
                token.answer.set_result(settled.body)
        elif self.listener is None:
            raise AssertionError(f"{self!r} has an answer for {token!r} and no listener")
        elif settled.entry.is_marker:
            self.listener.chaser_returned(self, token)
        else:
            self._answers += 1
            self.listener.answered(self, token, settled.body, settled.entry.version)

    # ------------------------------------------------------------------ closing

    def add_close_callback(self, callback: Callable[[BrokerConnection, Exception], None]) -> None:
        """Call `callback(connection, cause)` when the connection closes, before the listener's `lost`."""
        self._close_callbacks.append(callback)

    def close(self, cause: Exception) -> None:
        """Close the connection now; may be called from anywhere, and a second call does nothing.

        When this returns `is_open` is False and `lost` has been called. If no answer is due, bytes still in the
        transport (acks=0) have a second to leave; otherwise, and before the handshake is done, they are discarded.
        """
        if self._cause is not None:
            return
        # First of all: everything called below may come back here, or ask `is_open`.
        self._cause = cause
        self._clock.stop()
        self._throttle.stop()
        # Answers read but not yet given to the listener count as lost too: it asked for the close in the middle of them.
        # They are older than everything in the exchange, so they come first.
        lost = [settled.entry for settled in self._undelivered] + self._exchange.abandon()
        self._undelivered.clear()
        # With an answer due the bytes in the transport belong to requests that are about to be sent again elsewhere: if
        # they left now they could reach the broker after the retry. (faults: N9, N10)
        in_peace = self._state is ConnectionState.OPEN and not lost and not isinstance(cause, ProtocolError)
        self._hang_up.begin(self._transport, in_peace=in_peace)
        self._move(ConnectionState.CLOSED, str(cause))
        tokens: list[tuple[object, bool]] = []
        for entry in lost:
            token = entry.token
            if not isinstance(token, ControlCall):
                tokens.append((token, not entry.is_marker))
            elif not token.answer.done():
                token.answer.set_exception(self._lost_error())
        # The pool first: a listener that asks for a new connection from inside `lost` must not get this one.
        callbacks, self._close_callbacks = self._close_callbacks, []
        try:
            for callback in callbacks:
                callback(self, cause)
        finally:  # an error in a callback must not keep the batches of this connection in flight for ever
            if self.listener is not None:
                self.listener.lost(self, tokens, cause)

    @property
    def has_ended(self) -> bool:
        """Return whether the socket is closed."""
        return self._hang_up.is_done

    async def wait_closed(self) -> None:
        """Wait until the socket is closed; about a second at most."""
        await self._hang_up.wait()

    def eof_received(self) -> None:
        # Kafka has no half-closed connections: all answers came before the end of the stream, and a broker that has shut
        # down its side reads no more requests either. (faults: N12)
        self.close(self._ended_by_broker(None))

    def connection_lost(self, exc: Exception | None) -> None:
        # After a `close` of ours `close` does nothing here; it ends the connection where the socket broke by itself.
        self.close(self._ended_by_broker(exc))
        self._hang_up.done()

    def _timed_out(self, head: Entry) -> None:
        waited_s = self._loop.time() - self._exchange.head_clock_started
        self.close(timed_out(self.host, self.port, head, waited_s))

    def _ended_by_broker(self, exc: Exception | None) -> ConnectionLostError:
        exchange = self._exchange
        # A broker whose listener wants SASL answers ApiVersions and closes at the first other request, without an error.
        untried = self._state is ConnectionState.OPEN and not self._is_authenticated and not self._answers
        return ended_by_broker(
            self.host,
            self.port,
            exc,
            in_an_answer=exchange.buffered_bytes > 0,
            may_want_sasl=untried and exchange.requests > 0,
        )

    def _lost_error(self) -> ConnectionLostError:
        return for_one_waiter(self.host, self.port, self._cause)

    @property
    def cause(self) -> Exception | None:
        """The error that the connection was closed with; None while it is not closed."""
        return self._cause

    def _move(self, state: ConnectionState, because: str) -> None:
        self._log.moved(self._state.name, state.name, because)
        self._state = state

    def __repr__(self) -> str:
        muted = ", muted" if self._throttle.is_on else ""
        paused = ", paused" if self._is_paused else ""
        return (
            f"<BrokerConnection {self.node_id} {address_of(self.host, self.port)} {self._state.name}{muted}{paused}"
            f" in_flight={self.in_flight}>"
        )
