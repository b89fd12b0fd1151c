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
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any

from aiokprod.backoff import Backoff
from aiokprod.chance import new_random
from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.owned_tasks import OwnedTasks, cancelled_from_outside
from aiokprod.cluster.snapshot import BrokerNode, ClusterSnapshot, LeaderHint, TopicSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ProducerClosedError, ProducerFailedError
from aiokprod.hooks import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import CloseReport, Health, Persistence, ProducerState, Record
from aiokprod.pipeline.aggregator import BrokerAggregator
from aiokprod.pipeline.alarm import Alarm
from aiokprod.pipeline.batch import ProducerBatch, Segment
from aiokprod.pipeline.compressing import CompressingThreads
from aiokprod.pipeline.dispatcher import TopicDispatcher
from aiokprod.pipeline.effects import Effects
from aiokprod.pipeline.entrance import Entrance
from aiokprod.pipeline.flusher import BrokerFlusher
from aiokprod.pipeline.flushes import Flushes
from aiokprod.pipeline.housekeeping import keep_house
from aiokprod.pipeline.inspection import health, measure, unsettled
from aiokprod.pipeline.ledger import Entry, Ledger
from aiokprod.pipeline.parked import ParkedRecord, Waits
from aiokprod.pipeline.partition_queue import PartitionQueue
from aiokprod.pipeline.partitioners import TopicPartitioner, make_partitioner
from aiokprod.pipeline.ports import House, Queue, ReadySet, Route
from aiokprod.pipeline.retry import RetryHandler
from aiokprod.pipeline.settings import RECORD_OVERHEAD_BYTES, PipelineSettings
from aiokprod.pipeline.unwatched import UnwatchedFailures
from aiokprod.pipeline.verdicts import is_topic_refused
from aiokprod.transactions.identity import ProducerIdKeeper
from aiokprod.wire.produce import ProduceOutcome

KEEP_HOUSE_EVERY_S = 0.5  # how often topics are kept in use, and the partitioners told the queue sizes (KIP-794)


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
        self.random = new_random()
        self.failure: BaseException | None = None
        self.is_closing = False
        self._is_ending = False  # the flush of close() is over: what ends now ends because we end it
        self.client = ClusterClient(config, metrics, self)
        self.effects = Effects(self._grant, self.crashed)
        self.flushes = Flushes(self.loop)
        self.entrance = Entrance(
            self,
            config.buffer_memory,
            config.buffer_memory if config.max_waiting_bytes is None else config.max_waiting_bytes,
            self.client,
            self.flushes,
            metrics,
            interceptors,
            self._make_dispatcher,
            self._wake_all,
        )
        self.flushers: dict[int, BrokerFlusher] = {}
        self.retry = RetryHandler(
            self.flushers,
            self._open_route,
            self._ask_identity,
            self.want_metadata,
            lambda: metrics.chaser_rounds.add(1),
            self.effects,
        )
        self._wakes = Alarm(self.loop, self._ring)
        self._expiries = Alarm(self.loop, self._expire)
        self._log = log
        self._unwatched = unwatched
        self._interceptors = interceptors
        self._has_interceptors = bool(interceptors)
        self._used_topics: set[str] = set()  # where a batch was opened since house was kept
        self._on_failed = on_failed
        self._undelivered: dict[tuple[str, int | None, Persistence], int] = {}
        self._tasks = OwnedTasks(self.crashed)
        self._identity_asked = False
        self._keeper = ProducerIdKeeper(self.client, config)
        self._compressing = CompressingThreads(self.settings.codec, self.settings.codec_level, self.spawn)
        self._house_timer: asyncio.TimerHandle | None = None
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._retry_delay = lambda attempt: backoff.delay_s(attempt, self.random.random())

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
        self.spawn(self._stand_by(), "aiokprod-supervisor")
        if self.settings.idempotent:
            self._ask_identity()
        self._house_timer = self.loop.call_later(KEEP_HOUSE_EVERY_S, self._keep_house)

    async def _stand_by(self) -> None:
        """Live until close. A cancel from outside, as at the end of `asyncio.run`, fails the producer and closes its sockets.

        The end of a loop waits for cancelled tasks, so that is the last occasion to close them.
        """
        try:
            await self.loop.create_future()
        except asyncio.CancelledError:
            pass
        if not self._is_ending:
            self.crashed(cancelled_from_outside("aiokprod-supervisor"))
            await self.client.close()
        raise asyncio.CancelledError

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.spawn(work, name)

    def crashed(self, cause: BaseException) -> None:
        """A bug, or a fatal answer: every Delivery fails with the cause; sends raise from now on, a close ends at once."""
        if self.failure is not None or self._is_ending:
            return
        self.failure = cause
        self._log.failed(cause)
        if not self.is_closing:
            self._on_failed(cause)
        self._fail_everything(cause)
        self._unwatched.tell_held()

    def _fail_everything(self, cause: BaseException | None) -> None:
        self.entrance.close(self.closed_error)
        self.entrance.fail_all(self._error_of_parked)
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

    def _error_of_parked(self, record: ParkedRecord) -> AiokprodError:
        error = self.closed_error(record.topic)
        if error.__cause__ is None and record.waits in (Waits.METADATA, Waits.PARTITION):
            cause = self.entrance.unknown_topic(record.topic, self.loop.time() - record.sent_at)
            error = ProducerClosedError(
                f"the producer was closed while the record waited: {cause.message}",
                topic=record.topic,
                persistence=Persistence.NOT_PERSISTED,
            )
            error.__cause__ = cause
        return error

    # `Closing` calls these three and `flush`. No coroutine awaits while an exception is on its way: compiled, such an
    # exception would stay the current one of the thread.
    def stop_taking(self) -> None:
        """The producer is closing: sends raise from now on."""
        self.is_closing = True
        self.entrance.close(self.closed_error)  # what waits for room was accepted, so it is delivered, too

    def end(self) -> None:
        """Fail what has no outcome yet, with exact persistence; stop timers; cut the work of the connections."""
        self._is_ending = True
        self._fail_everything(self.failure)
        self._unwatched.tell_held()
        self._wakes.stop()
        self._expiries.stop()
        self.entrance.stop()
        if self._house_timer is not None:
            self._house_timer.cancel()
        for flusher in self.flushers.values():
            flusher.end()

    async def gone(self) -> None:
        """Cancel the tasks, close the sockets, and wait until they are gone; after `end`.

        Cancellation: call it again to wait for the end.
        """
        # Cancelled before the client closes, waited for after it: the bound of close() is hard.
        await asyncio.gather(self._tasks.close(), self.client.close())

    def unsettled(self) -> dict[tuple[str, int | None, Persistence], int]:
        """How many records have no outcome yet. May be asked from any thread when the loop does not run."""
        return unsettled(self.entrance, self.queues())

    def abandon(self) -> CloseReport:
        """The loop has been closed: nothing can be settled or told any more, only counted."""
        self.is_closing = True
        self._unwatched.tell_held()
        for (topic, partition, persistence), count in self.unsettled().items():
            self.undelivered(topic, partition, persistence, count)
        return self.close_report(0.0)

    def tasks_left(self) -> str:
        """The names of the tasks that run, for a message."""
        return repr(self._tasks)

    # ------------------------------------------------------------------ making stages
    def _make_dispatcher(self, topic: str, entrance: Entrance) -> TopicDispatcher:
        config = self.config
        partitioner = make_partitioner(
            config.partitioner,
            ignore_keys=config.partitioner_ignore_keys,
            adaptive=config.partitioner_adaptive_partitioning_enable,
            batch_size=config.batch_size,
            random=self.random,
        )
        make_queue = partial(self._make_queue, partitioner)
        return TopicDispatcher(topic, partitioner, make_queue, entrance.passed_on, entrance.fail_parked)

    def _make_queue(self, partitioner: TopicPartitioner, snapshot: TopicSnapshot, number: int) -> PartitionQueue:
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
            retries=self.settings.retries,
        )
        queue = PartitionQueue(
            snapshot.name, number, self, ledger, self.metrics, partitioner.on_new_batch, snapshot.incarnation
        )
        if self.settings.idempotent and identity is None:
            self.retry.need_identity(queue, None, False)
        return queue

    def queues(self) -> Iterator[PartitionQueue]:
        """Every partition that ever got a record."""
        for dispatcher in self.entrance.topics.values():
            for queue in dispatcher.queues.values():
                assert isinstance(queue, PartitionQueue)
                yield queue

    # ------------------------------------------------------------------ House: asked by the queues
    def ready(self, queue: Queue) -> None:
        not_before = queue.ledger.not_before
        if not_before > 0.0 and not_before > self.loop.time():
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

    def opened(self, queue: Queue, since: float) -> None:
        self._used_topics.add(queue.topic)
        if self.settings.linger_s > 0:
            self._wakes.set(since + self.settings.linger_s, queue)
        else:
            self.ready(queue)
        # From the send, not from now: the record may have been parked until its topic was known.
        deadline = since + self.settings.delivery_timeout_s
        if deadline < queue.looks_at:
            queue.looks_at = deadline
            self._expiries.set(deadline, queue)

    def _expire(self, queue: Queue) -> None:
        if queue.looks_at > self.loop.time():
            return  # an alarm before this one was set meanwhile, and it has rung
        queue.looks_at = inf
        try:
            queue.expire()
        except Exception as bug:
            self.crashed(bug)
        deadline = queue.ledger.next_deadline()
        if deadline is not None:
            deadline = max(deadline, self.loop.time() + 0.005)
            if deadline < queue.looks_at:
                queue.looks_at = deadline
                self._expiries.set(deadline, queue)

    def acknowledged(self, batch: ProducerBatch, segment: Segment) -> None:
        if self._has_interceptors:
            self.loop.call_soon(self._tell_interceptors, batch, segment)

    def _tell_interceptors(self, batch: ProducerBatch, segment: Segment) -> None:
        for index in range(segment.first, segment.last):
            self._interceptors.settled(batch, index, batch.metadata(index), batch.error(index))

    def free(self, charge_bytes: int) -> None:
        self.entrance.gate.free(charge_bytes)

    def _grant(self) -> None:
        self.entrance.gate.grant()

    def failed(self, error: AiokprodError, count: int, kept: Iterable[Record] | None = None) -> None:
        self.effects.later(partial(self._unwatched.report, error, count, kept))

    def report(self, error: AiokprodError, count: int) -> None:
        """As `failed`, from outside of every state change."""
        self.effects.begin()
        self.failed(error, count)
        self.effects.end()

    def is_short_of_memory(self) -> bool:
        return self.entrance.gate.is_short

    def _wake_all(self) -> None:
        """Records wait for room: nothing lingers any more."""
        for queue in self.queues():
            if queue.open_batch is not None:
                self.ready(queue)

    def compress_elsewhere(
        self, queue: Queue, entry: Entry, ranges: list[tuple[int, int]], section: bytes | bytearray
    ) -> None:
        self._compressing.submit(queue, entry, ranges, section)

    def chase(self, queue: Queue, node: int) -> None:
        self.retry.chase(queue, node)

    def need_identity(self, queue: Queue, used: tuple[int, int] | None, fresh: bool) -> None:
        self.retry.need_identity(queue, used, fresh)

    def rerouted(self, queue: Queue) -> None:
        self.retry.rerouted(queue)

    def _ask_identity(self) -> None:
        if not self._identity_asked:
            self._identity_asked = True
            self.spawn(self._fetch_identity(), "aiokprod-identity")

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

    def leader_hints(
        self, hints: list[tuple[Queue, ProduceOutcome]], endpoints: Sequence[tuple[int, str, int, str | None]]
    ) -> None:
        nodes: dict[int, BrokerNode] = {}
        for node_id, host, port, rack in endpoints:
            if node_id not in nodes:
                nodes[node_id] = BrokerNode(id=node_id, host=host, port=port, rack=rack)
        self.client.hint_leaders(
            [
                LeaderHint(
                    queue.topic, queue.partition, outcome.leader_id, outcome.leader_epoch, nodes.get(outcome.leader_id)
                )
                for queue, outcome in hints
            ]
        )

    def want_metadata(self, why: str) -> None:
        self.client.refresh(why)

    # ------------------------------------------------------------------ ClusterListener
    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        self.effects.begin()
        try:
            self._learn(old, new)
        except Exception as bug:
            self.crashed(bug)
        finally:
            self.effects.end()

    def _learn(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        now = self.loop.time()
        for topic, dispatcher in list(self.entrance.topics.items()):
            snapshot = new.topics.get(topic)
            if snapshot is old.topics.get(topic) and not dispatcher.waiting:
                continue
            answered = self.client.last_answered(topic)
            if snapshot is not None and is_topic_refused(snapshot.error_code):
                self.entrance.refuse_topic(dispatcher, answered)
            usable = snapshot if snapshot is not None and snapshot.error_code == 0 else None
            dispatcher.learn(usable, now, answered)
            if usable is not None:
                for number, queue in list(dispatcher.queues.items()):
                    assert isinstance(queue, PartitionQueue)
                    if number < len(usable.partitions):
                        leader = usable.partitions[number]
                        queue.led_by(leader.leader_id, leader.leader_epoch, usable.topic_id, usable.incarnation)
                    else:
                        queue.left_out(len(usable.partitions), usable.topic_id, usable.incarnation)

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        route = self.flushers.get(node_id)
        if route is not None:
            route.attach(connection)

    def dial_failed(self, node_id: int, error: Exception) -> None:
        flusher = self.flushers.get(node_id)
        if flusher is None or self._is_ending:
            return
        for queue in self.queues():
            if queue.node == node_id and queue.ledger.entries:
                queue.texts.note_cause(error)
        self.want_metadata(f"broker {node_id} cannot be reached")
        flusher.wake(False)

    # ------------------------------------------------------------------ housekeeping
    def _keep_house(self) -> None:
        """Keep topics in use that have records; tell the partitioners how much waits where, and what does not drain."""
        self._house_timer = self.loop.call_later(KEEP_HOUSE_EVERY_S, self._keep_house)
        used, self._used_topics = self._used_topics, set()
        keep_house(self.entrance.topics, used, self.client, self.settings, self.loop.time())

    # ------------------------------------------------------------------ asking
    async def partitions_for(self, topic: str, timeout_s: float | None) -> list[int]:
        """Wait until the partitions of the topic are known, or the producer takes nothing more."""
        now = self.loop.time()
        deadline = now + (self.settings.max_block_s if timeout_s is None else timeout_s)
        asked = self.client.next_request
        snapshot = self.client.topic(topic)
        while snapshot is None or not snapshot.partitions:
            known = self.client.last_error(topic)
            if known is not None and is_topic_refused(known[0]) and self.client.last_answered(topic) >= asked:
                raise self.entrance.unknown_topic(topic, self.loop.time() - now)
            self.entrance.check_open()  # a `close()` meanwhile says nothing of the topic
            left = deadline - self.loop.time()
            if left <= 0:
                raise self.entrance.unknown_topic(topic, self.loop.time() - now)
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
        now, is_live = self.loop.time(), self.failure is None
        return health(self.settings, self.client, self.entrance, self._log, state, since, now, is_live=is_live)

    def measure(self) -> None:
        """Bring the gauges up to date."""
        measure(self.metrics, self.entrance, list(self.flushers.values()))

    def undelivered(self, topic: str, partition: int | None, persistence: Persistence | None, count: int) -> None:
        if (self.is_closing or self.failure is not None) and persistence is not None:
            key = (topic, partition, persistence)
            self._undelivered[key] = self._undelivered.get(key, 0) + count

    def close_report(self, duration_s: float) -> CloseReport:
        """What failed because of a close or a crash."""
        return CloseReport(undelivered=dict(self._undelivered), duration_s=duration_s)

    # ------------------------------------------------------------------ flush
    async def flush(self) -> None:
        """Wait until everything accepted before this call is settled.

        Cancellation: stops waiting; what was sent goes on.
        """
        future = self.flushes.end_generation()
        if future is None:
            return
        for queue in self.queues():
            queue.seal()  # what is sent from now on goes into another batch, for which this flush does not wait
        try:
            await future
        finally:
            self.flushes.forget(future)
