"""`ControlRoute`: chooses the broker for a request that any broker can answer.

One per start of a `ClusterClient`. The order of preference: an open connection with nothing in flight; a known broker
that is not connected; the least loaded open connection; the bootstrap servers.

Invariants:

- A stuck broker does not block requests to the others: a broker that is busy, throttled, or failed the last request is
  asked only if no other can be (`# faults: T17`). Nor does one that tells of an earlier cluster: another is asked when a
  broker cannot be reached as the last answer says (`# faults: T8`).
- Once brokers are known, the bootstrap servers are asked only if none of those can be reached (KIP-899), or a broker
  asks for it, or no answer came for long (KIP-1102), and never if `metadata_recovery_strategy` is "none". Addresses that
  drop all packets count as unreachable after `patience_s`, and connections after two requests in a row without an
  answer; their dials and connections stay in the race beside the bootstrap servers (`# faults: T21`).
- Every dial goes through the pool, and so keeps its backoff.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.metadata.bootstrap import BootstrapServers
from aiokprod.cluster.metadata.snapshot import BrokerNode
from aiokprod.cluster.pool import BrokerPool, Purpose
from aiokprod.errors import AiokprodError, AuthenticationError, ClusterIdMismatchError, ConnectionLostError
from aiokprod.logs import GuardedLogger, printable

logger = GuardedLogger(__name__)

HEAD_START_S: Final = 0.25
"""Seconds until the next broker is dialled beside a pending dial: an address that drops packets costs this, and not the
whole setup timeout (RFC 8305 recommends the same for addresses)."""

BUSY_PATIENCE_S: Final = 1.0
"""Seconds for which other brokers are dialled before a busy connection is used after all."""

SILENCES_BELIEVED: Final = 2
"""Unanswered requests in a row: one broker may hang, but two in a row suggest that all known brokers do."""

CONTROL: Final = Purpose.CONTROL


class ControlRoute:
    """The choice of a broker for control requests.

    Args:
        pool: the pool of connections.
        bootstrap: the servers to start with, and to start again with.
        may_rebootstrap: `metadata_recovery_strategy` is "rebootstrap".
        random: shuffles the brokers, so that clients spread their requests.
        patience_s: seconds that dials of known brokers get before the bootstrap servers are dialled too.
        may_pass: whether a refused authentication may be accepted by another server, or later, and locks no account.
        subject: how log lines call it, with the client.
    """

    def __init__(
        self,
        pool: BrokerPool,
        bootstrap: BootstrapServers,
        *,
        may_rebootstrap: bool,
        random: Random,
        patience_s: float = 1.0,
        may_pass: Callable[[AiokprodError], bool] = lambda error: False,
        subject: str = "metadata",
    ) -> None:
        self.may_rebootstrap = may_rebootstrap
        self._subject = printable(subject)
        self._pool = pool
        self._bootstrap = bootstrap
        self._random = random
        self._is_beginning = True  # no broker is known yet, or the known ones are no longer trusted
        self._patience_s = patience_s
        self._may_pass = may_pass
        self._suspect: int | None = None  # the broker that failed the last request, or whose answer is doubted
        self._informant: BrokerConnection | None = None  # where the last Metadata answer came from
        self._silences = 0  # unanswered requests in a row
        self._strangers: set[int] = set()  # brokers and servers that showed another cluster id since ours last answered

    async def connection(self, brokers: Iterable[int]) -> BrokerConnection:
        """Return a connection to any broker.

        Args:
            brokers: the ids of the known brokers.

        Raises:
            AuthenticationError: a bootstrap server refuses the credentials.
            BootstrapError: no broker can be reached now; the error names every address with its cause.

        Cancellation: pending dials go on; their connections serve later requests.
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
        """Return a connection to a bootstrap server, or to a known broker whose pending dial succeeds first."""
        nodes = await self._bootstrap.nodes()
        self._pool.know(nodes)
        if not self._is_beginning:
            logger.info("%s: no known broker can be reached; asking the bootstrap servers again", self._subject)
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
        """Return a connection to an address that led to another cluster: it may lead to ours again, and no other is left."""
        ids = [node_id for node_id in self._strangers if self._pool.may_dial_now(node_id, CONTROL)]
        self._random.shuffle(ids)
        return await self._race(ids, None)

    def are_strangers(self, brokers: Iterable[int]) -> bool:
        """Return whether all bootstrap servers, or all these brokers, belong to another cluster (`# faults: T22`)."""
        servers = {node_id for _, _, node_id in self._bootstrap.addresses()}
        return any(nodes and nodes <= self._strangers for nodes in (servers, set(brokers)))

    def note_causes(self) -> None:
        """Copy the errors of failed dials to the bootstrap servers, for the text of their error."""
        for host, port, node_id in self._bootstrap.addresses():
            cause = self._pool.last_error(node_id)
            if cause is not None:
                self._bootstrap.failed(host, port, cause)

    async def _race(
        self, node_ids: Sequence[int], patience_s: float | None, on_their_way: Sequence[int] = ()
    ) -> BrokerConnection | None:
        """Return the first connection among dials of these nodes and those pending; None if all fail or are too slow."""
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
                    future.exception()  # retrieved, so that asyncio does not log it: another dial has succeeded

    def _first_of(self, done: Iterable[asyncio.Future[BrokerConnection]]) -> BrokerConnection | None:
        found: BrokerConnection | None = None
        for future in done:
            error = future.exception()
            if error is None:
                found = future.result()
            elif isinstance(error, AuthenticationError) and self._is_beginning and not self._may_pass(error):
                raise error
        return found

    # ------------------------------------------------------------------ outcomes of requests

    def succeeded(self, brokers: Iterable[BrokerNode]) -> None:
        """Note that metadata came: the brokers it names are asked from now on."""
        if self._is_beginning:
            self._adopt(list(brokers))
        self._is_beginning = False
        self._suspect = None
        self._silences = 0
        self._strangers.clear()
        self._bootstrap.causes.clear()

    def answered(self, connection: BrokerConnection) -> None:
        """Note where a Metadata answer came from."""
        self._informant = connection

    def doubt(self) -> None:
        """Note that a broker cannot be reached as the last Metadata answer says: another one is asked next.

        A broker that is cut off from the controllers goes on answering from what it knew, and an idle connection to it would
        be preferred for ever.
        """
        if self._informant is not None:
            self._suspect = self._informant.node_id  # read late: `adopt` changes it

    def _adopt(self, brokers: Sequence[BrokerNode]) -> None:
        """Reuse the connection of a bootstrap server whose address exactly one broker announces."""
        # With two brokers on one address it is not known which of them the connection leads to. (faults: B15)
        for host, port, server_id in self._bootstrap.addresses():
            announced = [broker.id for broker in brokers if (broker.host, broker.port) == (host, port)]
            if len(announced) == 1:
                self._pool.adopt(server_id, announced[0])

    def failed(self, connection: BrokerConnection, error: AiokprodError) -> None:
        """Note that a Metadata request failed: another broker is asked next time."""
        self._suspect = connection.node_id
        if isinstance(error, ClusterIdMismatchError):
            self._strangers.add(connection.node_id)
        self._silences = self._silences + 1 if isinstance(error, ConnectionLostError) else 0
        if self._silences == SILENCES_BELIEVED and self.may_rebootstrap and not self._is_beginning:
            # The other connections, also those to bootstrap servers, were opened before the silence began and may be as
            # dead: each would cost a timeout.
            self._pool.drop_control("two requests in a row were not answered", servers_too=True)
        if connection.node_id < 0:
            self._bootstrap.failed(connection.host, connection.port, error)

    def rebootstrap(self, why: str) -> bool:
        """Start again at the bootstrap servers (KIP-1102); returns False if that is not allowed, or under way already."""
        if not self.may_rebootstrap or self._is_beginning:
            return False
        self._is_beginning = True
        logger.warning("%s: back to the bootstrap servers because %s", self._subject, why)
        self._pool.drop_control("back to the bootstrap servers")
        return True
