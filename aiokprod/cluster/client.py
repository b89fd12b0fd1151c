"""`ClusterClient`: the interface of the cluster layer: the leaders of partitions, and connections to brokers.

One per start of a producer, and one per `Reader`. It decides nothing itself. It is an object beside its `ClusterParts` because
they live for different times: a client is made without a loop, can be asked while it is closed, and can be started again, also
on another loop. The parts need the running loop, and end with their start and all that they learned in it: backoffs,
suspects, connections.

    ClusterClient  ->  ClusterParts  ->  MetadataCache  (the snapshot, when to refresh it)
    (calls)            (connects)    ->  ControlRoute   (which broker to ask)  ->  BootstrapServers
                         |           ->  BrokerPool     (connections)  ->  open_connection
                         v           ->  OwnedTasks     (`metadata`, `dial-3`, `dial-3-control`, `lookup-3`)
    ClusterListener (events)

Invariants: the snapshot only changes between two calls of `snapshot_changed`; every produce connection leads to the
cluster that answered first (`# faults: T18`); after `close`, or a `start` that failed, no task and no socket is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from aiokprod.cluster.cluster_listener import ClusterListener
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.metadata.snapshot import ClusterSnapshot, LeaderHint, TopicSnapshot
from aiokprod.cluster.owned_tasks import running_loop
from aiokprod.cluster.parts import ClusterParts
from aiokprod.cluster.pool import DialState, Purpose
from aiokprod.config import ProducerConfig
from aiokprod.config.call_timeouts import checked_seconds
from aiokprod.errors import BootstrapError, ClusterError, ConnectionLostError, RequestTimeoutError
from aiokprod.liveness import Stall
from aiokprod.metrics import Metrics
from aiokprod.randomness import new_random

__all__ = ["ClusterClient", "ClusterListener", "running_loop"]


class ClusterClient:
    """A client of one cluster.

    Args:
        config: the options of the producer.
        metrics: the metrics of the producer.
        listener: the receiver of the client's events.
        clock: monotonic seconds; the time of the loop if not given.
        random: the source of jitter and choices.
        settings: the parameters of a dial; made from the config if not given.
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

    # ------------------------------------------------------------------ life

    async def start(self, timeout_s: float | None) -> None:
        """Connect, and wait for the first metadata.

        Args:
            timeout_s: seconds to try; None tries until it is cancelled.

        Raises:
            BootstrapError: no bootstrap server led to a cluster in time; the error names each with its cause.
            AuthenticationError: a server refuses the credentials (at once, because repetition locks accounts; a token, once
                all servers have refused it for `REFUSALS_PASS_S`).
            TlsError, UnsupportedVersionError: all servers fail so (at once).
            ConfigError: a certificate or key cannot be loaded.

        Cancellation: no task and no socket is left. After any failure `start` may be called again.
        """
        if timeout_s is not None:
            timeout_s = checked_seconds(timeout_s)
        parts = self._begin()
        timed_out = False
        scope = asyncio.timeout(timeout_s)
        try:
            try:
                async with scope:
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

    def unreachable(self) -> BootstrapError | None:
        """Return the error of a start in which every bootstrap server was tried, and none can be reached; else None."""
        parts = self._parts
        if parts is None:
            return None
        parts.route.note_causes()
        if not parts.bootstrap.are_unreachable():
            return None
        return parts.bootstrap.error("no bootstrap server can be reached")

    def start_in_background(self) -> None:
        """Start without waiting for the cluster; it is tried, with backoff, until it answers."""
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

    # ------------------------------------------------------------------ what is known

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The current snapshot; after `close`, the last one. May be read from any thread."""
        parts = self._parts
        return self._last_snapshot if parts is None else parts.cache.snapshot

    def topic(self, name: str) -> TopicSnapshot | None:
        """Return a topic that records can be sent to, or None; counts as a use, which keeps it in the cache."""
        parts = self._parts
        return None if parts is None else parts.cache.topic(name)

    def want(self, name: str) -> None:
        """Add a topic to the topics of interest; ask for it if it is unknown, or was refused before."""
        if self._parts is not None:
            self._parts.cache.want(name)

    def refresh(self, why: str) -> None:
        """Ask again about all topics of interest, soon; any number of calls leads to one request."""
        if self._parts is not None:
            self._parts.cache.refresh(why)

    @property
    def is_asking(self) -> bool:
        """True while a Metadata request is under way, or another one will be sent."""
        return self._parts is not None and self._parts.cache.is_asking

    def stalls(self, now: float) -> list[Stall | None]:
        """Return what stands still in the cluster layer; None: something moves, or has nothing to do. `now`: loop time."""
        parts = self._parts
        return [] if parts is None else [parts.cache.stall(now), *parts.pool.stalls(now)]

    @property
    def trouble(self) -> tuple[float, str] | None:
        """The last warning in the log since the start: (monotonic seconds, text). May be read from any thread."""
        parts = self._parts
        return (
            None if parts is None or parts.log.last_error is None else (parts.log.last_error_at, parts.log.last_error)
        )

    @property
    def trouble_wall_s(self) -> float:
        """The time of `trouble` in seconds since 1970; 0 if there was none. May be read from any thread."""
        parts = self._parts
        return 0.0 if parts is None else parts.log.last_error_wall_s

    @property
    def metadata_age_s(self) -> float | None:
        """Seconds since the last answer; None before the first."""
        parts = self._parts
        return None if parts is None else parts.cache.age_s()

    @property
    def failing_s(self) -> float | None:
        """Seconds since the first unanswered request in a row; None if the last was answered. From any thread."""
        parts = self._parts
        return None if parts is None else parts.cache.failing_s()

    @property
    def brokers_connected(self) -> int:
        """The number of brokers with an open connection of any purpose. May be read from any thread."""
        parts = self._parts
        return 0 if parts is None else parts.pool.brokers_connected()

    def last_error(self, name: str) -> tuple[int, Exception | None] | None:
        """Return why a topic is not known: (error code of its last answer or 0, error of the last refresh)."""
        parts = self._parts
        return None if parts is None else parts.cache.last_error(name)

    @property
    def next_request(self) -> int:
        """The number of the next Metadata request: the first whose answer covers a topic that is wanted now."""
        parts = self._parts
        return 0 if parts is None else parts.cache.next_request

    def last_answered(self, name: str) -> int:
        """Return the number of the last Metadata request whose answer was about this topic; 0 if there was none."""
        parts = self._parts
        return 0 if parts is None else parts.cache.last_answered(name)

    async def refreshed(self, timeout_s: float) -> None:
        """Wait for the answer to a Metadata request that is sent after this call; asks for one if none is due.

        Raises:
            RequestTimeoutError: none came in time; its cause is the error of the last attempt.
            ConnectionLostError: the client is closed, or was closed meanwhile.

        Cancellation: only this wait ends; the request is sent nevertheless.
        """
        timeout_s = checked_seconds(timeout_s)
        cache = self._running().cache
        scope = asyncio.timeout(timeout_s)
        try:
            async with scope:
                await cache.refreshed()
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimeoutError(f"no metadata within {timeout_s:g} s") from cache.last_failure

    def hint_leaders(self, hints: Iterable[LeaderHint]) -> None:
        """Apply the leaders that a Produce answer names (KIP-951), where the epoch is newer. (-1, epoch): no leader.

        Pass all hints of one answer together: each call costs as much as all partitions of the topics in it.
        """
        if self._parts is not None:
            self._parts.cache.hint_leaders(hints)

    # ------------------------------------------------------------------ connections

    def produce_connection(self, node_id: int) -> BrokerConnection | None:
        """Return the produce connection to a broker, if there is one that may be used now."""
        parts = self._parts
        return None if parts is None else parts.pool.get(node_id, Purpose.PRODUCE)

    def dial_state(self, node_id: int) -> DialState:
        """Return how far the produce connection to a broker is. May be called from any thread."""
        parts = self._parts
        return DialState(False, 0.0, "the client is closed") if parts is None else parts.pool.dial_state(node_id)

    def dial(self, node_id: int) -> None:
        """Dial a produce connection as soon as the backoff allows; one dial at a time.

        The outcome is reported by `connection_ready` or `dial_failed`, never within this call. Does nothing if there is a
        connection.
        """
        if self._parts is not None:
            self._parts.pool.dial(node_id, Purpose.PRODUCE)

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """The finalized features of the cluster, from the newest epoch that any broker has told; empty before the first."""
        parts = self._parts
        return {} if parts is None else parts.finalized_features

    async def control_connection(self, node_id: int | None) -> BrokerConnection:
        """Return an open connection for control requests, to one broker, or to any.

        Args:
            node_id: id of the broker; None is any broker.

        Raises:
            BootstrapError: no broker can be reached now.
            ClusterError: the broker cannot be reached, or the client is closed. Metadata is asked for: the next call may
                find a broker that has joined, come back or moved since the last answer.

        Cancellation: stops waiting; a dial goes on.
        """
        parts = self._running()
        if node_id is None:
            return await parts.route.connection(parts.cache.snapshot.brokers)
        try:
            return await parts.pool.connecting(node_id, Purpose.CONTROL)
        except ClusterError:
            parts.look_for(node_id, "cannot be reached")
            raise

    def open_control_connection(self, node_id: int) -> BrokerConnection | None:
        """Return the connection for control requests to a broker, if it is open and takes requests now; dials nothing."""
        parts = self._parts
        connection = None if parts is None else parts.pool.get(node_id, Purpose.CONTROL)
        return connection if connection is not None and connection.is_writable else None

    async def request(self, message: RequestMessage, *, node_id: int | None = None, timeout_s: float) -> Any:
        """Send one control request, without retries, and return its decoded answer.

        Annotate the result: `answer: InitProducerIdResponse = await client.request(InitProducerIdRequest(...), ...)`.
        The caller handles error codes in the answer; its throttle is obeyed here.

        Args:
            message: an `XRequest`.
            node_id: id of the broker; any broker if not given.
            timeout_s: timeout of everything, including the dial.

        Raises:
            RequestTimeoutError: no answer in time.
            BootstrapError: no broker can be reached now.
            ClusterError, ProtocolError: as raised by the connection.
            TypeError, ConfigError: the timeout is not a usable number; nothing was sent.

        Cancellation: the answer will be dropped; the broker may have acted on the request.
        """
        timeout_s = checked_seconds(timeout_s)
        self._running()
        scope = asyncio.timeout(timeout_s)
        try:
            async with scope:
                connection = await self.control_connection(node_id)
                return await connection.request(message, timeout_s=timeout_s)
        except TimeoutError:
            if not scope.expired():
                raise
            where = "any broker" if node_id is None else f"broker {node_id}"
            if node_id is not None and self._parts is not None:
                # Its address may be a former one, which drops all packets.
                self._parts.look_for(node_id, "does not answer")
            name = type(message).__name__.removesuffix("Request")
            raise RequestTimeoutError(f"{name}: no answer from {where} within {timeout_s:g} s") from None

    def __repr__(self) -> str:
        return "<ClusterClient closed>" if self._parts is None else f"<ClusterClient {self._parts.cache}>"
