"""Transactions of a `MemoryProducer`: the real state machine, coordinators that answer at once, and a log that waits for them.

Records that are delivered inside a transaction are not seen before it is committed, and never if it is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.errors import AiokprodError
from aiokprod.pipeline.effects import Effects
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.testing.memory.cluster import MemoryCluster
from aiokprod.testing.memory.log import MemoryLog
from aiokprod.testing.memory.partition import MemoryPartition
from aiokprod.transactions.coordinator import CoordinatorKind, Coordinators
from aiokprod.transactions.machine_actions import Mode, Partition
from aiokprod.transactions.prepared import PreparedPartition
from aiokprod.transactions.transactor import Transactor
from aiokprod.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdResponse
from aiokprod.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


class MemoryCoordinators(Coordinators):
    """The coordinators of all ids and groups, as brokers with transaction.version 2."""

    def __init__(self, client: MemoryCluster, log: MemoryLog) -> None:
        super().__init__(client, 1.0)
        self._log = log
        self._epoch = 0

    async def ask(self, kind: CoordinatorKind, key: str, message: RequestMessage, highest: int) -> Any:
        """Answer the request: everything that is asked for is done."""
        if isinstance(message, EndTxnRequest):
            if message.producer_epoch == self._epoch:  # the end before, asked for again, ends nothing
                self._log.end_transaction(commits=message.committed)
                self._epoch += 1
            return EndTxnResponse(producer_id=message.producer_id, producer_epoch=self._epoch)
        if isinstance(message, TxnOffsetCommitRequest):
            return _taken(message)
        if isinstance(message, OffsetFetchRequest):
            return _without_offsets(message)
        return InitProducerIdResponse(producer_id=1, producer_epoch=self._epoch)


def _taken(message: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(partition.partition_index) for partition in topic.partitions],
            )
            for topic in message.topics
        ]
    )


def _without_offsets(message: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answer that nothing is committed: groups are not kept here, so a consumer in a test stays where it is."""
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name, [OffsetFetchResponsePartition(number, -1) for number in topic.partition_indexes]
            )
            for topic in message.topics or ()
        ]
    )


class MemoryRecords:
    """The records of a memory pipeline, as their transaction sees them."""

    def __init__(self, effects: Effects, parking: Parking, partitions: Sequence[MemoryPartition]) -> None:
        self._effects = effects
        self._parking = parking
        self._partitions = partitions

    def take_records(self, is_open: bool, refusal: Callable[[], AiokprodError]) -> None:
        """Let records in from now on, or refuse them."""
        self._parking.take_records(is_open, refusal)

    def began(self, number: int, mode: Mode) -> None:
        """Ignore the call: records are in no batches here."""

    def take_identity(self, identity: tuple[int, int]) -> None:
        """Ignore the call: records have no sequence numbers here."""

    def take_id(self, transactional_id: str) -> None:
        """Ignore the call: no request names the id."""

    def renew_identity(self) -> None:
        """Ignore the call: records have no sequence numbers here."""

    def release(self, partitions: tuple[Partition, ...]) -> None:
        """Ignore the call: no partition waits."""

    def fail_partition(self, partition: Partition, error: AiokprodError) -> None:
        """Ignore the call: no partition is refused."""

    def fail_queued(self, error: AiokprodError, mode: Mode) -> bool:
        """Fail what has no outcome yet; no answers are due."""
        self._effects.begin()
        try:
            for partition in self._partitions:
                partition.purge(error.clone)
            self._parking.fail_all(lambda record: error.clone())
        finally:
            self._effects.end()
        return False

    def written(self) -> tuple[PreparedPartition, ...]:
        """Return nothing: a transaction of a MemoryProducer is not prepared."""
        return ()


def memory_transactor(
    context: PipelineContext,
    client: MemoryCluster,
    log: MemoryLog,
    parking: Parking,
    partitions: Sequence[MemoryPartition],
) -> Transactor:
    """Return the transactions of one start of a MemoryProducer."""
    transactor = Transactor(
        context.config,
        MemoryCoordinators(client, log),
        lambda: {"transaction.version": 2},
        context.loop,
        context.tasks.spawn,
        context.random,
        context.metrics,
        context.effects.crashed,
    )
    transactor.records = MemoryRecords(context.effects, parking, partitions)
    transactor.tell_end = context.reports.transaction_ended
    context.reports.on_failure = partial(transactor.failed_later, later=context.effects.after)
    return transactor
