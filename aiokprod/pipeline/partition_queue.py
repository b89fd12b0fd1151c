"""`PartitionQueue`: stage 2. One per partition, made when its first record comes, kept as long as the producer.

It owns the open batch and the ledger of the partition; the ledger decides, this class carries out: it seals, encodes,
stamps, settles, and tells the house what the ledger asks for. It outlives the topic's metadata, because the sequence
numbers do (ledger: R2.5).

    append -> open batch -> (full, linger, a waiter, flush) -> ready -> candidate -> prepare -> take -> answer

Invariants: a batch is encoded before it is stamped and no later one is encoded before it; stamping happens in `take`
only, whose caller writes in the same synchronous step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from aiokprod.errors import AiokprodError, RecordRecalledError
from aiokprod.metrics import Metrics
from aiokprod.pipeline.batch import ProducerBatch, Segment
from aiokprod.pipeline.batch_owner import BatchOwner, Place
from aiokprod.pipeline.bulk import BulkSend
from aiokprod.pipeline.column_batch import BatchListener, ColumnBatch
from aiokprod.pipeline.delivery import Delivery, DeliveryState
from aiokprod.pipeline.encoded import Encoded
from aiokprod.pipeline.failures import Failures
from aiokprod.pipeline.ledger import (
    Abort,
    Action,
    Chase,
    Entry,
    Ledger,
    NeedIdentity,
    Outcome,
    Settle,
    WantMetadata,
)
from aiokprod.pipeline.parked import ParkedRecord
from aiokprod.pipeline.ports import House, IntakeQueue
from aiokprod.pipeline.refusal import Refusal
from aiokprod.pipeline.verdicts import is_producer_fatal
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.records.column_rows import Section
from aiokprod.records.compression import OFFLOAD_BYTES, compress
from aiokprod.wire.codes import name_of


class PartitionQueue(IntakeQueue):
    """Order, linger and verdicts of one partition."""

    def __init__(
        self,
        topic: str,
        partition: int,
        house: House,
        ledger: Ledger,
        metrics: Metrics,
        on_new_batch: Callable[[int], None],
        incarnation: int = 0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.house = house
        self.loop = house.loop
        self.ledger = ledger
        self.metrics = metrics
        self.node = ledger.node  # where it is registered; follows ledger.node
        self.open_batch: ProducerBatch | None = None
        self.compressing: Entry | None = None  # in a worker thread
        self.looks_at = inf
        self._is_return_due = False  # the chaser came back while batches were still in flight: see `returned`
        self._incarnation = incarnation  # of the topic, where brokers tell no topic ids
        self._append_time_ms = -1
        self.texts = Failures(topic, partition)
        self._effects = house.effects
        self._batch_bytes = house.settings.batch_bytes
        self._on_new_batch = on_new_batch
        self._place = Place(topic, partition, self.loop)

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
        """Take a record that has its room and its partition."""
        batch = self.open_batch
        if batch is None or batch.size_bytes + size_bytes > self._batch_bytes:
            batch = self._open(timestamp_ms, self.loop.time(), self.house.flushes.generation)
        return Delivery(batch, batch.append(value, key, headers, timestamp_ms, size_bytes, now))

    def append_to(self, bulk: BulkSend, value: bytes, timestamp_ms: int, size_bytes: int, now: float) -> None:
        batch = self.open_batch
        if batch is None or batch.size_bytes + size_bytes > self._batch_bytes:
            batch = self._open(timestamp_ms, self.loop.time(), self.house.flushes.generation)
        bulk.add_cell(batch, batch.append(value, None, None, timestamp_ms, size_bytes, now))

    def append_parked(self, record: ParkedRecord) -> None:
        """Take a record that was parked; its Delivery moves into the batch."""
        if self._effects.is_guarded:
            self._effects.check_outside("a waiting record is appended")
        batch = self.open_batch
        if batch is None or batch.size_bytes + record.size_bytes > self._batch_bytes:
            batch = self._open(record.timestamp_ms, record.sent_at, record.generation)
        elif record.generation < batch.generation:
            self.house.flushes.began(record.generation)  # an older flush waits for the whole batch now
            self.house.flushes.finished(batch.generation)
            batch.generation = record.generation
            self.house.ready(self)  # and for its linger no longer
        index = batch.append(
            record.value, record.key, record.headers, record.timestamp_ms, record.size_bytes, record.sent_at
        )
        assert record.delivery is not None
        record.delivery.move_to(batch, index)

    def append_columns(self, section: Section, rows: Sequence[int], charge_bytes: int, listener: BatchListener) -> None:
        """Take a batch that is full and encoded from the beginning; the open one goes before it."""
        self.seal()
        house = self.house
        now = self.loop.time()
        generation = house.flushes.generation
        timeout_s = house.settings.delivery_timeout_s
        batch = ColumnBatch(self, now, timeout_s, generation, section, rows, charge_bytes, listener)
        batch.entry = self.ledger.open(batch)
        self.ledger.seal()
        self._on_new_batch(self.partition)
        house.flushes.began(generation)
        house.opened(self, now)
        house.ready(self)

    def _open(self, timestamp_ms: int, now: float, generation: int) -> ProducerBatch:
        if self._effects.is_guarded:
            self._effects.check_outside("a batch is opened")
        self.seal()
        house = self.house
        batch = ProducerBatch(
            self, now, house.settings.delivery_timeout_s, generation, house.record_overhead_bytes, timestamp_ms
        )
        batch.entry = self.ledger.open(batch)
        self.open_batch = batch
        self._on_new_batch(self.partition)
        house.flushes.began(generation)
        house.opened(self, now)
        if generation < house.flushes.generation or house.is_short_of_memory():
            house.ready(self)  # a flush waits for it, or records wait for the room it takes: it does not linger
        return batch

    def seal(self) -> None:
        """The open batch takes no more records; it is ready."""
        batch = self.open_batch
        if batch is not None:
            self.open_batch = None
            self.ledger.seal()
            self.house.ready(self)

    def urge(self, batch: ProducerBatch) -> None:
        if batch is self.open_batch:
            self.house.urged(self)

    def pending_bytes(self) -> int:
        """Bytes of records without an outcome."""
        return sum(entry.batch.charged_bytes for entry in self.ledger.entries)

    def oldest_opened_at(self) -> float | None:
        try:
            return self.ledger.entries[0].batch.opened_at
        except IndexError:  # asked from another thread too (health): looking before taking would race
            return None

    # ------------------------------------------------------------------ taking back
    def recall(self, batch: ProducerBatch, index: int) -> bool:
        return self._withdraw(
            batch, index, RecordRecalledError("recalled", topic=self.topic, partition=self.partition), is_told=True
        )

    def withdraw(self, batch: ProducerBatch, index: int, error: AiokprodError) -> bool:
        """Take an unstamped record out and fail its delivery; False if it has been stamped."""
        return self._withdraw(batch, index, error, is_told=False)

    def _withdraw(self, batch: ProducerBatch, index: int, error: AiokprodError, *, is_told: bool) -> bool:
        """`is_told`: the caller knows of the failure, as it asked for it."""
        entry = batch.entry
        if not isinstance(entry, Entry):
            return False  # all of it is settled
        if batch is self.open_batch:
            if batch.settled_count + 1 == batch.count:
                self.open_batch = None  # its last record leaves: the entry leaves with it
        if not self.ledger.recall(entry, index):
            return False
        self._effects.begin()
        try:
            self._settle_segment(batch, Segment(index, index + 1, -1, -1, error, 0, self.loop.time()), is_told)
        finally:
            self._effects.end()
        return True

    def place(self) -> BatchOwner:
        return self._place

    def describe(self, batch: ProducerBatch) -> DeliveryState:
        entry = batch.entry
        if batch is self.open_batch:
            return DeliveryState("open batch", "lingers, or its broker has no room in the window")
        if isinstance(entry, Entry) and entry.flying:
            return DeliveryState("in flight", f"to broker {self.node}")
        if self.node < 0:
            return DeliveryState("queued", "the partition has no leader")
        if not self.ledger.flowing:
            return DeliveryState("retrying", "waits for the chaser")
        if self.ledger.not_before > self.loop.time():
            return DeliveryState("retrying", "backs off")
        return DeliveryState("queued", f"for broker {self.node}")

    # ------------------------------------------------------------------ going
    def candidate(self, now: float, now_ms: int, urgent: bool) -> Entry | None:
        """The batch that may go now, or None. `urgent`: nothing is in flight there, or an answer just came."""
        entry = self.ledger.candidate(now, now_ms)
        if entry is None or entry is self.compressing:
            return None
        batch = self.open_batch
        if batch is None or entry is not batch.entry:
            return entry  # full, or sent before
        house = self.house
        if (
            (urgent and batch.is_urgent)
            or now >= batch.opened_at + house.settings.linger_s
            or batch.generation < house.flushes.generation
            or house.is_short_of_memory()
        ):
            return entry
        return None

    def prepare(self, entry: Entry) -> Encoded | None:
        """Encode and compress, unless it has been done; None while a worker thread compresses."""
        encoded = entry.encoded
        if isinstance(encoded, Encoded):
            return encoded
        batch = self.open_batch
        if batch is not None and batch.entry is entry:
            self.open_batch = None
            self.ledger.seal()
        section = entry.batch.encode(entry.ranges)
        settings = self.house.settings
        self.metrics.batch_uncompressed_bytes.add(len(section))
        if settings.codec == "none":
            entry.encoded = encoded = Encoded(section, "none")
            return encoded
        if len(section) >= OFFLOAD_BYTES:
            self.compressing = entry
            self.house.compress_elsewhere(self, entry, list(entry.ranges), section)
            return None
        entry.encoded = encoded = Encoded(compress(settings.codec, settings.codec_level, section), settings.codec)
        return encoded

    def compressed(self, entry: Entry, ranges: list[tuple[int, int]], section: bytes) -> None:
        """The worker thread is done. Records that left meanwhile make its work void."""
        self.compressing = None
        if entry.ranges == ranges:
            entry.encoded = Encoded(section, self.house.settings.codec)
        self.house.ready(self)

    def take(self, now: float, now_ms: int) -> Entry | None:
        """The candidate, stamped. The caller hands it to the transport in the same synchronous step."""
        entry = self.ledger.take(now, now_ms)
        if entry is not None:
            encoded = entry.encoded
            assert isinstance(encoded, Encoded), "a batch is encoded before it is stamped"
            entry.batch.release_columns(encoded.section, encoded.codec, entry.ranges)
        return entry

    # ------------------------------------------------------------------ outcomes
    def answer(
        self,
        entry: Entry,
        attempt: int,
        code: int,
        base_offset: int,
        timestamp_ms: int,
        named: tuple[int, ...],
        now: float,
        now_ms: int,
    ) -> None:
        """The broker's answer to one attempt. (ledger: R1)"""
        if code == 0 and attempt == 1:
            # A first attempt is no duplicate, whose answer carries a timestamp on any topic (broker: 2.2).
            self.ledger.is_log_append_time = timestamp_ms >= 0
        self._append_time_ms = timestamp_ms if self.ledger.is_log_append_time else -1
        self.apply(self.ledger.answer(entry, attempt, code, base_offset, named, now, now_ms), now)

    def lost(self, fates: list[tuple[Entry, int, bool]]) -> None:
        """The connection ended without an answer to these; True: bytes were handed to the transport."""
        now = self.loop.time()
        self.apply(self.ledger.lost(fates, now), now)

    def returned(self) -> None:
        """The chaser is back.

        Batches may still be in flight: after a reset asyncio and uvloop mark the transport as closing, so that no chaser
        can be put behind them any more, and tell the loss a turn later. The return then waits for `lost`.
        """
        if self.ledger.is_flying:
            self._is_return_due = True
            return
        self._is_return_due = False
        now = self.loop.time()
        self.apply(self.ledger.returned(now, wall_ms()), now)

    def led_by(self, node: int, leader_epoch: int, topic_id: bytes, incarnation: int = 0) -> None:
        """Metadata or a hint named the leader (-1: there is none)."""
        self.texts.gone = None
        now = self.loop.time()
        is_new_topic, self._incarnation = incarnation != self._incarnation, incarnation
        self.apply(self.ledger.leader(node, leader_epoch, topic_id, now, wall_ms(), is_new_topic=is_new_topic), now)

    def left_out(self, partition_count: int, topic_id: bytes, incarnation: int) -> None:
        """Metadata has fewer partitions. Of the same topic: a broker that lags behind, and the records wait (faults: T8).
        Of another topic of this name: the partition is gone, and its records fail at once (faults: T6)."""
        is_new_topic, self._incarnation = incarnation != self._incarnation, incarnation
        if is_new_topic or self.ledger.is_recreated(topic_id):
            self.texts.gone = f"the topic was made anew with partitions 0 to {partition_count - 1}"
            self.purge()

    def granted(self, identity: tuple[int, int]) -> None:
        """A producer id and epoch for this partition."""
        now = self.loop.time()
        self.apply(self.ledger.granted(identity, now), now)

    def expire(self) -> None:
        """The deadline of the oldest record has come."""
        now = self.loop.time()
        self.apply(self.ledger.tick(now, wall_ms()), now)

    def purge(self) -> None:
        """Closing, or failed: everything settles now."""
        now = self.loop.time()
        self.apply(self.ledger.purge(now), now)

    def apply(self, actions: list[Action], now: float) -> None:
        """Carry out what the ledger decided: the books first, what it leads to afterwards.

        Nothing here may append a record, ask the ledger something or write: a record that is admitted between two
        actions would go into a batch that the second one settles.
        """
        effects = self._effects
        effects.begin()
        if effects.is_guarded:
            effects.entered(f"the actions of {self.topic}-{self.partition}")
        try:
            for action in actions:
                if isinstance(action, Settle):
                    self._settle(action, now)
                elif isinstance(action, Chase):
                    effects.later(partial(self.house.chase, self, action.node))
                elif isinstance(action, NeedIdentity):
                    self.metrics.epoch_bumps.add(1)
                    effects.later(partial(self.house.need_identity, self, action.used, action.fresh))
                elif isinstance(action, WantMetadata):
                    why = f"{self.topic}-{self.partition} was answered {name_of(action.code)}"
                    effects.later(partial(self.house.want_metadata, why))
                elif isinstance(action, Abort):
                    raise AssertionError("a ledger without transactions aborts nothing")
                else:
                    raise AssertionError(f"no owner for {action!r}")
            if self.open_batch is not None and self.open_batch.is_finished:
                self.open_batch = None  # its records expired before it was sealed
            if self._is_return_due and not self.ledger.is_flying:
                effects.later(self.returned)
            if self.node != self.ledger.node:
                effects.later(self._reroute)
            elif self.ledger.entries:
                self.house.ready(self)
        finally:
            if effects.is_guarded:
                effects.left()
            effects.end()

    def _reroute(self) -> None:
        """The ledger has another leader than the one the queue is registered with."""
        if self.node != self.ledger.node:
            self.house.rerouted(self)
        if self.ledger.entries:
            self.house.ready(self)
        batch = self.open_batch
        if batch is not None and batch.is_urgent:
            self.house.urged(self)  # the old broker's aggregator has forgotten that a task waits for it

    def _settle(self, action: Settle, now: float) -> None:
        code = action.code
        if code is not None and action.outcome != Outcome.DELIVERED and is_producer_fatal(code):
            self._effects.later(partial(self.house.crashed, self.texts.error_of(action, 0.0)))
        batch = action.batch
        if action.named and action.refusal is not None:
            self._settle_named(action, action.refusal, now)
            return
        offset = -1 if action.base_offset is None else action.base_offset
        error = None
        if action.outcome != Outcome.DELIVERED:
            error = self.texts.error_of(action, now - batch.opened_at)
        for first, last in action.ranges:
            segment = Segment(first, last, offset, self._append_time_ms, error, action.attempts, now)
            self._settle_segment(batch, segment, False)
            if offset >= 0:
                offset += last - first

    def _settle_named(self, action: Settle, refusal: Refusal, now: float) -> None:
        """Records that the broker refused by name: each has its own text, and equal texts share an error."""
        errors: dict[str, AiokprodError] = {}
        batch = action.batch
        any_error: AiokprodError | None = None
        for position, (first, last) in zip(action.named, action.ranges, strict=True):
            words = refusal.words_of(position)
            error = errors.get(words)
            if error is None:
                if any_error is None:
                    error = any_error = self.texts.error_of(action, now - batch.opened_at, position)
                else:
                    error = self.texts.named_as(any_error, refusal, position)
                errors[words] = error
            self._settle_segment(batch, Segment(first, last, -1, -1, error, action.attempts, now), False)

    def _settle_segment(self, batch: ProducerBatch, segment: Segment, is_told: bool) -> None:
        count = segment.last - segment.first
        metrics = self.metrics
        if segment.error is None:
            metrics.records_delivered.add(count)
            metrics.delivery_seconds.record(segment.settled_at - batch.opened_at)
        else:
            metrics.records_failed.add(count)
            if not is_told:
                unwatched = batch.unwatched(segment)
                if unwatched:
                    kept = batch.keep(unwatched, segment) if self.house.settings.keep_failed_records else None
                    self.house.failed(segment.error, len(unwatched), kept)
            self.house.undelivered(self.topic, self.partition, segment.error.persistence, count)
        freed = batch.settle(segment)
        self.house.acknowledged(batch, segment)
        if batch.is_finished:
            self.house.flushes.finished(batch.generation)
        self.house.free(freed)

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic}-{self.partition} on {self.node}: {self.ledger}>"
