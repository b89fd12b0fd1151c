"""`Entrance`: where records come in, and where they wait until a partition takes them. One per pipeline.

    send -> AdmissionGate -> TopicDispatcher -> open batch          (room and metadata are there: plain calls)
              |                |
              +--- ParkedRecord (no room, no metadata, no such partition yet, an awaitable serializer)

It knows the two stages a record passes before it is in a batch and keeps every parked record's life: its deadline
(max.block.ms), recall, per-send timeout, failure.

Invariants: an accepted record is in a batch, parked in exactly one place, or failed; its bytes are charged from the
grant of the gate until a batch takes them over or the record fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from aiokprod.cluster.client import ClusterClient
from aiokprod.errors import (
    AiokprodError,
    BufferFullError,
    RecordRecalledError,
    SendTimeoutError,
    TopicAuthorizationError,
    UnknownTopicError,
)
from aiokprod.hooks import InterceptorChain
from aiokprod.metrics import Metrics
from aiokprod.model import Persistence, Record
from aiokprod.pipeline.admission import AdmissionGate
from aiokprod.pipeline.alarm import Alarm
from aiokprod.pipeline.batch import ProducerBatch
from aiokprod.pipeline.delivery import Delivery
from aiokprod.pipeline.dispatcher import TopicDispatcher
from aiokprod.pipeline.flushes import Flushes
from aiokprod.pipeline.intake import Intake
from aiokprod.pipeline.parked import ParkedRecord
from aiokprod.pipeline.ports import House
from aiokprod.pipeline.send_timeouts import SendTimeouts
from aiokprod.pipeline.serializing import SerializingLine
from aiokprod.pipeline.turns import Turns
from aiokprod.pipeline.verdicts import is_topic_refused
from aiokprod.wire.codes import ErrorCode, name_of

MOST_SERIALIZING = 10_000  # records that wait for an awaitable serializer: their bytes are not known yet


class Entrance:
    """Takes records; keeps those that no partition has taken yet."""

    def __init__(
        self,
        house: House,
        gate_bytes: int,
        waiting_bytes: int,
        client: ClusterClient,
        flushes: Flushes,
        metrics: Metrics,
        interceptors: InterceptorChain,
        make_dispatcher: Callable[[str, Entrance], TopicDispatcher],
        room_is_short: Callable[[], None],
    ) -> None:
        """`room_is_short` is called when a record begins to wait for room: nothing lingers any more."""
        self.gate = AdmissionGate(gate_bytes, waiting_bytes, self._admitted)
        self.topics: dict[str, TopicDispatcher] = {}  # whose names are valid ones
        self.column_turns = Turns()
        """of `send_columns`, by topic: rows of one call do not come between those of another"""
        self.is_open = True
        self._house = house
        self._loop = house.loop
        self._clock = house.loop.time
        self._block_s = min(house.settings.max_block_s, house.settings.delivery_timeout_s)
        self.overhead_bytes = house.record_overhead_bytes  # charged beside a record's own bytes
        self._client = client
        self._flushes = flushes
        self._metrics = metrics
        self._interceptors = interceptors
        self._make_dispatcher = make_dispatcher
        self._room_is_short = room_is_short
        self._lines: dict[str, SerializingLine] = {}
        self._timeouts = SendTimeouts(house.loop, self._send_timed_out)
        self._blocked: Alarm[AdmissionGate | TopicDispatcher] = Alarm(house.loop, self._unblock)

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
        """Take a valid record. The hot path: choose, append, charge.

        Args:
            dispatcher: that of the topic, if there is one by now.
            now: loop time, a millisecond old at most.

        Raises:
            BufferFullError: the waiting line is full too.
            PartitionerError: the user's partitioner raised, or named no partition.
        """
        charge_bytes = size_bytes + self.overhead_bytes
        gate = self.gate
        if gate.waiting_count == 0 and gate.used_bytes + charge_bytes <= gate.limit_bytes:
            if dispatcher is not None and dispatcher.is_known and (partition is None or partition < dispatcher.count):
                delivery = dispatcher.append(value, key, headers, partition, timestamp_ms, size_bytes, now)
                gate.used_bytes += charge_bytes
                if timeout_s is not None:
                    self._timeouts.set(self._clock(), timeout_s, delivery)
                return delivery
        return self._park(topic, value, key, headers, partition, timestamp_ms, size_bytes, timeout_s)

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
        charge_bytes = size_bytes + self.overhead_bytes
        gate = self.gate
        has_room = gate.try_charge(charge_bytes)
        if not has_room and not gate.may_wait(charge_bytes):
            raise self.buffer_full(topic)
        record, delivery = self._parked(topic, self._clock(), timeout_s)
        record.value, record.key, record.headers, record.partition = value, key, headers, partition
        record.timestamp_ms, record.size_bytes, record.charge_bytes = timestamp_ms, size_bytes, charge_bytes
        if has_room:
            self._admitted(record)
        else:
            self._line_up(record)
        return delivery

    def _parked(self, topic: str, now: float, timeout_s: float | None) -> tuple[ParkedRecord, Delivery]:
        """A parked record whose content is filled in by the caller, and its Delivery."""
        generation = self._flushes.generation
        record = ParkedRecord(self._loop, topic, now, now + self._block_s, generation, self._recall)
        delivery = record.delivery
        assert delivery is not None
        self._flushes.began(generation)
        if timeout_s is not None:
            self._timeouts.set(now, timeout_s, delivery)
        return record, delivery

    def accept_dressed(self, intake: Intake, record: Record) -> Delivery:
        """Take a record that serializers see; one that must be awaited waits in the line of its topic."""
        topic = record.topic
        assert topic is not None
        waiting = intake.serialize(record)
        line = self._lines.get(topic)
        if not waiting and line is None:
            key, value, headers, timestamp_ms, size_bytes = intake.frozen(record)
            return self.accept(
                topic,
                self.topics.get(topic),
                value,
                key,
                headers,
                record.partition,
                timestamp_ms,
                size_bytes,
                record.timeout,
                self._clock(),
            )
        if sum(len(other.waiting) for other in self._lines.values()) >= MOST_SERIALIZING:
            raise self.buffer_full(topic)
        parked, delivery = self._parked(topic, self._clock(), record.timeout)
        parked.place = "waiting for its serializer"
        if line is not None:
            line.waiting.append((parked, record))
        else:
            line = self._lines[topic] = SerializingLine(
                intake.finish, partial(self._serialized, intake), self.fail_parked
            )
            line.waiting.append((parked, record))  # before its task is made: an eager one begins at once
            self._house.spawn(self._run_line(topic, line), f"aiokprod-serialize-{topic}")
        return delivery

    async def _run_line(self, topic: str, line: SerializingLine) -> None:
        try:
            await line.run()
        finally:
            self._lines.pop(topic, None)

    def _serialized(self, intake: Intake, parked: ParkedRecord, record: Record) -> None:
        """Its bytes are known: it goes on as any other record."""
        parked.key, parked.value, parked.headers, parked.timestamp_ms, parked.size_bytes = intake.frozen(record)
        parked.partition = record.partition
        parked.charge_bytes = parked.size_bytes + self.overhead_bytes
        gate = self.gate
        if gate.try_charge(parked.charge_bytes):
            self._admitted(parked)
        elif gate.may_wait(parked.charge_bytes):
            self._line_up(parked)
        else:
            raise self.buffer_full(parked.topic)

    def _line_up(self, record: ParkedRecord) -> None:
        record.place = "waiting for room"
        is_first = self.gate.waiting_count == self.gate.waiting_rooms
        self.gate.wait(record)
        if is_first:
            self._blocked.set(record.block_deadline, self.gate)
            self._room_is_short()

    def _admitted(self, record: ParkedRecord) -> None:
        """The gate gave the record room."""
        record.is_charged = True
        dispatcher = self.dispatcher(record.topic)
        if dispatcher.accept(record):
            if dispatcher.waiting_count == 1:
                self._blocked.set(record.block_deadline, dispatcher)
            self._client.want(record.topic)
            if dispatcher.is_known:
                self._house.want_metadata(f"a record for partition {record.partition} of {record.topic}")

    async def room(self, charge_bytes: int) -> None:
        """Wait for so much room, in the same line as records; it is charged when this returns.

        Raises:
            ProducerClosedError, ProducerFailedError: nobody gets room any more.
        """
        if not self.gate.try_charge(charge_bytes):
            self._room_is_short()
            await self.gate.charge(charge_bytes)

    def dispatcher(self, topic: str) -> TopicDispatcher:
        """Of this topic, made when it is first asked for."""
        dispatcher = self.topics.get(topic)
        if dispatcher is None:
            dispatcher = self.topics[topic] = self._make_dispatcher(topic, self)
            dispatcher.learn(self._client.topic(topic), self._clock())
        return dispatcher

    # ------------------------------------------------------------------ parked records that end
    def parked_records(self) -> Iterator[ParkedRecord]:
        """Take out every record that waits for metadata or for a serializer (not those that wait for room)."""
        for dispatcher in self.topics.values():
            yield from dispatcher.abandon()
        for line in self._lines.values():
            yield from line.abandon()

    def parked_counts(self) -> dict[str, int]:
        """How many records wait for room, metadata or a serializer, by topic."""
        counts: dict[str, int] = {}
        for topic, dispatcher in list(self.topics.items()):
            counts[topic] = dispatcher.waiting_count
        for topic, line in list(self._lines.items()):
            counts[topic] = counts.get(topic, 0) + len(line.waiting)
        for record in self.gate.waiting_records():
            counts[record.topic] = counts.get(record.topic, 0) + 1
        return {topic: count for topic, count in counts.items() if count}

    def passed_on(self, record: ParkedRecord) -> None:
        """A batch has taken the record: its bytes are the batch's now."""
        record.is_charged = False
        if self._interceptors:
            assert record.delivery is not None
            holder, index = record.delivery.place()
            self._interceptors.moved(record, holder, index)
        self._flushes.finished(record.generation)

    def fail_parked(self, record: ParkedRecord, error: AiokprodError) -> None:
        """The record has its outcome without ever having been in a batch: certainly not persisted."""
        if record.failure is not None:
            return
        record.failure = error
        record.settled_at = self._clock()
        self._metrics.records_failed.add(1)
        self._house.undelivered(record.topic, record.partition, error.persistence, 1)
        if self._interceptors:
            self._loop.call_soon(self._interceptors.settled, record, 0, None, error)
        delivery, record.delivery = record.delivery, None
        if (delivery is None or not delivery.is_watched) and not isinstance(error, RecordRecalledError):
            self._house.failed(error, 1)
        if delivery is not None:
            delivery.fire()
        record.value = record.key = record.headers = None
        record.on_recall = _too_late  # through us a Delivery that is kept would hold the pipeline
        self._flushes.finished(record.generation)
        if record.is_charged:
            record.is_charged = False
            self.gate.give_back(record.charge_bytes)

    def _recall(self, record: ParkedRecord) -> None:
        self._take_out(record, RecordRecalledError("recalled", topic=record.topic))

    def _take_out(self, record: ParkedRecord, error: AiokprodError) -> None:
        dispatcher = self.topics.get(record.topic)
        if record.in_line:
            self.gate.leave(record)
        elif dispatcher is not None:
            dispatcher.forget(record)
        self.fail_parked(record, error)

    def _send_timed_out(self, delivery: Delivery) -> None:
        """A per-send timeout: the record leaves if it is not stamped; else only its handle fails."""
        holder, index = delivery.place()
        error = SendTimeoutError("the timeout of this send is over", persistence=Persistence.NOT_PERSISTED)
        if isinstance(holder, ParkedRecord):
            error.topic = holder.topic
            self._take_out(holder, error)
        elif isinstance(holder, ProducerBatch):
            error.topic, error.partition = holder.owner.topic, holder.owner.partition
            if not holder.owner.withdraw(holder, index, error):
                error.persistence = Persistence.POSSIBLY_PERSISTED
                watched = delivery.is_watched
                delivery.settle_here(error)
                if not watched:
                    self._house.failed(error, 1)

    def _unblock(self, place: AdmissionGate | TopicDispatcher) -> None:
        """max.block.ms of somebody there is over."""
        now = self._clock()
        for record in place.overdue(now):
            if isinstance(place, AdmissionGate):
                error: AiokprodError = self.buffer_full(record.topic)
                error.elapsed_s = now - record.sent_at
            else:
                error = self.unknown_topic(place.topic, now - record.sent_at)
            self.fail_parked(record, error)
        following = place.next_deadline()
        if following is not None:
            self._blocked.set(following, place)

    # ------------------------------------------------------------------ errors
    def buffer_full(self, topic: str) -> BufferFullError:
        """The error of a send that finds no room."""
        gate = self.gate
        return BufferFullError(
            f"{gate.used_bytes} of {gate.limit_bytes} bytes of buffer_memory are taken and "
            f"{gate.waiting_bytes} bytes wait for room",
            topic=topic,
            persistence=Persistence.NOT_PERSISTED,
        )

    def unknown_topic(self, topic: str, elapsed_s: float) -> AiokprodError:
        """Why a topic, or a partition of it, is not there: what the cluster last said."""
        known = self._client.last_error(topic)
        code, cause = known if known is not None else (None, None)
        text = name_of(code) if code else "no broker has answered for it"
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            error: AiokprodError = TopicAuthorizationError(f"topic {topic!r}: {text}", code=code)
        elif code is not None and is_topic_refused(code):
            error = UnknownTopicError(f"topic {topic!r}: {text}", code=code)
        else:
            error = UnknownTopicError(f"topic {topic!r} is not there after {elapsed_s:.1f} s: {text}", code=code)
        error.topic = topic
        error.elapsed_s = elapsed_s
        error.__cause__ = cause
        return error

    # ------------------------------------------------------------------ the end
    def close(self, error: Callable[[], AiokprodError], of_record: Callable[[ParkedRecord], AiokprodError]) -> None:
        """Nobody gets room any more: records and tasks that wait for it fail."""
        self.is_open = False
        for record in self.gate.abandon(error):
            self.fail_parked(record, of_record(record))

    def fail_all(self, of_record: Callable[[ParkedRecord], AiokprodError]) -> None:
        """Every parked record fails."""
        for record in list(self.parked_records()):
            self.fail_parked(record, of_record(record))

    def stop(self) -> None:
        """No alarm rings any more."""
        self._timeouts.stop()
        self._blocked.stop()


def _too_late(record: ParkedRecord) -> None:
    """It has its outcome."""
