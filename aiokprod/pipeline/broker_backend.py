"""`BrokerBackend`: the backend of every producer but those of tests. It makes the stages, and hands each what it uses.

    Parking -> TopicDispatcher -> PartitionQueue -> Brokers -> BrokerAggregator -> BrokerFlusher -> connection
                                         ^                                              |
                                         +-- RetryHandler <-- PartitionQueue.apply <----+  answers

No stage holds it: it is called by the pipeline (flush, purge, end), by `Parking` (a new partition, no room) and by the
cluster (metadata, connections).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aiokprod.backoff import Backoff
from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.metadata.snapshot import ClusterSnapshot, TopicSnapshot
from aiokprod.liveness import Stall
from aiokprod.model import Persistence
from aiokprod.pipeline.backend import Backend
from aiokprod.pipeline.broker.brokers import Brokers
from aiokprod.pipeline.broker.compressing import CompressingThreads
from aiokprod.pipeline.broker.retry import RetryHandler
from aiokprod.pipeline.inspection import measure, unsettled
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.ledger import Ledger
from aiokprod.pipeline.partition.partition_queue import PartitionQueue, TransactionScope
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.partition.verdicts import is_topic_refused
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.pipeline.timer_queue import TimerQueue
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.randomness import new_random
from aiokprod.transactions.identity import ProducerIdKeeper

if TYPE_CHECKING:  # imported where they are made: a plain producer starts without them
    from aiokprod.explanation import Obstacle
    from aiokprod.telemetry.pusher import TelemetryPusher
    from aiokprod.transactions.transactor import Transactor


class BrokerBackend(Backend, ClusterListener):
    """The stages from `Parking` to the brokers' connections."""

    def __init__(self, context: PipelineContext) -> None:
        config, settings = context.config, context.settings
        self.client = ClusterClient(config, context.metrics, self)
        self.parking = Parking(context, self.client, self._make_queue, self._hurry)
        self.partitions: list[PartitionQueue] = []  # every one that ever got a record
        self.transactor = None
        self._scope: TransactionScope | None = None
        if config.transactional_id is not None:
            from aiokprod.pipeline.transactional import TransactionalPartitions

            transactor = self.transactor = self._make_transactor(context)
            scope = TransactionalPartitions(context, self.parking, self.partitions, transactor)
            transactor.records = self._scope = scope
            transactor.tell_end = context.reports.transaction_ended
        self.brokers = Brokers(context, self.client, self._scope)
        self.retry = RetryHandler(context, self.brokers.flushers, self.client, ProducerIdKeeper(self.client, config))
        self._context = context
        self._settings = settings
        self._effects = context.effects
        self._compressing = CompressingThreads(settings.codec, settings.codec_level, context.tasks.spawn)
        self.telemetry = self._make_telemetry(context) if config.enable_metrics_push else None
        self._expiries: TimerQueue[PartitionQueue] = TimerQueue(context.loop, PartitionQueue.look, 1)
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._is_ended = False
        self._purged = 0  # partitions that `purge_some` is done with

    def _make_transactor(self, context: PipelineContext) -> Transactor:
        from aiokprod.transactions.coordinator import Coordinators
        from aiokprod.transactions.transactor import Transactor

        client = self.client
        return Transactor(
            context.config,
            Coordinators(client, context.settings.request_timeout_s),
            lambda: client.finalized_features,
            context.loop,
            context.tasks.spawn,
            context.random,
            context.metrics,
            context.effects.crashed,
        )

    def _make_telemetry(self, context: PipelineContext) -> TelemetryPusher:
        from aiokprod.telemetry.pusher import TelemetryPusher

        return TelemetryPusher(
            self.client,
            context.metrics,
            lambda: measure(context.metrics, self.parking, self.requests_in_flight(), context.loop.time()),
            context.tasks.spawn,
            new_random,
            context.log,
            wall_s,
            context.settings.request_timeout_s,
            context.config.transactional_id,
            context.defects.caught,
        )

    # ------------------------------------------------------------------ asked by Parking
    def _make_queue(
        self, on_new_batch: Callable[[int], None], fill: BatchFill, snapshot: TopicSnapshot, number: int
    ) -> PartitionQueue:
        """Make the queue of a partition, for its first record."""
        settings = self._settings
        leader = snapshot.partitions[number]
        is_transactional = self._scope is not None  # then each transaction brings the identity
        identity = self.retry.identity if settings.idempotent else None
        ledger = Ledger(
            node=leader.leader_id,
            leader_epoch=leader.leader_epoch,
            topic_id=snapshot.topic_id,
            identity=identity,
            idempotent=settings.idempotent,
            transactional=is_transactional,
            window=settings.requests_in_flight if settings.idempotent else 1,
            retry_delay=self._retry_delay,
            retries=settings.retries,
        )
        queue = PartitionQueue(
            snapshot.name,
            number,
            ledger,
            self._context,
            self.parking.gate,
            self.brokers,
            self.retry,
            self._compressing.submit,
            self._expiries,
            on_new_batch,
            fill,
            snapshot.incarnation,
            self._scope,
        )
        if settings.idempotent and identity is None and not is_transactional:
            self.retry.need_identity(queue, None, False)
        self.partitions.append(queue)
        return queue

    def _retry_delay(self, attempt: int) -> float:
        return self._backoff.delay_s(attempt, self._context.random.random())

    def _hurry(self) -> None:
        """Look at every open batch: records wait for room, so nothing lingers any more."""
        for queue in self.partitions:
            if queue.open_batch is not None:
                self.brokers.ready(queue)

    # ------------------------------------------------------------------ asked by the pipeline
    def begin(self) -> None:
        if self._settings.idempotent and self._scope is None:
            self.retry.ask_identity()

    def seal(self) -> None:
        for queue in self.partitions:
            queue.seal()  # what is sent from now on goes into another batch, for which this flush does not wait

    def purge(self, cause: BaseException | None) -> None:
        self._each(cause, PartitionQueue.purge)

    def stop_writing(self) -> None:
        self.brokers.end()

    def purge_some(self, most: int) -> bool:
        left = most
        while self._purged < len(self.partitions):
            left -= self.partitions[self._purged].purge_some(left)
            if left <= 0:
                return True
            self._purged += 1
        return False

    def fail(self, cause: BaseException) -> None:
        self._each(cause, PartitionQueue.fail)

    def half_done(self) -> str | None:
        for queue in self.partitions:
            if queue.is_torn:
                return f"{queue.topic}-{queue.partition}"
        return None

    def _each(self, cause: BaseException | None, step: Callable[[PartitionQueue], None]) -> None:
        broken: BaseException | None = None
        for queue in self.partitions:
            queue.texts.crash = cause
            try:
                step(queue)
            except BaseException as bug:
                broken = bug
        if broken is not None:
            raise broken

    def end(self) -> None:
        self._is_ended = True
        self._expiries.stop()
        self.brokers.end()

    def stalls(self, busy: Sequence[RecordQueue], now: float) -> list[Stall]:
        found: list[Stall | None] = [self._effects.stall(), self.retry.stall()]
        found.append(self._expiries.stall("records are due to expire, and nothing looks at them", now))
        found += self.brokers.stalls(now)
        found += self.parking.stalls(now)
        found += self.client.stalls(now)
        if self.transactor is not None:
            found += self.transactor.stalls(now)
        leaderless: PartitionQueue | None = None
        for queue in busy:
            assert isinstance(queue, PartitionQueue)
            found.append(queue.stall(now))
            if queue.ledger.node < 0 and queue.ledger.head() is not None:
                leaderless = queue
        if leaderless is not None and not self.client.is_asking:
            what = "a partition with records has no leader, and metadata is not asked for"
            why = f"{leaderless.topic}-{leaderless.partition} has no leader"
            found.append(Stall(what, self, None, partial(self.client.refresh, why)))
        return [stall for stall in found if stall is not None]

    def unsettled(self) -> dict[tuple[str, int | None, Persistence], int]:
        return unsettled(self.partitions)

    def obstacles(self, now: float) -> list[Obstacle]:
        from aiokprod.pipeline.explaining import of_brokers, of_partitions

        return [*of_brokers(list(self.brokers.flushers.values()), now), *of_partitions(list(self.partitions), now)]

    def requests_in_flight(self) -> dict[int, int]:
        return self.brokers.requests_in_flight()

    # ------------------------------------------------------------------ told by the cluster
    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        self._effects.begin()
        try:
            self._learn(old, new)
        except BaseException as bug:
            self.crashed(bug)
            if not isinstance(bug, Exception):
                raise
        finally:
            self._effects.end()

    def _learn(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """Tell the topics whose metadata changed, and those for which records wait, then their partitions."""
        now = self._context.loop.time()
        for topic, dispatcher in list(self.parking.topics.items()):
            snapshot = new.topics.get(topic)
            if snapshot is old.topics.get(topic) and not dispatcher.waiting:
                continue
            answered = self.client.last_answered(topic)
            if snapshot is not None and is_topic_refused(snapshot.error_code):
                self.parking.refuse_topic(dispatcher, answered)
            usable = snapshot if snapshot is not None and snapshot.error_code == 0 else None
            dispatcher.learn(usable, now, answered)
            if usable is not None:
                for queue in list(dispatcher.queues.values()):
                    assert isinstance(queue, PartitionQueue)
                    queue.learn(usable)

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        self.brokers.connection_ready(node_id, connection)
        if self.telemetry is not None:
            self.telemetry.connected(connection)

    def dial_failed(self, node_id: int, error: Exception) -> None:
        if self._is_ended:
            return
        self.brokers.dial_failed(node_id, error)

    def crashed(self, cause: BaseException) -> None:
        self._effects.crashed(cause)
