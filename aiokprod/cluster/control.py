"""`ControlRoute`: which broker a request goes to that any broker can answer.

One per start of a `ClusterClient`. In this order: an open connection with nothing in flight; a known broker not yet
connected; the least loaded open connection; the bootstrap servers.

Invariants:

- A stuck broker does not hold up the others: one that is busy, throttled, or failed the last request is asked only when
  nobody else can be (`# faults: T17`).
- Once brokers are known the bootstrap servers are asked only if not one of those can be reached (KIP-899), or a broker
  says so, or nothing was heard for long (KIP-1102), and never if `metadata_recovery_strategy` is "none". Addresses that
  swallow everything count as out of reach after `patience_s`, and connections after two requests in a row to which
  nothing came; both go on being waited for beside the bootstrap servers (`# faults: T21`).
- Every dial goes through the pool, and so keeps its backoff.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from aiokprod.cluster.bootstrap import BootstrapServers
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.pool import BrokerPool, Purpose
from aiokprod.cluster.snapshot import BrokerNode
from aiokprod.errors import AiokprodError, AuthenticationError, ClusterIdMismatchError, ConnectionLostError

logger = logging.getLogger(__name__)

HEAD_START_S: Final = 0.25
"""How long a dial has the field to itself before the next broker is dialled too: an address that swallows packets costs
this, not the whole setup timeout (RFC 8305 recommends the same for addresses)."""

BUSY_PATIENCE_S: Final = 1.0
"""How long to try others before a busy connection is used after all."""

SILENCES_BELIEVED: Final = 2
"""Requests in a row that nothing came to: one broker may hang, and two at a time are taken for all of them."""

CONTROL: Final = Purpose.CONTROL


class ControlRoute:
    """The way to any broker.

    Args:
        pool: of the connections.
        bootstrap: where to begin, and to begin again.
        may_rebootstrap: `metadata_recovery_strategy` is "rebootstrap".
        random: who is asked first.
        patience_s: how long known brokers that do not answer a dial are waited for alone.
    """

    def __init__(
        self,
        pool: BrokerPool,
        bootstrap: BootstrapServers,
        *,
        may_rebootstrap: bool,
        random: Random,
        patience_s: float = 1.0,
    ) -> None:
        self.may_rebootstrap = may_rebootstrap
        self._pool = pool
        self._bootstrap = bootstrap
        self._random = random
        self._is_beginning = True  # no broker is known, or none is to be believed
        self._patience_s = patience_s
        self._suspect: int | None = None  # failed the last request
        self._silences = 0  # requests in a row that nothing came to
        self._strangers: set[int] = set()  # brokers and servers that belong to another cluster, since ours answered

    async def connection(self, brokers: Iterable[int]) -> BrokerConnection:
        """A connection to any broker.

        Args:
            brokers: the ids of those known.

        Raises:
            AuthenticationError: a bootstrap server refuses the credentials.
            BootstrapError: nobody can be reached now; it names every address with its cause.

        Cancellation: dials on their way go on; their connections serve the next request.
        """
        ids = list(brokers)
        is_silent = self.may_rebootstrap and self._silences >= SILENCES_BELIEVED
        if not self._is_beginning and not is_silent:
            known = await self._known(ids)
            if known is not None:
                return known
        if self._is_beginning or self.may_rebootstrap:
            server = await self._bootstrap_server([] if self._is_beginning else ids)
            if server is not None:
                return server
        if not self._is_beginning and is_silent:
            known = await self._known(ids)
            if known is not None:
                return known
        stranger = await self._stranger()
        if stranger is not None:
            return stranger
        raise self._bootstrap.error("no broker can be reached")

    async def _known(self, brokers: list[int]) -> BrokerConnection | None:
        idle = [connection for connection in self._open() if self._is_idle(connection)]
        if idle:
            return self._random.choice(idle)
        ours = [node for node in brokers if node not in self._strangers]
        others = [node for node in ours if node != self._suspect and self._pool.may_dial_now(node, CONTROL)]
        self._random.shuffle(others)
        patience_s = self._patience_s if self.may_rebootstrap else None
        found = await self._race(others, BUSY_PATIENCE_S if self._open() else patience_s)
        if found is not None:
            return found
        still_open = self._open()
        if still_open:
            return min(still_open, key=lambda connection: connection.in_flight)
        if self._suspect in ours and self._pool.may_dial_now(self._suspect, CONTROL):
            return await self._race([self._suspect], patience_s)
        return None

    def _open(self) -> list[BrokerConnection]:
        return [connection for connection in self._pool.open_for(CONTROL) if connection.node_id >= 0]

    def _is_idle(self, connection: BrokerConnection) -> bool:
        return connection.in_flight == 0 and connection.is_writable and connection.node_id != self._suspect

    async def _bootstrap_server(self, brokers: list[int]) -> BrokerConnection | None:
        """A connection to a bootstrap server, or to a known broker whose dial is on its way and ends before."""
        nodes = await self._bootstrap.nodes()
        self._pool.know(nodes)
        if not self._is_beginning:
            logger.info("metadata: no known broker can be reached; asking the bootstrap servers again")
        is_open = [connection for node in nodes if (connection := self._pool.get(node.id, CONTROL)) is not None]
        usable = [connection for connection in is_open if self._is_idle(connection)] or is_open
        if usable and (len(is_open) == len(nodes) or self._is_idle(usable[0])):
            return self._random.choice(usable)
        ours = [node.id for node in nodes if node.id not in self._strangers]
        ids = [node_id for node_id in ours if self._pool.may_dial_now(node_id, CONTROL)]
        self._random.shuffle(ids)
        try:
            return await self._race(ids, None, [node for node in brokers if self._pool.is_dialling(node, CONTROL)])
        finally:
            self.note_causes()

    async def _stranger(self) -> BrokerConnection | None:
        """Where another cluster answered, when nothing else can be reached: that address may be right again."""
        ids = [node_id for node_id in self._strangers if self._pool.may_dial_now(node_id, CONTROL)]
        self._random.shuffle(ids)
        return await self._race(ids, None)

    def are_strangers(self, brokers: Iterable[int]) -> bool:
        """Does every bootstrap server, or every one of these brokers, belong to another cluster? (`# faults: T22`)"""
        servers = {node_id for _, _, node_id in self._bootstrap.addresses()}
        return any(nodes and nodes <= self._strangers for nodes in (servers, set(brokers)))

    def note_causes(self) -> None:
        """Tell the bootstrap servers what dialling them failed of."""
        for host, port, node_id in self._bootstrap.addresses():
            cause = self._pool.last_error(node_id)
            if cause is not None:
                self._bootstrap.failed(host, port, cause)

    async def _race(
        self, node_ids: Sequence[int], patience_s: float | None, on_their_way: Sequence[int] = ()
    ) -> BrokerConnection | None:
        """The first of these, or of those on their way, to be connected; None if all fail, or none is in time."""
        loop = asyncio.get_running_loop()
        ends_at = None if patience_s is None else loop.time() + patience_s
        to_dial = list(node_ids)
        waiting = {self._pool.connecting(node_id, CONTROL) for node_id in on_their_way}
        try:
            while to_dial or waiting:
                if to_dial:
                    waiting.add(self._pool.connecting(to_dial.pop(0), CONTROL))
                left_s = None if ends_at is None else ends_at - loop.time()
                if left_s is not None and left_s <= 0:
                    return None
                pause_s = HEAD_START_S if to_dial else left_s
                done, waiting = await asyncio.wait(waiting, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                found = self._first_of(done)
                if found is not None:
                    return found
            return None
        finally:
            for future in waiting:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # seen: it came together with another's result

    def _first_of(self, done: Iterable[asyncio.Future[BrokerConnection]]) -> BrokerConnection | None:
        found: BrokerConnection | None = None
        for future in done:
            error = future.exception()
            if error is None:
                found = future.result()
            elif isinstance(error, AuthenticationError) and self._is_beginning:
                raise error
        return found

    # -- what became of requests ----------------------------------------------------------------------------------

    def succeeded(self, brokers: Iterable[BrokerNode]) -> None:
        """Metadata came: the brokers it names are the ones to ask from now on."""
        if self._is_beginning:
            self._adopt(list(brokers))
        self._is_beginning = False
        self._suspect = None
        self._silences = 0
        self._strangers.clear()
        self._bootstrap.causes.clear()

    def _adopt(self, brokers: Sequence[BrokerNode]) -> None:
        """A server whose address one broker alone announces is that broker: no second connection is needed."""
        for host, port, server_id in self._bootstrap.addresses():
            announced = [broker.id for broker in brokers if (broker.host, broker.port) == (host, port)]
            if len(announced) == 1:
                self._pool.adopt(server_id, announced[0])

    def failed(self, connection: BrokerConnection, error: AiokprodError) -> None:
        """A request for metadata failed there: ask another one next time."""
        self._suspect = connection.node_id
        if isinstance(error, ClusterIdMismatchError):
            self._strangers.add(connection.node_id)
        self._silences = self._silences + 1 if isinstance(error, ConnectionLostError) else 0
        if self._silences == SILENCES_BELIEVED and self.may_rebootstrap and not self._is_beginning:
            # The others were opened before it began, that to a bootstrap server too: each would cost a timeout.
            self._pool.drop_control("nothing comes from where we asked", servers_too=True)
        if connection.node_id < 0:
            self._bootstrap.failed(connection.host, connection.port, error)

    def rebootstrap(self, why: str) -> bool:
        """Forget the brokers we know and begin again (KIP-1102); False if that is not allowed, or has been done."""
        if not self.may_rebootstrap or self._is_beginning:
            return False
        self._is_beginning = True
        logger.warning("metadata: back to the bootstrap servers because %s", why)
        self._pool.drop_control("back to the bootstrap servers")
        return True
