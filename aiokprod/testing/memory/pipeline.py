"""`MemoryPipeline`: the pipeline of a `MemoryProducer`. One per start.

    send -> AdmissionGate -> TopicDispatcher -> MemoryPartition -> MemoryLog
            (the real ones: room, waiting, partitioners)     ^
                                                       MemoryBroker, Script: when, and what

Everything before a batch is the real pipeline's, so checks, waiting and errors cannot differ; there are no batches,
requests or brokers behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from aiokprod.cluster.snapshot import TopicSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ProducerFailedError, UndeliveredAtCloseError
from aiokprod.hooks import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import Persistence
from aiokprod.pipeline.assembly import Pipeline
from aiokprod.pipeline.dispatcher import NEWEST, TopicDispatcher
from aiokprod.pipeline.entrance import Entrance
from aiokprod.pipeline.partition_queue import PartitionQueue
from aiokprod.pipeline.partitioners import TopicPartitioner, make_partitioner
from aiokprod.pipeline.unwatched import UnwatchedFailures
from aiokprod.record_metadata import RecordMetadata
from aiokprod.testing.memory.broker import MemoryBroker
from aiokprod.testing.memory.cluster import MemoryCluster
from aiokprod.testing.memory.entrance import MemoryEntrance
from aiokprod.testing.memory.log import MemoryLog
from aiokprod.testing.memory.partition import MemoryPartition
from aiokprod.testing.memory.pending import PendingRecord
from aiokprod.testing.memory.script import Script


class MemoryPipeline(Pipeline):
    """The stages of one producer between start and close."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: Metrics,
        state_log: StateLog,
        unwatched: UnwatchedFailures,
        interceptors: InterceptorChain,
        on_failed: Callable[[BaseException], None],
        log: MemoryLog,
        script: Script,
    ) -> None:
        super().__init__(config, metrics, state_log, unwatched, interceptors, on_failed)
        self.client = MemoryCluster(config, metrics, self, log, self._wanted)
        entrance = MemoryEntrance(
            self,
            self.entrance.gate.limit_bytes,
            self.entrance.gate.waiting_limit_bytes,
            self.client,
            self.flushes,
            metrics,
            interceptors,
            self._make_dispatcher,
            self._wake_all,
        )
        entrance.originals = {}
        self.entrance = entrance
        self.broker = MemoryBroker(self.loop, script, self.crashed)
        self._records = log
        self._script = script

    # ------------------------------------------------------------------ making stages
    async def start(self, timeout_s: float | None) -> None:
        """Nothing can be unreachable."""
        self.start_in_background()

    def _make_dispatcher(self, topic: str, entrance: Entrance) -> TopicDispatcher:
        config = self.config
        partitioner = make_partitioner(
            config.partitioner,
            ignore_keys=config.partitioner_ignore_keys,
            adaptive=config.partitioner_adaptive_partitioning_enable,
            batch_size=config.batch_size,
            random=self.random,
        )
        make_partition = partial(self._make_partition, partitioner)
        return TopicDispatcher(topic, partitioner, make_partition, entrance.passed_on, entrance.fail_parked)

    def _make_partition(self, partitioner: TopicPartitioner, snapshot: TopicSnapshot, number: int) -> MemoryPartition:
        partition = MemoryPartition(
            snapshot.name,
            number,
            self,
            self.metrics,
            self._records,
            self._script,
            self.broker,
            partitioner.on_new_batch,
            self._acknowledge,
        )
        self.broker.partitions.append(partition)
        return partition

    def queues(self) -> Iterator[PartitionQueue]:
        """There are none: nothing lingers and nothing is batched."""
        return iter(())

    def _ask_identity(self) -> None:
        """Nobody numbers the records."""

    # ------------------------------------------------------------------ topics
    def _wanted(self, topic: str) -> None:
        self.loop.call_soon(self._tell_topic, topic)

    def _tell_topic(self, topic: str) -> None:
        """The answer of the cluster: records that wait for the topic go on, or fail."""
        dispatcher = self.entrance.topics.get(topic)
        if dispatcher is None:
            return  # nothing waits for it any more
        snapshot = self.client.topic(topic)
        self.effects.begin()
        try:
            dispatcher.learn(snapshot, self.loop.time())
            if snapshot is None:
                self.entrance.refuse_topic(dispatcher, NEWEST)
        finally:
            self.effects.end()

    async def partitions_for(self, topic: str, timeout_s: float | None) -> list[int]:
        snapshot = self.client.topic(topic)
        if snapshot is None:
            raise self.entrance.unknown_topic(topic, 0.0)
        return [partition.partition for partition in snapshot.partitions]

    # ------------------------------------------------------------------ outcomes
    def _acknowledge(self, record: PendingRecord, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        if self._interceptors:
            self.loop.call_soon(self._interceptors.settled, record, 0, metadata, error)

    def _fail_everything(self, cause: BaseException | None) -> None:
        super()._fail_everything(cause)
        self.broker.stop()
        for partition in self.broker.partitions:
            partition.purge(partial(_error_at_the_end, cause))

    def unsettled(self) -> dict[tuple[str, int | None, Persistence], int]:
        counts = super().unsettled()
        for partition in self.broker.partitions:
            if partition.pending_count:
                counts[partition.topic, partition.partition, Persistence.NOT_PERSISTED] = partition.pending_count
        return counts


def _error_at_the_end(cause: BaseException | None) -> AiokprodError:
    if cause is None:
        return UndeliveredAtCloseError("close() ended before the record was delivered")
    error = ProducerFailedError(f"the producer failed: {cause}")
    error.__cause__ = cause
    return error
