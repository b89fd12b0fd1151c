"""`TopicDispatcher`: stage 1. One per topic: which partition a record goes to.

Every accepted record of the topic that is in no batch yet stands in one queue, `waiting`, in the order of the `send` calls,
whatever it waits for. Records come to wait for a serializer, then for room, then for metadata, so the queue has three zones:

    front | wait for metadata, or for their partition to exist | for room | for a serializer | end

A record for a partition that does not exist waits for one refresh of the metadata; it stops later ones for the same partition
only. Choosing is a plain call; nothing here is awaited.

Invariant: a record goes to its partition only when no earlier one of the topic waits that could go to the same partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokprod.errors import AiokprodError, PartitionerError, PartitionOutOfRangeError
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.partition.send_many import SendMany
from aiokprod.pipeline.partition.value_run import ValueRun
from aiokprod.pipeline.sending.partitioners import TopicPartitioner
from aiokprod.waiting import WaitsFor

if TYPE_CHECKING:  # loaded at the start, with what talks to brokers
    from aiokprod.cluster.metadata.snapshot import TopicSnapshot

NEWEST: Final = 1 << 62
"""the answer to any Metadata request: later than every record that waits"""


class TopicDispatcher:
    """Partition choice of one topic, and the records that wait for it."""

    def __init__(
        self,
        topic: str,
        partitioner: TopicPartitioner,
        fill: BatchFill,
        make_queue: Callable[[TopicSnapshot, int], RecordQueue],
        passed_on: Callable[[ParkedRecord], None],
        fail: Callable[[ParkedRecord, AiokprodError], None],
    ) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.fill = fill  # what batches of the topic take; its queues have it too
        self.queues: dict[int, RecordQueue] = {}
        self.snapshot: TopicSnapshot | None = None
        self.is_known = False  # partitions are known, and nothing that waited for them is left: records need not park
        self.waiting: OrderedDict[ParkedRecord, None] = OrderedDict()  # ordered, and left from anywhere at no cost
        self.has_alarm = False  # the parking looks at `waiting` when its oldest record has waited for max.block.ms
        self.count = 0  # partitions
        self._by_number: list[RecordQueue | None] = []  # the same queues, for the hot path: one cell for each partition
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

    def append_for(
        self,
        delivery: Delivery,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> None:
        """Append a record whose Delivery was made before, as it has a timeout."""
        if partition is None:
            partition = self.partitioner.choose(key, size_bytes)
        self.queue_of(partition).append_for(delivery, value, key, headers, timestamp_ms, size_bytes, now)

    def append_to(self, bulk: SendMany, value: bytes, timestamp_ms: int, size_bytes: int, now: float) -> None:
        """Append a record of `send_many`, which has no Delivery of its own."""
        partition = self.partitioner.choose(None, size_bytes)
        queue = self._by_number[partition]
        if queue is None:
            queue = self._open(partition)
        queue.append_to(bulk, value, timestamp_ms, size_bytes, now)

    def append_run(self, bulk: SendMany, run: ValueRun, timestamp_ms: int, now: float) -> None:
        """Append the next of these values, which fits, and those behind it that go with it."""
        partitioner = self.partitioner
        first_bytes = run.first_bytes()
        partition = partitioner.choose(None, first_bytes)
        queue = self._by_number[partition]
        if queue is None:
            queue = self._open(partition)
        queue.append_run(bulk, run, timestamp_ms, now, partitioner.stay_bytes())
        partitioner.stayed(run.total_bytes - first_bytes)

    def queue_of(self, partition: int) -> RecordQueue:
        """Return the queue of a partition that exists."""
        queue = self._by_number[partition]
        return self._open(partition) if queue is None else queue

    def in_range(self, partition: int | None) -> bool:
        """Return whether the partition exists, as far as metadata tells."""
        return partition is None or partition < self.count

    def accept(self, record: ParkedRecord) -> bool:
        """Give a record that has its room to its partition, or keep it here; True: metadata is wanted for it."""
        if not self.is_known:
            record.waits = WaitsFor.METADATA
        elif not self.in_range(record.partition):
            record.waits = WaitsFor.PARTITION
        else:
            self._pass_on(record)
            return False
        self.waiting[record] = None
        return True

    def keep(self, record: ParkedRecord, waits: WaitsFor) -> None:
        """Keep a record that cannot go on yet: its place is behind all that came before."""
        record.waits = waits
        self.waiting[record] = None

    def _pass_on(self, record: ParkedRecord) -> None:
        partition = record.partition
        if partition is None:
            try:
                partition = self.partitioner.choose_for(record.key, record.value, record.size_bytes)
            except PartitionerError as broken:  # the user's: the failure of this record alone
                broken.topic = self.topic
                self._fail(record, broken)
                return
            if record.is_over:
                return  # the partitioner is the user's: it has recalled the very record
        queue = self.queues.get(partition)
        if queue is None:
            queue = self._open(partition)
        queue.append_parked(record)
        self.waiting.pop(record, None)  # behind it: a crash finds the record here or there
        self._passed_on(record)

    def _open(self, partition: int) -> RecordQueue:
        assert self.snapshot is not None
        queue = self.queues.get(partition)
        if queue is None:
            made = self._make_queue(self.snapshot, partition)
            # One for each partition, or its sequence numbers would begin twice: a finalizer may have opened it meanwhile.
            queue = self.queues.setdefault(partition, made)
        self._by_number[partition] = queue
        return queue

    def forget(self, record: ParkedRecord) -> None:
        """Remove a record that has failed, wherever it stands."""
        self.waiting.pop(record, None)

    # ------------------------------------------------------------------ metadata
    def learn(self, snapshot: TopicSnapshot | None, now: float, answered: int = NEWEST) -> None:
        """Take in new metadata: waiting records leave in order, before newer ones.

        Args:
            answered: the number of the last Metadata request whose answer was about this topic. A record whose partition
                is not there fails only if that request was sent after the record came.
        """
        if snapshot is None or not snapshot.partitions:
            self.snapshot = None
            self.is_known = False
            return
        self.snapshot = snapshot
        self.count = len(snapshot.partitions)
        self._by_number = [self.queues.get(partition) for partition in range(self.count)]
        available = [p.partition for p in snapshot.partitions if p.leader_id >= 0]
        self.partitioner.update(self.count, available, now)
        self.is_known = False  # what a partitioner of the user sends meanwhile goes behind
        try:
            while leaving := self._leaving(answered):
                for record in leaving:
                    if record.is_over:
                        continue
                    if self.in_range(record.partition):
                        self._pass_on(record)
                    elif record.asked <= answered:
                        self._refuse(record)
                    else:
                        record.waits = WaitsFor.PARTITION
        finally:
            self.is_known = True

    def _leaving(self, answered: int) -> list[ParkedRecord]:
        """Return the records that wait here and have reason to leave."""
        leaving: list[ParkedRecord] = []
        for record in self.waiting:
            if record.waits is WaitsFor.METADATA:
                leaving.append(record)
            elif record.waits is not WaitsFor.PARTITION:
                break  # for room, or a serializer: and so do all behind
            elif self.in_range(record.partition) or record.asked <= answered:
                leaving.append(record)
        return leaving

    def asked_before(self, answered: int) -> list[ParkedRecord]:
        """Return the records whose question about the topic was answered by the request with this number."""
        asked: list[ParkedRecord] = []
        for record in self.waiting:
            if record.waits is not WaitsFor.METADATA and record.waits is not WaitsFor.PARTITION:
                break
            if record.asked <= answered:
                asked.append(record)
        return asked

    def _refuse(self, record: ParkedRecord) -> None:
        self._fail(
            record,
            PartitionOutOfRangeError(
                f"partition {record.partition} does not exist: topic {self.topic!r} has partitions 0 to {self.count - 1}",
                topic=self.topic,
                partition=record.partition,
            ),
        )

    def overdue(self, now: float) -> list[ParkedRecord]:
        """Return the records that have waited for as long as they may. All may wait equally long, so these are in front."""
        late: list[ParkedRecord] = []
        for record in self.waiting:
            if record.block_deadline > now:
                break
            late.append(record)
        return late

    def oldest(self) -> ParkedRecord | None:
        """Return the record that has waited longest; None: none waits."""
        for record in self.waiting:
            return record
        return None

    def newest(self) -> ParkedRecord | None:
        """Return the record that came last; None: none waits."""
        return next(reversed(self.waiting)) if self.waiting else None

    def oldest_sent_at(self) -> float | None:
        """Return when the record that has waited longest was sent; asked from another thread too (health)."""
        try:
            return next(iter(self.waiting)).sent_at
        except (StopIteration, RuntimeError):  # none waits, or it left meanwhile
            return None

    @property
    def is_needed(self) -> bool:
        """Return whether anything would be lost with this dispatcher. A topic that is not there can be forgotten.

        One that is there cannot, though no record has reached it yet: a `send_columns` that waits for room may have this
        dispatcher in hand, and a second one would make second queues, with sequence numbers of their own. (`is_known`
        does not tell: it is False while `learn` is at work.)
        """
        return self.snapshot is not None or bool(self.waiting) or bool(self.queues)

    def __repr__(self) -> str:
        return f"<TopicDispatcher {self.topic}: {self.count} partitions, {len(self.waiting)} waiting>"
