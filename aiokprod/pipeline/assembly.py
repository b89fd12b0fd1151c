"""`Pipeline`: builds the stages, joins them, supervises them, flushes and closes. The only file that knows all stages.

    send -> AdmissionGate -> TopicDispatcher -> PartitionQueue -> BrokerAggregator -> BrokerFlusher -> connection
                                                     ^                                    |
                                                     +--------- RetryHandler <------------+

One per start of a producer, on one loop. Passing a record on is a plain call; tasks exist for what must be awaited
(the cluster's own, a producer id, a compressing thread), and one supervisor owns those of the pipeline. A crash
anywhere fails every Delivery with its cause and marks the pipeline failed; nothing hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

import anyio
import anyio.to_thread

from aiokprod.backoff import Backoff
from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.snapshot import ClusterSnapshot, TopicSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BufferFullError,
    ProducerClosedError,
    ProducerFailedError,
    RecordRecalledError,
    SendTimeoutError,
    TopicAuthorizationError,
    UnknownTopicError,
)
from aiokprod.hooks import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import CloseReport, Health, Persistence, ProducerState, Record
from aiokprod.pipeline.admission import AdmissionGate
from aiokprod.pipeline.aggregator import BrokerAggregator
from aiokprod.pipeline.alarm import Alarm
from aiokprod.pipeline.batch import Headers, ProducerBatch, Segment
from aiokprod.pipeline.delivery import Delivery
from aiokprod.pipeline.dispatcher import TopicDispatcher
from aiokprod.pipeline.flusher import BrokerFlusher
from aiokprod.pipeline.intake import Intake
from aiokprod.pipeline.ledger import Entry, Ledger
from aiokprod.pipeline.parked import ParkedRecord
from aiokprod.pipeline.partition_queue import PartitionQueue
from aiokprod.pipeline.partitioners import make_partitioner
from aiokprod.pipeline.ports import House, Queue, ReadySet, Route
from aiokprod.pipeline.retry import RetryHandler
from aiokprod.pipeline.serializing import SerializingLine
from aiokprod.pipeline.settings import PipelineSettings
from aiokprod.pipeline.unwatched import UnwatchedFailures
from aiokprod.records.compression import compress
from aiokprod.transactions.identity import ProducerIdKeeper
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.produce import ProduceOutcome

RECORD_OVERHEAD_BYTES = 120  # a cell in each column, the objects in them, a Delivery that is kept: measured by bench/
COMPRESSING_THREADS = 2
MOST_SERIALIZING = 10_000  # records that wait for an awaitable serializer: their bytes are not known yet
LOAD_EVERY_S = 0.5  # how often the adaptive partitioners are told the queue sizes


class Pipeline(House, ClusterListener):
    """The stages of one producer between start and close."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: Metrics,
        log: StateLog,
        unwatched: UnwatchedFailures,
        interceptors: InterceptorChain,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.settings = PipelineSettings.from_config(config)
        self.metrics = metrics
        self.record_overhead_bytes = RECORD_OVERHEAD_BYTES
        self.loop = asyncio.get_running_loop()
        self.random = Random()  # noqa: S311 - partitions and jitter, nothing secret
        self.failure: BaseException | None = None
        self.is_closing = False
        self.client = ClusterClient(config, metrics, self)
        self.gate = AdmissionGate(
            config.buffer_memory, config.max_waiting_bytes or config.buffer_memory, self._admitted
        )
        self.topics: dict[str, TopicDispatcher] = {}
        self.flushers: dict[int, BrokerFlusher] = {}
        self.retry = RetryHandler(
            self.flushers,
            self._open_route,
            self._ask_identity,
            self.want_metadata,
            lambda: metrics.chaser_rounds.add(1),
        )
        self.generation = 0
        self._pending: dict[int, int] = {}  # unfinished batches and parked records, by generation
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._wakes = Alarm(self.loop, self._ring)
        self._expiries = Alarm(self.loop, self._expire)
        self._timeouts: Alarm[Delivery] = Alarm(self.loop, self._send_timed_out)
        self._blocked: Alarm[AdmissionGate | TopicDispatcher] = Alarm(self.loop, self._unblock)
        self._clock = self.loop.time
        self._log = log
        self._unwatched = unwatched
        self._interceptors = interceptors
        self._on_failed = on_failed
        self._undelivered: dict[tuple[str, int | None, Persistence], int] = {}
        self._lines: dict[str, SerializingLine] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._identity_asked = False
        self._keeper = ProducerIdKeeper(self.client, config)
        self._threads = anyio.CapacityLimiter(COMPRESSING_THREADS)
        self._load_timer: asyncio.TimerHandle | None = None
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._retry_delay = lambda attempt: backoff.delay_s(attempt, self.random.random())
        self._supervisor: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ life
    async def start(self, timeout_s: float | None) -> None:
        """Connect; raises what `ClusterClient.start` raises, leaving nothing behind."""
        await self.client.start(timeout_s)
        self._started()

    def start_in_background(self) -> None:
        """Come up without a cluster; it connects when it can."""
        self.client.start_in_background()
        self._started()

    def _started(self) -> None:
        self._supervisor = self.loop.create_task(self._supervise(), name="aiokprod-supervisor")
        if self.settings.idempotent:
            self._ask_identity()
        self._load_timer = self.loop.call_later(LOAD_EVERY_S, self._tell_loads)

    async def _supervise(self) -> None:
        """Lives until close; whoever cancels it (a third party that cancels every task) fails the producer."""
        try:
            await self.loop.create_future()
        except asyncio.CancelledError:
            if not self.is_closing:
                self.crashed(ProducerFailedError("the producer's tasks were cancelled from outside"))
            raise

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            if not self.is_closing:
                self.crashed(ProducerFailedError(f"the task {task.get_name()} was cancelled from outside"))
        else:
            bug = task.exception()
            if bug is not None:
                self.crashed(bug)

    def crashed(self, cause: BaseException) -> None:
        """A bug, or a fatal answer: every Delivery fails with the cause; sends raise from now on."""
        if self.failure is not None or self.is_closing:
            return
        self.failure = cause
        self._log.failed(cause)
        self._on_failed(cause)
        self._fail_everything(cause)

    def _fail_everything(self, cause: BaseException | None) -> None:
        def failed(record_error: AiokprodError) -> AiokprodError:
            record_error.__cause__ = cause
            return record_error

        for record in [*self.gate.abandon(self.closed_error), *self._parked()]:
            self._fail_parked(record, failed(self.closed_error(topic=record.topic)))
        for queue in self.queues():
            queue.texts.crash = cause
            try:
                queue.purge()
            except Exception as bug:
                self._log.failed(bug)

    def closed_error(self, topic: str | None = None) -> AiokprodError:
        """What a send gets now, and what a record that was never sent gets."""
        if self.failure is not None:
            error: AiokprodError = ProducerFailedError(
                f"the producer has failed: {self.failure}", topic=topic, persistence=Persistence.NOT_PERSISTED
            )
            error.__cause__ = self.failure
            return error
        return ProducerClosedError("the producer is closed", topic=topic, persistence=Persistence.NOT_PERSISTED)

    def _parked(self) -> list[ParkedRecord]:
        parked = [record for dispatcher in self.topics.values() for record in dispatcher.abandon()]
        return parked + [record for line in self._lines.values() for record in line.abandon()]

    async def close(self, deadline: float) -> None:
        """Flush until the deadline (loop time), fail the rest with exact persistence, end tasks, close sockets."""
        self.is_closing = True
        try:
            for record in self.gate.abandon(self.closed_error):
                self._fail_parked(record, self.closed_error(topic=record.topic))
            if self.failure is None:
                try:
                    async with asyncio.timeout_at(deadline):
                        await self.flush()
                except TimeoutError:
                    pass
        finally:
            self._fail_everything(None)
            for alarm in (self._wakes, self._expiries, self._timeouts, self._blocked):
                alarm.stop()
            if self._load_timer is not None:
                self._load_timer.cancel()
            for flusher in self.flushers.values():
                flusher.end()
            tasks = [*self._tasks, *([self._supervisor] if self._supervisor else [])]
            for task in tasks:
                task.cancel()
            await self.client.close()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------ records
    def accept(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
        size_bytes: int,
        timeout_s: float | None,
    ) -> Delivery:
        """Take a valid record. The hot path: charge, choose, append.

        Raises:
            BufferFullError: the waiting line is full too.
        """
        now = self._clock()
        charge_bytes = size_bytes + RECORD_OVERHEAD_BYTES
        gate = self.gate
        if gate.waiting_count == 0 and gate.used_bytes + charge_bytes <= gate.limit_bytes:
            dispatcher = self.topics.get(topic)
            if dispatcher is not None and dispatcher.is_known and (partition is None or partition < dispatcher.count):
                gate.used_bytes += charge_bytes
                delivery = dispatcher.append(value, key, headers, partition, timestamp_ms, size_bytes, now)
                if timeout_s is not None:
                    self._timeouts.set(now + timeout_s, delivery)
                return delivery
        return self._park(topic, value, key, headers, partition, timestamp_ms, size_bytes, timeout_s, now)

    def _park(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
        size_bytes: int,
        timeout_s: float | None,
        now: float,
    ) -> Delivery:
        charge_bytes = size_bytes + RECORD_OVERHEAD_BYTES
        gate = self.gate
        has_room = gate.try_charge(charge_bytes)
        if not has_room and not gate.may_wait(charge_bytes):
            raise self.buffer_full(topic)
        record = ParkedRecord(
            self.loop,
            topic,
            value,
            key,
            headers,
            partition,
            timestamp_ms,
            size_bytes,
            charge_bytes,
            now,
            now + min(self.settings.max_block_s, self.settings.delivery_timeout_s),
            self.generation,
            self._recall_parked,
        )
        self._pending[record.generation] = self._pending.get(record.generation, 0) + 1
        if timeout_s is not None:
            self._timeouts.set(now + timeout_s, record.delivery)
        if has_room:
            self._admitted(record)
        else:
            self._line_up(record)
        return record.delivery

    def accept_dressed(self, intake: Intake, record: Record) -> Delivery:
        """Take a record that serializers see; one that must be awaited waits in the line of its topic."""
        topic = record.topic
        assert topic is not None
        waiting = intake.serialize(record)
        line = self._lines.get(topic)
        if not waiting and line is None:
            key, value, headers, timestamp_ms, size_bytes = intake.frozen(record)
            return self.accept(topic, value, key, headers, record.partition, timestamp_ms, size_bytes, record.timeout)
        if sum(len(other.waiting) for other in self._lines.values()) >= MOST_SERIALIZING:
            raise self.buffer_full(topic)
        now = self._clock()
        parked = ParkedRecord(
            self.loop,
            topic,
            None,
            None,
            None,
            record.partition,
            0,
            0,
            0,
            now,
            now + min(self.settings.max_block_s, self.settings.delivery_timeout_s),
            self.generation,
            self._recall_parked,
        )
        parked.place = "waiting for its serializer"
        self._pending[parked.generation] = self._pending.get(parked.generation, 0) + 1
        if record.timeout is not None:
            self._timeouts.set(now + record.timeout, parked.delivery)
        if line is None:
            line = self._lines[topic] = SerializingLine(
                intake.finish, partial(self._serialized, intake), self._fail_parked
            )
            self._spawn(self._run_line(topic, line), f"aiokprod-serialize-{topic}")
        line.waiting.append((parked, record))
        return parked.delivery

    async def _run_line(self, topic: str, line: SerializingLine) -> None:
        try:
            await line.run()
        finally:
            self._lines.pop(topic, None)

    def _serialized(self, intake: Intake, parked: ParkedRecord, record: Record) -> None:
        """Its bytes are known: it goes on as any other record."""
        parked.key, parked.value, parked.headers, parked.timestamp_ms, parked.size_bytes = intake.frozen(record)
        parked.partition = record.partition
        parked.charge_bytes = parked.size_bytes + RECORD_OVERHEAD_BYTES
        gate = self.gate
        if gate.try_charge(parked.charge_bytes):
            self._admitted(parked)
        elif gate.may_wait(parked.charge_bytes):
            self._line_up(parked)
        else:
            raise self.buffer_full(parked.topic)

    def _line_up(self, record: ParkedRecord) -> None:
        record.place = "waiting for room"
        if self.gate.waiting_count == 0:
            self._blocked.set(record.block_deadline, self.gate)
            self._wake_all()
        self.gate.wait(record)

    def buffer_full(self, topic: str) -> BufferFullError:
        """The error of a send that finds no room."""
        gate = self.gate
        return BufferFullError(
            f"{gate.used_bytes} of {gate.limit_bytes} bytes of buffer_memory are taken and "
            f"{gate.waiting_bytes} bytes wait for room",
            topic=topic,
            persistence=Persistence.NOT_PERSISTED,
        )

    def _admitted(self, record: ParkedRecord) -> None:
        """The gate gave the record room."""
        record.is_charged = True
        dispatcher = self._dispatcher(record.topic)
        if dispatcher.accept(record):
            if len(dispatcher.parked) == 1 or record in dispatcher.out_of_range:
                self._blocked.set(record.block_deadline, dispatcher)
                self.client.want(record.topic)
                if dispatcher.is_known:
                    self.want_metadata(f"a record for partition {record.partition} of {record.topic}")

    def _dispatcher(self, topic: str) -> TopicDispatcher:
        dispatcher = self.topics.get(topic)
        if dispatcher is None:
            config = self.config
            partitioner = make_partitioner(
                config.partitioner,
                ignore_keys=config.partitioner_ignore_keys,
                adaptive=config.partitioner_adaptive_partitioning_enable,
                batch_size=config.batch_size,
                random=self.random,
            )
            dispatcher = TopicDispatcher(
                topic, partitioner, partial(self._make_queue, partitioner), self._passed_on, self._fail_parked
            )
            self.topics[topic] = dispatcher
            dispatcher.learn(self.client.topic(topic), self.loop.time())
        return dispatcher

    def _make_queue(self, partitioner: Any, snapshot: TopicSnapshot, number: int) -> PartitionQueue:
        leader = snapshot.partitions[number]
        identity = self.retry.identity if self.settings.idempotent else None
        ledger = Ledger(
            node=leader.leader_id,
            leader_epoch=leader.leader_epoch,
            topic_id=snapshot.topic_id,
            identity=identity,
            idempotent=self.settings.idempotent,
            transactional=False,
            window=self.settings.requests_in_flight if self.settings.idempotent else 1,
            retry_delay=self._retry_delay,
        )
        queue = PartitionQueue(snapshot.name, number, self, ledger, self.metrics, partitioner.on_new_batch)
        if self.settings.idempotent and identity is None:
            self.retry.need_identity(queue, None, False)
        return queue

    def queues(self) -> Iterator[PartitionQueue]:
        """Every partition that ever got a record."""
        for dispatcher in self.topics.values():
            for queue in dispatcher.queues.values():
                assert isinstance(queue, PartitionQueue)
                yield queue

    # ------------------------------------------------------------------ parked records that end
    def _recall_parked(self, record: ParkedRecord) -> None:
        self._remove_parked(record, RecordRecalledError("recalled", topic=record.topic))

    def _remove_parked(self, record: ParkedRecord, error: AiokprodError) -> None:
        if record.in_line:
            self.gate.leave(record)
        else:
            self._dispatcher(record.topic).forget(record)
        self._fail_parked(record, error)

    def _passed_on(self, record: ParkedRecord) -> None:
        """A batch has taken the record: its bytes are the batch's now."""
        record.is_charged = False
        self.finished(record.generation)

    def _fail_parked(self, record: ParkedRecord, error: AiokprodError) -> None:
        if record.failure is not None:
            return
        record.failure = error
        self.metrics.records_failed.add(1)
        self.undelivered(record.topic, record.partition, error.persistence, 1)
        if self._interceptors:
            self.loop.call_soon(self._interceptors.on_acknowledgement, None, error)
        if not record.delivery.is_watched and not isinstance(error, RecordRecalledError):
            self.failed(error, 1)
        record.delivery.fire()
        record.value = record.key = record.headers = None
        self.finished(record.generation)
        if record.is_charged:
            record.is_charged = False
            self.give_back(record.charge_bytes)

    def _unblock(self, place: AdmissionGate | TopicDispatcher) -> None:
        """max.block.ms of somebody there is over."""
        now = self.loop.time()
        late = place.overdue(now)
        if isinstance(place, AdmissionGate):
            for record in late:
                self._fail_parked(record, self._blocked_too_long(record))
            following = place.next_deadline()
        else:
            for record in late:
                self._fail_parked(record, self._unknown_topic(place.topic, now - record.sent_at))
            following = place.parked[0].block_deadline if place.parked else None
        if following is not None:
            self._blocked.set(following, place)

    def _blocked_too_long(self, record: ParkedRecord) -> AiokprodError:
        error = self.buffer_full(record.topic)
        error.elapsed_s = self.loop.time() - record.sent_at
        return error

    def _unknown_topic(self, topic: str, elapsed_s: float) -> AiokprodError:
        known = self.client.last_error(topic)
        code, cause = known if known is not None else (None, None)
        text = name_of(code) if code else "no broker has answered for it"
        if code in TOPIC_REFUSED:
            refused = TopicAuthorizationError if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else UnknownTopicError
            error: AiokprodError = refused(f"topic {topic!r}: {text}", topic=topic, elapsed_s=elapsed_s, code=code)
        else:
            error = UnknownTopicError(
                f"topic {topic!r} is not there after {elapsed_s:.1f} s: {text}",
                topic=topic,
                elapsed_s=elapsed_s,
                code=code,
            )
        error.__cause__ = cause
        return error

    def _send_timed_out(self, delivery: Delivery) -> None:
        """A per-send timeout: the record leaves if it is not stamped; else only its handle fails."""
        if delivery.done():
            return
        holder, index = delivery.place()
        error = SendTimeoutError("the timeout of this send is over", persistence=Persistence.NOT_PERSISTED)
        if isinstance(holder, ParkedRecord):
            error.topic = holder.topic
            self._remove_parked(holder, error)
        elif isinstance(holder, ProducerBatch):
            error.topic, error.partition = holder.owner.topic, holder.owner.partition
            if not holder.owner.withdraw(holder, index, error):
                error.persistence = Persistence.POSSIBLY_PERSISTED
                watched = delivery.is_watched
                delivery.settle_here(error)
                if not watched:
                    self.failed(error, 1)

    # ------------------------------------------------------------------ House: asked by the queues
    def ready(self, queue: Queue) -> None:
        not_before = queue.ledger.not_before
        if not_before > self.loop.time():
            self._wakes.set(not_before, queue)
            return
        route = self.retry.route_of(queue)
        if route is not None:
            route.aggregator.ready(queue)

    def urged(self, queue: Queue) -> None:
        route = self.retry.route_of(queue)
        if route is not None:
            route.aggregator.urged(queue)

    def _ring(self, queue: Queue) -> None:
        self.ready(queue)

    def opened(self, queue: Queue, generation: int) -> None:
        self._pending[generation] = self._pending.get(generation, 0) + 1
        self.client.topic(queue.topic)  # it is in use
        if self.settings.linger_s > 0:
            self._wakes.set(self.loop.time() + self.settings.linger_s, queue)
        else:
            self.ready(queue)
        if not queue.is_watching_deadline:
            queue.is_watching_deadline = True
            self._expiries.set(self.loop.time() + self.settings.delivery_timeout_s, queue)

    def _expire(self, queue: Queue) -> None:
        queue.is_watching_deadline = False
        queue.expire()
        deadline = queue.ledger.next_deadline()
        if deadline is not None:
            queue.is_watching_deadline = True
            self._expiries.set(max(deadline, self.loop.time() + 0.005), queue)

    def finished(self, generation: int) -> None:
        left = self._pending[generation] - 1
        if left:
            self._pending[generation] = left
            return
        del self._pending[generation]
        if self._flushes:
            oldest = min(self._pending, default=self.generation + 1)
            waiting = self._flushes
            self._flushes = [(until, future) for until, future in waiting if oldest <= until]
            for until, future in waiting:
                if oldest > until and not future.done():
                    future.set_result(None)

    def acknowledged(self, batch: ProducerBatch, segment: Segment) -> None:
        if self._interceptors:
            self.loop.call_soon(self._tell_interceptors, batch, segment)

    def _tell_interceptors(self, batch: ProducerBatch, segment: Segment) -> None:
        for index in range(segment.first, segment.last):
            self._interceptors.on_acknowledgement(batch.metadata(index), batch.error(index))

    def give_back(self, charge_bytes: int) -> None:
        self.gate.give_back(charge_bytes)

    def failed(self, error: AiokprodError, count: int) -> None:
        self._unwatched.report(error, count)

    def is_short_of_memory(self) -> bool:
        return self.gate.waiting_count > 0

    def _wake_all(self) -> None:
        """Somebody waits for room: nothing lingers any more."""
        for queue in self.queues():
            if queue.open_batch is not None:
                self.ready(queue)

    def compress_elsewhere(self, queue: Queue, entry: Entry, section: bytes | bytearray) -> None:
        self._spawn(self._compress(queue, entry, section), f"aiokprod-compress-{queue.topic}-{queue.partition}")

    async def _compress(self, queue: Queue, entry: Entry, section: bytes | bytearray) -> None:
        ranges = list(entry.ranges)
        squeezed = await anyio.to_thread.run_sync(
            compress,
            self.settings.codec,
            self.settings.codec_level,
            section,
            abandon_on_cancel=True,
            limiter=self._threads,
        )
        queue.compressed(entry, ranges, squeezed)

    def chase(self, queue: Queue, node: int) -> None:
        self.retry.chase(queue, node)

    def need_identity(self, queue: Queue, used: tuple[int, int] | None, fresh: bool) -> None:
        self.retry.need_identity(queue, used, fresh)

    def rerouted(self, queue: Queue) -> None:
        self.retry.rerouted(queue)

    def _ask_identity(self) -> None:
        if not self._identity_asked:
            self._identity_asked = True
            self._spawn(self._fetch_identity(), "aiokprod-identity")

    async def _fetch_identity(self) -> None:
        try:
            identity = await self._keeper.fresh()
        finally:
            self._identity_asked = False
        self.retry.identity_came(identity)

    # ------------------------------------------------------------------ House: asked by the flushers
    def _open_route(self, node_id: int) -> Route:
        def aggregator(wake: Callable[[bool], None]) -> ReadySet:
            return BrokerAggregator(node_id, wake)

        flusher = self.flushers[node_id] = BrokerFlusher(node_id, self, aggregator, self.metrics)
        return flusher

    def dial(self, node_id: int) -> None:
        connection = self.client.produce_connection(node_id)
        if connection is not None:
            self.flushers[node_id].attach(connection)
        else:
            self.client.dial(node_id)

    def leader_hint(
        self, queue: Queue, outcome: ProduceOutcome, endpoints: Sequence[tuple[int, str, int, str | None]]
    ) -> None:
        endpoint = next((e for e in endpoints if e[0] == outcome.leader_id), None)
        self.client.hint_leader(queue.topic, queue.partition, outcome.leader_id, outcome.leader_epoch, endpoint)

    def want_metadata(self, why: str) -> None:
        self.client.refresh(why)

    # ------------------------------------------------------------------ ClusterListener
    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        try:
            self._learn(old, new)
        except Exception as bug:
            self.crashed(bug)

    def _learn(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        now = self.loop.time()
        for topic, dispatcher in list(self.topics.items()):
            snapshot = new.topics.get(topic)
            if snapshot is old.topics.get(topic) and not dispatcher.out_of_range and not dispatcher.parked:
                continue
            if snapshot is not None and snapshot.error_code in TOPIC_REFUSED:
                for record in dispatcher.abandon():
                    self._fail_parked(record, self._unknown_topic(topic, now - record.sent_at))
            usable = snapshot if snapshot is not None and snapshot.error_code == 0 else None
            dispatcher.learn(usable, now)
            if usable is not None:
                for number, queue in list(dispatcher.queues.items()):
                    if number < len(usable.partitions):
                        leader = usable.partitions[number]
                        assert isinstance(queue, PartitionQueue)
                        queue.led_by(leader.leader_id, leader.leader_epoch, usable.topic_id)

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        route = self.flushers.get(node_id)
        if route is not None:
            route.attach(connection)

    def dial_failed(self, node_id: int, error: Exception) -> None:
        flusher = self.flushers.get(node_id)
        if flusher is None or self.is_closing:
            return
        for queue in self.queues():
            if queue.node == node_id and queue.ledger.entries:
                queue.texts.note_cause(error)
        self.want_metadata(f"broker {node_id} cannot be reached")
        flusher.wake(False)

    # ------------------------------------------------------------------ housekeeping
    def _tell_loads(self) -> None:
        """Tell the adaptive partitioners how much waits at each partition."""
        self._load_timer = self.loop.call_later(LOAD_EVERY_S, self._tell_loads)
        for dispatcher in self.topics.values():
            if dispatcher.is_known and len(dispatcher.queues) > 1:
                waiting = [0] * dispatcher.count
                for number, queue in dispatcher.queues.items():
                    if number < dispatcher.count:
                        waiting[number] = queue.pending_bytes()
                dispatcher.partitioner.update_load(waiting, [])

    # ------------------------------------------------------------------ asking
    async def partitions_for(self, topic: str, timeout_s: float | None) -> list[int]:
        """Wait until the partitions of the topic are known."""
        now = self.loop.time()
        deadline = now + (self.settings.max_block_s if timeout_s is None else timeout_s)
        snapshot = self.client.topic(topic)
        while snapshot is None or not snapshot.partitions:
            known = self.client.last_error(topic)
            if known is not None and known[0] in TOPIC_REFUSED:
                raise self._unknown_topic(topic, self.loop.time() - now)
            left = deadline - self.loop.time()
            if left <= 0 or self.is_refusing:
                raise self._unknown_topic(topic, self.loop.time() - now)
            self.client.want(topic)
            try:
                await self.client.refreshed(left)
            except (TimeoutError, AiokprodError):
                continue
            snapshot = self.client.topic(topic)
        return [partition.partition for partition in snapshot.partitions]

    @property
    def is_refusing(self) -> bool:
        """Does it take no more records?"""
        return self.is_closing or self.failure is not None

    def health(self, state: ProducerState, since: float) -> Health:
        """Read from any thread: plain attributes only."""
        snapshot = self.client.snapshot
        connected = sum(1 for f in list(self.flushers.values()) if f.connection is not None)
        has_cluster = bool(snapshot.brokers)
        if state is ProducerState.READY and not has_cluster:
            state = ProducerState.DEGRADED
        return Health(
            state=state,
            ready=state is ProducerState.READY and not self.gate.waiting_count,
            live=self.failure is None,
            since=since,
            brokers_connected=connected,
            buffered_bytes=self.gate.used_bytes,
            oldest_record_s=None,
            last_error=self._log.last_error,
        )

    def measure(self) -> None:
        """Bring the gauges up to date."""
        self.metrics.buffer_used_bytes.set(self.gate.used_bytes)
        self.metrics.buffer_waiting_records.set(self.gate.waiting_count)
        connections = [flusher.connection for flusher in list(self.flushers.values())]
        self.metrics.requests_in_flight.set(sum(c.in_flight for c in connections if c is not None))

    def undelivered(self, topic: str, partition: int | None, persistence: Persistence | None, count: int) -> None:
        if self.is_closing and persistence is not None:
            key = (topic, partition, persistence)
            self._undelivered[key] = self._undelivered.get(key, 0) + count

    def close_report(self, duration_s: float) -> CloseReport:
        """What close could not deliver."""
        return CloseReport(undelivered=dict(self._undelivered), duration_s=duration_s)

    # ------------------------------------------------------------------ flush
    async def flush(self) -> None:
        """Wait until everything accepted before this call is settled.

        Cancellation: stops waiting; what was sent goes on.
        """
        until = self.generation
        self.generation += 1
        if not self._pending or min(self._pending) > until:
            return
        self._wake_all()
        future: asyncio.Future[None] = self.loop.create_future()
        self._flushes.append((until, future))
        try:
            await future
        finally:
            self._flushes = [pair for pair in self._flushes if pair[1] is not future]


TOPIC_REFUSED = frozenset(
    {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)  # waiting is no use
