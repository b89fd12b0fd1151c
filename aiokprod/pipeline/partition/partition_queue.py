"""`PartitionQueue`: stage 2. One per partition, made when its first record comes, kept as long as the producer.

It owns the open batch and the ledger of the partition; the ledger decides, this class carries out: it seals, encodes,
stamps, settles, and asks the RetryHandler for what the ledger needs. It outlives the topic's metadata, because the sequence
numbers do (ledger: R2.5).

    append -> open batch -> (full, linger, a waiter, flush) -> Destination.ready -> candidate -> prepare -> take
    answer -> Ledger.answer -> apply -> settle -> DeliveryReports
                                     -> Retries (chaser, identity, leader, metadata) -> returned, granted -> apply

Invariants: a batch is encoded before it is stamped and no later one is encoded before it; stamping happens in `take`
only, whose caller writes in the same synchronous step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from aiokprod.errors import AiokprodError, ProducerFailedError, RecordRecalledError
from aiokprod.liveness import STALLED_S, Stall
from aiokprod.metrics import TopicCounters
from aiokprod.model import Persistence
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.acknowledged import Acknowledged
from aiokprod.pipeline.partition.batch import BatchOwner, Encoded, ProducerBatch, Range, Segment, SettledOwner
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.column_batch import BatchListener, ColumnBatch
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.data_losses import Suspicion
from aiokprod.pipeline.partition.explained_queue import ExplainedQueue
from aiokprod.pipeline.partition.filled_batch import FilledBatch
from aiokprod.pipeline.partition.ledger import (
    Abort,
    Action,
    Chase,
    Entry,
    Ledger,
    NeedIdentity,
    Outcome,
    Reason,
    Settle,
    WantMetadata,
)
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.partition_errors import NamedSegment, PartitionErrors
from aiokprod.pipeline.partition.ports import Room
from aiokprod.pipeline.partition.send_many import SendMany
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES
from aiokprod.pipeline.partition.timeline import SHORTEST_TOLD_S, Happening, Timeline
from aiokprod.pipeline.partition.value_run import ValueRun
from aiokprod.pipeline.partition.verdicts import NO_ANSWER, Refusal, is_producer_fatal
from aiokprod.pipeline.partition.waits import Wait
from aiokprod.pipeline.timer_queue import TimerQueue
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.records.column_rows import Section
from aiokprod.records.compression import OFFLOAD_BYTES, compress
from aiokprod.waiting import EventKind, WaitsFor
from aiokprod.wire.codes import ErrorCode, name_of

if TYPE_CHECKING:  # loaded at the start, with what talks to brokers
    from aiokprod.cluster.metadata.snapshot import TopicSnapshot

PROOF: Final = Reason.PROOF
ANSWER: Final = Reason.ANSWER
DUPLICATE: Final = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
MESSAGE_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
MOST_AWAKE: Final = 10
"""Batches of the partition that are in flight or go soon; what is behind them waits long enough to `rest`."""
MOST_AT_ONCE: Final = 200
"""Batches that expire, or are purged, in one turn of the loop: some milliseconds. With `batch_size=0` each record is one."""
TRANSACTION: Final = WaitsFor.TRANSACTION
COMPRESSION: Final = WaitsFor.COMPRESSION
LINGER: Final = WaitsFor.LINGER
LOOK_AGAIN_S: Final = 0.005
"""The least time between two looks at a deadline (s): one that has passed without effect must not become a busy loop."""


class Destination:
    """The receiver of ready batches: the `Brokers`, which stand above the partitions."""

    def ready(self, queue: PartitionQueue) -> None:
        """Look at the partition on the next turn of the loop: it may have a batch to send."""
        raise AssertionError("abstract")

    def ready_at(self, queue: PartitionQueue, at: float) -> None:
        """Look at the partition at this time (loop time, seconds)."""
        raise AssertionError("abstract")

    def urged(self, queue: PartitionQueue) -> None:
        """Send its open batch as soon as nothing is in flight there: a task waits for it."""
        raise AssertionError("abstract")

    def is_due(self, queue: PartitionQueue) -> bool:
        """Return whether the partition will be looked at: now, or when its broker takes requests again."""
        raise AssertionError("abstract")

    def wait_at(self, node: int, now: float) -> Wait | None:
        """Return why the broker takes no request at the moment; None: it takes one. For explanations, from any thread."""
        raise AssertionError("abstract")


class Retries:
    """The requests of a ledger between two attempts, served by the `RetryHandler`, which stands above the partitions.

    Called as effects of a state change, never within it.
    """

    def chase(self, queue: PartitionQueue, node: int) -> None:
        """Put a chaser behind what is in flight at that broker; answer with `queue.returned`."""
        raise AssertionError("abstract")

    def need_identity(self, queue: PartitionQueue, used: tuple[int, int] | None, fresh: bool) -> None:
        """Find a producer id and epoch; answer with `queue.granted`.

        Args:
            queue: of the partition.
            used: what it has; None: nothing yet.
            fresh: another producer id, not only the next epoch.
        """
        raise AssertionError("abstract")

    def rerouted(self, queue: PartitionQueue) -> None:
        """Register the partition with the leader that its ledger adopted; there may be none."""
        raise AssertionError("abstract")

    def want_metadata(self, why: str) -> None:
        """Refresh what is known of the cluster: it is out of date."""
        raise AssertionError("abstract")


class TransactionScope:
    """The transaction of a transactional producer, as its partitions see it. Implemented above them.

    It lets a partition in before the first batch of each transaction is stamped, and hears of what goes wrong.
    """

    transactional_id: str
    """of the transaction at hand"""
    number: int
    """of the transaction at hand; 0: there was none"""
    produce_versions: tuple[int, int]
    """the lowest and the highest version of Produce for it (broker: 10.1)"""

    def state_text(self) -> str:
        """Return the state of the transactional id, in words. For explanations, from any thread."""
        raise AssertionError("abstract")

    def opened(self, queue: PartitionQueue) -> None:
        """Note that the partition has a record for the transaction, and may have to be added to it."""
        raise AssertionError("abstract")

    def enter(self, queue: PartitionQueue) -> bool:
        """Ask for the way in; True: `queue.entered` was called. False: it is called later, or the records will fail."""
        raise AssertionError("abstract")

    def stamped(self, queue: PartitionQueue) -> None:
        """Note that the first batch of the partition is being written: the transaction is not empty any more."""
        raise AssertionError("abstract")

    def answer_timeout_s(self, queues: Iterable[PartitionQueue], usual_s: float) -> float:
        """Return how long a broker may take to answer a Produce with batches of these partitions.

        Args:
            usual_s: request_timeout_ms, in seconds.
        """
        raise AssertionError("abstract")

    def lost(self) -> None:
        """Note that an attempt of this transaction may have been written, and has no answer."""
        raise AssertionError("abstract")

    def failed(self, error: AiokprodError) -> None:
        """Note that the transaction can only be aborted. An effect of a state change, never within it."""
        raise AssertionError("abstract")

    def landed(self) -> None:
        """Note that the answers to what was abandoned are in. An effect of a state change, never within it."""
        raise AssertionError("abstract")


Compress: TypeAlias = "Callable[[PartitionQueue, Entry, list[tuple[int, int]], bytes | bytearray], None]"
"""Compresses a section in a worker thread, answers with `queue.compressed`; the ranges are the records that it holds."""


class PartitionQueue(ExplainedQueue):
    """Order, linger and verdicts of one partition."""

    def __init__(
        self,
        topic: str,
        partition: int,
        ledger: Ledger,
        context: PipelineContext,
        room: Room,
        destination: Destination,
        retries: Retries,
        compress: Compress,
        expiries: TimerQueue[PartitionQueue],
        on_new_batch: Callable[[int], None],
        fill: BatchFill,
        incarnation: int = 0,
        scope: TransactionScope | None = None,
    ) -> None:
        """Make the queue of a partition that had no record yet.

        Args:
            topic: its name.
            partition: its number in the topic.
            ledger: decides for it.
            context: of the pipeline.
            room: takes back the bytes of settled records.
            destination: where its ready batches go.
            retries: what its ledger asks for.
            compress: for large sections.
            expiries: calls `look` when the oldest record expires.
            on_new_batch: told the partition's number for each batch that is opened.
            fill: of the topic: what its batches take.
            incarnation: of the topic, where brokers tell no topic ids.
            scope: of the transactions of a transactional producer.
        """
        self.topic = topic
        self.partition = partition
        self.loop = context.loop
        self.ledger = ledger
        self.metrics = context.metrics
        self._counters = context.metrics.topic(topic)
        self._hooks = context.batch_hooks
        self.is_used = False
        # The broker in whose ready set this queue is. Only `Retries.rerouted` writes it, after the ledger adopted another
        # leader: written earlier, the queue could not be taken out of the ready set of the old one.
        self.node = ledger.node
        # Takes records until it is full, sent, flushed or followed by columns. It is always the last entry of the ledger.
        self.open_batch: ProducerBatch | None = None
        # Every batch with a record that has no outcome, in the order of their opening, until all that its end leads to is done.
        # A crash settles from these: it may have come while an entry was out of the ledger.
        self._batches: dict[ProducerBatch, None] = {}
        # An event of the ledger, or what it led to, did not come to its end. Its entries may be wrong from then on.
        self.is_torn = False
        self.compressing: Entry | None = None  # in a worker thread; `candidate` passes it over until that answers
        # The earliest time at which the timer queue of expiries calls `look` (loop time); inf: it does not. Written by
        # `_look_at` and `look` only. Without it each batch would set one more timer for the same partition.
        self._looks_at = inf
        # The chaser came back while batches were in flight. `returned` writes it; `apply` returns once `lost` was told.
        self._is_return_due = False
        # Of the topic, counted by the metadata: brokers before 2.8 tell no topic ids, and a topic that was made again
        # would look like one whose leader epochs went back (faults: T6, T10).
        self._incarnation = incarnation
        # Of the answer that is being applied: the timestamp the broker gave, on LogAppendTime topics; else -1.
        self._append_time_ms = -1
        # The answer that is being applied says that its batch was in the log before this attempt.
        self._is_duplicate = False
        # For explanations: what happened to the partition (None: nothing yet), when it last got or lost its leader, when a
        # chaser left, and when it asked for a producer id (loop time). All of it is written only when something goes wrong.
        self.timeline: Timeline | None = None
        self._led_since = self._chased_at = self._asked_at = context.loop.time()
        self._gone = ""  # why the partition went away, for the records that are still to fail of it
        self.texts = PartitionErrors(topic, partition, is_transactional=scope is not None, codec=context.settings.codec)
        self._scope = scope
        self._entered = 0  # the number of the last transaction that it was let into
        self._stamped = 0  # of the last one of which it has written something
        self._abandoned: list[Entry] = []  # of an aborted transaction, in flight
        # What it has written in that transaction: the first and the last offset (-1: not told by a broker), and the count.
        self._written_first = self._written_last = -1
        self._written_count = 0
        self._acknowledged = Acknowledged()
        self._losses = context.losses
        self._defects = context.defects
        self._settings = context.settings
        self._effects = context.effects
        self._flushes = context.flushes
        self._reports = context.reports
        self._room = room
        self._destination = destination
        self._retries = retries
        self._compress = compress
        self._expiries = expiries
        self._fill = fill
        # What the open batch takes: asked of `_fill` when it is opened, so that a record costs nothing more with a codec.
        self._batch_bytes = fill.limit_bytes
        self._on_new_batch = on_new_batch
        self._settled_owner = SettledOwner(topic, partition, self.loop)

    # ------------------------------------------------------------------ filling
    # Records are taken on one line, behind all that allocates, calls or fails: their cells count, their bytes are charged, a
    # flush waits for their batch. Before it nothing has changed but cells behind `count`, which `trim` takes out, and alarms
    # that find nothing. Meanwhile `Effects.depth` says that we are at work: what sends then would write cells between ours.
    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> Delivery:
        # Called for each record, so the guard of the tests is asked only where a batch is opened.
        batch = self.open_batch
        if batch is None or batch.size_bytes + size_bytes > self._batch_bytes:
            generation, charge_bytes = self._flushes.generation, size_bytes + RECORD_OVERHEAD_BYTES
            return self._append_first(
                value, key, headers, timestamp_ms, size_bytes, charge_bytes, self.loop.time(), generation, None
            )
        effects, room = self._effects, self._room
        index = batch.count
        try:
            effects.depth = 1
            delivery = Delivery(batch, index)
            batch.write(value, key, headers, timestamp_ms, size_bytes, now)
            batch.count, batch.size_bytes, room.used_bytes, effects.depth = (
                index + 1,
                batch.size_bytes + size_bytes,
                room.used_bytes + size_bytes + RECORD_OVERHEAD_BYTES,
                0,
            )
        except BaseException:
            effects.depth = 0
            batch.trim()
            raise
        return delivery

    def append_to(self, bulk: SendMany, value: bytes, timestamp_ms: int, size_bytes: int, now: float) -> None:
        batch = self.open_batch
        if batch is None or batch.size_bytes + size_bytes > self._batch_bytes:
            generation, charge_bytes = self._flushes.generation, size_bytes + RECORD_OVERHEAD_BYTES
            self._append_first(
                value, None, None, timestamp_ms, size_bytes, charge_bytes, self.loop.time(), generation, bulk
            )
            return
        effects, room = self._effects, self._room
        index = batch.count
        try:
            effects.depth = 1
            batch.write(value, None, None, timestamp_ms, size_bytes, now)
            batch.count, batch.size_bytes, room.used_bytes, effects.depth = (
                index + 1,
                batch.size_bytes + size_bytes,
                room.used_bytes + size_bytes + RECORD_OVERHEAD_BYTES,
                0,
            )
        except BaseException:
            effects.depth = 0
            batch.trim()
            raise
        bulk.add_cell(batch, index)

    def append_run(self, bulk: SendMany, run: ValueRun, timestamp_ms: int, now: float, stay_bytes: int) -> None:
        effects = self._effects
        effects.begin()
        batch = self.open_batch
        try:
            if batch is None or batch.size_bytes + run.first_bytes() > self._batch_bytes:
                batch = self._new_batch(timestamp_ms, self.loop.time(), self._flushes.generation)
            run.cut(self._batch_bytes - batch.size_bytes, stay_bytes)
            index, count, total_bytes, charge_bytes = batch.count, len(run.cells), run.total_bytes, run.charge_bytes
            batch.write_many(run.cells, run.sizes, timestamp_ms, now)
            if batch is not self.open_batch:
                self._take_first(batch, count, total_bytes, charge_bytes)
            else:
                room = self._room
                batch.count, batch.size_bytes, room.used_bytes = (
                    index + count,
                    batch.size_bytes + total_bytes,
                    room.used_bytes + charge_bytes,
                )
        except BaseException:
            if batch is not None:
                batch.trim()
            raise
        finally:
            effects.end()
        bulk.add_cells(batch, index, count)

    def append_parked(self, record: ParkedRecord) -> None:
        """Take a record that was parked, whose bytes are charged; its Delivery moves into the batch."""
        if self._effects.is_guarded:
            self._effects.check_outside("a waiting record is appended")
        assert record.delivery is not None
        batch = self.open_batch
        if batch is None or batch.size_bytes + record.size_bytes > self._batch_bytes:
            # With the times of the record, not the current one: its delivery timeout and its linger began with its `send`.
            batch = self._new_batch(record.timestamp_ms, record.sent_at, record.generation)
            batch.waited = record.waited(self.loop.time())
        elif record.generation < batch.generation:
            # The record was sent before a flush, waited, and meets a batch that was opened after it. The flush has to
            # wait for the whole batch now: the record's own part in it ends when the batch has it (`Parking.passed_on`).
            self._flushes.began(record.generation)
            self._flushes.finished(batch.generation)
            batch.generation = record.generation
            self._destination.ready(self)  # the batch belongs to a flush now, so it does not linger any longer
        index, size_bytes = batch.count, record.size_bytes
        try:
            batch.write(record.value, record.key, record.headers, record.timestamp_ms, size_bytes, record.sent_at)
            if batch is not self.open_batch:
                self._take_first(batch, 1, size_bytes, 0)
            else:
                batch.count, batch.size_bytes = index + 1, batch.size_bytes + size_bytes
        except BaseException:
            batch.trim()
            raise
        record.delivery._move_to(batch, index)  # pyright: ignore[reportPrivateUsage] - users are not shown it

    def append_columns(self, section: Section, rows: Sequence[int], charge_bytes: int, listener: BatchListener) -> None:
        """Take a batch that is full and encoded from the beginning; the open one goes before it."""
        effects, ledger = self._effects, self.ledger
        effects.begin()
        try:
            # Records that `send` took before these columns must not go behind them: the open batch ends here.
            self.seal()
            now, count = self.loop.time(), len(rows)
            generation = self._flushes.generation
            timeout_s = self._settings.delivery_timeout_s
            batch = ColumnBatch(self, now, timeout_s, generation, section, rows, charge_bytes, listener)
            self._on_new_batch(self.partition)
            self._opened(now)
            self._destination.ready(self)
            pending = self._flushes.prepare(generation)
            try:
                self._batches[batch] = None
                batch.entry = ledger.open(batch)
                # Sealed at once, and never the open batch: a record appended to it would have no cell in its section.
                ledger.seal()
                pending[generation], listener.unused_bytes, listener.taken, listener.unsettled = (
                    pending[generation] + 1,
                    listener.unused_bytes - charge_bytes,
                    listener.taken + count,
                    listener.unsettled + count,
                )
            except BaseException:
                self._batches.pop(batch, None)
                ledger.drop(batch)
                raise
            self._sealed(batch)
        finally:
            effects.end()

    def append_batch(self, filled: FilledBatch) -> list[Delivery]:
        """Take a batch that a program has filled, which is charged for; the open one goes before it."""
        effects, ledger = self._effects, self.ledger
        effects.begin()
        try:
            # As columns: what `send` took before must not go behind it, and what comes later begins another batch.
            self.seal()
            now, generation = self.loop.time(), self._flushes.generation
            timeout_s, times_ms = self._settings.delivery_timeout_s, filled.times_ms
            batch = ProducerBatch(self, now, timeout_s, generation, RECORD_OVERHEAD_BYTES, times_ms[0])
            for index, value in enumerate(filled.values):
                key, headers = filled.keys[index], filled.headers[index]
                batch.append(value, key, headers, times_ms[index], filled.sizes[index], now)
            deliveries = [Delivery(batch, index) for index in range(batch.count)]
            self._on_new_batch(self.partition)
            self._opened(now)
            self._destination.ready(self)
            pending = self._flushes.prepare(generation)
            try:
                self._batches[batch] = None
                batch.entry = ledger.open(batch)
                ledger.seal()
                pending[generation], filled.is_taken = pending[generation] + 1, True
            except BaseException:
                if not filled.is_taken:
                    self._batches.pop(batch, None)
                    ledger.drop(batch)
                raise
            self._sealed(batch)
            if len(ledger.entries) > MOST_AWAKE:
                batch.rest()
        finally:
            effects.end()
        return deliveries

    def _append_first(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        charge_bytes: int,
        now: float,
        generation: int,
        bulk: SendMany | None,
    ) -> Delivery:
        """Take the first record of a batch; for `send_many`, if there is one."""
        effects = self._effects
        effects.begin()
        try:
            batch = self._new_batch(timestamp_ms, now, generation)
            delivery = Delivery(batch, 0)
            batch.write(value, key, headers, timestamp_ms, size_bytes, now)
            self._take_first(batch, 1, size_bytes, charge_bytes)
        finally:
            effects.end()
        if bulk is not None:
            bulk.add_cell(batch, 0)
        return delivery

    def _new_batch(self, timestamp_ms: int, now: float, generation: int) -> ProducerBatch:
        """Return a batch for the next record, which is not open before it has that (`_take_first`)."""
        if self._effects.is_guarded:
            # While a ledger's actions are carried out the next of them may settle this batch: it would be sealed with
            # records that are about to fail, and the one that opened it would never settle.
            self._effects.check_outside("a batch is opened")
        self.seal()
        batch = ProducerBatch(
            self, now, self._settings.delivery_timeout_s, generation, RECORD_OVERHEAD_BYTES, timestamp_ms
        )
        self._batch_bytes = self._fill.limit_bytes
        # First what calls out, and may fail: later records join a batch that is open, and trust that its alarms are set.
        self._on_new_batch(self.partition)
        self._opened(now)
        if generation < self._flushes.generation or self._room.is_short:
            # A flush has ended the generation of this late record, or records wait for room (faults: M8). No later event
            # would cut the linger: both looked at the batches that were open when the flush or the waiting began.
            self._destination.ready(self)
        return batch

    def _take_first(self, batch: ProducerBatch, count: int, size_bytes: int, charge_bytes: int) -> None:
        """Open the batch with its first records, whose cells are there. An open batch without a record would be sent empty."""
        room, generation = self._room, batch.generation
        pending = self._flushes.prepare(generation)
        try:
            self._batches[batch] = None
            batch.entry = self.ledger.open(batch)
            self.open_batch, batch.count, batch.size_bytes, room.used_bytes, pending[generation] = (
                batch,
                count,
                batch.size_bytes + size_bytes,
                room.used_bytes + charge_bytes,
                pending[generation] + 1,
            )
        except BaseException:
            if self.open_batch is not batch:
                self._batches.pop(batch, None)
                self.ledger.drop(batch)
            raise

    def _opened(self, since: float) -> None:
        """Set linger and expiry of a batch that was opened for a record that was sent at `since` (loop time)."""
        self.is_used = True
        scope = self._scope
        if scope is not None and self._entered != scope.number:
            scope.opened(self)  # at once: the coordinator is asked while the batch lingers
        linger_s = self._settings.linger_s
        if linger_s > 0:
            self._destination.ready_at(self, since + linger_s)
        else:
            self._destination.ready(self)
        # From the send, not from now: the record may have been parked until its topic was known.
        self._look_at(since + self._settings.delivery_timeout_s)

    def seal(self) -> None:
        """Let the open batch take no more records; it is ready."""
        batch = self.open_batch
        if batch is not None:
            self._destination.ready(self)  # a look on the next turn of the loop: asked for first, as the call may fail
            # An entry that is not sealed is sealed later (`Ledger.open`, `prepare`); an open batch whose entry is sealed
            # would go on to take records, which are not in the entry.
            self.open_batch = None
            self.ledger.seal()
            self._sealed(batch)
            if len(self.ledger.entries) > MOST_AWAKE:
                batch.rest()

    def _sealed(self, batch: ProducerBatch) -> None:
        batch.sealed_at = self.loop.time()
        if self._hooks is not None:
            self._hooks.sealed(batch)

    def urge(self, batch: ProducerBatch) -> None:
        # A sealed batch does not linger: a task that waits for it has nothing to hasten.
        if batch is self.open_batch:
            self._destination.urged(self)

    def pending_bytes(self) -> int:
        """Return the bytes of records without an outcome."""
        total = 0
        before: ProducerBatch | None = None
        for entry in self.ledger.entries:
            if entry.batch is not before:  # the parts of a split batch stand together
                before = entry.batch
                total += before.charged_bytes
        return total

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
        """Take a record out; `is_told`: the caller knows of the failure, as it asked for it."""
        entry = batch.entry
        if not isinstance(entry, Entry):
            return False  # all of it is settled
        self._effects.begin()
        try:
            if batch is self.open_batch:
                if batch.settled_count + 1 == batch.count:
                    # Its last record leaves, and the entry leaves the ledger with it. A record that is appended to the batch
                    # afterwards would be in no entry: never sent, never settled.
                    self.open_batch = None
            if not self.ledger.recall(entry, index):
                return False
            if not is_told:
                self.tell_withdrawn(batch, index, error, self.loop.time())
            self._settle_segment(batch, Segment(index, index + 1, -1, -1, error, 0, self.loop.time()), is_told)
        finally:
            self._effects.end()
        return True

    def recall_all(self, error: AiokprodError) -> tuple[int, int]:
        """Take all records out that are not stamped, and fail them with this error, of which the caller tells.

        Returns:
            How many they were, and how many are left: they were stamped, and go on to their outcome.
        """
        if not self.ledger.entries:
            return 0, 0
        taken, now = 0, self.loop.time()
        error.topic, error.partition = self.topic, self.partition
        self._begin_event()
        self._effects.begin()
        try:
            batches, left = self.ledger.recall_all()
            if batches:
                # The open batch is the last one, and not stamped: a record that is appended to it now would be in no entry.
                self.open_batch = None
            for batch, ranges in batches:
                for first, last in ranges:
                    self._settle_segment(batch, Segment(first, last, -1, -1, error, 0, now), is_told=True)
                    taken += last - first
            self.is_torn = False
        finally:
            self._effects.end()
        return taken, left

    def settled_owner(self) -> BatchOwner:
        return self._settled_owner

    # ------------------------------------------------------------------ explaining
    def _transaction_state(self) -> str:
        return "" if self._scope is None else self._scope.state_text()

    def _broker_wait(self, node: int, now: float) -> Wait | None:
        return self._destination.wait_at(node, now)

    # ------------------------------------------------------------------ going
    def next(self, now: float, now_ms: int, urgent: bool) -> Entry | WaitsFor | None:
        """Return the batch that may go now, or what the partition waits for; None: no batch is left to send.

        It changes nothing, and explanations ask it as the sender does: from any thread.

        Args:
            now: loop time.
            now_ms: milliseconds since 1970.
            urgent: nothing is in flight to its broker, or an answer just came.
        """
        scope, ledger = self._scope, self.ledger
        if scope is not None and self._entered != scope.number:
            # The first batch of each transaction waits for its identity, and for its coordinator to know the partition.
            return TRANSACTION if ledger.entries else None
        # The ledger decides first: draining, backoff, the first-ack guard (R5) and a missing identity hold back a full
        # batch as well as an open one. Linger comes last, and matters for the open batch only.
        found = ledger.next(now, now_ms)
        if not isinstance(found, Entry):
            return found
        if found is self.compressing:
            # While its thread works nothing behind it goes either: the ledger's candidate stays the same, so a small
            # batch that needs no thread cannot be stamped before it.
            return COMPRESSION
        batch = self.open_batch
        if batch is not None and found is batch.entry and self._lingers(batch, now, urgent):
            return LINGER
        return found

    def _lingers(self, batch: ProducerBatch, now: float, urgent: bool) -> bool:
        return not (
            (urgent and batch.is_urgent)
            or now >= batch.opened_at + self._settings.linger_s
            or batch.generation < self._flushes.generation
            or self._room.is_short
        )

    def candidate(self, now: float, now_ms: int, urgent: bool) -> Entry | None:
        """Return the batch that may go now, or None; see `next`. Of one that is too large, or of two ages, the first part."""
        found = self.next(now, now_ms, urgent)
        scope = self._scope
        if found is TRANSACTION and scope is not None and scope.enter(self):
            found = self.next(now, now_ms, urgent)
        if not isinstance(found, Entry):
            return None
        ledger, batch = self.ledger, self.open_batch
        if batch is not None and found is batch.entry:
            is_old = now - batch.opened_at >= batch.delivery_timeout_s / 2
            if 0 < ledger.size_limit.batch_bytes < batch.size_bytes or (is_old and ledger.is_aged(found, now)):
                self.seal()  # only a sealed batch has a first part
        return ledger.first_part(found, now)

    def prepare(self, entry: Entry) -> Encoded | None:
        """Encode and compress, unless it has been done; None while a worker thread compresses."""
        encoded = entry.encoded
        if isinstance(encoded, Encoded):
            return encoded
        batch = self.open_batch
        if batch is not None and batch.entry is entry:
            # Closed before it is encoded: a record appended between the encoding and the stamp would be counted in the
            # header, and missing in the section.
            self.open_batch = None
            self.ledger.seal()
            self._sealed(batch)
        entry.seal()  # as a rule it is: not if an exception came between the two steps of a seal
        section = entry.batch.encode(entry.ranges)
        settings = self._settings
        self.metrics.batch_uncompressed_bytes.add(len(section))
        if settings.codec == "none":
            entry.encoded = encoded = Encoded(section, "none")
            return encoded
        if len(section) >= OFFLOAD_BYTES:
            # A copy of the ranges: a recall or a deadline may take records out of the entry meanwhile.
            self._compress(self, entry, list(entry.ranges), section)
            self.compressing = entry  # behind the call: the partition waits for the answer of the thread
            return None
        packed = compress(settings.codec, settings.codec_level, section)
        self._packed(len(section), len(packed))
        entry.encoded = encoded = Encoded(packed, settings.codec)
        return encoded

    def compressed(self, entry: Entry, ranges: list[tuple[int, int]], section: bytes, plain_bytes: int) -> None:
        """Take the section that the worker thread made, unless records have left the batch meanwhile."""
        if self.compressing is entry:
            self.compressing = None  # else another one is compressed now: this one was cut, or its records have left
        # With a record that left, the section would hold one record more than the header counts: the broker may refuse
        # the batch, and with it the valid records in it. `prepare` encodes what is left.
        if entry.ranges == ranges:
            entry.encoded = Encoded(section, self._settings.codec)
        self._packed(plain_bytes, len(section))
        self._destination.ready(self)

    def _packed(self, plain_bytes: int, packed_bytes: int) -> None:
        """Note what a section was packed into. The open batch takes as much as the next one would."""
        self._fill.packed(plain_bytes, packed_bytes, self.loop.time())
        self._batch_bytes = self._fill.limit_bytes

    def take(self, now: float, now_ms: int) -> Entry | None:
        """Return the candidate, stamped. The caller hands it to the transport in the same synchronous step."""
        # A stamped batch that is not written would leave a gap in the numbers, and all behind it would get
        # OUT_OF_ORDER_SEQUENCE_NUMBER (broker: 3.1).
        entry = self.ledger.take(now, now_ms)
        if entry is not None:
            encoded = entry.encoded
            assert isinstance(encoded, Encoded), "a batch is encoded before it is stamped"
            scope = self._scope
            if scope is not None and self._stamped != scope.number:
                self._stamped = scope.number
                scope.stamped(self)
            if entry.count == entry.batch.unsettled_count:  # no other part of the batch needs them
                entry.batch.release_columns(encoded.section, encoded.codec, entry.ranges)
        return entry

    # ------------------------------------------------------------------ outcomes
    def _begin_event(self) -> None:
        """Note that an event of the ledger begins, which `apply` ends. If it does not, no other event comes than `fail`."""
        if self.is_torn:
            raise AssertionError(f"a step of {self.topic}-{self.partition} has ended half done")
        self.is_torn = True

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
        """Take in the broker's answer to one attempt. (ledger: R1)"""
        if code == 0 and attempt == 1:
            # A first attempt is no duplicate, whose answer carries a timestamp on any topic (broker: 2.2).
            self.ledger.guard.is_log_append_time = timestamp_ms >= 0
        if code == 0 and base_offset >= 0:
            self._note_acknowledged(entry, base_offset, now)
        elif code == MESSAGE_TOO_LARGE and entry.count > 1:
            encoded = entry.encoded
            if isinstance(encoded, Encoded) and encoded.codec != "none":
                # The ledger splits this one. Batches that are filled from now on are smaller, else they are refused too.
                self._fill.refused(encoded.size_bytes, now)
                self._batch_bytes = self._fill.limit_bytes
        if self._hooks is not None and self._settings.acks:
            self._note_answer(entry, attempt, None if code == NO_ANSWER else code, now)
        is_log_append_time = self.ledger.guard.is_log_append_time
        self._append_time_ms = timestamp_ms if is_log_append_time else -1
        # The broker tells a batch that it has from one that it has written by the time alone: it repeats that of the batch
        # (broker: 2.1, 2.2). With LogAppendTime both have a time of the broker, and nothing tells them apart.
        self._is_duplicate = code == DUPLICATE or (
            code == 0 and attempt > 1 and not is_log_append_time and timestamp_ms == entry.batch.max_timestamp_ms
        )
        self._begin_event()
        self.apply(self.ledger.answer(entry, attempt, code, base_offset, named, now, now_ms), now)

    def _note_acknowledged(self, entry: Entry, base_offset: int, now: float) -> None:
        ledger, acknowledged = self.ledger, self._acknowledged
        lost = acknowledged.note(
            entry.ordinal, base_offset, entry.count, ledger.topic_id, self._incarnation, ledger.leader_epoch
        )
        if lost is not None:
            first, last = lost
            suspicion = Suspicion(
                self.topic,
                self.partition,
                first,
                last,
                entry.sent_to,
                acknowledged.topic_id,
                acknowledged.incarnation,
                acknowledged.leader_epoch,
                now,
            )
            acknowledged.leader_epoch = ledger.leader_epoch
            self._losses.suspect(suspicion)

    def lost(self, fates: list[tuple[Entry, int, bool]]) -> None:
        """Take in the end of a connection without an answer to these; True: bytes were handed to the transport."""
        # All batches of the connection in one event. Told one by one, the chaser of the first could come back and rewind
        # while the ledger takes the second for one in flight.
        now = self.loop.time()
        if self._hooks is not None:
            for entry, attempt, _ in fates:
                self._note_answer(entry, attempt, None, now)
        if self._scope is not None and any(written for _, _, written in fates):
            self._scope.lost()  # before the ledger's actions: they may end the transaction
        self._begin_event()
        self.apply(self.ledger.lost(fates, now), now)

    def _note_answer(self, entry: Entry, attempt: int, code: int | None, now: float) -> None:
        if self._hooks is not None:
            self._hooks.answered(
                entry.batch, self.topic, self.partition, entry.count, attempt, code, entry.sent_at, now
            )

    def returned(self) -> None:
        """Take in that the chaser is back.

        Batches may still be in flight: after a reset asyncio and uvloop mark the transport as closing, so that no chaser
        can be put behind them any more, and tell the loss a turn later. The return then waits for `lost`.
        """
        if self.ledger.is_flying:
            self._is_return_due = True
            return
        self._is_return_due = False
        if (waited_s := self.loop.time() - self._chased_at) >= SHORTEST_TOLD_S:
            text = f"has waited {waited_s:.3f} s for the answers to all that was in flight (chaser)"
            self.happened(Happening(self.loop.time(), EventKind.CHASED, text))
        # Nothing of the partition is in flight here. A batch that still was could be appended late, under numbers that the
        # rewind has given to another batch (faults: I7, B5).
        now = self.loop.time()
        self._begin_event()
        self._effects.begin()
        try:
            self.apply(self.ledger.returned(now, wall_ms()), now)
        finally:
            self._effects.end()

    def learn(self, snapshot: TopicSnapshot) -> None:
        """Take in new metadata of the topic: the leader of the partition, or that the partition is not listed any more."""
        if self.partition < len(snapshot.partitions):
            leader = snapshot.partitions[self.partition]
            self.led_by(leader.leader_id, leader.leader_epoch, snapshot.topic_id, snapshot.incarnation)
        else:
            self.left_out(len(snapshot.partitions), snapshot.topic_id, snapshot.incarnation)

    def led_by(self, node: int, leader_epoch: int, topic_id: bytes, incarnation: int = 0) -> None:
        """Take in the leader that metadata or a hint named (-1: there is none)."""
        # The partition is there again (faults: T6): later failures must not be told as those of a missing one.
        self.texts.gone = None
        now = self.loop.time()
        # The ledger drops older leader epochs (faults: T10), but those of a topic that was made again begin at 0.
        is_new_topic, self._incarnation = incarnation != self._incarnation, incarnation
        self._begin_event()
        self.apply(self.ledger.leader(node, leader_epoch, topic_id, now, wall_ms(), is_new_topic=is_new_topic), now)

    def left_out(self, partition_count: int, topic_id: bytes, incarnation: int) -> None:
        """Take in metadata with fewer partitions.

        Of the same topic: the broker lags behind, and the records wait (faults: T8). Of another topic of this name: the
        partition does not exist any more, and its records fail at once (faults: T6).
        """
        is_new_topic, self._incarnation = incarnation != self._incarnation, incarnation
        if is_new_topic or self.ledger.is_recreated(topic_id):
            self._gone = f"the topic was made again with partitions 0 to {partition_count - 1}"
            self.texts.gone = self._gone
            self.seal()  # what comes later, if the partition is there again, is not meant
            self.purge_some(MOST_AT_ONCE)
            self._purge_on_later()

    def granted(self, identity: tuple[int, int]) -> None:
        """Take a producer id and epoch for this partition."""
        # The ledger adopts it only while it holds nothing stamped (R2.4): under two identities at once, the broker would
        # fence the older one, and its batches in flight would be refused (broker: 1.3).
        now = self.loop.time()
        self._begin_event()
        self._effects.begin()
        try:
            self.apply(self.ledger.granted(identity, now), now)
        finally:
            self._effects.end()

    def look(self) -> None:
        """Fail what has expired, and look again when the next record does. The timer queue of expiries calls this."""
        if self._looks_at > self.loop.time():
            return  # a stale timer: an earlier one was set after it, has looked here, and has set the next time
        self._looks_at = inf
        try:
            # The loop only logs what a timer raises: the records would never settle, and the producer would not fail
            # (faults: L15).
            self.expire()
            deadline = self.ledger.next_deadline()
            if deadline is not None:
                now = self.loop.time()
                self._look_at(now if self.ledger.is_cut else max(deadline, now + LOOK_AGAIN_S))
        except BaseException as bug:
            self._effects.crashed(bug)
            if not isinstance(bug, Exception):
                raise

    def _look_at(self, deadline: float) -> None:
        if deadline < self._looks_at:
            self._expiries.set(deadline, self)
            self._looks_at = deadline  # behind the call: each later batch would trust a timer that is not set

    def expire(self) -> None:
        """Fail the records whose deadline has come: those of `MOST_AT_ONCE` batches, the oldest ones."""
        now = self.loop.time()
        self._begin_event()
        self._effects.begin()
        try:
            self.apply(self.ledger.tick(now, wall_ms(), MOST_AT_ONCE), now)
        finally:
            self._effects.end()

    def purge(self) -> None:
        """Settle everything now: the producer closes or has failed, or the partition does not exist any more."""
        now = self.loop.time()
        self._begin_event()
        self._effects.begin()
        try:
            self.apply(self.ledger.purge(now), now)
        finally:
            self._effects.end()
        for batch in self._batches:
            if not batch.is_finished:
                raise AssertionError(
                    f"records of {self.topic}-{self.partition} have left its ledger without an outcome"
                )

    def purge_some(self, most: int) -> int:
        """Begin to settle everything: so many batches at most. Return how many; if it is less, all is settled."""
        before = len(self._batches)
        if not before:
            return 0
        now = self.loop.time()
        self._begin_event()
        self._effects.begin()
        try:
            self.apply(self.ledger.purge(now, 0, most), now)
        finally:
            self._effects.end()
        return most if self.ledger.is_cut else before - len(self._batches)

    def _purge_on_later(self) -> None:
        if self.ledger.is_cut:
            self.loop.call_soon(self._purge_on)

    def _purge_on(self) -> None:
        """Settle more of what was there when the partition went away."""
        if not self.ledger.is_cut:
            return  # the producer has failed or is closed meanwhile
        gone = self.texts.gone
        self.texts.gone = self._gone  # the partition may be there again
        try:
            now = self.loop.time()
            self._begin_event()
            self._effects.begin()
            try:
                self.apply(self.ledger.purge_on(now, 0, MOST_AT_ONCE), now)
            finally:
                self._effects.end()
            self._purge_on_later()
        except BaseException as bug:
            self._effects.crashed(bug)
            if not isinstance(bug, Exception):
                raise
        finally:
            self.texts.gone = gone

    def fail(self) -> None:
        """Settle everything, wherever a step of ours has ended. What was ever written may be in the log.

        The entries of the ledger, which know more, may be wrong; so each batch is settled from its own books. May be called
        again; it raises what it could not do.
        """
        if not self._batches and not self.is_torn:
            return
        self.open_batch = self.compressing = None
        self.ledger.forget()
        self.is_torn = False  # an empty ledger is whole
        self._abandoned = []
        broken: BaseException | None = None
        for batch in list(self._batches):
            try:
                try:
                    self._fail_batch(batch, self.loop.time())
                except BaseException as bug:
                    broken = bug
                    self._fail_plainly(batch, bug)
            except BaseException as bug:
                broken = bug
        if broken is not None:
            raise broken

    def _fail_batch(self, batch: ProducerBatch, now: float) -> None:
        outcome = Outcome.POSSIBLY if batch.is_written else Outcome.NOT
        entry = batch.entry
        attempts = entry.attempt if isinstance(entry, Entry) else int(batch.is_written)
        ranges = batch.counted_again()
        if ranges:
            self._effects.begin()
            try:
                self._settle(Settle(batch, ranges, outcome, None, Reason.PURGE, None, attempts), now)
            finally:
                self._effects.end()
        batch.end()
        self._reports.settled(batch, 0, batch.count)
        self._batches.pop(batch, None)

    def _fail_plainly(self, batch: ProducerBatch, bug: BaseException) -> None:
        """Settle what `_fail_batch` could not: its tasks wake, and nothing else is told of it."""
        persistence = Persistence.POSSIBLY_PERSISTED if batch.is_written else Persistence.NOT_PERSISTED
        text = f"the producer failed: {bug}"
        error = ProducerFailedError(text, topic=self.topic, partition=self.partition, persistence=persistence)
        for first, last in batch.counted_again():
            batch.settle(Segment(first, last, -1, -1, error, int(batch.is_written), self.loop.time()))
        batch.end()

    # ------------------------------------------------------------------ watched
    def stall(self, now: float) -> Stall | None:
        """Return a stall if its records have no alarm for their expiry, or a batch may go and no look at it is due.

        Every wait that `next` knows is left alone: something answers it, which others watch.
        """
        ledger = self.ledger
        head = ledger.head()
        deadline = ledger.next_deadline()
        if head is None or deadline is None:
            return None
        looks_at = self._looks_at
        if looks_at > max(deadline, now) + STALLED_S or looks_at < now - STALLED_S:
            return Stall("records have no alarm for the end of their delivery_timeout_ms", self, None, self._look_again)
        if ledger.is_flying or ledger.is_cut:
            return None  # an answer comes, or the loss of the connection; the next part of a purge
        if self.node != ledger.node:
            return Stall("a partition does not follow its leader", self, head, self._reroute)
        # As of a while ago: backoff or linger may have ended a moment before.
        if not isinstance(self.next(now - STALLED_S, wall_ms(), False), Entry) or self._destination.is_due(self):
            return None
        return Stall("a batch may be sent, and no look at it comes", self, head, partial(self._destination.ready, self))

    def _look_again(self) -> None:
        self._looks_at = inf
        self._look_at(self.loop.time())

    # ------------------------------------------------------------------ transactions
    def entered(self, number: int, identity: tuple[int, int]) -> None:
        """Stamp the batches of this transaction with this identity from now on."""
        self._entered = number
        self._written_first = self._written_last = -1
        self._written_count = 0
        self.texts.aborted = None
        self.ledger.enrol(identity)

    def ready(self) -> None:
        """Look at the partition again: it was let into the transaction."""
        if self.ledger.entries:
            self._destination.ready(self)

    def written(self, number: int) -> tuple[int, int, int]:
        """Return the first and the last offset that it wrote in this transaction (-1: not told), and the count of records."""
        if self._entered != number:
            return -1, -1, 0
        return self._written_first, self._written_last, self._written_count

    def is_written(self) -> bool:
        """Return whether a batch of the transaction that it has entered was acknowledged."""
        return self._written_count > 0

    def _note_written(self, offset: int, count: int) -> None:
        self._written_count += count
        if offset >= 0:
            if self._written_first < 0 or offset < self._written_first:
                self._written_first = offset
            self._written_last = max(self._written_last, offset + count - 1)

    def abandon(self, error: AiokprodError) -> bool:
        """Fail everything with this error: the transaction is aborted. True: the answers to some of it are due."""
        now = self.loop.time()
        self.texts.aborted = error
        self._begin_event()
        self._effects.begin()
        try:
            actions, flying = self.ledger.abandon(now)
            self._abandoned += flying
            self.apply(actions, now)
        finally:
            self._effects.end()
        return self.has_abandoned()

    def has_abandoned(self) -> bool:
        """Return whether answers to abandoned batches are due."""
        self._abandoned = [entry for entry in self._abandoned if entry.is_flying]
        return bool(self._abandoned)

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
            # One list, carried out to its end: a chaser that came back at once would rewind between two of its actions.
            for action in actions:
                if isinstance(action, Settle):
                    self._settle(action, now)
                elif isinstance(action, Chase):
                    self._chased_at = now
                    # With nothing in flight at that node the chaser returns within the call, and rewinds the ledger.
                    effects.later(partial(self._retries.chase, self, action.node))
                elif isinstance(action, NeedIdentity):
                    # The next epoch is granted within the call, and the ledger begins again at sequence 0.
                    self.metrics.epoch_bumps.add(1)
                    self._asked_at = now
                    if action.used is not None:
                        what = "another producer id" if action.fresh else "the next epoch"
                        text = f"begins again under {what}, with sequence number 0"
                        self.happened(Happening(now, EventKind.IDENTITY, text))
                    effects.later(partial(self._retries.need_identity, self, action.used, action.fresh))
                elif isinstance(action, WantMetadata):
                    why = f"{self.topic}-{self.partition} was answered {name_of(action.code)}"
                    effects.later(partial(self._retries.want_metadata, why))
                elif isinstance(action, Abort):
                    scope = self._scope
                    assert scope is not None, "a ledger aborts, and there is no transaction"
                    scope.lost()  # its numbers do not follow each other any more, as if one of them were lost
                    effects.later(partial(scope.failed, self.texts.aborted_by_ledger()))
                else:
                    assert_never(action)
            if self.open_batch is not None and self.open_batch.is_finished:
                # All its records expired before it was sealed, and its entry is gone: the next record needs another batch.
                self.open_batch = None
            if self._abandoned and self._scope is not None and not self.has_abandoned():
                effects.later(self._scope.landed)
            # The chaser came back before the loss was told (see `returned`). It has been told now, to the last batch.
            if self._is_return_due and not self.ledger.is_flying:
                effects.later(self.returned)
            if self.node != self.ledger.node:
                # As an effect, and behind the chaser: a rewind may adopt yet another leader.
                effects.later(self._reroute)
            elif self.ledger.entries:
                self._destination.ready(self)
            self.is_torn = False
        finally:
            if effects.is_guarded:
                effects.left()
            effects.end()

    def _reroute(self) -> None:
        """Register the queue with the leader that its ledger has adopted."""
        # Looked at again: two events of one state change leave two of these effects, and the first has done it.
        if self.node != self.ledger.node:
            self._retries.rerouted(self)
            self._led_since = self.loop.time()
            text = "the partition has no leader" if self.node < 0 else f"the leader is broker {self.node}"
            self.happened(Happening(self._led_since, EventKind.LEADER, text, self.node))
        if self.ledger.entries:
            self._destination.ready(self)
        batch = self.open_batch
        if batch is not None and batch.is_urgent:
            self._destination.urged(self)  # the old broker's aggregator has forgotten that a task waits for this batch

    def _settle(self, action: Settle, now: float) -> None:
        code = action.code
        # Such a code refuses the whole producer, e.g. CLUSTER_AUTHORIZATION_FAILED (faults: P16). As an effect: a crash
        # purges this ledger too, whose actions are being carried out.
        if code is not None and action.outcome != Outcome.DELIVERED and is_producer_fatal(code):
            self._effects.later(partial(self._effects.crashed, self.texts.error_of(action, 0.0)))
        batch = action.batch
        if action.named and action.refusal is not None:
            self._settle_named(action, action.refusal, now)
            return
        offset = -1 if action.base_offset is None else action.base_offset
        error, is_duplicate = None, False
        if action.outcome != Outcome.DELIVERED:
            # One error for all ranges: made per record it would cost more than the records (faults: M13).
            since = batch.sent_at(action.ranges[0][0]) if action.ranges else batch.opened_at
            error = self.texts.error_of(action, now - since)
            self._tell(batch, action.ranges, error, now, action.flying)
        else:
            if self._scope is not None:
                self._note_written(offset, _records_of(action.ranges))
            # A proof is of an earlier attempt, whose answer did not come.
            is_duplicate = action.why is PROOF or (action.why is ANSWER and self._is_duplicate)
            if action.why is PROOF:
                self.metrics.delivered_by_proof.add(_records_of(action.ranges))
            elif action.attempts > 1:
                self.metrics.delivered_by_retry.add(_records_of(action.ranges))
            if batch.timeline is not None and action.ranges:
                # Its way was not a straight one: that can still be explained later.
                first, last = action.ranges[0][0], action.ranges[-1][1]
                self._keep_story(batch, first, last, now)
            if action.ranges:
                self._measure_delivery(batch, now)
        for first, last in action.ranges:
            segment = Segment(first, last, offset, self._append_time_ms, error, action.attempts, now, is_duplicate)
            self._settle_segment(batch, segment, False)
            if offset >= 0:
                # Offsets count the records that were sent, and those that left before have none: no gap between ranges.
                offset += last - first

    def _settle_named(self, action: Settle, refusal: Refusal, now: float) -> None:
        """Settle records that the broker refused by name. Neighbours share a segment: there may be thousands."""
        batch, named, ranges = action.batch, action.named, action.ranges
        error = self.texts.error_of(action, now - batch.sent_at(ranges[0][0]), named[0])
        self._tell(batch, ranges, error, now, None)
        at = 0
        while at < len(ranges):
            first, last = ranges[at]
            position = named[at]
            at += 1
            while at < len(ranges) and ranges[at][0] == last and named[at] == position + last - first:
                last = ranges[at][1]
                at += 1
            segment = NamedSegment(first, last, error, action.attempts, now, refusal, position)
            self._settle_segment(batch, segment, False)

    def counters(self) -> TopicCounters:
        """Return the counters of the topic."""
        if self._counters.is_over:
            self._counters = self.metrics.topic(self.topic)
        return self._counters

    def _settle_segment(self, batch: ProducerBatch, segment: Segment, is_told: bool) -> None:
        count = segment.last - segment.first
        metrics = self.metrics
        if segment.error is None:
            metrics.records_delivered.add(count)
            self.counters().records_delivered.add(count)
        else:
            metrics.failed(segment.error, count)
            self.counters().records_failed.add(count)
            if not is_told:
                # Before `settle`, which lets go of the records and of the tasks that wait for them.
                unwatched = batch.unwatched(segment)
                if unwatched:
                    self._report_unwatched(batch, segment, unwatched)
            self._reports.undelivered(self.topic, self.partition, segment.error, count)
        freed = batch.settle(segment)
        # Only counted: the room is granted as the last effect. Granted here, it could admit a record into the open batch
        # that the next action settles. The books first: Ctrl-C may come out of what hooks and interceptors are told by.
        self._room.free(freed)
        # A split batch is one batch here: it is finished with the last of its parts (faults: I10).
        if batch.is_finished:
            self._batches.pop(batch, None)
            self._flushes.finished(batch.generation)
        self._reports.settled(batch, segment.first, segment.last)
        if self._hooks is not None:
            self._hooks.settled(batch, self.topic, self.partition, segment)

    def _report_unwatched(self, batch: ProducerBatch, segment: Segment, indices: list[int]) -> None:
        """Report failures that nothing waits for; those of Deliveries only if they are not asked for in time."""
        disowned = batch.disowned(segment)
        if disowned:
            self._report_each(batch, segment, [index for index in indices if index in disowned], can_be_asked=False)
            indices = [index for index in indices if index not in disowned]
        self._report_each(batch, segment, indices, can_be_asked=batch.has_deliveries())

    def _report_each(self, batch: ProducerBatch, segment: Segment, indices: list[int], *, can_be_asked: bool) -> None:
        if not indices:
            return
        error, errors, kept, size_bytes = segment.error, segment.errors_of(indices), None, 0
        assert error is not None
        if self._settings.keep_failed_records:
            kept, size_bytes = batch.keep(indices, segment), batch.bytes_between(segment.first, segment.last)
        if can_be_asked:
            segment.unasked = self._reports.failed(error, indices, kept, errors, size_bytes)
        else:
            self._reports.lost(error, len(indices), kept, errors)

    def _measure_delivery(self, batch: ProducerBatch, now: float) -> None:
        """Note how long the batch, or a part of one that was split, took. Its segments are noted with it: they add up to it."""
        metrics = self.metrics
        metrics.delivery_seconds.record(now - batch.opened_at)
        waited = batch.waited
        waited_s = 0.0 if waited is None else max(0.0, waited[3] - batch.opened_at)
        if waited_s > 0:
            metrics.segment_room_seconds.record(waited_s)
        metrics.segment_linger_seconds.record(batch.sealed_at - batch.opened_at - waited_s)
        metrics.segment_queue_seconds.record(batch.first_sent_at - batch.sealed_at)
        last_sent_at = batch.last_sent_at
        if last_sent_at > batch.first_sent_at:
            metrics.segment_retry_seconds.record(last_sent_at - batch.first_sent_at)
        metrics.segment_request_seconds.record(now - last_sent_at)

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic}-{self.partition} on {self.node}: {self.ledger}>"


def _records_of(ranges: list[Range]) -> int:
    count = 0
    for first, last in ranges:
        count += last - first
    return count
