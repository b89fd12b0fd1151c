"""`MemoryPartition`: where the records of one partition wait for their outcome. In the place of a PartitionQueue.

First in, first out: a record that is delayed keeps those behind it waiting, as in a partition of Kafka. Nothing here
has been written anywhere: until its outcome each record can be recalled, and one that runs out of time is certainly
not persisted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiokprod.errors import AiokprodError, DeliveryTimeoutError, RecordRecalledError
from aiokprod.metrics import Metrics
from aiokprod.model import Persistence, Record, TimestampType
from aiokprod.pipeline.delivery import Delivery
from aiokprod.pipeline.parked import ParkedRecord
from aiokprod.pipeline.ports import House, IntakeQueue
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records.decoder import decode_headers
from aiokprod.testing.memory.broker import MemoryBroker
from aiokprod.testing.memory.log import MemoryLog
from aiokprod.testing.memory.pending import PendingRecord
from aiokprod.testing.memory.script import Script


class MemoryPartition(IntakeQueue):
    """Takes records, asks the script about each, and gives them their outcome in order."""

    def __init__(
        self,
        topic: str,
        partition: int,
        house: House,
        metrics: Metrics,
        log: MemoryLog,
        script: Script,
        broker: MemoryBroker,
        on_new_batch: Callable[[int], None],
        acknowledge: Callable[[PendingRecord, RecordMetadata | None, AiokprodError | None], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.house = house
        self.loop = house.loop
        self.metrics = metrics
        self._log = log
        self._script = script
        self._broker = broker
        self._on_new_batch = on_new_batch
        self._acknowledge = acknowledge
        self._pending: deque[PendingRecord] = deque()
        self._batch_left_bytes = 0  # until a real producer would open another batch: partitioners hear of it

    # ------------------------------------------------------------------ filling
    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> Delivery:
        record = self._take(value, key, headers, timestamp_ms, size_bytes, now, self.house.flushes.generation)
        delivery = record.delivery = Delivery(record, 0)
        return delivery

    def append_parked(self, record: ParkedRecord) -> None:
        pending = self._take(
            record.value,
            record.key,
            record.headers,
            record.timestamp_ms,
            record.size_bytes,
            record.sent_at,
            record.generation,
        )
        pending.delivery = record.delivery
        assert record.delivery is not None
        record.delivery.move_to(pending, 0)

    def _take(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        sent_at: float,
        generation: int,
    ) -> PendingRecord:
        if not self._pending or size_bytes > self._batch_left_bytes:
            self._batch_left_bytes = self.house.settings.batch_bytes
            self._on_new_batch(self.partition)
        self._batch_left_bytes -= size_bytes
        record = PendingRecord(
            self.loop,
            value,
            key,
            decode_headers(headers) if headers is not None else (),
            timestamp_ms,
            size_bytes,
            sent_at,
            generation,
            self.take_back,
        )
        self._broker.came(record)
        record.scripted = self._script.error_of_next(self.topic)
        delay_s = self._script.delay_of_next(self.topic)
        record.due_at = sent_at + delay_s
        record.deadline = sent_at + self.house.settings.delivery_timeout_s
        if delay_s:
            record.place = f"the end of a delay of {delay_s:g} s"
        self.house.flushes.began(generation)
        self._pending.append(record)
        return record

    # ------------------------------------------------------------------ outcomes
    def head(self) -> PendingRecord | None:
        """The record whose turn it is."""
        return self._pending[0] if self._pending else None

    @property
    def pending_count(self) -> int:
        """Records without an outcome."""
        return len(self._pending)

    def expire_head(self) -> None:
        """The delivery timeout of the first record is over."""
        held = "; the producer is held" if self._script.is_held else ""
        self._fail(self._pending.popleft(), DeliveryTimeoutError(f"delivery_timeout_ms passed{held}"), 0)

    def answer_head(self, now: float) -> None:
        """The first record goes into the log, or fails as the script says."""
        self.house.effects.begin()
        try:
            self._answer(self._pending.popleft(), now)
        finally:
            self.house.effects.end()

    def _answer(self, record: PendingRecord, now: float) -> None:
        scripted = record.scripted
        if scripted is not None:
            self._fail(record, scripted.clone(), 1)
            return
        offset = self._log.append(
            self.topic, self.partition, record.value, record.key, record.headers, record.timestamp_ms
        )
        known = offset if self.house.settings.acks else None  # acks=0: no broker tells
        metadata = RecordMetadata(self.topic, self.partition, known, record.timestamp_ms, TimestampType.CREATE_TIME)
        self.metrics.records_delivered.add(1)
        self.metrics.delivery_seconds.record(now - record.sent_at)
        record.settle(metadata, 1, now)
        self._acknowledge(record, metadata, None)
        self._finish(record)

    def _fail(self, record: PendingRecord, error: AiokprodError, attempts: int) -> None:
        """Its outcome is this error; what the error does not say yet is filled in."""
        self.house.effects.begin()
        try:
            self._settle_failed(record, error, attempts)
        finally:
            self.house.effects.end()

    def _settle_failed(self, record: PendingRecord, error: AiokprodError, attempts: int) -> None:
        now = self.loop.time()
        error.topic = error.topic or self.topic
        error.partition = self.partition if error.partition is None else error.partition
        error.attempts = attempts if error.attempts is None else error.attempts
        error.elapsed_s = now - record.sent_at if error.elapsed_s is None else error.elapsed_s
        error.persistence = error.persistence or Persistence.NOT_PERSISTED
        self.metrics.records_failed.add(1)
        delivery = record.delivery
        assert delivery is not None
        if not isinstance(error, RecordRecalledError) and not delivery.is_watched:
            kept = None
            if self.house.settings.keep_failed_records:
                kept = (
                    Record(
                        value=record.value[0],
                        key=record.key[0],
                        topic=self.topic,
                        partition=self.partition,
                        headers=record.headers,
                        timestamp_ms=record.timestamp_ms,
                    ),
                )
            self.house.failed(error, 1, kept)
        self.house.undelivered(self.topic, self.partition, error.persistence, 1)
        record.settle(error, error.attempts, now)
        self._acknowledge(record, None, error)
        self._finish(record)

    def _finish(self, record: PendingRecord) -> None:
        self.house.flushes.finished(record.generation)
        self.house.free(record.size_bytes + self.house.record_overhead_bytes)

    # ------------------------------------------------------------------ taking back
    def take_back(self, record: PendingRecord, error: AiokprodError) -> bool:
        """Take a record out and fail it; False if it has its outcome."""
        if record.outcome is not None:
            return False
        self._pending.remove(record)
        self._fail(record, error, 0)
        self._broker.look_at(self.loop.time())  # whoever stood behind it
        return True

    def purge(self, error: Callable[[], AiokprodError]) -> None:
        """The end: whatever waits here fails."""
        while self._pending:
            self._fail(self._pending.popleft(), error(), 0)

    # ------------------------------------------------------------------ asked by the house
    def pending_bytes(self) -> int:
        return sum(record.size_bytes for record in self._pending)

    def oldest_opened_at(self) -> float | None:
        try:
            return self._pending[0].sent_at
        except IndexError:  # asked from another thread too: looking before taking would race
            return None

    def __repr__(self) -> str:
        return f"<MemoryPartition {self.topic}-{self.partition}: {len(self._pending)} pending>"
