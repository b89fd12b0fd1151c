"""`ClusterParts`: the parts of a client between start and close, connected. The only file that knows all of them.

One per start, on one loop. The parts do not know each other; each event goes through here:

    MetadataCache  - asks ->      ControlRoute, fetch     one request to one broker
                   - changed ->   BrokerPool, listener    connections follow the broker list, then the pipeline
                   - failed ->    ControlRoute            start again at the bootstrap servers; give up starting
    BrokerPool     - opens ->     handshake, fetch        every produce connection is checked (faults: T18)
                   - ready ->     listener
    OwnedTasks     - crashed ->   listener
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from aiokprod.cluster.cluster_listener import ClusterListener
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.control import ControlRoute
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.dns import canonical_servers
from aiokprod.cluster.dialing.handshake import Endpoint, open_connection
from aiokprod.cluster.dialing.lookups import Lookups
from aiokprod.cluster.metadata.bootstrap import BootstrapServers
from aiokprod.cluster.metadata.cache import MetadataCache, delivery_timeout_s
from aiokprod.cluster.metadata.fetch import check_cluster, fetch_metadata
from aiokprod.cluster.metadata.snapshot import BrokerNode, ClusterSnapshot
from aiokprod.cluster.outage_lines import OutageLines
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.cluster.pool import BrokerPool, Purpose
from aiokprod.cluster.topic_lines import TopicLines
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BootstrapError,
    ClusterError,
    ClusterIdMismatchError,
    ConnectionLostError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.logs import StateLog, printable
from aiokprod.metrics import Metrics
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataResponse

REFUSALS_PASS_S: Final = 10.0
"""How long a `start` goes on while servers refuse a token: those of MSK refuse logins above their rate so (`# faults: S8`)."""

HOPELESS: Final = (AuthenticationError, TlsError, UnsupportedVersionError)
"""Errors that end a `start` at once, if no bootstrap server fails with any other (`# faults: S1, S8`)."""


LOOKUPS_AT_ONCE: Final = 3
"""Look-ups of brokers' names at a time. They take threads of the application's default pool, which has 5 at least, or of
uvloop's for look-ups, which has 4, and a slow name server holds each for 20 s (`# faults: N17`)."""

LONGEST_PATIENCE_S: Final = 1.0
"""The most seconds that dials of known brokers get before the bootstrap servers are dialled too."""


class ClusterParts:
    """The parts of a started client.

    Args:
        config: the options of the producer.
        metrics: the metrics of the producer.
        listener: the receiver of the client's events.
        settings: the parameters of a dial.
        clock: monotonic seconds; the time of the loop if not given.
        random: the source of jitter and choices.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metrics: Metrics,
        listener: ClusterListener,
        settings: ConnectionSettings,
        *,
        clock: Callable[[], float] | None,
        random: Random,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
        self._metrics = metrics
        self._listener = listener
        self._clock = clock or loop.time
        self.log = StateLog("cluster", client_id=config.client_id)
        self._lines = OutageLines(self.log)
        self._asked_at = 0.0  # when the newest Metadata request began
        self._topic_lines = TopicLines(self.log, config.longest_block, may_create=config.allow_auto_create_topics)
        # Of the newest epoch: brokers that are told of a change later than others still answer with the former one.
        self.finalized_features: Mapping[str, int] = {}
        self._features_epoch = -1
        self._refused_since: float | None = None  # servers refuse our token, and none has answered since
        self._strange_since: float | None = None  # another cluster answered, and ours has not since (faults: T18, T22)
        self.arrived: asyncio.Future[None] = loop.create_future()  # done at the first answer; fails if none will come
        self.tasks = OwnedTasks(self._crashed)
        tokens = None if settings.tokens is None else settings.tokens.owned(self.tasks.spawn)
        self._settings = replace(settings, lookups=Lookups(LOOKUPS_AT_ONCE, self.tasks.spawn), tokens=tokens)
        self.pool = BrokerPool(
            config,
            open_connection=self._open,
            tasks=self.tasks,
            ready=listener.connection_ready,
            failed=listener.dial_failed,
            all_lost=self._all_lost,
            clock=self._clock,
            random=random,
        )
        is_canonical = config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only"
        self.bootstrap = BootstrapServers(config.bootstrap_addresses, canonical_servers if is_canonical else None)
        self.route = ControlRoute(
            self.pool,
            self.bootstrap,
            may_rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
            random=random,
            patience_s=min(LONGEST_PATIENCE_S, delivery_timeout_s(config) / 16),
            may_pass=self._may_pass,
            subject=f"metadata [{config.client_id}]",
        )
        self._slow_after_s = min(config.request_timeout_ms / 2000, delivery_timeout_s(config) / 8)
        self.cache = MetadataCache(
            config,
            fetch=self._fetch,
            changed=self._changed,
            answered=self._answered,
            failed=self._failed,
            clock=self._clock,
            random=random,
        )

    def begin(self) -> None:
        """Ask for the first snapshot, and keep it up to date from then on."""
        self.cache.refresh("the client starts")
        self.tasks.spawn(self.cache.run(), "metadata")

    async def close(self) -> None:
        """End tasks and connections; see `ClusterClient.close`."""
        cause = ConnectionLostError("the client is closed")
        self.cache.end(cause)
        self._give_up_start(cause)
        if self._settings.tokens is not None:
            self._settings.tokens.close()
        await self.tasks.close()
        await self.pool.close(cause)

    # ------------------------------------------------------------------ asked by the cache

    async def _fetch(self, topics: list[str], timeout_s: float) -> MetadataResponse:
        """Send one Metadata request to one broker and return its answer."""
        self._asked_at = self._clock()
        snapshot = self.cache.snapshot
        connection = await self.route.connection(snapshot.brokers)
        began = self._clock()
        try:
            answer = await fetch_metadata(
                connection,
                topics,
                cluster_id=snapshot.cluster_id,
                allow_auto_topic_creation=self._config.allow_auto_create_topics
                and all(map(self.cache.is_awaited, topics)),
                timeout_s=timeout_s,
            )
        except AiokprodError as error:
            self.route.failed(connection, error)
            raise
        self.route.answered(connection)
        self._metrics.metadata_seconds.record(self._clock() - began)
        return answer

    def _changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """Pass on a new snapshot: to the pool first, so that a listener that dials gets the new addresses."""
        if new.brokers is not old.brokers:
            self.pool.know(new.brokers.values())
        self._topic_lines.changed(old, new, self._clock())
        if old.version == 0:
            self.log.moved("SEARCHING", "CONNECTED", f"cluster {new.cluster_id}, {len(new.brokers)} brokers")
        self._listener.snapshot_changed(old, new)

    def _answered(self) -> None:
        """Note that a Metadata answer came and was accepted."""
        self._strange_since = self._refused_since = None
        self._lines.metadata_came(self._clock())
        self._metrics.metadata_refreshes.add()
        self.route.succeeded(self.cache.snapshot.brokers.values())
        self._topic_lines.answered(self.cache.snapshot, self._clock())
        if not self.arrived.done():
            self.arrived.set_result(None)

    def _failed(self, error: AiokprodError) -> None:
        """Log a failed refresh, and decide whether to start again at the bootstrap servers or to give up starting."""
        self._metrics.metadata_errors.add()
        if isinstance(error, ClusterIdMismatchError):
            if self._strange_since is None:
                self._strange_since = self._clock()
                self.log.failed(error)  # as an error, once until our cluster answers again
            self._give_up_strangers(error, self._strange_since)
        self._lines.metadata_failed(error, self._asked_at, self._clock())
        hopeless = _hopeless(error)
        if hopeless is not None and not self._will_be_asked_again(hopeless, error):
            self._give_up_start(hopeless)
        failing_since = self.cache.failing_since
        if error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.route.rebootstrap("a broker asked for it")
        elif failing_since is not None:
            failing_s = self._clock() - failing_since
            if failing_s >= self._config.metadata_recovery_rebootstrap_trigger_ms / 1000:
                self.route.rebootstrap(f"no metadata came for {failing_s:.0f} s")

    def _may_pass(self, error: AiokprodError) -> bool:
        """Return whether a server that refuses us may accept us later: it has refused a token, and those lock no account."""
        return self._config.sasl_mechanism == "OAUTHBEARER" and error.code == ErrorCode.SASL_AUTHENTICATION_FAILED

    def _will_be_asked_again(self, hopeless: AiokprodError, error: AiokprodError) -> bool:
        """Return whether a refusal may pass, and has not lasted for long at all servers."""
        if not self._may_pass(hopeless):
            return False
        if self._refused_since is None:
            self._refused_since = self._clock()
        causes = [cause for _, _, cause in error.tried] if isinstance(error, BootstrapError) else [error]
        are_all = all(isinstance(cause, HOPELESS) for cause in causes)
        return not are_all or self._clock() - self._refused_since < REFUSALS_PASS_S

    def _give_up_strangers(self, error: ClusterIdMismatchError, since: float) -> None:
        """End the producer if another cluster has taken the place of ours for long enough.

        A name may lead elsewhere for a while, so every server, or every known broker, must belong to the other cluster
        for a request timeout; if some of them cannot be reached, for the time after which a rebootstrap is due.

        Raises:
            ClusterIdMismatchError: it has been long enough; the error ends the cache's task, and so the producer.
        """
        strange_s = self._clock() - since
        are_all = self.route.are_strangers(self.cache.snapshot.brokers)
        patience_ms = (
            self._config.request_timeout_ms if are_all else self._config.metadata_recovery_rebootstrap_trigger_ms
        )
        if strange_s * 1000 >= max(patience_ms, self._config.request_timeout_ms):
            told = ClusterIdMismatchError(
                f"another cluster has answered for {strange_s:.0f} s, and ours has not: {error.message}",
                broker=error.broker,
            )
            told.__cause__ = error
            raise told

    def _give_up_start(self, error: AiokprodError) -> None:
        if not self.arrived.done():
            self.arrived.set_exception(error)
            self.arrived.exception()  # retrieved: after start_in_background no task awaits it, and asyncio would log it

    def _all_lost(self) -> None:
        """Ask for metadata to find out whether the brokers are there: an idle producer would notice minutes later."""
        self.cache.refresh("the last connection was lost")

    # ------------------------------------------------------------------ told by the client

    def look_for(self, node_id: int, why: str) -> None:
        """Ask another broker than the last one for metadata: a broker cannot be reached by what is known of it."""
        # Its id is from an answer that may be newer than the snapshot, and is used again and again. Without topics of interest
        # no error of theirs asks for metadata, and the next refresh by age is minutes away. (faults: B12, B13)
        self.route.doubt()
        self.cache.refresh(f"broker {node_id} {why}")

    # ------------------------------------------------------------------ asked by the pool

    async def _open(self, node: BrokerNode, purpose: Purpose, timeout_s: float) -> BrokerConnection:
        # Records wait for a produce connection: ask whether the cluster has moved before the dial times out. (faults: T21)
        is_produce = purpose is Purpose.PRODUCE
        why = f"broker {node.id} is slow"
        slow = (
            asyncio.get_running_loop().call_later(self._slow_after_s, self.cache.refresh, why) if is_produce else None
        )
        began = self._clock()
        try:
            connection = await self._open_checked(node, purpose, timeout_s)
        except AiokprodError as error:
            self._metrics.connections_failed.add()
            self._lines.dial_failed(node.id, error, began, self._clock(), is_alone=not self.pool.brokers_connected())
            raise
        finally:
            if slow is not None:
                slow.cancel()
        if is_produce:
            connection.tell_slow(self._slow_after_s, partial(self.cache.refresh, why))
        self._lines.dial_succeeded(node.id, self._clock())
        self._metrics.connections_opened.add()
        self._metrics.connection_setup_seconds.record(self._clock() - began)
        self._metrics.connections_open.add(1)
        connection.add_close_callback(self._count_closed)
        return connection

    async def _open_checked(self, node: BrokerNode, purpose: Purpose, timeout_s: float) -> BrokerConnection:
        endpoint = Endpoint(host=node.host, port=node.port, node_id=node.id)
        connection = await open_connection(endpoint, self._settings, timeout_s=timeout_s)
        cluster_id = self.cache.snapshot.cluster_id
        if connection.versions.features_epoch > self._features_epoch:
            self._features_epoch = connection.versions.features_epoch
            self.finalized_features = connection.versions.finalized_features
        if purpose is Purpose.PRODUCE and cluster_id is not None:
            # An address may lead elsewhere after a while (a new cluster under the old names), and that cluster would accept
            # Produce requests by topic name. The check costs one round trip per dial.
            try:
                await check_cluster(connection, cluster_id, timeout_s=timeout_s)
            except BaseException:
                connection.close(
                    ConnectionLostError("the cluster id could not be checked", host=node.host, port=node.port)
                )
                raise
        return connection

    def _count_closed(self, connection: BrokerConnection, cause: Exception) -> None:
        self._metrics.connections_open.add(-1)
        self._metrics.connections_lost.add()

    # ------------------------------------------------------------------ told by the tasks

    def _crashed(self, cause: BaseException) -> None:
        error = ClusterError(f"the client crashed: {type(cause).__name__}: {printable(cause)}")
        error.__cause__ = cause
        self._give_up_start(error)
        self._listener.crashed(cause)

    def __repr__(self) -> str:
        return f"<ClusterParts {self.cache}, {self.pool}, {self.tasks}>"


def _hopeless(error: AiokprodError) -> AiokprodError | None:
    """Return the error that ends a `start`: wrong credentials at any server, or bad TLS or versions at all."""
    if isinstance(error, AuthenticationError):
        return error
    if not isinstance(error, BootstrapError):
        return None
    causes = [cause for _, _, cause in error.tried if isinstance(cause, AiokprodError)]
    refusals = [cause for cause in causes if isinstance(cause, AuthenticationError)]
    if not refusals and not all(isinstance(cause, HOPELESS) for cause in causes):
        return None
    told = (refusals or causes)[0].clone()
    if len(causes) > 1:
        told.add_note(error.message)
    return told
