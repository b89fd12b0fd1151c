"""`ClusterParts`: what a client is made of between start and close, joined. The only file that knows all of them.

One per start, on one loop. The parts do not know each other; what one has to tell goes through here:

    MetadataCache  - asks ->      ControlRoute, fetch     one request to one broker
                   - changed ->   BrokerPool, listener    connections follow the broker list, then the pipeline
                   - failed ->    ControlRoute            begin again at the bootstrap servers; give up starting
    BrokerPool     - opens ->     handshake, fetch        every produce connection leads to our cluster (faults: T18)
                   - ready ->     listener
    OwnedTasks     - crashed ->   listener
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from aiokprod.cluster.bootstrap import BootstrapServers
from aiokprod.cluster.cluster_listener import ClusterListener
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.connection_settings import ConnectionSettings
from aiokprod.cluster.control import ControlRoute
from aiokprod.cluster.dns import canonical_servers
from aiokprod.cluster.fetch import check_cluster, fetch_metadata
from aiokprod.cluster.handshake import Endpoint, open_connection
from aiokprod.cluster.metadata import MetadataCache, delivery_timeout_s
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.cluster.pool import BrokerPool, Purpose
from aiokprod.cluster.snapshot import BrokerNode, ClusterSnapshot
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

HOPELESS: Final = (AuthenticationError, TlsError, UnsupportedVersionError)
"""`start` does not wait for these to get better, if no bootstrap server says anything else (`# faults: S1, S8`)."""


UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
TOLD_TOPICS: Final = 3  # named in one line

LONGEST_PATIENCE_S: Final = 1.0
"""How long known brokers that answer no dial are waited for before the bootstrap servers are asked as well."""


class ClusterParts:
    """A client at work.

    Args:
        config: of the producer.
        metrics: of the producer.
        listener: told of what changes.
        settings: how to connect.
        clock: seconds, monotonic; the time of the loop if not given.
        random: for jitter and choices.
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
        self._settings = settings
        self._clock = clock or loop.time
        self.log = StateLog("cluster", client_id=config.client_id)
        self._strange_since: float | None = None  # another cluster answered, and ours has not since (faults: T18, T22)
        self.arrived: asyncio.Future[None] = loop.create_future()  # the first answer, or why there will be none
        self.tasks = OwnedTasks(self._crashed)
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
        """Ask for the first snapshot, and keep it fresh from then on."""
        self.cache.refresh("the client starts")
        self.tasks.spawn(self.cache.run(), "metadata")

    async def close(self) -> None:
        """End tasks and connections; see `ClusterClient.close`."""
        cause = ConnectionLostError("the client is closed")
        self.cache.end(cause)
        self._give_up_start(cause)
        await self.tasks.close()
        await self.pool.close(cause)

    # -- asked by the cache ---------------------------------------------------------------------------------------

    async def _fetch(self, topics: list[str], timeout_s: float) -> MetadataResponse:
        """One Metadata request to one broker."""
        snapshot = self.cache.snapshot
        connection = await self.route.connection(snapshot.brokers)
        began = self._clock()
        try:
            answer = await fetch_metadata(
                connection,
                topics,
                cluster_id=snapshot.cluster_id,
                allow_auto_topic_creation=self._config.allow_auto_create_topics,
                timeout_s=timeout_s,
            )
        except AiokprodError as error:
            self.route.failed(connection, error)
            raise
        self._metrics.metadata_seconds.record(self._clock() - began)
        return answer

    def _changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """A new snapshot: connections first, so that whoever is told dials the right addresses."""
        if new.brokers is not old.brokers:
            self.pool.know(new.brokers.values())
        self._tell_unknown(old, new)
        if old.version == 0:
            self.log.moved("SEARCHING", "CONNECTED", f"cluster {new.cluster_id}, {len(new.brokers)} brokers")
        self._listener.snapshot_changed(old, new)

    def _tell_unknown(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """The first answer that a topic is not there: without a word, the wait for it would look like a hang."""
        unknown = [
            name
            for name, topic in new.topics.items()
            if topic.error_code == UNKNOWN and ((known := old.topics.get(name)) is None or known.error_code != UNKNOWN)
        ]
        if not unknown:
            return
        names = ", ".join(repr(name) for name in unknown[:TOLD_TOPICS])
        more = f" and {len(unknown) - TOLD_TOPICS} more" if len(unknown) > TOLD_TOPICS else ""
        how = (
            "brokers do that themselves if auto.create.topics.enable is on"
            if self._config.allow_auto_create_topics
            else "brokers are not asked to do that, because allow_auto_create_topics is off"
        )
        self.log.warned(
            f"unknown {names}{more}",
            f"the cluster does not know {'topic' if len(unknown) == 1 else 'topics'} {names}{more}: records wait up to"
            f" {self._config.max_block_ms / 1000:g} s (max_block_ms) for it to be created ({how})",
        )

    def _answered(self) -> None:
        """A Metadata answer came and was believed."""
        self._strange_since = None
        self._metrics.metadata_refreshes.add()
        self.route.succeeded(self.cache.snapshot.brokers.values())
        if not self.arrived.done():
            self.arrived.set_result(None)

    def _failed(self, error: AiokprodError) -> None:
        """A refresh failed: say so, and see whether to begin again, or to give up starting."""
        self._metrics.metadata_errors.add()
        if isinstance(error, ClusterIdMismatchError):
            if self._strange_since is None:
                self._strange_since = self._clock()
                self.log.failed(error)  # loudly, once until it is right again
            self._give_up_strangers(error, self._strange_since)
        self.log.warned(f"metadata {type(error).__name__}", f"metadata could not be refreshed: {error}")
        hopeless = _hopeless(error)
        if hopeless is not None:
            self._give_up_start(hopeless)
        failing_since = self.cache.failing_since
        if error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.route.rebootstrap("a broker asked for it")
        elif failing_since is not None:
            failing_s = self._clock() - failing_since
            if failing_s >= self._config.metadata_recovery_rebootstrap_trigger_ms / 1000:
                self.route.rebootstrap(f"no metadata came for {failing_s:.0f} s")

    def _give_up_strangers(self, error: ClusterIdMismatchError, since: float) -> None:
        """The cluster was built again under its old names, it seems: end with that, instead of waiting for ever.

        A name may lead elsewhere for a while, so it takes a request timeout in which every server, or every broker known,
        belongs to the other cluster; where some of them cannot be reached, as long as a rebootstrap takes.

        Raises:
            ClusterIdMismatchError: enough of it; it ends the cache's task, and so the producer.
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
            self.arrived.exception()  # seen: after start_in_background nobody awaits it

    def _all_lost(self) -> None:
        """Are the brokers there? A producer that has nothing to send would learn it minutes later."""
        self.cache.refresh("the last connection was lost")

    # -- asked by the pool ----------------------------------------------------------------------------------------

    async def _open(self, node: BrokerNode, purpose: Purpose, timeout_s: float) -> BrokerConnection:
        # Where records wait, whether the cluster has moved is asked before the broker's time is over (faults: T21).
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
            self.log.warned(f"dial {node.id}", f"broker {node.id} cannot be used: {error}", broker=node.id)
            raise
        finally:
            if slow is not None:
                slow.cancel()
        if is_produce:
            connection.tell_slow(self._slow_after_s, partial(self.cache.refresh, why))
        self._metrics.connections_opened.add()
        self._metrics.connection_setup_seconds.record(self._clock() - began)
        self._metrics.connections_open.add(1)
        connection.add_close_callback(self._count_closed)
        return connection

    async def _open_checked(self, node: BrokerNode, purpose: Purpose, timeout_s: float) -> BrokerConnection:
        endpoint = Endpoint(host=node.host, port=node.port, node_id=node.id)
        connection = await open_connection(endpoint, self._settings, timeout_s=timeout_s)
        cluster_id = self.cache.snapshot.cluster_id
        if purpose is Purpose.PRODUCE and cluster_id is not None:
            # An address may come to lead elsewhere (a new cluster under the old names), and a Produce by topic name
            # would be taken there. It costs one round trip per dial.
            try:
                await check_cluster(connection, cluster_id, timeout_s=timeout_s)
            except BaseException:
                connection.close(
                    ConnectionLostError("which cluster it is was not learned", host=node.host, port=node.port)
                )
                raise
        return connection

    def _count_closed(self, connection: BrokerConnection, cause: Exception) -> None:
        self._metrics.connections_open.add(-1)
        self._metrics.connections_lost.add()

    # -- told by the tasks ----------------------------------------------------------------------------------------

    def _crashed(self, cause: BaseException) -> None:
        error = ClusterError(f"the client crashed: {type(cause).__name__}: {printable(cause)}")
        error.__cause__ = cause
        self._give_up_start(error)
        self._listener.crashed(cause)

    def __repr__(self) -> str:
        return f"<ClusterParts {self.cache}, {self.pool}, {self.tasks}>"


def _hopeless(error: AiokprodError) -> AiokprodError | None:
    """What `start` gives up for: wrong credentials anywhere, or bad TLS or versions everywhere."""
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
