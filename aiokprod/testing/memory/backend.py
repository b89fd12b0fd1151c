"""`MemoryBackend`: what the pipeline of a `MemoryProducer` stands on. One per start.

    send -> AdmissionGate -> TopicDispatcher -> MemoryPartition -> MemoryLog
            (the real ones: room, waiting, partitioners)     ^
                                                       MemoryBroker, Script: when, and what

Everything before a batch is the real pipeline's, so checks, waiting and errors cannot differ; there are no batches,
requests or brokers behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiokprod.cluster.metadata.snapshot import TopicSnapshot
from aiokprod.errors import AiokprodError, ProducerFailedError, UndeliveredAtCloseError
from aiokprod.explanation import Obstacle, ObstacleKind
from aiokprod.model import Persistence
from aiokprod.pipeline.backend import Backend
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.sending.dispatcher import NEWEST
from aiokprod.testing.memory.broker import MemoryBroker
from aiokprod.testing.memory.cluster import MemoryCluster
from aiokprod.testing.memory.log import MemoryLog
from aiokprod.testing.memory.parking import MemoryParking
from aiokprod.testing.memory.partition import MemoryPartition
from aiokprod.testing.memory.script import Script
from aiokprod.testing.memory.transactions import memory_transactor
from aiokprod.transactions.transactor import Transactor


class MemoryBackend(Backend):
    """Partitions in memory, and a cluster that is always there."""

    def __init__(self, context: PipelineContext, log: MemoryLog, script: Script) -> None:
        self.client = MemoryCluster(context.config, context.metrics, log, self._wanted)
        self.parking = MemoryParking(context, self.client, self._make_partition, self._hurry)
        self.broker = MemoryBroker(context.loop, script, context.effects.crashed)
        self._context = context
        self._records = log
        self.transactor: Transactor | None = None
        self.telemetry = None
        self._enter: Callable[[tuple[str, int]], object] | None = None
        if context.config.transactional_id is not None:
            log.end_transaction(commits=False)  # a start ends the transaction that the one before has left open
            transactor = memory_transactor(context, self.client, log, self.parking, self.broker.partitions)
            self.transactor, self._enter = transactor, transactor.enter
        self._script = script

    # ------------------------------------------------------------------ asked by Parking
    def _make_partition(
        self, on_new_batch: Callable[[int], None], fill: BatchFill, snapshot: TopicSnapshot, number: int
    ) -> MemoryPartition:
        partition = MemoryPartition(
            snapshot.name,
            number,
            self._context,
            self.parking.gate,
            self._records,
            self._script,
            self.broker.came,
            self.broker.look_at,
            on_new_batch,
            self._enter,
        )
        self.broker.partitions.append(partition)
        return partition

    def _hurry(self) -> None:
        """Ignore the call: nothing lingers here."""

    # ------------------------------------------------------------------ asked by the pipeline
    def begin(self) -> None:
        """Ignore the call: records have no sequence numbers here."""

    def seal(self) -> None:
        """Ignore the call: nothing is batched here."""

    def purge(self, cause: BaseException | None) -> None:
        self.broker.stop()
        for partition in self.broker.partitions:
            partition.purge(partial(_error_at_the_end, cause))

    def end(self) -> None:
        """`purge` has stopped the only timer."""

    def unsettled(self) -> dict[tuple[str, int | None, Persistence], int]:
        return {
            (partition.topic, partition.partition, Persistence.NOT_PERSISTED): partition.pending_count
            for partition in self.broker.partitions
            if partition.pending_count
        }

    def obstacles(self, now: float) -> list[Obstacle]:
        count = sum(partition.pending_count for partition in list(self.broker.partitions))
        if not self._script.is_held or not count:
            return []
        text = f"the MemoryProducer is held: {count} records wait for release()"
        return [Obstacle(kind=ObstacleKind.HELD, text=text, count=count)]

    def requests_in_flight(self) -> dict[int, int]:
        return {}

    # ------------------------------------------------------------------ topics
    def _wanted(self, topic: str) -> None:
        loop = self._context.loop
        loop.call_soon(loop.call_soon, self._tell_topic, topic)  # as `MemoryBroker`: the second turn of the loop

    def _tell_topic(self, topic: str) -> None:
        """Pass on the cluster's answer about a topic: records that wait for it go on, or fail."""
        dispatcher = self.parking.topics.get(topic)
        if dispatcher is None:
            return  # nothing waits for it any more
        snapshot = self.client.topic(topic)
        effects = self._context.effects
        effects.begin()
        try:
            dispatcher.learn(snapshot, self._context.loop.time())
            if snapshot is None:
                self.parking.refuse_topic(dispatcher, NEWEST)
        finally:
            effects.end()


def _error_at_the_end(cause: BaseException | None) -> AiokprodError:
    if cause is None:
        return UndeliveredAtCloseError("close() ended before the record was delivered")
    error = ProducerFailedError(f"the producer failed: {cause}")
    error.__cause__ = cause
    return error
