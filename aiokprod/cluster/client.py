"""`ClusterClient`: the cluster as the layers above see it: who leads what, and connections to them.

One per producer; it can be started again after a close, also on another loop. It decides nothing itself.

    ClusterClient  ->  ClusterParts  ->  MetadataCache  (what is known, when to ask)
    (asked)            (join)        ->  ControlRoute   (whom to ask)  ->  BootstrapServers
                         |           ->  BrokerPool     (connections)  ->  open_connection
                         v           ->  OwnedTasks     (`metadata`, `dial-3`, `dial-3-control`)
    ClusterListener (told)

Invariants: the snapshot only changes between two calls of `snapshot_changed`; every produce connection leads to the
cluster we began with (`# faults: T18`); after `close`, or a `start` that failed, no task and no socket is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from aiokprod.chance import new_random
from aiokprod.cluster.cluster_listener import ClusterListener
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.connection_settings import ConnectionSettings
from aiokprod.cluster.control_request import RequestMessage, checked_seconds
from aiokprod.cluster.parts import ClusterParts
from aiokprod.cluster.pool import Purpose
from aiokprod.cluster.running_loop import running_loop
from aiokprod.cluster.snapshot import ClusterSnapshot, LeaderHint, TopicSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.errors import ConnectionLostError, RequestTimeoutError
from aiokprod.metrics import Metrics

__all__ = ["ClusterClient", "ClusterListener"]


class ClusterClient:
    """The cluster.

    Args:
        config: of the producer.
        metrics: of the producer.
        listener: told of what changes.
        clock: seconds, monotonic; the time of the loop if not given.
        random: for jitter and choices.
        settings: how to connect; made from the config if not given.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metrics: Metrics,
        listener: ClusterListener,
        *,
        clock: Callable[[], float] | None = None,
        random: Random | None = None,
        settings: ConnectionSettings | None = None,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._listener = listener
        self._clock = clock
        self._random = new_random() if random is None else random
        self._settings = settings
        self._parts: ClusterParts | None = None
        self._last_snapshot = ClusterSnapshot()

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self, timeout_s: float | None) -> None:
        """Connect and learn who the brokers are.

        Args:
            timeout_s: how long to try; None tries until it is cancelled.

        Raises:
            BootstrapError: no bootstrap server led to a cluster in time; it names each with its cause.
            AuthenticationError: a server refuses the credentials (at once, for repetition locks accounts).
            TlsError, UnsupportedVersionError: all servers say so (at once).
            ConfigError: a certificate or key cannot be loaded.

        Cancellation: nothing is left behind. After any failure `start` may be called again.
        """
        if timeout_s is not None:
            timeout_s = checked_seconds(timeout_s)
        parts = self._begin()
        timed_out = False
        try:
            try:
                async with asyncio.timeout(timeout_s) as scope:
                    await parts.arrived
            except TimeoutError:
                if not scope.expired():
                    raise
                timed_out = True
            if timed_out:
                parts.route.note_causes()
                raise parts.bootstrap.error(f"no cluster was found within {timeout_s:g} s")
        except BaseException:
            await self.close()
            raise

    def start_in_background(self) -> None:
        """Come up without a cluster, and keep trying, with backoff, until it is there."""
        self._begin()

    def _begin(self) -> ClusterParts:
        if self._parts is not None:
            raise AssertionError("the client has been started")
        running_loop()
        settings = self._settings or ConnectionSettings.from_config(self._config)
        parts = self._parts = ClusterParts(
            self._config, self._metrics, self._listener, settings, clock=self._clock, random=self._random
        )
        self._last_snapshot = parts.cache.snapshot
        parts.begin()
        return parts

    async def close(self) -> None:
        """End all tasks and connections, and wait until they are gone: about a second at most. Idempotent.

        Cancellation: only the wait is given up; call it again to wait for the end.
        """
        parts = self._parts
        if parts is None:
            return
        self._last_snapshot = parts.cache.snapshot
        await parts.close()
        if self._parts is parts:
            self._parts = None

    def _running(self) -> ClusterParts:
        if self._parts is None:
            raise ConnectionLostError("the client is not started, or closed")
        return self._parts

    # -- what is known --------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> ClusterSnapshot:
        """What is known now; after `close`, what was known last. May be read from any thread."""
        parts = self._parts
        return self._last_snapshot if parts is None else parts.cache.snapshot

    def topic(self, name: str) -> TopicSnapshot | None:
        """A topic that records can be given to, or None; counts as use, which keeps it in the cache."""
        parts = self._parts
        return None if parts is None else parts.cache.topic(name)

    def want(self, name: str) -> None:
        """Be interested in a topic from now on; ask for it if it is unknown, or was refused before."""
        if self._parts is not None:
            self._parts.cache.want(name)

    def refresh(self, why: str) -> None:
        """Ask again about all topics of interest, soon; any number of calls is one request."""
        if self._parts is not None:
            self._parts.cache.refresh(why)

    @property
    def trouble(self) -> tuple[float, str] | None:
        """What the log last warned of in this start: (monotonic seconds, text). May be read from any thread."""
        parts = self._parts
        return (
            None if parts is None or parts.log.last_error is None else (parts.log.last_error_at, parts.log.last_error)
        )

    @property
    def metadata_age_s(self) -> float | None:
        """Seconds since the last answer; None before the first."""
        parts = self._parts
        return None if parts is None else parts.cache.age_s()

    @property
    def failing_s(self) -> float | None:
        """Seconds since no broker has answered what was asked of it; None: the last one asked did. From any thread."""
        parts = self._parts
        return None if parts is None else parts.cache.failing_s()

    @property
    def brokers_connected(self) -> int:
        """How many brokers there is a connection to, whatever it is for. May be asked from any thread."""
        parts = self._parts
        return 0 if parts is None else parts.pool.brokers_connected()

    def last_error(self, name: str) -> tuple[int, Exception | None] | None:
        """Why a topic is not known: (error code of the last answer about it or 0, what the last refresh failed of)."""
        parts = self._parts
        return None if parts is None else parts.cache.last_error(name)

    @property
    def next_request(self) -> int:
        """The number of the next Metadata request to be sent: its answer, or a later one, knows what is asked for now."""
        parts = self._parts
        return 0 if parts is None else parts.cache.next_request

    def last_answered(self, name: str) -> int:
        """The number of the last Metadata request whose answer was about this topic; 0: there was none."""
        parts = self._parts
        return 0 if parts is None else parts.cache.last_answered(name)

    async def refreshed(self, timeout_s: float) -> None:
        """Wait for the answer to a Metadata request that is sent after this call; asks for one if nobody did.

        Raises:
            RequestTimeoutError: none came in time; the cause is what the last attempt failed of.
            ConnectionLostError: the client is or came to be closed.

        Cancellation: gives up the wait; nobody else notices.
        """
        timeout_s = checked_seconds(timeout_s)
        cache = self._running().cache
        try:
            async with asyncio.timeout(timeout_s) as scope:
                await cache.refreshed()
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimeoutError(f"no metadata within {timeout_s:g} s") from cache.last_failure

    def hint_leaders(self, hints: Iterable[LeaderHint]) -> None:
        """A Produce answer says who leads (KIP-951): taken over where the epoch is newer. (-1, epoch): no leader.

        Give all that one answer says together: each call costs as much as all partitions of the topics it names.
        """
        if self._parts is not None:
            self._parts.cache.hint_leaders(hints)

    # -- connections ----------------------------------------------------------------------------------------------

    def produce_connection(self, node_id: int) -> BrokerConnection | None:
        """The produce connection to a broker, if there is one that may be used now."""
        parts = self._parts
        return None if parts is None else parts.pool.get(node_id, Purpose.PRODUCE)

    def dial(self, node_id: int) -> None:
        """Get a produce connection as soon as the backoff allows; one dial at a time.

        Told by `connection_ready` or `dial_failed`, never within this call. Does nothing if the connection is there.
        """
        if self._parts is not None:
            self._parts.pool.dial(node_id, Purpose.PRODUCE)

    async def request(self, message: RequestMessage, *, node_id: int | None = None, timeout_s: float) -> Any:
        """Send one control request, once, and return its answer, of the type that belongs to it. No retry.

        Annotate the result: `answer: InitProducerIdResponse = await client.request(InitProducerIdRequest(...), ...)`.
        Error codes in the answer are the caller's matter; its throttle is obeyed here.

        Args:
            message: an `XRequest`.
            node_id: which broker; the least loaded one if not given.
            timeout_s: for everything, the dial too.

        Raises:
            RequestTimeoutError: no answer in time.
            BootstrapError: no broker can be reached now.
            ClusterError, ProtocolError: as the connection says.
            TypeError, ConfigError: the timeout is none; nothing was sent.

        Cancellation: the answer will be dropped; the broker may have acted on the request.
        """
        timeout_s = checked_seconds(timeout_s)
        parts = self._running()
        try:
            async with asyncio.timeout(timeout_s) as scope:
                if node_id is None:
                    connection = await parts.route.connection(parts.cache.snapshot.brokers)
                else:
                    connection = await parts.pool.connecting(node_id, Purpose.CONTROL)
                return await connection.request(message, timeout_s=timeout_s)
        except TimeoutError:
            if not scope.expired():
                raise
            where = "any broker" if node_id is None else f"broker {node_id}"
            name = type(message).__name__.removesuffix("Request")
            raise RequestTimeoutError(f"{name}: no answer of {where} within {timeout_s:g} s") from None

    def __repr__(self) -> str:
        return "<ClusterClient closed>" if self._parts is None else f"<ClusterClient {self._parts.cache}>"
