"""`Pipeline`: the life of the stages of one producer. It starts them, supervises them, flushes, closes and fails them.

    send -> AdmissionGate -> TopicDispatcher -> PartitionQueue -> BrokerAggregator -> BrokerFlusher -> connection
                                                     ^                                    |
                                                     +--------- RetryHandler <------------+

One per start of a producer, on one loop. The stages are made by its `Backend`, and no stage knows the pipeline: passing a
record on is a plain call from stage to stage. Tasks exist for what must be awaited (the cluster's own, a producer id, a
compressing thread), and one supervisor owns those of the pipeline. A crash anywhere fails every Delivery with its cause and
marks the pipeline failed; nothing hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aiokprod.cluster.owned_tasks import OwnedTasks, cancelled_from_outside
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    UndeliveredAtCloseError,
)
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import CloseReport, Health, Persistence, ProducerState
from aiokprod.pipeline.backend import Backend
from aiokprod.pipeline.columns.tickets import Tickets
from aiokprod.pipeline.delivery.delivery_reports import DeliveryReports
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.pipeline.effects import Effects
from aiokprod.pipeline.inspection import (
    Degradation,
    degradation,
    health,
    held_transaction,
    keep_house,
    may_be_degraded,
    measure,
)
from aiokprod.pipeline.outages import Outages
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.flushes import Flushes
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.partition.settings import PipelineSettings
from aiokprod.pipeline.watch import Watch
from aiokprod.randomness import new_random
from aiokprod.waiting import WaitsFor

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.explanation import Obstacle, ProducerExplanation

ATTEMPTS = 3  # at giving everything its outcome, where a bug strikes in that, too
MOST_AT_ONCE = 200  # records, or batches, that `close()` gives up in one turn of the loop
KEEP_HOUSE_EVERY_S = 0.5  # how often topics are kept in use, and the partitioners told the queue sizes (KIP-794)


class Pipeline:
    """The stages of one producer between start and close."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: Metrics,
        log: StateLog,
        unhandled: UnhandledErrors,
        interceptors: InterceptorChain,
        on_failed: Callable[[BaseException], None],
        make_backend: Callable[[PipelineContext], Backend],
    ) -> None:
        """Make the stages; needs the running loop.

        Args:
            config: of the producer.
            metrics: of the producer.
            log: of the producer.
            unhandled: told of failures that no caller awaits.
            interceptors: told of outcomes.
            on_failed: called with the cause when the pipeline has failed, unless it is closing.
            make_backend: makes what it stands on.
        """
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.failure: BaseException | None = None
        self.is_closing = False
        self._bugs: list[BaseException] = []  # what steps of the end raised
        self._crash_step = 0  # of a crash: the number of the step under way
        self._is_ending = False  # the flush of close() is over: what ends now ends because we end it
        self._log = log
        self._unhandled = unhandled
        self._on_failed = on_failed
        self._tasks = OwnedTasks(self.crashed)
        self._house_timer: asyncio.TimerHandle | None = None
        effects = Effects(self._grant, self.crashed)
        self.reports = DeliveryReports(self.loop, effects, interceptors, unhandled)
        self.context = PipelineContext(
            config,
            PipelineSettings.from_config(config),
            self.loop,
            new_random(),
            metrics,
            log,
            interceptors,
            effects,
            Flushes(self.loop),
            self._tasks,
            self.reports,
        )
        self.backend = make_backend(self.context)
        self.client = self.backend.client
        self.parking = self.backend.parking
        self.transactor = self.backend.transactor
        if self.transactor is not None:
            self.transactor.flush = self.flush
        self.outages = Outages(
            self.parking, log, metrics, self.context.failing, self.context.defects, config.longest_block
        )
        self._watch = Watch(self.loop, metrics, log, self.context.defects, self.backend.stalls, self.crashed)
        self.column_tickets = Tickets()  # of `send_columns`, by topic

    def _grant(self) -> None:
        self.parking.gate.grant()

    # ------------------------------------------------------------------ life
    async def start(self, timeout_s: float | None) -> None:
        """Connect; raises what `ClusterClient.start` raises, leaving nothing behind."""
        began = self.loop.time()
        await self.client.start(timeout_s)
        self._started()
        if self.transactor is not None:
            await self.transactor.initialise(None if timeout_s is None else began + timeout_s - self.loop.time())

    async def stop_starting(self) -> None:
        """Let a start fail that waits for the cluster, or for the transactional id."""
        if self.transactor is not None:
            self.transactor.fail(self.closed_error())  # it asks for the id for ever, also without connections
        await self.client.close()

    def start_in_background(self) -> None:
        """Come up without a cluster; it connects when it can."""
        self.client.start_in_background()
        self._started()
        if self.transactor is not None:
            self.transactor.initialise_in_background()

    def _started(self) -> None:
        self._tasks.spawn(self._stand_by(), "aiokprod-supervisor")
        self.backend.begin()
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

    def crashed(self, cause: BaseException) -> None:
        """Fail every Delivery with the cause, a bug or a fatal answer; sends raise from now on, a close ends at once."""
        if self.failure is not None:
            return
        if self._is_ending:
            self._bugs.append(cause)
            return
        self.failure = cause
        self._watch.stop()
        self._carry_out_crash()

    def _carry_out_crash(self) -> None:
        """Take the steps of the crash that have not come to their end. The housekeeping calls it, too."""
        steps = [self._tell_crash, self._tell_life, self._fail_everything, self._unhandled.tell_held]
        while self._crash_step < len(steps):
            if not self._take(steps[self._crash_step]):
                self._take(steps[self._crash_step])  # once more: without it the state of the producer would be wrong
            self._crash_step += 1

    def _tell_crash(self) -> None:
        self.reports.is_ending = True
        self._unhandled.gather()
        if self.failure is not None:
            self._log.failed(self.failure)
        self.reports.end_grace()

    def _tell_life(self) -> None:
        if self.failure is not None and not self.is_closing:
            self._on_failed(self.failure)

    def _fail_everything(self) -> None:
        """Give everything its outcome.

        After a bug no step of ours is known to have come to its end, this one included. Then the outcomes are settled from the
        books of the batches, and what is left of a step that raises is done again.
        """
        failure = self.failure
        self._bugs.clear()
        if failure is None or isinstance(failure, AiokprodError):
            self._fail_all_but_batches()
            self._take(partial(self.backend.purge, failure))
            if failure is None and not self._bugs:
                return
        for _ in range(ATTEMPTS):
            cause = self._bugs[-1] if failure is None else failure
            self._bugs.clear()
            self._fail_all_but_batches()
            self._take(partial(self.backend.fail, cause))
            self._take(self.context.effects.recover)
            self._take(self.context.flushes.end)
            self._take(partial(self.parking.gate.end, self.closed_error))
            if not self._bugs:
                return
            failure = cause

    def _fail_all_but_batches(self) -> None:
        if self.transactor is not None:
            self._take(partial(self.transactor.fail, self.closed_error()))
        self._take(partial(self.parking.close, self.closed_error))
        self._take(partial(self.parking.fail_all, self._error_of_parked))

    def _take(self, step: Callable[[], object]) -> bool:
        """Take a step of the end; False if it raises, which keeps no other step from being taken."""
        try:
            step()
        except BaseException as bug:
            self._bugs.append(bug)
            return False
        return True

    def closed_error(self, topic: str | None = None) -> AiokprodError:
        """Return the error of a `send` from now on, and of a record that was never sent."""
        if isinstance(self.failure, ProducerFencedError):
            return self.failure.clone()
        if self.failure is not None:
            error: AiokprodError = ProducerFailedError(
                f"the producer has failed: {self.failure}", topic=topic, persistence=Persistence.NOT_PERSISTED
            )
            error.__cause__ = self.failure
            return error
        if self.transactor is not None and not self.is_closing:
            return self.transactor.refusal()
        return ProducerClosedError("the producer is closed", topic=topic, persistence=Persistence.NOT_PERSISTED)

    def _error_of_parked(self, record: ParkedRecord) -> AiokprodError:
        error = self.closed_error(record.topic)
        if not isinstance(error, ProducerClosedError):
            return error
        # It was accepted, so it is not refused now: it fails as those do that have a partition.
        why, cause = f"it was waiting for {record.waits.value}", None
        if record.waits in (WaitsFor.METADATA, WaitsFor.PARTITION):
            cause = self.parking.unknown_topic(record.topic, self.loop.time() - record.sent_at)
            why = cause.message
        error = UndeliveredAtCloseError(
            f"close() ended before the record was delivered: {why}",
            topic=record.topic,
            partition=record.partition,
            persistence=Persistence.NOT_PERSISTED,
        )
        error.elapsed_s = self.loop.time() - record.sent_at
        error.__cause__ = cause
        return error

    # `Closing` calls these three and `flush`. No coroutine awaits while an exception is on its way: compiled, such an
    # exception would stay the current one of the thread.
    def stop_taking(self) -> None:
        """Take no more records: the producer is closing, and sends raise from now on."""
        self.is_closing = self.reports.is_ending = True
        self.parking.close(self.closed_error)  # what waits for room was accepted, so it is delivered, too

    async def end_transaction(self, timeout_s: float | None) -> None:
        """End the transaction that is open: a commit that was asked for goes on, any other is aborted.

        Cancellation: nothing more is asked for.
        """
        if self.transactor is not None:
            await self.transactor.close(timeout_s)

    @property
    def has_last_push(self) -> bool:
        """True if brokers are told of the end by a last push of metrics."""
        telemetry = self.backend.telemetry
        return telemetry is not None and telemetry.is_pushing

    async def push_last(self) -> None:
        """Push metrics a last time to brokers that ask for them.

        Cancellation: the push is given up.
        """
        if self.backend.telemetry is not None:
            await self.backend.telemetry.push_last()

    async def give_up(self) -> None:
        """Fail what has no outcome yet, as `end` does, but a part in each turn of the loop; after the bound of `close()`.

        There may be a hundred thousand batches: `end` alone would hold the loop up for seconds. What a transaction has not
        written is failed by `end`, as its failures would be told to the transactor here.

        Cancellation: `end` does the rest.
        """
        self._unhandled.gather()  # until `end`
        self.reports.end_grace()
        if self.transactor is None:
            self.backend.stop_writing()
            is_more = True
            while is_more:
                # The parked ones first: the room of the others would let them into batches.
                is_more = self.parking.fail_some(self._error_of_parked, MOST_AT_ONCE)
                is_more = is_more or self.backend.purge_some(MOST_AT_ONCE)
                await asyncio.sleep(0)

    def end(self) -> None:
        """Fail what has no outcome yet, with exact persistence; stop timers; cut the work of the connections."""
        self._take(partial(self._look_for_losses, self.loop.time(), is_last=True))
        self._is_ending = True
        if self.transactor is not None:
            self.reports.transaction = self.transactor.outcome_at_close()
        self._unhandled.gather()
        self._take(self.reports.end_grace)
        self._fail_everything()
        if self.transactor is not None:
            self._take(self.transactor.stop)
        self._take(self._unhandled.tell_held)
        self._take(self.parking.stop)
        self._take(self.backend.end)
        if self._house_timer is not None:
            self._house_timer.cancel()
        self._watch.stop()

    async def gone(self) -> None:
        """Cancel the tasks, close the sockets, and wait until they are gone; after `end`.

        Cancellation: call it again to wait for the end.
        """
        # Cancelled before the client closes, waited for after it: the bound of close() is hard.
        await asyncio.gather(self._tasks.close(), self.client.close())

    def unsettled(self) -> dict[tuple[str, int | None, Persistence], int]:
        """Count the records without an outcome. May be asked from any thread when the loop does not run."""
        counts = self.backend.unsettled()
        for topic, parked in self.parking.parked_counts().items():
            counts[topic, None, Persistence.NOT_PERSISTED] = parked
        return counts

    def abandon(self) -> CloseReport:
        """Give up after the end of the loop: nothing can be settled or told any more, only counted."""
        self.is_closing = self.reports.is_ending = True
        self.tell_failures()
        for (topic, partition, persistence), count in self.unsettled().items():
            self.reports.left(topic, partition, persistence, count)
        return self.reports.close_report(0.0)

    def tell_failures(self) -> None:
        """Report the failures that are kept back, for callers or by the log's pace, where no loop runs that would do it."""
        self.reports.end_grace(at_once=True)
        self._unhandled.tell_held()

    def tasks_left(self) -> str:
        """Return the names of the tasks that run, for a message."""
        return repr(self._tasks)

    # ------------------------------------------------------------------ flush
    async def flush(self) -> None:
        """Wait until everything accepted before this call is settled.

        Cancellation: stops waiting; what was sent goes on.
        """
        flushes = self.context.flushes
        future = flushes.end_generation()
        if future is None:
            return
        self.backend.seal()
        try:
            await future
        finally:
            flushes.forget(future)

    # ------------------------------------------------------------------ housekeeping and health
    def _keep_house(self) -> None:
        """Keep topics in use that have records; tell the partitioners how much waits where, and what does not drain.

        Then look for what stands still.
        """
        self._house_timer = self.loop.call_later(KEEP_HOUSE_EVERY_S, self._keep_house)
        # An exception can come where nothing of ours catches it, and from `crashed`, too.
        half_done = self.backend.half_done()
        if self.failure is not None:
            self._carry_out_crash()
        elif half_done is not None:
            self.crashed(AssertionError(f"a step of {half_done} has ended half done"))
        effects = self.context.effects
        busy: Sequence[RecordQueue] = ()
        effects.begin()  # what sends meanwhile is put off: the queues of all topics are walked
        try:
            busy = keep_house(self.parking.topics, self.client, self.context.settings, self.loop.time())
        except Exception as bug:
            self.context.defects.caught("the upkeep of the topics", bug)
        finally:
            effects.end()
        if self.failure is None:
            self._look_for_outages(busy)
        if self.failure is None:
            self._watch.look(busy)

    def _look_for_outages(self, busy: Sequence[RecordQueue]) -> None:
        """Tell what there is to tell. A defect in these steps fails no record."""
        now = self.loop.time()
        self.outages.look(now)
        try:
            self.context.metrics.look_at_topics(now)
        except Exception as bug:
            self.context.defects.caught("the look at the topics of the metrics", bug)
        self._look_for_losses(now)
        if not self.is_closing:
            try:
                self._look_at_state(busy, now)
            except Exception as bug:
                self.context.defects.caught("the look at the state", bug)

    def _look_at_state(self, busy: Sequence[RecordQueue], now: float) -> None:
        is_held = self.outages.is_degraded or self._held_transaction(now) is not None
        may_be = may_be_degraded(self.context.settings, self.client, self.parking, busy, now, is_held=is_held)
        self.outages.look_at_state(self._degradation(now) if may_be else None, now)

    def _look_for_losses(self, now: float, *, is_last: bool = False) -> None:
        error: AiokprodError | None = None
        try:
            error = self.context.losses.look(self.client, now, is_last=is_last)
        except Exception as bug:
            if not self.config.fail_on_data_loss:
                self.context.defects.caught("the look for lost records", bug)
            elif is_last:
                raise  # a step of the end, which keeps no other from being taken
            else:
                self.crashed(bug)  # a loss may have been overlooked, behind which nothing may be sent
        if error is not None and self.config.fail_on_data_loss and not is_last:
            self.crashed(error)

    @property
    def is_refusing(self) -> bool:
        """Return whether the pipeline takes no more records."""
        return self.is_closing or self.failure is not None

    def health(self, state: ProducerState, since: float) -> Health:
        """Read from any thread: plain attributes only."""
        now, transactor = self.loop.time(), self.transactor
        return health(
            self.client,
            self.parking,
            self._log,
            self.context.failing,
            state,
            since,
            now,
            degraded=self._degradation(now) if state is ProducerState.READY else None,
            told_since=self.outages.since,
            is_told=self.outages.is_degraded,
            failure=self.failure,
            transaction=None if transactor is None else transactor.state,
            transaction_log=None if transactor is None else transactor.log,
            defects=self.context.defects,
        )

    def _held_transaction(self, now: float) -> Degradation | None:
        transactor = self.transactor
        if transactor is None:
            return None
        unknown_since, ending_since = transactor.unknown_since, transactor.ending_since
        return held_transaction(
            transactor.state,
            transactor.trouble,
            None if unknown_since is None else now - unknown_since,
            None if ending_since is None else now - ending_since,
        )

    def _degradation(self, now: float) -> Degradation | None:
        """Return why the producer is DEGRADED, if it is. From any thread."""
        return degradation(
            self.context.settings,
            self.client,
            self.parking,
            self.context.failing,
            now,
            self._held_transaction(now),
            self.outages.degraded_for_s(now),
            self.context.defects,
        )

    def explain(self, state: ProducerState, since: float, obstacles: Sequence[Obstacle]) -> ProducerExplanation:
        """Return why deliveries are slow or stuck; `obstacles`: those of the producer's life. From any thread."""
        from aiokprod.pipeline.explaining import explain

        now, transactor = self.loop.time(), self.transactor
        return explain(
            self.parking,
            self.client,
            self.context.failing,
            self.health(state, since),
            "" if transactor is None else transactor.trouble,
            [*obstacles, *self.backend.obstacles(now)],
            sum(self.backend.requests_in_flight().values()),
            now,
        )

    def measure(self) -> None:
        """Bring the gauges up to date, but those of the health."""
        try:
            measure(self.context.metrics, self.parking, self.backend.requests_in_flight(), self.loop.time())
        except Exception as bug:
            self.context.defects.caught("the measurement of the gauges", bug)
