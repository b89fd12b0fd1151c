"""`TopicDispatcher`: stage 1. One per topic: which partition a record goes to.

While the partitions are unknown, records are parked in the order they came and leave before newer ones. A record for a
partition that does not exist waits for one refresh of the metadata. Choosing is a plain call; nothing here is awaited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiokprod.cluster.snapshot import TopicSnapshot
from aiokprod.errors import AiokprodError, PartitionerError, PartitionOutOfRangeError
from aiokprod.pipeline.bulk import BulkSend
from aiokprod.pipeline.delivery import Delivery
from aiokprod.pipeline.parked import ParkedRecord
from aiokprod.pipeline.partitioners import TopicPartitioner
from aiokprod.pipeline.ports import IntakeQueue


class TopicDispatcher:
    """Partition choice of one topic, and the records that wait for it."""

    def __init__(
        self,
        topic: str,
        partitioner: TopicPartitioner,
        make_queue: Callable[[TopicSnapshot, int], IntakeQueue],
        passed_on: Callable[[ParkedRecord], None],
        fail: Callable[[ParkedRecord, AiokprodError], None],
    ) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.queues: dict[int, IntakeQueue] = {}
        self.snapshot: TopicSnapshot | None = None
        self.is_known = False  # partitions are known: records need not park
        self.parked: deque[ParkedRecord] = deque()  # waiting for the partitions
        self.out_of_range: deque[ParkedRecord] = deque()  # waiting for one refresh
        self.count = 0  # partitions
        self._by_number: list[IntakeQueue | None] = []  # the same queues, for the hot path: one cell for each partition
        self._make_queue = make_queue
        self._passed_on = passed_on
        self._fail = fail

    # ------------------------------------------------------------------ records
    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> Delivery:
        """Give a record to its partition. Only while `is_known`, and with a partition in range."""
        if partition is None:
            partition = self.partitioner.choose(key, size_bytes)
        queue = self._by_number[partition]
        if queue is None:
            queue = self._open(partition)
        return queue.append(value, key, headers, timestamp_ms, size_bytes, now)

    def append_to(self, bulk: BulkSend, value: bytes, timestamp_ms: int, size_bytes: int, now: float) -> None:
        """`append` for a record of `send_many`, which has no Delivery of its own."""
        partition = self.partitioner.choose(None, size_bytes)
        queue = self._by_number[partition]
        if queue is None:
            queue = self._open(partition)
        queue.append_to(bulk, value, timestamp_ms, size_bytes, now)

    def queue_of(self, partition: int) -> IntakeQueue:
        """The queue of a partition that exists."""
        queue = self._by_number[partition]
        return self._open(partition) if queue is None else queue

    def in_range(self, partition: int | None) -> bool:
        """Does the partition exist, as far as we know?"""
        return partition is None or partition < self.count

    def accept(self, record: ParkedRecord) -> bool:
        """Give a parked record to its partition, or park it here; True: metadata is wanted for it."""
        if not self.is_known:
            record.place = "waiting for metadata"
            self.parked.append(record)
            return True
        if not self.in_range(record.partition):
            record.place = f"waiting for partition {record.partition} to exist"
            self.out_of_range.append(record)
            return True
        self._pass_on(record)
        return False

    def _pass_on(self, record: ParkedRecord) -> None:
        partition = record.partition
        if partition is None:
            try:
                partition = self.partitioner.choose(record.key, record.size_bytes)
            except PartitionerError as broken:  # the user's: this record's failure, nobody else's
                broken.topic = self.topic
                self._fail(record, broken)
                return
        queue = self.queues.get(partition)
        if queue is None:
            queue = self._open(partition)
        queue.append_parked(record)
        self._passed_on(record)

    def _open(self, partition: int) -> IntakeQueue:
        assert self.snapshot is not None
        queue = self.queues[partition] = self._by_number[partition] = self._make_queue(self.snapshot, partition)
        return queue

    def forget(self, record: ParkedRecord) -> bool:
        """The record leaves (recalled, timed out); False if it is not parked here."""
        for line in (self.parked, self.out_of_range):
            if record in line:
                line.remove(record)
                return True
        return False

    # ------------------------------------------------------------------ metadata
    def learn(self, snapshot: TopicSnapshot | None, now: float) -> None:
        """Metadata changed: parked records leave in order, before newer ones."""
        if snapshot is None or not snapshot.partitions:
            self.snapshot = None
            self.is_known = False
            return
        self.snapshot = snapshot
        self.count = len(snapshot.partitions)
        self._by_number = [self.queues.get(partition) for partition in range(self.count)]
        available = [p.partition for p in snapshot.partitions if p.leader_id >= 0]
        self.partitioner.update(self.count, available, now)
        self.is_known = True
        while self.parked:
            record = self.parked.popleft()
            if self.in_range(record.partition):
                self._pass_on(record)
            else:
                self._refuse(record)
        waiting, self.out_of_range = self.out_of_range, deque()
        for record in waiting:
            if self.in_range(record.partition):
                self._pass_on(record)
            else:
                self._refuse(record)

    def _refuse(self, record: ParkedRecord) -> None:
        self._fail(
            record,
            PartitionOutOfRangeError(
                f"partition {record.partition} does not exist: topic {self.topic!r} has partitions 0 to {self.count - 1}",
                topic=self.topic,
                partition=record.partition,
            ),
        )

    @property
    def waiting_count(self) -> int:
        """Records that wait here."""
        return len(self.parked) + len(self.out_of_range)

    def overdue(self, now: float) -> list[ParkedRecord]:
        """Take out the parked records that have waited for as long as they may."""
        late = [record for line in (self.parked, self.out_of_range) for record in line if record.block_deadline <= now]
        if late:
            self.parked = deque(record for record in self.parked if record.block_deadline > now)
            self.out_of_range = deque(record for record in self.out_of_range if record.block_deadline > now)
        return late

    def next_deadline(self) -> float | None:
        """When the first of them has waited for as long as it may; None: nobody waits."""
        return min((line[0].block_deadline for line in (self.parked, self.out_of_range) if line), default=None)

    def abandon(self) -> list[ParkedRecord]:
        """Closing: everything parked here."""
        records = [*self.parked, *self.out_of_range]
        self.parked.clear()
        self.out_of_range.clear()
        return records

    def __repr__(self) -> str:
        return f"<TopicDispatcher {self.topic}: {self.count} partitions, {len(self.parked)} parked>"
