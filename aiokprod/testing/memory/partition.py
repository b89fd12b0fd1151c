"""`MemoryPartition`: where the records of one partition wait for their outcome. In the place of a PartitionQueue.

First in, first out: a record that is delayed keeps those behind it waiting, as in a partition of Kafka. Nothing here
has been written anywhere: until its outcome each record can be recalled, and one that runs out of time is certainly
not persisted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from aiokprod.errors import AiokprodError, DeliveryTimeoutError, RecordRecalledError
from aiokprod.explanation import Explanation
from aiokprod.model import Persistence, Record, TimestampType
from aiokprod.pipeline.delivery.delivery import Delivery, is_disowned, is_watched
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.filled_batch import FilledBatch
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.ports import RecordQueue, Room
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES
from aiokprod.pipeline.partition.timeline import note
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records.decoder import decode_headers
from aiokprod.testing.memory.log import MemoryLog
from aiokprod.testing.memory.pending import PendingRecord
from aiokprod.testing.memory.script import Script


class MemoryPartition(RecordQueue):
    """Takes records, asks the script about each, and gives them their outcome in order."""

    def __init__(
        self,
        topic: str,
        partition: int,
        context: PipelineContext,
        room: Room,
        log: MemoryLog,
        script: Script,
        came: Callable[[PendingRecord], None],
        look_at: Callable[[float], None],
        on_new_batch: Callable[[int], None],
        enter: Callable[[tuple[str, int]], object] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.loop = context.loop
        self.metrics = context.metrics
        self.is_used = False  # its topic need not be kept in use
        self._settings = context.settings
        self._effects = context.effects
        self._flushes = context.flushes
        self._reports = context.reports
        self._room = room
        self._log = log
        self._script = script
        self._came = came
        self._look_at = look_at
        self._on_new_batch = on_new_batch
        self._enter = enter  # of a transactional producer: told of each record that is to be written
        self._pending: OrderedDict[int, PendingRecord] = (
            OrderedDict()
        )  # by number: a recall takes one out of the middle
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
        record = self._made(value, key, headers, timestamp_ms, size_bytes, now, self._flushes.generation)
        delivery = record.delivery = Delivery(record, 0)
        self._take(record, size_bytes + RECORD_OVERHEAD_BYTES)
        return delivery

    def append_for(
        self,
        delivery: Delivery,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> None:
        record = self._made(value, key, headers, timestamp_ms, size_bytes, now, self._flushes.generation)
        record.delivery = delivery
        self._take(record, size_bytes + RECORD_OVERHEAD_BYTES)
        delivery._move_to(record, 0)  # pyright: ignore[reportPrivateUsage] - users are not shown it

    def append_batch(self, filled: FilledBatch) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for value, key, headers, time_ms, size_bytes in zip(
            filled.values, filled.keys, filled.headers, filled.times_ms, filled.sizes, strict=True
        ):
            now, generation = self.loop.time(), self._flushes.generation
            record = self._made(value, key, headers, time_ms, size_bytes, now, generation)
            delivery = record.delivery = Delivery(record, 0)
            self._take(record, 0)
            deliveries.append(delivery)
        filled.is_taken = True
        return deliveries

    def append_parked(self, record: ParkedRecord) -> None:
        pending = self._made(
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
        self._take(pending, 0)
        record.delivery._move_to(pending, 0)  # pyright: ignore[reportPrivateUsage] - users are not shown it

    def _made(
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
            self._batch_left_bytes = self._settings.batch_bytes
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
            (self.topic, self.partition),
            self._is_held,
        )
        self._came(record)
        record.scripted = self._script.error_of_next(self.topic)
        delay_s = self._script.delay_of_next(self.topic)
        record.due_at = sent_at + delay_s
        record.deadline = sent_at + self._settings.delivery_timeout_s
        if delay_s:
            record.waits_for = f"the end of a delay of {delay_s:g} s"
        return record

    def _take(self, record: PendingRecord, charge_bytes: int) -> None:
        """Take a record that is complete: all its books on one line, behind what may fail."""
        generation, room = record.generation, self._room
        pending = self._flushes.prepare(generation)
        self._pending[record.number], pending[generation], room.used_bytes = (
            record,
            pending[generation] + 1,
            room.used_bytes + charge_bytes,
        )

    def _is_held(self) -> bool:
        return self._script.is_held

    # ------------------------------------------------------------------ outcomes
    def head(self) -> PendingRecord | None:
        """Return the first pending record."""
        return next(iter(self._pending.values()), None)

    @property
    def pending_count(self) -> int:
        """Records without an outcome."""
        return len(self._pending)

    def expire_head(self) -> None:
        """Fail the first record, whose delivery timeout is over."""
        held = "; the producer is held" if self._script.is_held else ""
        self._fail(self._pending.popitem(last=False)[1], DeliveryTimeoutError(f"delivery_timeout_ms passed{held}"), 0)

    def answer_head(self, now: float) -> None:
        """Put the first record into the log, or fail it as the script says."""
        self._effects.begin()
        try:
            self._answer(self._pending.popitem(last=False)[1], now)
        finally:
            self._effects.end()

    def _answer(self, record: PendingRecord, now: float) -> None:
        scripted = record.scripted
        if scripted is not None:
            self._fail(record, scripted.clone(), 1)
            return
        if self._enter is not None:
            self._enter((self.topic, self.partition))
        offset = self._log.append(
            self.topic,
            self.partition,
            record.value,
            record.key,
            record.headers,
            record.timestamp_ms,
            in_transaction=self._enter is not None,
        )
        known = offset if self._settings.acks else None  # acks=0: no broker tells
        key, value = record.key[0], record.value[0]
        metadata = RecordMetadata(
            self.topic,
            self.partition,
            known,
            record.timestamp_ms,
            TimestampType.CREATE_TIME,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
        self.metrics.records_delivered.add(1)
        self.metrics.topic(self.topic).records_delivered.add(1)
        self.metrics.delivery_seconds.record(now - record.sent_at)
        record.settle(metadata, 1, now)
        self._reports.settled(record, 0, 1)
        self._finish(record)

    def _fail(self, record: PendingRecord, error: AiokprodError, attempts: int) -> None:
        """Fail a record with this error, whose missing facts are filled in."""
        self._effects.begin()
        try:
            self._settle_failed(record, error, attempts)
        finally:
            self._effects.end()

    def _settle_failed(self, record: PendingRecord, error: AiokprodError, attempts: int) -> None:
        now = self.loop.time()
        error.topic = error.topic or self.topic
        error.partition = self.partition if error.partition is None else error.partition
        error.attempts = attempts if error.attempts is None else error.attempts
        error.elapsed_s = now - record.sent_at if error.elapsed_s is None else error.elapsed_s
        error.persistence = error.persistence or Persistence.NOT_PERSISTED
        if not isinstance(error, RecordRecalledError):
            error.add_note(note(f"{self.topic}-{self.partition}", record.sent_at, (), now, type(error).__name__))
        self.metrics.failed(error, 1)
        self.metrics.topic(self.topic).records_failed.add(1)
        delivery = record.delivery
        assert delivery is not None
        if not isinstance(error, RecordRecalledError) and not is_watched(delivery):
            kept, size_bytes = None, 0
            if self._settings.keep_failed_records:
                size_bytes = record.size_bytes
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
            record.unasked = self._reports.failed(
                error, (0,), kept, None, size_bytes, can_be_asked=not is_disowned(delivery)
            )
        self._reports.undelivered(self.topic, self.partition, error, 1)
        record.settle(error, error.attempts, now)
        self._reports.settled(record, 0, 1)
        self._finish(record)

    def _finish(self, record: PendingRecord) -> None:
        self._flushes.finished(record.generation)
        self._room.free(record.size_bytes + RECORD_OVERHEAD_BYTES)

    # ------------------------------------------------------------------ taking back
    def take_back(self, record: PendingRecord, error: AiokprodError) -> bool:
        """Take a record out and fail it; False if it has its outcome."""
        if record.outcome is not None:
            return False
        del self._pending[record.number]
        self._fail(record, error, 0)
        self._look_at(self.loop.time())  # for the records behind it
        return True

    def recall_all(self, error: AiokprodError) -> tuple[int, int]:
        taken = len(self._pending)
        while self._pending:
            self._fail(self._pending.popitem(last=False)[1], error.clone(), 0)
        return taken, 0

    def purge(self, error: Callable[[], AiokprodError]) -> None:
        """Fail all pending records."""
        while self._pending:
            self._fail(self._pending.popitem(last=False)[1], error(), 0)

    # ------------------------------------------------------------------ asked by the housekeeping
    def pending_bytes(self) -> int:
        return sum(record.size_bytes for record in self._pending.values())

    def explain_oldest(self) -> Explanation | None:
        try:
            head = self.head()
        except RuntimeError:  # asked from another thread, while the first one left
            return None
        return None if head is None else head.explain(0)

    def oldest_sent_at(self) -> float | None:
        try:
            head = self.head()
        except RuntimeError:  # asked from another thread, while the first one left
            return None
        return None if head is None else head.sent_at

    def oldest_opened_at(self) -> float | None:
        return self.oldest_sent_at()

    def __repr__(self) -> str:
        return f"<MemoryPartition {self.topic}-{self.partition}: {len(self._pending)} pending>"
