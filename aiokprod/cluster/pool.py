"""`BrokerPool`: every connection of a client, one per broker and purpose.

One per start of a `ClusterClient`. Produce requests travel alone: a broker answers a connection in order, so metadata
behind a stuck Produce would be stuck too (`# broker: 4.12`).

    dial(node, purpose)  ->  wait for the pace  ->  open  ->  lease  ->  idle, expired, removed, lost

Invariants:

- At most `DIALS_AT_ONCE` produce dials at a time, and one dial per broker and purpose. Tasks that want the
  connection meanwhile wait for the same dial, each with a future of its own: cancelling one task does not touch the others.
- Only brokers the cluster names (and bootstrap servers, whose ids are negative) are dialled. A broker with a new
  address loses its old connections at once; a removed one as soon as nothing is in flight (`# faults: B12, B13`).
- Connections belong to ids, not addresses: two ids on one address have two connections (`# faults: B15`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from functools import partial
from random import Random
from typing import Final, TypeAlias, assert_never

from aiokprod.backoff import Backoff
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.dial_pace import DialPace
from aiokprod.cluster.lease import Drain, End, Keep, Lease
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.cluster.pending_dial import DialPlaces, PendingDial
from aiokprod.cluster.snapshot import BrokerNode
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, AuthenticationError, ConnectionLostError

SHORTEST_BACKOFF_S: Final = 0.01
"""A backoff of 0 ms shall not become a busy loop, not even for a broker that nobody knows an address of."""

CLOSING_KEPT_S: Final = 3.0
"""A closed connection's socket is gone within about a second; `close` waits for those younger than this."""

DIALS_AT_ONCE: Final = 64
"""Produce dials under way. An answer may name thousands of brokers at an address that keeps silent, and each dial is a
descriptor that the application may need (`# faults: H16`). Dials for control requests are few, and no news may wait."""

PACES_KEPT: Final = 100
"""Backoffs remembered of brokers that are no more, for they may come back with the next answer."""


class Purpose(Enum):
    """What a connection is for."""

    PRODUCE = "produce"
    CONTROL = "control"


Key: TypeAlias = tuple[int, Purpose]

OpenConnection: TypeAlias = Callable[[BrokerNode, Purpose, float], Awaitable[BrokerConnection]]
"""`await open(node, purpose, timeout_s)`: dial, handshake, check; raises an `AiokprodError` and then leaves nothing."""


class BrokerPool:
    """Connections by broker and purpose.

    Args:
        config: backoffs, timeouts, idle time.
        open_connection: makes one.
        tasks: where dials run; its owner ends them before `close`.
        ready: told of each new produce connection.
        failed: told of each produce dial that failed; both never within a call of `dial`.
        all_lost: told when the last connection there was has ended, not by our will.
        clock: seconds, monotonic; the time of the loop.
        random: for jitter.
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
        self._paces: dict[int, DialPace] = {}
        self._dials: dict[Key, PendingDial] = {}
        self._places = DialPlaces(DIALS_AT_ONCE)
        self._leases: dict[Key, Lease] = {}
        self._drained: list[Lease] = []  # leaving, and another has taken their place
        self._last_errors: dict[int, AiokprodError] = {}
        self._closing: deque[tuple[float, BrokerConnection]] = deque()
        self._look_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    # -- brokers --------------------------------------------------------------------------------------------------

    def know(self, nodes: Iterable[BrokerNode]) -> None:
        """The brokers of now, or the bootstrap servers of now (negative ids): replaces those of its kind."""
        given = {node.id: node for node in nodes}
        are_brokers = any(node_id >= 0 for node_id in given)
        old_nodes = [node for node in self._nodes.values() if (node.id >= 0) is are_brokers]
        for old in old_nodes:
            if old.id not in given:
                del self._nodes[old.id]
        self._nodes.update(given)
        for old in old_nodes:
            new = given.get(old.id)
            if new is None:
                self._leave(old)
            elif (new.host, new.port) != (old.host, old.port):
                self._move(old, new)
        if len(self._paces) > len(self._nodes) + PACES_KEPT:
            self._paces = {node_id: pace for node_id, pace in self._paces.items() if node_id in self._nodes}

    def _leave(self, old: BrokerNode) -> None:
        why = f"broker {old.id} has left the cluster"
        self._stop_dials(old, why)
        self._last_errors.pop(old.id, None)
        for purpose in Purpose:
            lease = self._leases.get((old.id, purpose))
            if lease is not None:
                lease.leaving = why
        self._look()

    def _move(self, old: BrokerNode, new: BrokerNode) -> None:
        why = f"broker {old.id} has moved to {new.host}:{new.port}"
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
            if dial is not None and dial.node is not None and dial.task is not None:
                self._tasks.cancel(dial.task)
                self._dial_failed(key, dial, ConnectionLostError(why, host=old.host, port=old.port))

    # -- connections ----------------------------------------------------------------------------------------------

    def get(self, node_id: int, purpose: Purpose) -> BrokerConnection | None:
        """The connection, if it is open now and to stay open."""
        lease = self._leases.get((node_id, purpose))
        return lease.connection if lease is not None and lease.is_usable else None

    def open_for(self, purpose: Purpose) -> list[BrokerConnection]:
        """All connections of a purpose that may be used now."""
        return [lease.connection for key, lease in self._leases.items() if key[1] is purpose and lease.is_usable]

    def brokers_connected(self) -> int:
        """How many brokers there is an open connection to, of whatever purpose. Asked from any thread.

        Behind a bootstrap server may be one of the brokers that are known, so these count only when none of those does.
        """
        ids = {node_id for (node_id, _), lease in list(self._leases.items()) if lease.connection.is_open}
        return sum(node_id >= 0 for node_id in ids) or len(ids)

    def may_dial_now(self, node_id: int, purpose: Purpose) -> bool:
        """Is the broker known, without a connection, and not in backoff?"""
        if node_id not in self._nodes or (node_id, purpose) in self._leases:
            return False
        pace = self._paces.get(node_id)
        return pace is None or pace.next_dial_at() <= self._clock()

    def is_dialling(self, node_id: int, purpose: Purpose) -> bool:
        """Is a connection on its way?"""
        return (node_id, purpose) in self._dials

    def last_error(self, node_id: int) -> AiokprodError | None:
        """What the last dial of a broker failed of; None once one succeeds."""
        return self._last_errors.get(node_id)

    def dial(self, node_id: int, purpose: Purpose) -> None:
        """Get a connection, as soon as the backoff allows; does nothing if it is there or on its way.

        A produce connection is announced by `ready` or `failed`, never within this call.
        """
        if not self._is_closed and self.get(node_id, purpose) is None:
            self._begin_dial((node_id, purpose))

    def connecting(self, node_id: int, purpose: Purpose) -> asyncio.Future[BrokerConnection]:
        """A future of the caller's own for the connection; cancelling it does not stop the dial."""
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
        """The broker behind a bootstrap server is known now: its connection goes on under the broker's id."""
        lease = self._leases.get((bootstrap_id, Purpose.CONTROL))
        key = (node_id, Purpose.CONTROL)
        if lease is not None and key not in self._leases and key not in self._dials:
            del self._leases[bootstrap_id, Purpose.CONTROL]
            lease.connection.node_id = node_id
            self._leases[key] = lease

    # -- dialling -------------------------------------------------------------------------------------------------

    def _begin_dial(self, key: Key) -> PendingDial:
        dial = self._dials.get(key)
        if dial is None:
            dial = self._dials[key] = PendingDial()
            name = f"dial-{key[0]}" if key[1] is Purpose.PRODUCE else f"dial-{key[0]}-control"
            dial.task = self._tasks.spawn(self._run_dial(key, dial), name)
        return dial

    async def _run_dial(self, key: Key, dial: PendingDial) -> None:
        node_id = key[0]
        pace = self._paces.get(node_id)
        if pace is None:
            pace = DialPace(self._backoff, self._setup_timeout_s, self._setup_timeout_max_s)
            self._paces[node_id] = pace
        # At least one turn of the loop, so that nobody is told within the call that asked. The backoff is looked at
        # again after each sleep: a dial of the other purpose may have failed meanwhile.
        await asyncio.sleep(0)
        while True:
            while (wait_s := pace.next_dial_at() - self._clock()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(wait_s)
            if key[1] is Purpose.CONTROL:
                await self._dial_now(key, dial, pace)
                return
            # A connection that was lost counts as one failure; what failed twice in a row is not there.
            await self._places.take(has_failed=pace.failures > 1)
            try:
                if pace.next_dial_at() <= self._clock():  # that, too, may have changed while it waited
                    await self._dial_now(key, dial, pace)
                    return
            finally:
                self._places.give_back()

    async def _dial_now(self, key: Key, dial: PendingDial, pace: DialPace) -> None:
        node_id = key[0]
        try:
            connection = await self._open(key, dial, pace)
        except AiokprodError as error:
            if isinstance(error, AuthenticationError):
                pace.refused(self._clock())
            pace.failed(self._clock(), self._random.random())
            self._dial_failed(key, dial, error)
        except Exception as bug:
            self._dial_failed(key, dial, ConnectionLostError(f"dialling broker {node_id} failed: {type(bug).__name__}"))
            raise
        else:
            pace.accepted()
            self._dialled(key, dial, connection)

    async def _open(self, key: Key, dial: PendingDial, pace: DialPace) -> BrokerConnection:
        node = self._nodes.get(key[0])
        if node is None:
            raise ConnectionLostError(f"broker {key[0]} is not among the brokers of the cluster")
        dial.node = node
        pace.dialled(self._clock())
        connection = await self._open_connection(node, key[1], pace.setup_timeout_s(self._random.random()))
        if not connection.is_open:
            raise ConnectionLostError("closed as soon as it was opened", host=node.host, port=node.port)
        return connection

    def _dial_failed(self, key: Key, dial: PendingDial, error: AiokprodError) -> None:
        if self._dials.get(key) is not dial:
            return
        del self._dials[key]
        self._last_errors[key[0]] = error
        dial.fail(error)
        if key[1] is Purpose.PRODUCE:
            self._failed(key[0], error)

    def _dialled(self, key: Key, dial: PendingDial, connection: BrokerConnection) -> None:
        self._dials.pop(key, None)
        self._last_errors.pop(key[0], None)
        old = self._leases.get(key)
        if old is not None:
            self._drained.append(old)
        lease = self._leases[key] = Lease(connection, self._clock(), self._random.random())
        connection.add_close_callback(partial(self._closed, lease))
        self._look()
        dial.succeed(connection)
        if key[1] is Purpose.PRODUCE:
            self._ready(key[0], connection)

    # -- ending ---------------------------------------------------------------------------------------------------

    def _closed(self, lease: Lease, connection: BrokerConnection, cause: Exception) -> None:
        """A connection has ended, by us or by the world."""
        now = self._clock()
        if lease in self._drained:
            self._drained.remove(lease)
        for key, held in list(self._leases.items()):
            if held is lease:
                del self._leases[key]
        while self._closing and self._closing[0][0] < now - CLOSING_KEPT_S:
            self._closing.popleft()
        self._closing.append((now, connection))
        pace = self._paces.get(connection.node_id)
        if pace is not None and not lease.is_dropped:
            pace.lost(now, now - lease.opened_at, self._random.random())
        if not self._leases and not lease.is_dropped:
            self._all_lost()

    @staticmethod
    def _drop(lease: Lease, why: str) -> None:
        lease.is_dropped = True
        connection = lease.connection
        connection.close(ConnectionLostError(why, host=connection.host, port=connection.port))

    def drop_control(self, why: str, *, servers_too: bool = False) -> None:
        """Close what control requests travel on, to brokers as they are known (`# faults: T16`), or to all."""
        for (node_id, purpose), lease in list(self._leases.items()):
            if purpose is Purpose.CONTROL and (servers_too or node_id >= 0):
                self._drop(lease, why)

    def _look(self) -> None:
        """Close what has ended its use, and look again when the next may have."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        now = self._clock()
        looks: list[float] = []
        for lease in [*self._leases.values(), *self._drained]:
            match lease.look(now, self._max_idle_s):
                case Keep(look_at):
                    if look_at is not None:
                        looks.append(look_at)
                case Drain(look_at):
                    looks.append(look_at)
                    lease.connection.retire()
                case End(why):
                    self._drop(lease, why)
                case other:
                    assert_never(other)
        if looks and not self._is_closed:
            self._look_timer = asyncio.get_running_loop().call_at(min(looks), self._look)

    async def close(self, cause: ConnectionLostError) -> None:
        """Close everything and wait until the sockets are gone.

        Cancellation: everything is closed all the same; only the wait is given up.
        """
        self._is_closed = True
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        dials, self._dials = list(self._dials.values()), {}
        for dial in dials:
            dial.fail(cause)
        for lease in [*self._leases.values(), *self._drained]:
            lease.is_dropped = True
            lease.connection.close(cause)
        closing, self._closing = list(self._closing), deque()
        for _, connection in closing:
            await connection.wait_closed()

    def __repr__(self) -> str:
        return f"<BrokerPool {len(self._nodes)} brokers, {len(self._leases)} connections, {len(self._dials)} dials>"
