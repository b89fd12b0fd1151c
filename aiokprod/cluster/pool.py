"""`BrokerPool`: every connection of a client, one per broker and purpose.

One per start of a `ClusterClient`. Produce requests have connections of their own: a broker answers a connection in
order, so a Metadata request behind a stuck Produce request would be stuck too (`# broker: 4.12`).

    dial(node, purpose)  ->  wait for the pace  ->  open  ->  lease  ->  idle, expired, removed, lost

Invariants:

- At most `DIALS_AT_ONCE` produce dials at a time, and one dial per broker and purpose. Tasks that want the
  connection meanwhile wait for the same dial, each with a future of its own: cancelling one task does not affect the
  others.
- Only brokers that the cluster names (and bootstrap servers, whose ids are negative) are dialled. A broker with a new
  address loses its old connections at once; a removed one as soon as nothing is in flight (`# faults: B12, B13`).
- Connections belong to ids, not addresses: two ids on one address have two connections (`# faults: B15`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from random import Random
from typing import Final, NamedTuple, TypeAlias, assert_never

from aiokprod.backoff import SHORTEST_BACKOFF_S, Backoff
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.connection.lease import Drain, End, Keep, Lease
from aiokprod.cluster.dialing.dial_pace import DialPace
from aiokprod.cluster.dialing.pending_dial import DialPlaces, PendingDial
from aiokprod.cluster.hosts import address_of
from aiokprod.cluster.metadata.snapshot import BrokerNode
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, AuthenticationError, ConnectionLostError
from aiokprod.liveness import Stall

CLOSING_KEPT_S: Final = 3.0
"""Seconds. The socket of a closed connection is gone within about one; `close` waits for those closed more recently."""

DIALS_AT_ONCE: Final = 64
"""Produce dials at a time. An answer may name thousands of brokers at an address that does not respond, and each dial
holds a descriptor that the application may need (`# faults: H16`). Control dials are few, and Metadata must not wait."""

PACES_KEPT: Final = 100
"""Backoffs kept for brokers that have left: they may come back with the next answer."""


class Purpose(Enum):
    """The kind of requests that a connection carries."""

    PRODUCE = "produce"
    CONTROL = "control"


class DialState(NamedTuple):
    """The state of the dials of a broker without a connection."""

    is_pending: bool
    """a dial is under way, or waits for its backoff"""
    next_dial_at: float
    """from when on a dial is allowed, on the loop's clock; in the past if it is"""
    last_error: str
    """why the last dial failed; empty if none has failed"""


Key: TypeAlias = tuple[int, Purpose]

OpenConnection: TypeAlias = Callable[[BrokerNode, Purpose, float], Awaitable[BrokerConnection]]
"""`await open(node, purpose, timeout_s)` dials, does the handshake and checks the cluster. If it raises an
`AiokprodError`, it has closed what it opened."""


class BrokerPool:
    """The connections of a client, by broker and purpose.

    Args:
        config: backoffs, timeouts, idle time.
        open_connection: opens a connection.
        tasks: runs the dials; its owner ends them before `close`.
        ready: called with each new produce connection.
        failed: called for each produce dial that failed; neither is called within a call of `dial`.
        all_lost: called when the last open connection has ended, unless the pool itself closed it.
        clock: monotonic seconds; the time of the loop.
        random: the source of jitter.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        open_connection: OpenConnection,
        tasks: OwnedTasks,
        ready: Callable[[int, BrokerConnection], None],
        failed: Callable[[int, AiokprodError], None],
        all_lost: Callable[[], None] = lambda: None,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self._open_connection = open_connection
        self._tasks = tasks
        self._ready = ready
        self._failed = failed
        self._all_lost = all_lost
        self._clock = clock
        self._random = random
        least_s, most_s = config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000
        self._backoff = Backoff(max(least_s, SHORTEST_BACKOFF_S), max(most_s, SHORTEST_BACKOFF_S))
        self._setup_timeout_s = config.socket_connection_setup_timeout_ms / 1000
        self._setup_timeout_max_s = config.socket_connection_setup_timeout_max_ms / 1000
        self._max_idle_s = config.connections_max_idle_ms / 1000  # negative: never
        self._nodes: dict[int, BrokerNode] = {}
        self._paces: dict[int, DialPace] = {}  # outlive dials and connections: they count the failures in a row
        self._dials: dict[Key, PendingDial] = {}  # a dial leaves before anything is told of its outcome
        self._places = DialPlaces(DIALS_AT_ONCE)
        self._leases: dict[Key, Lease] = {}  # the newest of each key, also while it is about to end
        self._drained: dict[Lease, None] = {}  # ending, and a newer lease is in `_leases` under the same key
        self._last_errors: dict[int, AiokprodError] = {}  # a dial that succeeds removes its broker's
        self._closing: deque[tuple[float, BrokerConnection]] = deque()  # closed when; the socket may still be there
        self._look_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    # ------------------------------------------------------------------ brokers

    def know(self, nodes: Iterable[BrokerNode]) -> None:
        """Set the current brokers, or the current bootstrap servers (negative ids); replaces the previous set of that kind.

        An empty list counts as bootstrap servers: the cache refuses an answer that names no broker.
        """
        given = {node.id: node for node in nodes}
        are_brokers = any(node_id >= 0 for node_id in given)
        old_nodes = [node for node in self._nodes.values() if (node.id >= 0) is are_brokers]
        for old in old_nodes:
            if old.id not in given:
                del self._nodes[old.id]
        self._nodes.update(given)
        # Only now: closing a connection calls its listener, which may ask for the broker again and must get the new address.
        for old in old_nodes:
            new = given.get(old.id)
            if new is None:
                self._leave(old)
            elif (new.host, new.port) != (old.host, old.port):
                self._move(old, new)
        if any(old.id not in given for old in old_nodes):
            self._look()  # once, and not for each broker that left: a look goes over all connections
        if len(self._paces) > len(self._nodes) + PACES_KEPT:
            self._paces = {node_id: pace for node_id, pace in self._paces.items() if node_id in self._nodes}

    def _leave(self, old: BrokerNode) -> None:
        # Nothing in flight is cut off: a broker that shuts down cleanly leaves the list while it still answers. (faults: B13)
        why = f"broker {old.id} has left the cluster"
        self._stop_dials(old, why)
        self._last_errors.pop(old.id, None)
        for purpose in Purpose:
            lease = self._leases.get((old.id, purpose))
            if lease is not None:
                lease.leaving = why

    def _move(self, old: BrokerNode, new: BrokerNode) -> None:
        # At once, in flight or not: the old address may be silent without a reset (a pod that is gone), and each request
        # there would wait for its whole timeout. (faults: B12, N7)
        why = f"broker {old.id} has moved to {address_of(new.host, new.port)}"
        pace = self._paces.get(old.id)
        if pace is not None:
            pace.moved()
        self._stop_dials(old, why)
        for purpose in Purpose:
            lease = self._leases.get((old.id, purpose))
            if lease is not None:
                self._drop(lease, why)

    def _stop_dials(self, old: BrokerNode, why: str) -> None:
        for purpose in Purpose:
            key = (old.id, purpose)
            dial = self._dials.get(key)
            # A dial that still waits for its backoff is left alone: it reads the address when it begins.
            if dial is not None and dial.has_begun and dial.task is not None:
                self._tasks.cancel(dial.task)
                # Told here, because a dial that is cancelled tells nothing. `_nodes` has the new address by now, so a dial
                # that is begun from inside goes there.
                self._dial_failed(key, dial, ConnectionLostError(why, host=old.host, port=old.port))

    # ------------------------------------------------------------------ connections

    def get(self, node_id: int, purpose: Purpose) -> BrokerConnection | None:
        """Return the connection, if it is open and not about to end."""
        # One that is about to end is not given out: its successor is dialled for new requests, and it ends when its last
        # answers have come. Its credentials may expire before a new request would be answered. (KIP-368)
        lease = self._leases.get((node_id, purpose))
        return lease.connection if lease is not None and lease.is_usable else None

    def open_for(self, purpose: Purpose) -> list[BrokerConnection]:
        """Return all connections of a purpose that may be used now."""
        return [lease.connection for key, lease in self._leases.items() if key[1] is purpose and lease.is_usable]

    def brokers_connected(self) -> int:
        """Return the number of brokers with an open connection of any purpose. May be called from any thread.

        A bootstrap server may be one of the known brokers, so servers count only when no known broker is connected.
        """
        # `list` first: another thread may read while the loop changes the dict.
        ids = {node_id for (node_id, _), lease in list(self._leases.items()) if lease.connection.is_open}
        return sum(node_id >= 0 for node_id in ids) or len(ids)

    def may_dial_now(self, node_id: int, purpose: Purpose) -> bool:
        """Return whether the broker is known, has no connection, and is not in backoff."""
        if node_id not in self._nodes or (node_id, purpose) in self._leases:
            return False
        pace = self._paces.get(node_id)
        return pace is None or pace.next_dial_at() <= self._clock()

    def is_dialling(self, node_id: int, purpose: Purpose) -> bool:
        """Return whether a dial is pending."""
        return (node_id, purpose) in self._dials

    def last_error(self, node_id: int) -> AiokprodError | None:
        """Return the error of the last dial of a broker; None once a dial succeeds."""
        return self._last_errors.get(node_id)

    def dial_state(self, node_id: int) -> DialState:
        """Return how far a produce connection is. May be called from any thread."""
        pace = self._paces.get(node_id)
        error = self._last_errors.get(node_id)
        return DialState(
            (node_id, Purpose.PRODUCE) in self._dials,
            0.0 if pace is None else pace.next_dial_at(),
            "" if error is None else error.message,
        )

    def dial(self, node_id: int, purpose: Purpose) -> None:
        """Dial as soon as the backoff allows; does nothing if there is a connection or a pending dial.

        The outcome of a produce dial is reported by `ready` or `failed`, never within this call.
        """
        if not self._is_closed and self.get(node_id, purpose) is None:
            self._begin_dial((node_id, purpose))

    def connecting(self, node_id: int, purpose: Purpose) -> asyncio.Future[BrokerConnection]:
        """Return a new future of the connection, and dial if needed; cancelling the future does not stop the dial."""
        future: asyncio.Future[BrokerConnection] = asyncio.get_running_loop().create_future()
        connection = self.get(node_id, purpose)
        if connection is not None:
            future.set_result(connection)
        elif self._is_closed:
            future.set_exception(ConnectionLostError("the client is closed"))
        else:
            self._begin_dial((node_id, purpose)).waiters.append(future)
        return future

    def adopt(self, bootstrap_id: int, node_id: int) -> None:
        """Keep a bootstrap server's connection under the id of the broker that the server turned out to be."""
        lease = self._leases.get((bootstrap_id, Purpose.CONTROL))
        key = (node_id, Purpose.CONTROL)
        # Not over a pending dial: `_dialled` would find this lease under its key and drain it.
        if lease is not None and key not in self._leases and key not in self._dials:
            del self._leases[bootstrap_id, Purpose.CONTROL]
            lease.connection.node_id = node_id
            self._leases[key] = lease

    # ------------------------------------------------------------------ dialling

    def _begin_dial(self, key: Key) -> PendingDial:
        dial = self._dials.get(key)
        if dial is None:
            dial = PendingDial()
            name = f"dial-{key[0]}" if key[1] is Purpose.PRODUCE else f"dial-{key[0]}-control"
            # Noted behind the call: all that want the connection later would wait for a dial that has no task.
            dial.task = self._tasks.spawn(self._run_dial(key, dial), name)
            self._dials[key] = dial
        return dial

    async def _run_dial(self, key: Key, dial: PendingDial) -> None:
        node_id = key[0]
        pace = self._paces.get(node_id)
        if pace is None:
            pace = DialPace(self._backoff, self._setup_timeout_s, self._setup_timeout_max_s)
            self._paces[node_id] = pace
        # At least one turn of the loop, so that `failed` is not called within `dial` (tasks may start eagerly). The backoff
        # is read again after each sleep: a dial of the other purpose may have failed meanwhile.
        await asyncio.sleep(0)
        while True:
            while (wait_s := pace.next_dial_at() - self._clock()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(wait_s)
            if key[1] is Purpose.CONTROL:
                # It takes no place: metadata, which says where the brokers are now, would wait behind the dials of silent
                # addresses. (faults: H16, T21)
                await self._dial_now(key, dial, pace)
                return
            # A lost connection counts as one failure; a broker with two in a row counts as unreachable, and its dial waits
            # behind the first dials of all others. (faults: H16)
            await self._places.take(has_failed=pace.failures > 1)
            try:
                # A control dial may have failed while this one waited for a place: then wait for that backoff, without
                # the place.
                if pace.next_dial_at() <= self._clock():
                    await self._dial_now(key, dial, pace)
                    return
            finally:
                self._places.give_back()

    async def _dial_now(self, key: Key, dial: PendingDial, pace: DialPace) -> None:
        node_id = key[0]
        try:
            connection = await self._open(key, dial, pace)
        # A cancellation passes: `_stop_dials` and `close` tell the waiters themselves, and one by other code fails the
        # producer. (faults: L14)
        except AiokprodError as error:
            if isinstance(error, AuthenticationError):  # servers lock accounts after a few attempts (faults: S8)
                pace.refused(self._clock(), self._random.random())
            pace.failed(self._clock(), self._random.random())
            self._dial_failed(key, dial, error)
        except Exception as bug:
            # First the waiters, without the bug's text, which may show a secret (faults: S18); then the task ends with the
            # bug, which fails the producer. (faults: L15)
            self._dial_failed(key, dial, ConnectionLostError(f"dialling broker {node_id} failed: {type(bug).__name__}"))
            raise
        else:
            pace.accepted()
            self._dialled(key, dial, connection)

    async def _open(self, key: Key, dial: PendingDial, pace: DialPace) -> BrokerConnection:
        # Read here and not when the dial was asked for: during the backoff the broker may have moved, or left.
        node = self._nodes.get(key[0])
        if node is None:
            raise ConnectionLostError(f"broker {key[0]} is not among the brokers of the cluster")
        dial.has_begun = True  # from here on a move or a leave of the broker cancels the dial
        pace.dialled(self._clock())
        connection = await self._open_connection(node, key[1], pace.setup_timeout_s(self._random.random()))
        if not connection.is_open:  # closed between its last answer and this step; its close callbacks have been called
            raise ConnectionLostError("closed as soon as it was opened", host=node.host, port=node.port)
        return connection

    def _dial_failed(self, key: Key, dial: PendingDial, error: AiokprodError) -> None:
        if self._dials.get(key) is not dial:
            # Stopped by `_stop_dials` or `close`, which told the waiters; a newer dial may be under this key already.
            return
        # First: the pipeline dials again from inside `failed` while it has records for the broker. Had this dial its key
        # still, that call would join it, and no new dial would begin.
        del self._dials[key]
        self._last_errors[key[0]] = error
        dial.fail(error)
        if key[1] is Purpose.PRODUCE:
            self._failed(key[0], error)

    def _dialled(self, key: Key, dial: PendingDial, connection: BrokerConnection) -> None:
        self._dials.pop(key, None)
        self._last_errors.pop(key[0], None)
        # A connection that ends soon (expiring credentials, KIP-368) is replaced while its last answers are still due.
        old = self._leases.get(key)
        if old is not None:
            self._drained[old] = None
        lease = self._leases[key] = Lease(connection, self._clock(), self._random.random())
        connection.add_close_callback(partial(self._closed, lease))
        # All books are right before anything outside hears of the connection: a waiter or `ready` may use it, lose it, and
        # come back into the pool. Not a look at all leases: thousands may be opened in a row. (faults: H16)
        self._look_at([lease] if old is None else [lease, old])
        dial.succeed(connection)
        if key[1] is Purpose.PRODUCE:
            self._ready(key[0], connection)

    # ------------------------------------------------------------------ ending

    def _closed(self, lease: Lease, connection: BrokerConnection, cause: Exception) -> None:
        """Forget a connection that has ended, and count it as a failure unless the pool closed it."""
        now = self._clock()
        self._drained.pop(lease, None)
        for purpose in Purpose:  # under the connection's own id, which `adopt` may have changed
            key = (connection.node_id, purpose)
            if self._leases.get(key) is lease:
                del self._leases[key]
        while self._closing and self._closing[0][0] < now - CLOSING_KEPT_S:
            self._closing.popleft()
        self._closing.append((now, connection))
        pace = self._paces.get(connection.node_id)
        if pace is not None and not lease.is_dropped:
            # A broker that accepts and closes at once must not be dialled without a pause. (faults: N15, N19)
            pace.lost(now, now - lease.opened_at, self._random.random())
        # Without a connection an idle producer has no request that would fail, and would look healthy until its metadata is
        # old. After a close of ours (idle, moved, expired) nothing is wrong.
        if not self._leases and not lease.is_dropped:
            self._all_lost()

    @staticmethod
    def _drop(lease: Lease, why: str) -> None:
        lease.is_dropped = True  # first: `close` calls `_closed`, which reads it
        connection = lease.connection
        connection.close(ConnectionLostError(why, host=connection.host, port=connection.port))

    def drop_control(self, why: str, *, servers_too: bool = False) -> None:
        """Close the control connections to known brokers (`# faults: T16`), or also those to bootstrap servers."""
        for (node_id, purpose), lease in list(self._leases.items()):
            if purpose is Purpose.CONTROL and (servers_too or node_id >= 0):
                self._drop(lease, why)

    def _look(self) -> None:
        """Act on each lease's decision now, and set the timer for the next time that a lease may change its mind."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        self._look_at([*self._leases.values(), *self._drained])  # a copy: `_drop` calls `_closed`, which changes both

    def _look_at(self, leases: Sequence[Lease]) -> None:
        """Act on the decisions of these leases, and move the timer to an earlier time if one of them needs that."""
        now = self._clock()
        looks: list[float] = []
        for lease in leases:
            decision = lease.look(now, self._max_idle_s)
            match decision:
                case Keep(look_at):
                    if look_at is not None:
                        looks.append(look_at)
                case Drain(look_at):
                    looks.append(look_at)
                    # Under load a connection that stays writable always has a request in flight, and would never end.
                    lease.connection.retire()
                case End(why):
                    self._drop(lease, why)
                case _:
                    assert_never(decision)
        if not looks or self._is_closed:
            return
        soonest = min(looks)
        former = self._look_timer
        if former is None or soonest < former.when():
            self._look_timer = asyncio.get_running_loop().call_at(soonest, self._look)
            if former is not None:
                former.cancel()

    # ------------------------------------------------------------------ watched

    def stalls(self, now: float) -> list[Stall | None]:
        """Return what stands still here; None: something moves, or has nothing to do. `now`: the loop's clock."""
        found: list[Stall | None] = []
        for lease in (*self._leases.values(), *self._drained):
            found += lease.connection.stalls(now)
        for key, dial in self._dials.items():
            if dial.task is None or dial.task.done():
                again = partial(self._dial_again, key, dial)
                found.append(Stall("a connection is waited for, and no task opens it", self, dial, again))
        return found

    def _dial_again(self, key: Key, dial: PendingDial) -> None:
        if self._dials.get(key) is dial:
            dial.task = self._tasks.spawn(self._run_dial(key, dial), f"dial-{key[0]}-again")

    async def close(self, cause: ConnectionLostError) -> None:
        """Close all connections and wait until the sockets are gone.

        Cancellation: everything is closed nevertheless; only the wait is given up.
        """
        self._is_closed = True  # first: a waiter that fails below may ask for the connection again
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        dials, self._dials = list(self._dials.values()), {}
        for dial in dials:
            dial.fail(cause)  # their tasks were cancelled by their owner, so they tell nothing themselves
        for lease in [*self._leases.values(), *self._drained]:
            lease.is_dropped = True
            lease.connection.close(cause)
        # `_closed` has added the connections just closed to those whose sockets were still closing.
        closing, self._closing = list(self._closing), deque()
        for _, connection in closing:
            await connection.wait_closed()

    def __repr__(self) -> str:
        return f"<BrokerPool {len(self._nodes)} brokers, {len(self._leases)} connections, {len(self._dials)} dials>"
