"""`Life`: the starts and ends of one producer, and the state it is in. One per producer; no record passes here.

    NEW -> STARTING -> READY -> CLOSING -> CLOSED -> STARTING ...      (FAILED: a crash; close it and start again)

A life belongs to the loop and to the process of its last start. While it is up, it has a pipeline and the producer a path.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

from aiokprod.closing import Closing
from aiokprod.cluster.owned_tasks import running_loop
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BootstrapError,
    ForkedError,
    ProducerClosedError,
    ProducerFencedError,
    ProducerNotStartedError,
    RequestTimeoutError,
    WrongLoopError,
)
from aiokprod.logs import StateLog, printable
from aiokprod.metrics import Metrics
from aiokprod.model import CloseReport, Health, ProducerState
from aiokprod.pipeline.backend import Backend
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.pipeline import Pipeline
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.pipeline.sending.send_path import SendPath
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records import crc
from aiokprod.unclosed import Unclosed, weakly

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.explanation import Obstacle, ObstacleKind, ProducerExplanation

HOOK_CLOSE_S = 0.5  # bound of an async close() of a serializer: close() returns within a second of its own bound


class _Forks:
    """The number of forks between the first process and this one: a producer of the parent must not be used in a child."""

    count = 0
    started: ClassVar[WeakSet[Life]] = WeakSet()

    @classmethod
    def is_at(cls, count: int) -> bool:
        """Return True if this process has not been forked since."""
        return cls.count == count

    @classmethod
    def happened(cls) -> None:
        cls.count += 1
        for life in cls.started:
            life.use_path(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Forks.happened)


def _closed_while_starting() -> ProducerClosedError:
    return ProducerClosedError("close() was called while the producer was being started")


async def _within(started: asyncio.Event, deadline: float | None) -> None:
    """Wait for the start of another task."""
    scope = asyncio.timeout_at(deadline)
    try:
        async with scope:
            await started.wait()
    except TimeoutError:
        if not scope.expired():
            raise
        raise RequestTimeoutError("the start of another task goes on, and was not done in time") from None


class Life:
    """The life of one producer.

    Args:
        producer: the producer, for its name and to notice that it is dropped.
        config: the options of the producer.
        metrics: the metrics of the producer.
        log: the log of the producer.
        unhandled: the errors that no task takes.
        checks: the checks of records; their hooks are closed here.
        make_backend: makes what the pipeline of one start stands on.
        use_path: called with the path of records while they can be sent, and with None when they no longer can.
    """

    def __init__(
        self,
        producer: object,
        config: ProducerConfig,
        metrics: Metrics,
        log: StateLog,
        unhandled: UnhandledErrors,
        checks: RecordChecks,
        make_backend: Callable[[PipelineContext], Backend],
        use_path: Callable[[SendPath | None], None],
    ) -> None:
        self.use_path = use_path
        self.pipeline: Pipeline | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.state = ProducerState.NEW
        self.untaken: set[Future[RecordMetadata]] = (
            set()
        )  # of `send_threadsafe`: the loop has not taken their records yet
        self._producer = producer
        self._config = config
        self._metrics = metrics
        self._log = log
        self._unhandled = unhandled
        self._checks = checks
        self._make_backend = make_backend
        self._since = wall_s()
        self._forks = 0
        self._started: asyncio.Event | None = None  # while a start is under way
        self._starting: Pipeline | None = None  # while a start is under way
        self._closing: Closing | None = None  # the last one of this start
        self._closes = 0  # number of starts that a close() has ended
        self._unclosed: Unclosed | None = None  # while it is started
        self._left = CloseReport.empty()  # of a start whose loop was closed before the producer was

    async def start(self, timeout: float | None, *, wait: bool) -> None:
        """Start the producer; see `Producer.start`."""
        loop = running_loop()
        if self._has_lost_its_loop():
            await self._leave_loop()
        closes = self._closes
        deadline = None if timeout is None else loop.time() + max(0.0, timeout)
        while self._started is not None and self._forks == _Forks.count:
            self._check_loop()
            await _within(self._started, deadline)
            if deadline is not None:
                timeout = max(0.0, deadline - loop.time())  # for a start of its own, if that one has failed
            if self._closes != closes:
                raise _closed_while_starting()
        if self.state is ProducerState.READY and self._forks == _Forks.count:
            self._check_loop()
            return
        if self._closing is not None and not self._closing.is_done and self._forks == _Forks.count:
            raise ProducerClosedError("the producer is closing: await close() before start()")
        if self.pipeline is not None and self._forks == _Forks.count:
            raise self.pipeline.closed_error()
        self._checks.configure()
        self.loop = loop
        self._forks = _Forks.count
        self._closing, self._left = None, CloseReport.empty()
        self.untaken = set()
        self._metrics.buffer_limit_bytes.set(self._config.buffer_memory)
        crc.load()  # not at the first batch, when records wait
        pipeline = self._starting = self._make_pipeline()
        started = self._started = asyncio.Event()
        self._move(ProducerState.STARTING, "start() was called")
        try:
            if wait:
                await pipeline.start(timeout)
            else:
                pipeline.start_in_background()
            if self._closes != closes:
                raise _closed_while_starting()
            self.pipeline = pipeline
            self.use_path(SendPath(pipeline.parking, self._checks, loop, self.refusal))
            _Forks.started.add(self)
            close_hooks = partial(self._checks.close, HOOK_CLOSE_S)  # holds nothing of this producer
            self._unclosed = Unclosed(
                self._producer,
                pipeline,
                self._close_at_exit,
                close_hooks,
                self._log,
                partial(_Forks.is_at, self._forks),
                self.untaken,
            )
            self._move(ProducerState.READY, "connected" if wait else "connecting in the background")
            pipeline.outages.begin(loop.time())
            self._checks.interceptors.started(self._producer)
        except GeneratorExit:  # the loop was closed, and this coroutine is thrown away: nothing can be awaited
            self._move(ProducerState.NEW, "its event loop was closed")
            raise
        except BaseException as error:
            is_closed = self._closes != closes
            ended = (
                partial(self._move, ProducerState.CLOSED, "close() was called")
                if is_closed
                else partial(self._move, ProducerState.NEW, f"start() failed: {type(error).__name__}")
            )
            self._closing = Closing(pipeline, self._close_hooks, ended, self._log)
            self._closing.within(0)
            await self._closing.report()
            if is_closed and isinstance(error, AiokprodError):
                raise _closed_while_starting() from None
            raise
        finally:
            self._starting = self._started = None
            started.set()

    def unreachable(self) -> BootstrapError | None:
        """Return the error of a start under way in which each bootstrap server was tried; None: one may still answer."""
        return None if self._starting is None else self._starting.client.unreachable()

    def _make_pipeline(self) -> Pipeline:
        return Pipeline(
            self._config,
            self._metrics,
            self._log,
            self._unhandled,
            self._checks.interceptors,
            weakly(self._failed),
            self._make_backend,
        )

    async def close(self, timeout: float | None) -> CloseReport:
        """Close the producer; see `Producer.close`."""
        if self._forks != _Forks.count:
            return CloseReport.empty()
        if self._has_lost_its_loop():
            return await self._leave_loop()
        if self._started is not None:
            return await self._close_while_starting(self._started)
        if self._closing is None and self.pipeline is not None:
            self._check_loop()
            self._begin_close(self.pipeline, "close() was called")
        if self._closing is None:
            return self._left
        if not self._closing.is_done:
            self._check_loop()
            self._closing.within(timeout)
        return await self._closing.report()

    def _begin_close(self, pipeline: Pipeline, why: str) -> None:
        pipeline.reports.end_grace(at_once=True)  # first: `on_delivery_error` may send dead letters with this producer
        self._closes += 1
        self._move(ProducerState.CLOSING, why)
        self._closing = Closing(pipeline, self._close_hooks, self._closed, self._log)

    def _close_at_exit(self, timeout: float) -> None:
        """Begin to close, or bound the close that goes on; called on the producer's loop."""
        if self._closing is None and self.pipeline is not None:
            self._begin_close(self.pipeline, "the program ended")
        if self._closing is not None and not self._closing.is_done:
            self._closing.within(timeout)

    async def _close_while_starting(self, started: asyncio.Event) -> CloseReport:
        """Let the start fail with ProducerClosedError; no record was accepted yet."""
        self._check_loop()
        self._closes += 1
        if self._starting is not None:
            await self._starting.stop_starting()
        await started.wait()
        if self._closing is not None:  # the start was cancelled while it closed its hooks, and has not waited for them
            await self._closing.report()
        return CloseReport.empty()

    def _close_hooks(self) -> Coroutine[Any, Any, None]:
        return self._checks.close(HOOK_CLOSE_S)

    def _has_lost_its_loop(self) -> bool:
        """Return True if the loop was closed before the producer."""
        is_closing = self._closing is not None and not self._closing.is_done
        is_up = self.pipeline is not None or self._started is not None or is_closing
        return is_up and self._forks == _Forks.count and self.loop is not None and self.loop.is_closed()

    async def _leave_loop(self) -> CloseReport:
        """Count the lost records and get ready for another start: nothing can be closed on a loop that has ended."""
        unclosed, self._unclosed = self._unclosed, None
        self._left = CloseReport.empty() if unclosed is None else unclosed.leave_loop()
        self._metrics.connections_open.set(0)  # they ended with their loop, unnoticed
        self.pipeline = self._starting = self._started = self._closing = None
        self.use_path(None)
        self._move(ProducerState.CLOSED, "its event loop was closed")
        await self._checks.close(HOOK_CLOSE_S)
        warnings.warn(f"{self._producer!r} was not closed before its event loop was", ResourceWarning, stacklevel=4)
        return self._left

    def _closed(self) -> None:
        if self._unclosed is not None:
            self._unclosed.end()
            self._unclosed = None
        self.pipeline = None
        self.use_path(None)
        self._move(ProducerState.CLOSED, "close() is done")

    def _failed(self, cause: BaseException) -> None:
        if self._unclosed is not None:
            self._unclosed.crashed()
        self._move(ProducerState.FAILED, f"{type(cause).__name__}: {cause}")

    def _move(self, state: ProducerState, why: str) -> None:
        before = self.state
        if before is ProducerState.READY and self.pipeline is not None and self.pipeline.outages.is_degraded:
            before = ProducerState.DEGRADED
        self._log.moved(before.value, state.value, why)
        self.state = state
        self._since = wall_s()

    def health(self) -> Health:
        """Return the health of the producer; see `Producer.health`."""
        pipeline = self.pipeline
        is_forked = self._forks != _Forks.count and self.state is not ProducerState.NEW
        if pipeline is None or is_forked:
            state = ProducerState.FAILED if is_forked else self.state  # of a child: the pipeline is the parent's
            return Health(
                state=state,
                ready=False,
                live=state is not ProducerState.FAILED,
                since=self._since,
                brokers_connected=0,
                buffered_bytes=0,
                oldest_record_s=None,
                last_error=str(self.refusal()) if is_forked else None,
                reason=str(self.refusal()) if is_forked else None,
            )
        return pipeline.health(self.state, self._since)

    def measure(self) -> None:
        """Bring the gauges up to date."""
        if self.pipeline is not None:
            self.pipeline.measure()
        health = self.health()
        self._metrics.ready_producers.set(int(health.ready))
        self._metrics.degraded_producers.set(int(health.state is ProducerState.DEGRADED))
        self._metrics.failed_producers.set(int(health.state is ProducerState.FAILED))

    def explain(self) -> ProducerExplanation:
        """Return why deliveries are slow or stuck; see `Producer.explain`."""
        from aiokprod.explanation import Obstacle, ObstacleKind

        if self._forks != _Forks.count and self.state is not ProducerState.NEW:
            return self._only(ProducerState.FAILED, ObstacleKind.FORKED, self.refusal().message)
        pipeline = self.pipeline or self._starting
        if pipeline is None:
            is_new = self.state is ProducerState.NEW
            kind = ObstacleKind.NOT_STARTED if is_new else ObstacleKind.CLOSED
            return self._only(
                self.state, kind, "the producer has not been started" if is_new else "the producer is closed"
            )
        since = f"for {wall_s() - self._since:.1f} s"
        own: list[Obstacle] = []
        if pipeline.failure is not None:
            is_fenced = isinstance(pipeline.failure, ProducerFencedError)
            text = f"the producer has failed: {type(pipeline.failure).__name__}: {pipeline.failure}"
            kind = ObstacleKind.FENCED if is_fenced else ObstacleKind.FAILED
            own.append(Obstacle(kind=kind, text=printable(text)))
        elif self.state is ProducerState.STARTING:
            own.append(Obstacle(kind=ObstacleKind.STARTING, text=f"the producer starts, {since}"))
        elif self.state is ProducerState.CLOSING:
            own.append(
                Obstacle(kind=ObstacleKind.CLOSING, text=f"the producer closes, {since}, and takes no more records")
            )
        return pipeline.explain(self.state, self._since, own)

    def _only(self, state: ProducerState, kind: ObstacleKind, text: str) -> ProducerExplanation:
        from aiokprod.explanation import Obstacle, ProducerExplanation

        limit_bytes = int(self._config.buffer_memory)
        return ProducerExplanation(
            state=state, obstacles=(Obstacle(kind=kind, text=text),), buffer_limit_bytes=limit_bytes
        )

    # ------------------------------------------------------------------ guards
    def _check_loop(self) -> None:
        wrong = self._wrong_loop()
        if wrong is not None:
            raise wrong

    def _wrong_loop(self) -> WrongLoopError | None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return WrongLoopError(
                "called outside the event loop the producer was started on: from another thread send with"
                " send_threadsafe(), and without a running loop call it inside a coroutine"
            )
        if running is self.loop:
            return None
        if self.loop is not None and self.loop.is_closed():
            return WrongLoopError("the event loop the producer was started on is closed: close() it and start() again")
        return WrongLoopError("the producer was started on another event loop")

    def check_open(self) -> Pipeline:
        """Return the pipeline.

        Raises:
            AiokprodError: the producer cannot be used in its current state, from this loop, or in this process.
        """
        pipeline = self.pipeline
        if pipeline is None or pipeline.is_refusing or self._forks != _Forks.count:
            raise self.refusal()
        self._check_loop()
        return pipeline

    def refusal(self) -> AiokprodError:
        """Return the reason why no record can be sent in this state, from this loop or in this process."""
        if self._forks != _Forks.count and self.state is not ProducerState.NEW:
            return ForkedError("the producer was started before this process was forked")
        if self.pipeline is not None and (self.pipeline.failure is not None or self.pipeline.is_closing):
            return self.pipeline.closed_error()
        if self.state in (ProducerState.CLOSED, ProducerState.CLOSING):
            return ProducerClosedError("the producer is closed")
        wrong_loop = self._wrong_loop() if self.pipeline is not None else None
        if self.pipeline is not None and self.pipeline.transactor is not None and wrong_loop is None:
            return self.pipeline.closed_error()  # of a transactional producer: no transaction takes the record
        return wrong_loop or ProducerNotStartedError(
            "the producer has not been started: `await producer.start()`, or use `async with Producer(...)`"
        )
