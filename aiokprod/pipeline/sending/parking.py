"""`Parking`: where records come in, and where they wait until a partition takes them. One per pipeline.

    send -> AdmissionGate -> TopicDispatcher -> open batch          (room and metadata are there: plain calls)
              |                |
              +--- ParkedRecord (no room, no metadata, no such partition yet, an awaitable serializer)

It knows the two stages a record passes before it is in a batch and keeps every parked record's life: its deadline
(max.block.ms), recall, per-send timeout, failure.

Invariants: an accepted record is in a batch, in the queue of its topic (`TopicDispatcher.waiting`), or failed; its bytes are
charged from the grant of the gate until a batch takes them over or the record fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from aiokprod.errors import (
    TRY_LATER,
    AiokprodError,
    BufferFullError,
    PartitionOutOfRangeError,
    RecordRecalledError,
    SendTimeoutError,
    SerializationError,
    TopicAuthorizationError,
    UnknownTopicError,
    UsageError,
    advise,
)
from aiokprod.liveness import STALLED_S, Stall
from aiokprod.model import Persistence, Record
from aiokprod.pipeline.delivery.delivery import (
    NOT_TAKEN,
    Delivery,
    fire,
    is_disowned,
    is_watched,
    keep_unasked,
    position_of,
)
from aiokprod.pipeline.partition.batch import ProducerBatch, Segment
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.filled_batch import FilledBatch
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.partition.send_many import heard
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES
from aiokprod.pipeline.partition.verdicts import is_topic_refused
from aiokprod.pipeline.sending.admission import AdmissionGate
from aiokprod.pipeline.sending.dispatcher import TopicDispatcher
from aiokprod.pipeline.sending.partitioners import make_partitioner
from aiokprod.pipeline.sending.record_checks import AWAY, RecordChecks
from aiokprod.pipeline.sending.send_timeouts import SendTimeouts
from aiokprod.pipeline.sending.serializing import SerializingLine, let_go
from aiokprod.pipeline.timer_queue import TimerQueue
from aiokprod.records.decoder import decode_headers
from aiokprod.waiting import WaitsFor, readable
from aiokprod.wire.codes import ErrorCode, name_of

if TYPE_CHECKING:  # loaded at the start, with what talks to brokers
    from aiokprod.cluster.client import ClusterClient
    from aiokprod.cluster.metadata.snapshot import TopicSnapshot

# What a record does that finds no room (`Parking.patience`).
WAITS_IF_IT_MAY: Final = 0  # `send`: as long as max_waiting_bytes allow
ALWAYS_WAITS: Final = 1  # `send_many`: one record at a time, whatever max_waiting_bytes is
NEVER_WAITS: Final = 2  # `try_send`
LAST_FAILED: Final = "the last that ended failed"  # of the serializers before a record


class Parking:
    """The way in for records, and the keeper of those that no partition has taken yet."""

    def __init__(
        self,
        context: PipelineContext,
        client: ClusterClient,
        make_queue: Callable[[Callable[[int], None], BatchFill, TopicSnapshot, int], RecordQueue],
        room_is_short: Callable[[], None],
    ) -> None:
        """Open the way into the pipeline.

        Args:
            context: of the pipeline.
            client: what is known of topics.
            make_queue: makes the queue of a partition, from what it tells of new batches, what these take, the topic, and its
                number.
            room_is_short: called when a record begins to wait for room: nothing lingers any more.
        """
        config, settings = context.config, context.settings
        waiting_bytes = config.buffer_memory if config.max_waiting_bytes is None else config.max_waiting_bytes
        self.effects = context.effects
        self.gate = AdmissionGate(config.buffer_memory, waiting_bytes, self._granted, self._room_is_free)
        self.topics: dict[str, TopicDispatcher] = {}  # whose names are valid ones
        # Of the last record, as most programs send to one topic for a while: its dispatcher is found without a look-up. Known
        # by the very object that the caller passes, which is usually a constant of the program.
        self.last_topic = ""
        self.last_dispatcher: TopicDispatcher | None = None
        self.parked_for_topics = 0  # records that have room, and wait for their topic or partition
        self.is_open = True
        self.opening = (
            0  # counts the transactions that have opened it: a call that takes many records stays in one of them
        )
        self._is_closed = False  # for good; a transactional producer takes records only inside a transaction
        self._refusal: Callable[[], AiokprodError] = AiokprodError  # why nothing is taken, once it is not open
        self.patience = WAITS_IF_IT_MAY  # of the record that is being taken; set around one call of `send`
        self._config = config
        self._settings = settings
        self._random = context.random
        self._loop = context.loop
        self._clock = context.loop.time
        self._max_block_s = settings.max_block_s
        self._block_s = min(settings.max_block_s, settings.delivery_timeout_s)
        self._block_option = config.block_option
        self._keeps_failed = settings.keep_failed_records
        self.overhead_bytes = RECORD_OVERHEAD_BYTES  # charged beside a record's own bytes
        self._client = client
        self._flushes = context.flushes
        self._metrics = context.metrics
        self._defects = context.defects
        self._interceptors = context.interceptors
        self._tasks = context.tasks
        self._reports = context.reports
        self._make_queue = make_queue
        self._room_is_short = room_is_short
        self._lines: dict[str, SerializingLine] = {}
        self._checks: RecordChecks | None = None  # of the last record with a serializer
        # Records, and their timeouts, that came while code of ours was at work: they are taken on the next turn of the loop.
        self._put_off: deque[tuple[ParkedRecord, float | None]] = deque()
        self._reason = self.reason_of  # one bound method for all records
        self._timeouts = SendTimeouts(context.loop, self._send_timed_out)
        self._blocked: TimerQueue[TopicDispatcher] = TimerQueue(context.loop, self._unblock)

    # ------------------------------------------------------------------ records
    def accept(
        self,
        topic: str,
        dispatcher: TopicDispatcher | None,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        size_bytes: int,
        timeout_s: float | None,
        now: float,
    ) -> Delivery:
        """Take a valid record. The hot path: charge, choose, append.

        Args:
            dispatcher: that of the topic, if there is one by now.
            now: loop time when `send` was called, or a millisecond before.

        Raises:
            BufferFullError: the waiting line is full too.
            PartitionerError: the user's partitioner raised, or named no partition.
            BaseException: whatever comes between two lines; the record was not taken, or it was taken with all its books.
        """
        gate = self.gate
        if (
            dispatcher is not None
            and gate.waiting_count == 0
            and gate.used_bytes + size_bytes + self.overhead_bytes <= gate.open_bytes
            and dispatcher.is_known
            and (partition is None or partition < dispatcher.count)
            and not self.effects.depth
        ):
            if partition is None and dispatcher.partitioner.is_users:
                patience, self.patience = self.patience, WAITS_IF_IT_MAY  # a user's partitioner may send, too
                partition = dispatcher.partitioner.choose_for(key, value, size_bytes)
                self.check_open()
                self.patience = patience
                if gate.waiting_count or gate.used_bytes + size_bytes + self.overhead_bytes > gate.open_bytes:
                    # It has sent, and its records have the room.
                    return self._park(topic, value, key, headers, partition, timestamp_ms, size_bytes, timeout_s)
            self.patience = WAITS_IF_IT_MAY
            if timeout_s is None:
                return dispatcher.append(value, key, headers, partition, timestamp_ms, size_bytes, now)
            # The timer first: once the record is taken, nothing fails any more.
            delivery = Delivery(NOT_TAKEN, 0)
            self._timeouts.set(self._clock(), timeout_s, delivery)
            dispatcher.append_for(delivery, value, key, headers, partition, timestamp_ms, size_bytes, now)
            return delivery
        return self._park(topic, value, key, headers, partition, timestamp_ms, size_bytes, timeout_s)

    def not_taken(self, charge_bytes: int) -> None:
        """Free what was charged for columns that were not taken."""
        self.effects.begin()
        self.gate.free(charge_bytes)
        self.effects.end()

    def _park(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        size_bytes: int,
        timeout_s: float | None,
    ) -> Delivery:
        """Take a record that has to wait: for room, for its topic, for its partition, or for the next turn of the loop."""
        charge_bytes = size_bytes + self.overhead_bytes
        gate = self.gate
        patience, self.patience = self.patience, WAITS_IF_IT_MAY
        is_put_off = self.effects.depth > 0 or bool(self._put_off)
        # What was put off before counts as waiting, and takes no turn from this one, which is put off, too. Not past one that
        # has no room, even if this one fits.
        has_room = gate.waiting_count == len(self._put_off) and gate.used_bytes + charge_bytes <= gate.open_bytes
        if is_put_off and gate.waiting_bytes:
            has_room = False
        if not has_room and (
            patience == NEVER_WAITS or (patience == WAITS_IF_IT_MAY and not gate.may_wait(charge_bytes))
        ):
            self._refused(charge_bytes)
            raise self.buffer_full(topic, charge_bytes)
        record = self._parked(topic)
        delivery = record.delivery
        assert delivery is not None
        if patience == ALWAYS_WAITS:  # `send_many` waits for it, though it fails before the call has the Delivery
            delivery.add_done_callback(heard)
        record.value, record.key, record.headers, record.partition = value, key, headers, partition
        record.timestamp_ms, record.size_bytes, record.charge_bytes = timestamp_ms, size_bytes, charge_bytes
        if is_put_off:
            self._put_it_off(record, timeout_s, has_room)
            return delivery
        dispatcher = self.dispatcher(topic)
        if has_room and dispatcher.is_known and dispatcher.in_range(partition):
            # The first record of a topic that is known by now.
            self.patience = patience
            return self.accept(
                topic, dispatcher, value, key, headers, partition, timestamp_ms, size_bytes, timeout_s, record.sent_at
            )
        # All that calls or may fail comes first. For a record that is not taken then, an alarm finds nothing to do, and
        # metadata is asked for needlessly.
        if timeout_s is not None:
            self._timeouts.set(record.sent_at, timeout_s, delivery)
        self._watch(dispatcher, record)
        waiting, pending, generation = dispatcher.waiting, self._flushes.prepare(record.generation), record.generation
        if not has_room:
            if not dispatcher.is_known:
                self._client.want(
                    topic
                )  # both waits go on at once, or max_block_ms would end the second before it began
            if gate.waiting_count == gate.waiting_tasks:
                self._room_is_short()
            gate.prepare(record)
            record.is_waiting = True
            waiting[record], pending[generation], gate.waiting_bytes, gate.waiting_count, record.in_line, record.is_over = (
                None, pending[generation] + 1, gate.waiting_bytes + charge_bytes, gate.waiting_count + 1, True, False,
            )  # fmt: skip
            return delivery
        record.waits = WaitsFor.PARTITION if dispatcher.is_known else WaitsFor.METADATA
        record.is_charged = True
        self._ask_for(record)
        waiting[record], pending[generation], gate.used_bytes, self.parked_for_topics, record.is_over = (
            None, pending[generation] + 1, gate.used_bytes + charge_bytes, self.parked_for_topics + 1, False,
        )  # fmt: skip
        return delivery

    def _parked(self, topic: str) -> ParkedRecord:
        """Return a record sent now, whose content the caller fills in. It is over until it is taken."""
        now = self._clock()
        block_deadline, generation = now + self._block_s, self._flushes.generation
        record = ParkedRecord(self._loop, topic, now, block_deadline, generation, self.fail_parked, self._reason)
        record.is_over = True
        return record

    def _ask_for(self, record: ParkedRecord) -> None:
        """Ask the cluster for what the record waits for: its topic, or its partition."""
        # Only an answer to a request after this one may refuse the topic or leave out the partition: an older one may
        # have been on its way since before the topic was created (broker: 8.1, faults: T1).
        record.asked = self._client.next_request
        self._client.want(record.topic)
        if record.waits is WaitsFor.PARTITION:
            self._client.refresh(f"a record for partition {record.partition} of {record.topic}")

    # ------------------------------------------------------------------ records that come while we are at work
    def _put_it_off(self, record: ParkedRecord, timeout_s: float | None, has_room: bool) -> None:
        """Take a record on the next turn of the loop, behind those that were put off before.

        What sends it interrupts code of ours, whose queues may be half changed. Numbers may be changed all the same: no code
        comes between reading and writing one.
        """
        gate, charge_bytes = self.gate, record.charge_bytes
        pending, generation = self._flushes.prepare(record.generation), record.generation
        if not self._put_off:
            self._loop.call_soon(self._take_put_off)
        record.is_charged, record.is_waiting = has_room, not has_room
        used_bytes, waiting_bytes = (charge_bytes, 0) if has_room else (0, charge_bytes)
        self._put_off.append((record, timeout_s))  # passed over, unless it is taken now
        # The line has one more from now on, so that what is sent in this turn goes behind it.
        pending[generation], gate.waiting_count, gate.used_bytes, gate.waiting_bytes, record.is_over = (
            pending[generation] + 1, gate.waiting_count + 1, gate.used_bytes + used_bytes,
            gate.waiting_bytes + waiting_bytes, False,
        )  # fmt: skip

    def _take_put_off(self) -> None:
        """Let the records that were put off go on: this turn of the loop begins with us."""
        self.effects.begin_turn()
        record: ParkedRecord | None = None
        self.effects.begin()
        try:
            for _ in range(len(self._put_off)):  # what a partitioner of the user sends meanwhile goes behind
                record, timeout_s = self._put_off.popleft()
                # One that is over has failed meanwhile; without a failure it was not taken, and was not counted.
                if not record.is_over or record.failure is not None:
                    self.gate.waiting_count -= 1
                if not record.is_over:
                    self._go_on(record, timeout_s)
        except Exception as bug:
            self.effects.crashed(bug)  # fails the others
            if record is not None:
                self.fail_parked(record, self._refusal())
        finally:
            if self._put_off:
                self._loop.call_soon(self._take_put_off)
            self.effects.room_is_due = True
            self.effects.end()

    def _go_on(self, record: ParkedRecord, timeout_s: float | None) -> None:
        """Let a record that was put off go the way of any other."""
        if timeout_s is not None and record.delivery is not None:
            self._timeouts.set(record.sent_at, timeout_s, record.delivery)
        if not record.is_charged:
            self.gate.release(record)
            if not self.gate.try_charge(record.charge_bytes):
                self._line_up(record)
                return
        self._admitted(record)

    def accept_dressed(self, checks: RecordChecks, record: Record) -> Delivery:
        """Take a record that serializers see; one that must be awaited waits in the queue of its topic."""
        topic = record.topic
        assert topic is not None
        self._checks = checks
        timeout_s = checks.checked_options(record)
        patience, self.patience = self.patience, WAITS_IF_IT_MAY  # a serializer may call `send`, too
        estimated_bytes = checks.estimated_bytes(record)
        try:
            waiting = checks.serialize(record)
        except AiokprodError:
            let_go(record)
            raise
        if not self.is_open:
            let_go(record)
            self.check_open()
        self.patience = patience
        line = self._lines.get(topic)
        if not waiting and line is None:
            key, value, headers, timestamp_ms, size_bytes = checks.frozen(record)
            return self.accept(
                topic,
                self.topics.get(topic),
                value,
                key,
                headers,
                record.partition,
                timestamp_ms,
                size_bytes,
                timeout_s,
                self._clock(),
            )
        if self.effects.depth:
            let_go(record)
            raise _at_work(topic)
        if self._put_off:
            self._take_put_off()  # before this one, which would stand in front of them in the queue of the topic
        return self._await_serializer(checks, record, line, estimated_bytes, timeout_s, patience)

    def _await_serializer(
        self,
        checks: RecordChecks,
        record: Record,
        line: SerializingLine | None,
        estimated_bytes: int,
        timeout_s: float | None,
        patience: int,
    ) -> Delivery:
        """Take a record whose serializer, or that of a record before it in the topic, has to be awaited."""
        topic, gate = record.topic, self.gate
        assert topic is not None
        parked = self._parked(topic)
        delivery = parked.delivery
        assert delivery is not None
        charge_bytes = parked.charge_bytes = min(estimated_bytes + self.overhead_bytes, gate.limit_bytes)
        has_room = not gate.waiting_count and gate.used_bytes + charge_bytes <= gate.open_bytes
        if not has_room and (
            patience == NEVER_WAITS or (patience == WAITS_IF_IT_MAY and not gate.may_wait(charge_bytes))
        ):
            let_go(record)
            self._refused(charge_bytes)
            raise self.buffer_full(topic, charge_bytes)
        if patience == ALWAYS_WAITS:
            delivery.add_done_callback(heard)
        parked.draft = record
        parked.partition = record.partition
        dispatcher = self.dispatcher(topic)
        # All that calls or may fail comes first, as in `_park`.
        if timeout_s is not None:
            self._timeouts.set(parked.sent_at, timeout_s, delivery)
        self._watch(dispatcher, parked)
        if line is None:
            line = self._begin_line(checks, dispatcher)
        waiting, pending, generation = dispatcher.waiting, self._flushes.prepare(parked.generation), parked.generation
        line.waiting.append(parked)  # passed over, unless it is taken now
        # It reserves room in the buffer, or counts as waiting without being in the line: it has no size to be granted yet, and
        # at the head it would hold up those behind it for as long as its serializer takes.
        parked.waits, parked.is_reserved, parked.is_waiting = WaitsFor.SERIALIZER, has_room, not has_room
        reserved_bytes, waiting_bytes = (charge_bytes, 0) if has_room else (0, charge_bytes)
        waiting[parked], pending[generation], gate.open_bytes, gate.waiting_bytes, parked.is_over = (
            None, pending[generation] + 1, gate.open_bytes - reserved_bytes, gate.waiting_bytes + waiting_bytes, False,
        )  # fmt: skip
        return delivery

    async def _run_line(self, topic: str, line: SerializingLine) -> None:
        try:
            # A serializer may fail at once: not before the program, or a task that it makes of `wait()`, awaits the Delivery.
            # Else the failure would be told to `on_delivery_error`, too: an eager task begins within `send`.
            await asyncio.sleep(0)
            await line.run()
        finally:
            if self._lines.get(topic) is line:
                del self._lines[topic]

    def _serialized(self, checks: RecordChecks, parked: ParkedRecord, record: Record) -> None:
        """Let a record go on as any other: its bytes are known."""
        self.effects.begin()
        try:
            parked.key, parked.value, parked.headers, parked.timestamp_ms, parked.size_bytes = checks.frozen(record)
            parked.serialized_at = self._clock()
            # Released by the estimate, then charged by the real size, with no grant between the two (one state change):
            # else a record behind it in the line could be granted the room that it had reserved.
            gate = self.gate
            gate.release(parked)
            parked.draft = None
            parked.charge_bytes = parked.size_bytes + self.overhead_bytes
            if gate.try_charge_serialized(parked.charge_bytes):
                self._admitted(parked)
            else:
                self._line_up(parked)  # it was accepted, so it may wait
        finally:
            self.effects.end()

    def _line_up(self, record: ParkedRecord) -> None:
        dispatcher = self.dispatcher(record.topic)
        self._watch(dispatcher, record)  # first: it may fail
        dispatcher.keep(record, WaitsFor.ROOM)
        if not dispatcher.is_known:  # both waits go on at once, or max_block_ms would end the second before it began
            self._client.want(record.topic)
        is_first = self.gate.waiting_count == self.gate.waiting_tasks
        self.gate.wait(record)
        if is_first:
            self._room_is_short()

    def _granted(self, record: ParkedRecord) -> None:
        """Take in that the gate gave the record room."""
        if self.effects.is_guarded:
            self.effects.check_outside("a waiting record is admitted")
        record.admitted_at = self._clock()
        self._metrics.buffer_wait_seconds.record(record.admitted_at - record.sent_at)
        self.effects.begin()
        try:
            self._admitted(record)
        finally:
            self.effects.end()

    def _admitted(self, record: ParkedRecord) -> None:
        # Charged from here until a batch has it (`passed_on`) or it fails (`_fail_parked`), whichever comes first: each of
        # them clears the flag, so the bytes are freed once.
        record.is_charged = True
        dispatcher = self.dispatcher(record.topic)
        if not dispatcher.is_known or not dispatcher.in_range(record.partition):
            # It will wait. First what ends that, as these calls may fail.
            self._watch(dispatcher, record)
            record.waits = WaitsFor.PARTITION if dispatcher.is_known else WaitsFor.METADATA
            self._ask_for(record)
        if dispatcher.accept(record):
            self.parked_for_topics += 1

    def _watch(self, dispatcher: TopicDispatcher, record: ParkedRecord) -> None:
        """Set the timer that ends the waiting for this topic after max.block.ms, if it is not set."""
        if not dispatcher.has_alarm:
            if self._clock() < record.block_deadline:
                self._blocked.set(record.block_deadline, dispatcher)
            else:  # max.block.ms is 0: not before a task made of `wait()` awaits the Delivery
                self._loop.call_soon(self._blocked.set, record.block_deadline, dispatcher)
            dispatcher.has_alarm = (
                True  # behind the calls: what waits for the topic later would trust an alarm that is not set
            )

    def _room_is_free(self) -> None:
        self.effects.room_is_due = True

    def _refused(self, charge_bytes: int) -> None:
        """Note that a record has found no room. With tasks in `ready` nothing lingers from now on, if it did before."""
        gate = self.gate
        was_short = gate.is_short
        gate.refused(charge_bytes)
        if gate.is_short and not was_short:
            self._room_is_short()

    async def room(self, charge_bytes: int) -> None:
        """Wait for room, in the same line as records; it is charged when this returns.

        Raises:
            ProducerClosedError, ProducerFailedError: no more is accepted.
        """
        if not self.gate.try_charge(charge_bytes):
            self._room_is_short()
            began = self._clock()
            await self.gate.charge(charge_bytes)
            self._metrics.buffer_wait_seconds.record(self._clock() - began)

    async def ready(self, unless: Delivery | None = None) -> None:
        """Wait until a record has room, first in, first out: see `AdmissionGate.ready`."""
        began = self._clock()
        if self.gate.wanted_bytes > 1 and not self.gate.has_room_now():
            self._room_is_short()
        await self.gate.ready(unless)
        if (waited_s := self._clock() - began) > 0:
            self._metrics.buffer_wait_seconds.record(waited_s)

    def dispatcher(self, topic: str) -> TopicDispatcher:
        """Return the dispatcher of this topic, made when it is first asked for."""
        dispatcher = self.topics.get(topic)
        if dispatcher is None:
            made = self._new_dispatcher(topic)
            made.learn(self._client.topic(topic), self._clock())
            # Behind it, as nothing would let it learn what has not changed since. A finalizer that the collector has run
            # meanwhile may have sent to the topic, and its record stands in another one.
            dispatcher = self.topics.setdefault(topic, made)
        return dispatcher

    def _new_dispatcher(self, topic: str) -> TopicDispatcher:
        config, settings = self._config, self._settings
        fill = BatchFill(settings.batch_bytes, settings.most_batch_bytes)
        partitioner = make_partitioner(
            config.partitioner,
            ignore_keys=config.partitioner_ignore_keys,
            adaptive=config.partitioner_adaptive_partitioning_enable,
            fill=fill,
            random=self._random,
            topic=topic,
        )
        make_queue = partial(self._make_queue, partitioner.on_new_batch, fill)
        return TopicDispatcher(topic, partitioner, fill, make_queue, self.passed_on, self.fail_parked)

    async def partitions_for(self, topic: str, timeout_s: float | None) -> list[int]:
        """Wait until the partitions of the topic are known.

        Args:
            topic: a valid name.
            timeout_s: None: max.block.ms.

        Raises:
            UnknownTopicError, TopicAuthorizationError: it is not there in time, or is refused.
            ProducerClosedError, ProducerFailedError: nothing more is taken.
        """
        now = self._clock()
        deadline = now + (self._max_block_s if timeout_s is None else timeout_s)
        asked = self._client.next_request
        snapshot = self._client.topic(topic)
        while snapshot is None or not snapshot.partitions:
            known = self._client.last_error(topic)
            if known is not None and is_topic_refused(known[0]) and self._client.last_answered(topic) >= asked:
                raise self.unknown_topic(topic, self._clock() - now)
            if self._is_closed:  # a `close()` meanwhile says nothing of the topic
                raise self._refusal()
            left = deadline - self._clock()
            if left <= 0:
                raise self.unknown_topic(topic, self._clock() - now)
            self._client.want(topic)
            try:
                await self._client.refreshed(left)
            except (TimeoutError, AiokprodError):
                continue
            snapshot = self._client.topic(topic)
        return [partition.partition for partition in snapshot.partitions]

    def forget_unneeded(self, dispatcher: TopicDispatcher) -> None:
        """Forget a topic that does not exist, and for which no record waits any more."""
        if not dispatcher.is_needed and self.topics.get(dispatcher.topic) is dispatcher:
            del self.topics[dispatcher.topic]
            self.last_dispatcher = None

    async def place(self, filled: FilledBatch, topic: str, partition: int, opening: int) -> list[Delivery]:
        """Give a partition a batch that a program has filled, when there is room for it.

        Args:
            filled: the batch.
            topic: a valid name.
            partition: its number.
            opening: `opening` when the call began.

        Returns:
            A Delivery for each record.

        Raises:
            UnknownTopicError, TopicAuthorizationError, PartitionOutOfRangeError: there is no such partition.
            ProducerClosedError, ProducerFailedError, UsageError: no more is accepted, or not in this transaction.

        Cancellation: nothing is taken.
        """
        charge_bytes = filled.charge_bytes
        while True:
            self.check_open()
            self.check_same(opening)
            count = len(await self.partitions_for(topic, None))
            if partition >= count:
                raise PartitionOutOfRangeError(
                    f"partition {partition} does not exist: topic {topic!r} has partitions 0 to {count - 1}",
                    topic=topic,
                    partition=partition,
                )
            await self.room(charge_bytes)
            try:
                dispatcher = self.dispatcher(topic)  # may have been made again meanwhile
                if self.is_open and self.opening == opening and dispatcher.is_known and partition < dispatcher.count:
                    return dispatcher.queue_of(partition).append_batch(filled)
            finally:
                if not filled.is_taken:
                    self.not_taken(charge_bytes)

    # ------------------------------------------------------------------ parked records that end
    def parked_counts(self) -> dict[str, int]:
        """Count the records that wait for room, metadata or a serializer, by topic. Called from other threads, too."""
        counts = {topic: count for topic, dispatcher in list(self.topics.items()) if (count := len(dispatcher.waiting))}
        for record, _ in list(self._put_off):
            if not record.is_over:
                counts[record.topic] = counts.get(record.topic, 0) + 1
        return counts

    def passed_on(self, record: ParkedRecord) -> None:
        """Take in that a batch has taken the record: its bytes are the batch's now."""
        record.is_charged = False
        record.is_over = True
        self._left_topic(record)
        if self._interceptors:
            assert record.delivery is not None
            holder, index = position_of(record.delivery)
            self._interceptors.moved(record, holder, index)
        # The batch was counted when it was opened, before this: between the two a flush cannot miss the record (faults: L8).
        self._flushes.finished(record.generation)

    def _left_topic(self, record: ParkedRecord) -> None:
        """Count out a record that waited for its topic or partition, if it did."""
        if record.waits is WaitsFor.METADATA or record.waits is WaitsFor.PARTITION:
            self.parked_for_topics -= 1
            self._metrics.parked_seconds.record(self._clock() - record.sent_at)

    def fail_parked(self, record: ParkedRecord, error: AiokprodError) -> None:
        """Fail a record that was never in a batch: certainly not persisted."""
        # Its deadline, a recall, a refusal of its topic and `close` may all come in one turn: the first is its outcome.
        if record.is_over:
            return
        let_go(record.draft)  # first, as what it calls may raise: nothing has changed yet
        self.effects.begin()
        try:
            self._fail_parked(record, error)
        finally:
            self.effects.end()

    def _fail_parked(self, record: ParkedRecord, error: AiokprodError) -> None:
        record.failure = error
        record.is_over = True
        record.settled_at = self._clock()
        self._left_topic(record)
        # Its bytes are in one of three places: the line, the estimates, or what is charged (below). Each leads to a grant, so
        # that the next one in the line gets its turn (faults: M3).
        if record.in_line:
            self._metrics.buffer_wait_seconds.record(record.settled_at - record.sent_at)
            self.gate.leave(record)
        else:
            self.gate.release(record)
        dispatcher = self.topics.get(record.topic)
        if dispatcher is not None:
            dispatcher.forget(record)
            self.forget_unneeded(dispatcher)
        self._metrics.failed(error, 1)
        self._metrics.topic(record.topic).records_failed.add(1)
        self._reports.undelivered(record.topic, record.partition, error, 1)
        self._reports.settled(record, 0, 1)
        delivery, record.delivery = record.delivery, None
        if (delivery is None or not is_watched(delivery)) and not isinstance(error, RecordRecalledError):
            # With its story, if a hook is told of it. Else it is only counted.
            told = self._error_with_story(record) if self._config.on_delivery_error is not None else None
            kept = self._kept(record)
            size_bytes = 0 if kept is None else record.size_bytes
            can_be_asked = delivery is None or not is_disowned(delivery)
            record.unasked = self._reports.failed(
                error if told is None else told, (0,), kept, None, size_bytes, can_be_asked=can_be_asked
            )
        # `fire` only schedules: a done callback that calls `send` runs when this record has left every queue (faults: L20).
        if delivery is not None:
            fire(delivery)
        record.value = record.key = record.headers = record.draft = None
        record.reason = None
        record.fail = _too_late  # through us a Delivery that is kept would hold the pipeline
        self._flushes.finished(record.generation)
        if record.is_charged:
            record.is_charged = False
            self.gate.free(record.charge_bytes)

    def _kept(self, record: ParkedRecord) -> tuple[Record, ...] | None:
        """Return the record, for `on_delivery_error`. While its serializer is at work there is nothing yet to send again."""
        if not self._keeps_failed:
            return None
        if record.draft is not None:
            kept = RecordChecks.serialized(record.draft)
            return None if kept is None else (kept,)
        headers = () if record.headers is None else decode_headers(record.headers)
        return (
            Record(
                value=record.value,
                key=record.key,
                topic=record.topic,
                partition=record.partition,
                headers=headers,
                timestamp_ms=record.timestamp_ms,
            ),
        )

    def _error_with_story(self, record: ParkedRecord) -> AiokprodError | None:
        try:
            return record.error(0)
        except Exception as bug:
            self._defects.caught("the story of a record", bug)
        return None

    def _send_timed_out(self, delivery: Delivery) -> None:
        """Apply a per-send timeout: the record leaves if it is not stamped; else only its handle fails."""
        self.effects.begin()
        try:
            self._time_out(delivery)
        except Exception as bug:
            self.effects.crashed(bug)
        finally:
            self.effects.end()

    def _time_out(self, delivery: Delivery) -> None:
        holder, index = position_of(delivery)
        error = SendTimeoutError("the timeout of this send is over", persistence=Persistence.NOT_PERSISTED)
        if not holder.withdraw(index, error) and isinstance(holder, ProducerBatch):
            # Stamped: its numbers cover the records behind it, so it cannot leave, and may be written. Asked before the
            # handle settles, which makes it a watched one.
            # A transaction is not committed once a caller was told a failure (below): no reader of committed records sees it.
            if self._reports.on_failure is None:
                error.persistence = Persistence.POSSIBLY_PERSISTED
            holder.owner.tell_story(holder, [(index, index + 1)], error, self._clock())
            is_heard = is_watched(delivery) or holder.is_heard(index)
            delivery._settle_here(error)  # pyright: ignore[reportPrivateUsage] - users are not shown it
            if self._reports.on_failure is not None:
                self._reports.on_failure(error)
            holder.note_told(index)
            if not is_heard:
                kept, size_bytes = None, 0
                if self._keeps_failed:
                    kept = holder.keep((index,), Segment(index, index + 1, -1, -1, error, 0, self._clock()))
                    size_bytes = holder.size_of(index)
                can_be_asked = not is_disowned(delivery)
                keep_unasked(
                    delivery,
                    self._reports.failed(error, (index,), kept, None, size_bytes, can_be_asked=can_be_asked),
                )

    def _unblock(self, dispatcher: TopicDispatcher) -> None:
        """Fail the records of this topic whose max.block.ms is over."""
        self.effects.begin()  # one state change: the room of the first must not admit the second, which is overdue, too
        try:
            for record in dispatcher.overdue(self._clock()):
                self.fail_parked(record, self._too_late(record))
            dispatcher.has_alarm = False
            oldest = dispatcher.oldest()
            if oldest is not None:
                self._watch(dispatcher, oldest)
        except Exception as bug:
            self.effects.crashed(bug)
        finally:
            self.effects.end()

    # ------------------------------------------------------------------ watched
    def stalls(self, now: float) -> list[Stall | None]:
        """Return what stands still here; None: something moves, or has nothing to do. `now`: loop time."""
        found = [
            self.gate.stall(),
            self._timeouts.stall(now),
            self._blocked.stall("max_block_ms of records is over, and nothing looks at them", now),
        ]
        for dispatcher in list(self.topics.values()):  # a copy: a finalizer may send to a new topic in between
            oldest = dispatcher.oldest()
            if oldest is None:
                continue
            if not dispatcher.has_alarm or oldest.block_deadline < now - STALLED_S:
                what = "records wait for their topic, for room or a serializer, without an alarm for max_block_ms"
                found.append(Stall(what, dispatcher, oldest, partial(self._watch_again, dispatcher)))
            found.append(self._stall_of_topic(dispatcher, oldest))
            found.append(self._stall_of_line(dispatcher))
        return found

    def _watch_again(self, dispatcher: TopicDispatcher) -> None:
        dispatcher.has_alarm = False
        oldest = dispatcher.oldest()
        if oldest is not None:
            self._watch(dispatcher, oldest)

    def _stall_of_topic(self, dispatcher: TopicDispatcher, oldest: ParkedRecord) -> Stall | None:
        """Return a stall if records wait for metadata that is here, or that nothing asks for."""
        if oldest.waits is not WaitsFor.METADATA and oldest.waits is not WaitsFor.PARTITION:
            return None
        topic = dispatcher.topic
        if not dispatcher.is_known and self._client.topic(topic) is not None:
            what = "records wait for a topic whose metadata is here"
            return Stall(what, dispatcher, oldest, partial(self._learn_again, dispatcher))
        if self._client.is_asking:
            return None
        what = "records wait for the metadata of their topic, and it is not asked for"
        return Stall(what, dispatcher, oldest, partial(self._want_again, topic))

    def _learn_again(self, dispatcher: TopicDispatcher) -> None:
        self.effects.begin()
        try:
            topic = dispatcher.topic
            dispatcher.learn(self._client.topic(topic), self._clock(), self._client.last_answered(topic))
        finally:
            self.effects.end()

    def _want_again(self, topic: str) -> None:
        self._client.want(topic)
        self._client.refresh(f"records wait for {topic}")

    def _stall_of_line(self, dispatcher: TopicDispatcher) -> Stall | None:
        """Return a stall if records wait for their serializers, and no task awaits these."""
        newest = dispatcher.newest()
        if newest is None or newest.waits is not WaitsFor.SERIALIZER or dispatcher.topic in self._lines:
            return None
        checks = self._checks
        if checks is None:
            return None
        what = "records wait for their serializers, and no task awaits these"
        return Stall(what, dispatcher, newest, partial(self._begin_line, checks, dispatcher))

    def _begin_line(self, checks: RecordChecks, dispatcher: TopicDispatcher) -> SerializingLine:
        """Make the line of a topic, and its task, for the records of the topic that wait for their serializers."""
        topic = dispatcher.topic
        line = SerializingLine(checks.finish, partial(self._serialized, checks), self.fail_parked, self._too_late)
        # Before its task is made: an eager one begins at once.
        line.waiting.extend([record for record in dispatcher.waiting if record.waits is WaitsFor.SERIALIZER])
        self._tasks.spawn(self._run_line(topic, line), f"aiokprod-serialize-{topic}")
        self._lines[topic] = line  # behind the call: later records of the topic would join a line without a task
        return line

    def refuse_topic(self, dispatcher: TopicDispatcher, answered: int) -> None:
        """Fail the records that had asked before the cluster refused their topic. Only inside a state change."""
        for record in dispatcher.asked_before(answered):
            self.fail_parked(record, self.unknown_topic(record.topic, self._clock() - record.sent_at))

    # ------------------------------------------------------------------ explaining
    def reason_of(self, record: ParkedRecord) -> str:
        """Return why a record is still parked, in words."""
        if record.waits is WaitsFor.ROOM:
            gate = self.gate
            return (
                f"{readable(gate.held_bytes)} of {readable(gate.limit_bytes)} of buffer_memory are taken,"
                f" and {gate.waiting_count} wait for room"
            )
        if record.waits is WaitsFor.SERIALIZER:
            line = self._lines.get(record.topic)
            text = "its serializer, or that of a record before it in the topic, has not answered"
            return text if line is None or line.away is None else f"{text}; {LAST_FAILED}: {line.away.message}"
        why = self.why_unknown(record.topic)
        return f"partition {record.partition} does not exist; {why}" if record.waits is WaitsFor.PARTITION else why

    def why_unknown(self, topic: str) -> str:
        """Return what the cluster last said about a topic, in words."""
        code, cause = self._client.last_error(topic) or (0, None)
        if code:
            return f"brokers answer {name_of(code)}"
        if cause is not None:
            return f"no broker has answered: {cause.message if isinstance(cause, AiokprodError) else cause}"
        return "the cluster is asked" if not self._client.last_answered(topic) else "brokers name no partition of it"

    # ------------------------------------------------------------------ errors
    def _too_late(self, record: ParkedRecord) -> AiokprodError:
        """Return the error of a record that has not gone on within max.block.ms."""
        elapsed_s = self._clock() - record.sent_at
        if record.waits is WaitsFor.ROOM:
            error: AiokprodError = self.buffer_full(record.topic, record.charge_bytes, elapsed_s)
        elif record.waits is WaitsFor.SERIALIZER:
            error = self._serializer_too_late(record, elapsed_s)
        else:
            return self.unknown_topic(record.topic, elapsed_s)
        error.elapsed_s = elapsed_s
        return error

    def _serializer_too_late(self, record: ParkedRecord, elapsed_s: float) -> SerializationError:
        """Return the error of a record whose serializer, or that of a record before it, has taken too long.

        Nothing is wrong with the record, as far as is known: another attempt may help.
        """
        line = self._lines.get(record.topic)
        away = None if line is None else line.away
        if line is None or not line.waiting or line.waiting[0] is record:
            text = f"the serializer has not answered within {elapsed_s:.1f} s ({self._block_option})"
            before = "that of the record before it failed"
        else:
            waited = f"{elapsed_s:.1f} s ({self._block_option})"
            text = f"the record has waited {waited} for serializers of records before it in the topic"
            before = LAST_FAILED
        error = SerializationError(text if away is None else f"{text}; {before}: {away.message}", topic=record.topic)
        error.may_help_again = True
        advise(error, AWAY)
        if away is not None:
            error.__cause__ = away.clone()
        return error

    def buffer_full(self, topic: str, charge_bytes: int, waited_s: float | None = None) -> BufferFullError:
        """Return the error of a send that finds no room.

        Args:
            topic: of the record.
            charge_bytes: what the record needs of buffer_memory.
            waited_s: how long it has waited for room; None if it was not taken.
        """
        gate = self.gate
        self._metrics.buffer_full_errors.add(1)
        when = "" if waited_s is None else f" within {waited_s:.1f} s ({self._block_option})"
        return BufferFullError(
            f"no room for a record of {charge_bytes} bytes{when}: {gate.held_bytes} of {gate.limit_bytes} bytes of "
            f"buffer_memory are taken, and records that wait for room take {gate.waiting_bytes} of "
            f"{gate.waiting_limit_bytes} bytes (max_waiting_bytes)",
            topic=topic,
            persistence=Persistence.NOT_PERSISTED,
        )

    def unknown_topic(self, topic: str, elapsed_s: float) -> AiokprodError:
        """Return the error of a topic, or a partition of it, that is not there, with what the cluster last said."""
        known = self._client.last_error(topic)
        code, cause = known if known is not None else (None, None)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            error: AiokprodError = TopicAuthorizationError(f"topic {topic!r}: {name_of(code)}", code=code)
        elif code and is_topic_refused(code):
            error = UnknownTopicError(f"topic {topic!r}: {name_of(code)}", code=code)
        elif code:
            error = UnknownTopicError(
                f"topic {topic!r} is not there after {elapsed_s:.1f} s: {name_of(code)}", code=code
            )
            if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                advise(error, TRY_LATER)
        elif cause is None and self._client.last_answered(topic):
            error = UnknownTopicError(
                f"topic {topic!r} is not there after {elapsed_s:.1f} s: brokers name no partition of it"
            )
        else:
            error = _unanswered(topic, elapsed_s, cause)
        error.topic = topic
        error.elapsed_s = elapsed_s
        error.__cause__ = cause
        return error

    # ------------------------------------------------------------------ the end
    def check_open(self) -> None:
        """Check that records are taken: after each wait, and after code of the user, which may have begun to close.

        Raises:
            ProducerClosedError, ProducerFailedError: nothing more is taken.
        """
        if not self.is_open:
            raise self._refusal()

    def check_same(self, opening: int) -> None:
        """Check that the transaction in which a call began is still the one at hand.

        Args:
            opening: `opening` when the call began.

        Raises:
            UsageError: it is over, and another one takes records.
        """
        if opening != self.opening:
            error = UsageError("the transaction in which this call began is over: its other records are not taken")
            advise(error, "Await the call before the end of its transaction.")
            raise error

    def close(self, error: Callable[[], AiokprodError]) -> None:
        """Take nothing more: tasks that wait for room fail; records that were accepted go on (faults: M5)."""
        self.is_open = False
        self._is_closed = True
        self._refusal = error
        self.effects.begin()
        self.gate.abandon(error)
        self.effects.end()

    def take_records(self, is_open: bool, refusal: Callable[[], AiokprodError]) -> None:
        """Take records, or refuse them with this error: a transaction has begun, or does not take any more."""
        if not self._is_closed:
            self.opening += is_open and not self.is_open
            self.is_open = is_open
            self._refusal = refusal

    def fail_some(self, of_record: Callable[[ParkedRecord], AiokprodError], most: int) -> bool:
        """Fail so many parked records; False: fewer were there."""
        failing: list[ParkedRecord] = []
        self.effects.begin()  # before the first loop: what a finalizer sends meanwhile is put off
        try:
            for dispatcher in self.topics.values():
                for record in dispatcher.waiting:
                    if len(failing) == most:
                        break
                    failing.append(record)
            for record in failing:
                self.fail_parked(record, of_record(record))
                waited_in = self.topics.get(record.topic)
                if waited_in is not None:
                    waited_in.forget(record)  # in any case: else the caller would never come to the end
        finally:
            self.effects.end()
        return len(failing) == most

    def recall_all(self, topic: str | None, partition: int | None, error: AiokprodError) -> tuple[int, int]:
        """Take records out that are not stamped, here and in their partitions, and fail them; the caller tells of that.

        Args:
            topic: its name; None: all topics.
            partition: its number; None: all, and records without a partition.
            error: a pattern of theirs.

        Returns:
            How many they were, and how many are left: they were stamped, and go on to their outcome.

        Raises:
            UsageError: code of ours is at work, whose queues may be half changed.
        """
        if self.effects.depth:
            raise UsageError(
                "purge() was called by code that interrupts the producer at work (a finalizer, a serializer, a partitioner, a"
                " log handler): nothing was purged. Call it by loop.call_soon(producer.purge)"
            )
        taken = left = 0
        dispatchers = list(self.topics.values()) if topic is None else [self.topics.get(topic)]
        self.effects.begin()  # one state change: the room of the first must not admit the second, which is to leave, too
        try:
            # The partitions first: their records were sent before those that wait for them, and fail before them.
            for dispatcher in dispatchers:
                if dispatcher is not None:
                    for number, queue in list(dispatcher.queues.items()):
                        if partition is None or number == partition:
                            queue_taken, queue_left = queue.recall_all(error.clone())
                            taken, left = taken + queue_taken, left + queue_left
            parked = [record for each in dispatchers if each is not None for record in each.waiting]
            parked += [record for record, _ in self._put_off if topic is None or record.topic == topic]
            for record in parked:
                if not record.is_over and (partition is None or record.partition == partition):
                    own = error.clone()
                    own.topic, own.partition = record.topic, record.partition
                    self.fail_parked(record, own)
                    taken += 1
        finally:
            self.effects.end()
        return taken, left

    def fail_all(self, of_record: Callable[[ParkedRecord], AiokprodError]) -> None:
        """Fail every parked record, whatever it waits for."""
        self.effects.begin()
        try:
            for dispatcher in list(self.topics.values()):
                for record in list(dispatcher.waiting):
                    if record.is_over:
                        dispatcher.forget(record)  # a bug has struck when it failed
                        continue
                    delivery = record.delivery
                    try:
                        self.fail_parked(record, of_record(record))
                    except Exception:
                        # A bug of ours, of which the caller hears. What waits for the record does not wait any longer.
                        if delivery is not None and record.failure is not None:
                            fire(delivery)
                        raise
            for record, _ in list(self._put_off):
                self.fail_parked(record, of_record(record))
        finally:
            self.effects.end()

    def stop(self) -> None:
        """Stop all timers."""
        self._timeouts.stop()
        self._blocked.stop()


def _unanswered(topic: str, elapsed_s: float, cause: Exception | None) -> UnknownTopicError:
    """Return the error of a topic that no broker answered for. It may well exist, so the advice is not to create it."""
    why, advice = "", "Check bootstrap_servers and the network; ping() asks for a sign of life."
    if cause is not None:
        why = f": {cause.message if isinstance(cause, AiokprodError) else cause}"
        advice = cause.advice if isinstance(cause, AiokprodError) and cause.advice else advice
    error = UnknownTopicError(f"no broker has answered for topic {topic!r} within {elapsed_s:.1f} s{why}")
    advise(error, f"The topic may well exist. {advice}")
    return error


def _at_work(topic: str) -> UsageError:
    """Return the error of a `send` that interrupts code of the producer, and whose record cannot be put off."""
    error = UsageError(
        f"send() to topic {topic!r} interrupted the producer at work, and the serializer of its record must be awaited, so the"
        " record is not taken. Finalizers (`__del__`), which the garbage collector runs in the middle of other code, and log"
        " handlers that they call interrupt it so",
        topic=topic,
        persistence=Persistence.NOT_PERSISTED,
    )
    advise(error, "Give the logger a QueueHandler, or call send_threadsafe() there.")
    return error


def _too_late(record: ParkedRecord, error: AiokprodError) -> None:
    """Ignore the failure: the record has its outcome."""
