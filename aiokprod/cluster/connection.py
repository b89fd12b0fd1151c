"""`BrokerConnection`: one socket to one broker.

Made by `cluster.handshake`, owned by the pool, used by a flusher (data) or by the cluster client (control). The rules
of who is owed what live in `wire.exchange`; this file moves bytes, arms timers and tells.

Invariants:

- Answers are handed over synchronously, inside `data_received`, in the order of the requests.
- What is handed to the transport is a fresh `bytes` that nobody else holds: no buffer is ever reused or changed under
  it (KAFKA-19012). A request is written whole or its connection is over; no connection outlives a half-written frame
  or a timed-out request, so late bytes cannot be matched to a younger request (`# faults: N4, N10`).
- `lost` is called exactly once, with everything still owed, in order, in the very step that closes.
- Answers already in the socket are read before a timeout is judged (`# faults: N20, L22`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, cast

from aiokprod.cluster import connection_loss
from aiokprod.cluster.answer_clock import AnswerClock
from aiokprod.cluster.connection_listener import ConnectionListener
from aiokprod.cluster.control_request import LONGEST_S, ControlCall, RequestMessage, ask, checked_seconds
from aiokprod.cluster.hang_up import HangUp
from aiokprod.cluster.throttle import Throttle
from aiokprod.errors import ConnectionLostError, ProtocolError
from aiokprod.logs import StateLog
from aiokprod.wire.exchange import ANY_SIZE, NO_BODY, Entry, Exchange, Settled
from aiokprod.wire.frames import encode_request_header, response_header_flexible
from aiokprod.wire.produce import FLEXIBLE_FROM as PRODUCE_FLEXIBLE_FROM
from aiokprod.wire.versions import ApiVersions

__all__ = ["BrokerConnection", "ConnectionListener", "ConnectionState"]


class ConnectionState(Enum):
    """The life of a connection."""

    CONNECTING = "connecting"  # dialled; versions and credentials are not settled
    OPEN = "open"
    CLOSED = "closed"


class BrokerConnection(asyncio.Protocol):
    """One connection to one broker.

    Args:
        node_id: the broker's id; negative for a bootstrap address whose id is not known.
        host: as it was given by the user or by metadata.
        port: likewise.
        client_id: goes into every request header.
        max_frame_bytes: largest answer accepted.
        max_mute_s: longest throttle obeyed; the request timeout (`# faults: H18`).
        loop: whose thread calls everything here.
        log: of the endpoint; outlives the connection, so that one that flaps cannot flood it.
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
        """How long the broker trusts these credentials (KIP-368); None: as long as the connection lives."""
        self.expires_at: float | None = None
        """When that ends, on the clock of the loop; the pool closes the connection before."""
        self._client_id = client_id
        self._loop = loop
        self._log = log
        self._exchange = Exchange(max_frame_bytes=max_frame_bytes, max_mute_s=max_mute_s)
        self._clock = AnswerClock(loop, self._exchange, self._timed_out)
        self._transport: asyncio.Transport | None = None
        self._state = ConnectionState.CONNECTING
        self._cause: Exception | None = None
        self._undelivered: deque[Settled] = deque()  # settled by the exchange, not yet told
        self._is_delivering = False
        self._is_paused = False
        self._is_retired = False
        self._throttle = Throttle(loop, self._tell_writable)
        self._is_authenticated = False
        self._close_callbacks: list[Callable[[BrokerConnection, Exception], None]] = []
        self._hang_up = HangUp(loop)
        self._answers = 0

    # -- opening --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from asyncio's
        if self._cause is not None:  # closed while it was being dialled
            self._transport.abort()

    def established(self, versions: ApiVersions, max_frame_bytes: int, *, is_authenticated: bool = False) -> None:
        """The handshake is done: the broker is who it says, and larger answers are welcome.

        Raises:
            ConnectionLostError: the connection has ended meanwhile.
        """
        if self._cause is not None:
            raise self._lost_error()
        self.versions = versions
        self._is_authenticated = is_authenticated
        self._exchange.lift_frame_limit(max_frame_bytes)
        self._answers = 0
        self._move(ConnectionState.OPEN, "the handshake is done")

    @property
    def is_open(self) -> bool:
        """May requests be sent? (False also before the transport is there, and as soon as it is closing.)"""
        transport = self._transport
        return self._cause is None and transport is not None and not transport.is_closing()

    @property
    def is_writable(self) -> bool:
        """Should requests be sent? Open, not throttled, and the transport keeps up."""
        return not self._is_paused and not self._throttle.is_on and not self._is_retired and self.is_open

    @property
    def in_flight(self) -> int:
        """Requests written and not answered."""
        return self._exchange.requests

    @property
    def muted_until(self) -> float:
        """End of the last throttle, on the clock of the loop."""
        return self._exchange.muted_until

    @property
    def idle_since(self) -> float | None:
        """Since when nothing is owed and nothing was sent; None while an answer is due."""
        return None if self._exchange.requests else self.last_used

    # -- sending --------------------------------------------------------------------------------------------------

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
        all the same. Of a request that expects no answer (Produce with acks=0) nothing more is heard.

        Args:
            api_key: of the request.
            version: of the request.
            body: its encoded body, in parts.
            token: handed back with the answer, or with the loss.
            timeout_s: how long the broker may take from the moment this request is the oldest unanswered one; then
                the whole connection is closed.
            expects_answer: False for Produce with acks=0.
            flexible_from: the first version of this API with flexible headers (KIP-482); Produce's if not given.
            max_answer_bytes: a longer answer is refused by its length, and ends the connection.

        Raises:
            ConnectionLostError: the connection is not open; nothing was written and the token is not kept.
            TypeError, ConfigError: the timeout is none; likewise.
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
        # leaves nobody's buffer in the transport.
        frame = b"".join((size_bytes.to_bytes(4, "big"), header, *body))
        self.last_used = now
        if expects_answer:
            flexible = response_header_flexible(api_key, version, flexible_from)
            exchange.push(Entry(token, api_key, version, correlation_id, timeout_s, flexible, max_answer_bytes), now)
            transport.write(frame)
            self._clock.look()
        else:
            transport.write(frame)

    def chase(self, token: object) -> None:
        """Queue a chaser behind everything owed; with nothing owed it returns before this does.

        Raises:
            ConnectionLostError: the connection is not open; the token is not kept.
        """
        if not self.is_open:
            raise self._lost_error()
        if self._exchange.push_marker(token):
            return
        marker = Settled(Entry(token, -1, -1, -1, 0.0, False), NO_BODY)
        self._undelivered.append(marker)
        if not self._is_delivering:  # else answers that arrived with it are still being told, and it comes after them
            self._deliver()

    def mute(self, seconds: float) -> None:
        """Obey a throttle (KIP-219): no new requests, and no clock runs, until it ends."""
        now = self._loop.time()
        until = self._exchange.mute(seconds, now)
        if until > now and self._cause is None:
            self._throttle.last_until(until)

    def retire(self) -> None:
        """Take nothing new: never writable again. What is in flight is answered, or times out, as before."""
        self._is_retired = True

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._tell_writable()

    def _tell_writable(self) -> None:
        if self.listener is not None and self.is_writable:
            self.listener.writable(self)

    def tell_slow(self, after_s: float, slow: Callable[[], None]) -> None:
        """Have `slow()` called once for each request that is the oldest unanswered one for so long."""
        self._clock.tell_slow(after_s, slow)

    # -- control requests -----------------------------------------------------------------------------------------

    async def request(self, message: RequestMessage, *, timeout_s: float, version: int | None = None) -> Any:
        """Send a generated request and return its decoded answer: see `control_request.ask`."""
        return await ask(self, message, timeout_s=timeout_s, version=version)

    async def call(
        self,
        kind: type[RequestMessage],
        version: int,
        body: bytes,
        *,
        timeout_s: float,
        max_answer_bytes: int = ANY_SIZE,
    ) -> memoryview:
        """Send an encoded request of the cluster layer and return its answer as it came.

        Waits first for the end of a throttle.

        Cancelling forgets the answer; the request stays in the queue and its clock runs on.

        Raises:
            ConnectionLostError: the connection was or came to be closed, by a timeout too.
        """
        await self._throttle.over()
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        token = ControlCall(answer)
        self.send(
            kind.API_KEY,
            version,
            (body,),
            token,
            timeout_s=timeout_s,
            flexible_from=kind.FLEXIBLE_FROM,
            max_answer_bytes=max_answer_bytes,
        )
        return await answer

    # -- being answered -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._cause is not None:
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
        if exchange.failure is not None:
            self.close(exchange.failure)

    def _deliver(self) -> None:
        """Tell what is settled, oldest first. The listener may send, chase and close meanwhile."""
        if self._is_delivering:
            return
        self._is_delivering = True
        undelivered = self._undelivered
        try:
            while undelivered:
                settled = undelivered.popleft()
                try:
                    self._tell(settled)
                except BaseException as error:
                    # Untold after all: it must not get lost between the two lists.
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
            if not token.answer.done():
                token.answer.set_result(settled.body)
        elif self.listener is None:
            raise AssertionError(f"{self!r} has an answer for {token!r} and no listener")
        elif settled.entry.is_marker:
            self.listener.chaser_returned(self, token)
        else:
            self._answers += 1
            self.listener.answered(self, token, settled.body, settled.entry.version)

    # -- closing --------------------------------------------------------------------------------------------------

    def add_close_callback(self, callback: Callable[[BrokerConnection, Exception], None]) -> None:
        """Have `callback(connection, cause)` called when the connection closes, before the listener's `lost`."""
        self._close_callbacks.append(callback)

    def close(self, cause: Exception) -> None:
        """End the connection, from anywhere, now; the second call does nothing.

        When this returns `is_open` is False and `lost` has been called. With nothing owed, bytes still in the
        transport (acks=0) have a second to leave; otherwise, and before the handshake is done, they are thrown away.
        """
        if self._cause is not None:
            return
        self._cause = cause
        self._clock.stop()
        self._throttle.stop()
        lost = [settled.entry for settled in self._undelivered] + self._exchange.abandon()
        self._undelivered.clear()
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
        callbacks, self._close_callbacks = self._close_callbacks, []
        try:
            for callback in callbacks:
                callback(self, cause)
        finally:  # whatever befalls the pool, whoever waits for an answer is told
            if self.listener is not None:
                self.listener.lost(self, tokens, cause)

    @property
    def has_ended(self) -> bool:  # the socket is really closed
        return self._hang_up.is_done

    async def wait_closed(self) -> None:
        """Wait until the socket is really closed; about a second at most."""
        await self._hang_up.wait()

    def eof_received(self) -> None:
        # Every answer came before the end of the stream: nothing more is to be read. (faults: N12)
        self.close(self._ended_by_broker(None))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(self._ended_by_broker(exc))
        self._hang_up.done()

    def _timed_out(self, head: Entry) -> None:
        waited_s = self._loop.time() - self._exchange.head_clock_started
        self.close(connection_loss.timed_out(self.host, self.port, head, waited_s))

    def _ended_by_broker(self, exc: Exception | None) -> ConnectionLostError:
        exchange = self._exchange
        untried = self._state is ConnectionState.OPEN and not self._is_authenticated and not self._answers
        return connection_loss.ended_by_broker(
            self.host,
            self.port,
            exc,
            in_an_answer=exchange.buffered_bytes > 0,
            may_want_sasl=untried and exchange.requests > 0,
        )

    def _lost_error(self) -> ConnectionLostError:
        return connection_loss.for_one_waiter(self.host, self.port, self._cause)

    @property
    def cause(self) -> Exception | None:
        """Why it is closed; None while it is not."""
        return self._cause

    def _move(self, state: ConnectionState, because: str) -> None:
        self._log.moved(self._state.name, state.name, because)
        self._state = state

    def __repr__(self) -> str:
        muted = ", muted" if self._throttle.is_on else ""
        paused = ", paused" if self._is_paused else ""
        return (
            f"<BrokerConnection {self.node_id} {self.host}:{self.port} {self._state.name}{muted}{paused}"
            f" in_flight={self.in_flight}>"
        )
