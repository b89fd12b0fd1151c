"""`Producer`: the public face. It owns the life of a pipeline, hands it what it is given, and decides nothing else.

    NEW -> STARTING -> READY -> CLOSING -> CLOSED -> STARTING ...      (FAILED: a crash; close it and start again)

Built anywhere, also outside a loop; bound to the loop that starts it; a closed one can be started again, on any loop.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
import warnings
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import MethodType, TracebackType
from typing import Any, ClassVar, Final, NoReturn, Self, TypeVar, Unpack
from weakref import WeakSet

from aiokprod.closing import Closing, tell_unclean
from aiokprod.cluster.connection_settings import check_files
from aiokprod.cluster.control_request import checked_seconds
from aiokprod.cluster.running_loop import running_loop
from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.config.call_timeouts import check_timeout
from aiokprod.config.option_checks import shown
from aiokprod.delivery_type import Delivery
from aiokprod.errors import (
    AiokprodError,
    ConfigError,
    ForkedError,
    ProducerClosedError,
    ProducerNotStartedError,
    SendColumnsError,
    SendManyError,
    UsageError,
    WrongLoopError,
)
from aiokprod.foreign_calls import ForeignCalls
from aiokprod.forms import is_compiled
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import CloseReport, ColumnsReport, Health, ProducerState, SendReport
from aiokprod.pipeline.assembly import Pipeline
from aiokprod.pipeline.bulk import BulkSend
from aiokprod.pipeline.columns import ColumnsSend
from aiokprod.pipeline.intake import Intake
from aiokprod.pipeline.send_call import SendAttribute, SendCall
from aiokprod.pipeline.send_path import SendPath
from aiokprod.pipeline.unwatched import UnwatchedFailures
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records import crc
from aiokprod.records.column_rows import table_of
from aiokprod.records.columns import BytesColumn, HeadersColumn
from aiokprod.records.compression import check_codec
from aiokprod.thread_sends import send_from_thread
from aiokprod.unclosed import Unclosed, weakly
from aiokprod.wire.messages.metadata import MetadataRequest

CallT = TypeVar("CallT", bound=Callable[..., Any])
HeadersArgument = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
HOOK_CLOSE_S = 0.5  # what an async close() of a serializer may take: close() returns within a second of its bound
TAKEN_AT_ONCE = 500  # records send_many takes before it lets the loop run


def _marked(call: CallT) -> CallT:
    """Mark a plain function that returns an awaitable, so that Starlette keeps it on the loop."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)
    call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return call


class _Forks:
    """How often this process is a forked child: a producer of the parent must not be used in it."""

    count = 0
    started: ClassVar[WeakSet[Producer]] = WeakSet()

    @classmethod
    def is_at(cls, count: int) -> bool:
        """Has this process not been forked since?"""
        return cls.count == count

    @classmethod
    def happened(cls) -> None:
        cls.count += 1
        for producer in cls.started:
            producer._path = producer._send_call.path = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Forks.happened)


def _closed_while_starting() -> ProducerClosedError:
    return ProducerClosedError("close() was called while the producer was being started")


class _Base(ForeignCalls):
    """Where the compiled form has `send`: who patches `Producer.send` finds no attribute of its own there, and a function."""


class Producer(_Base):
    """Sends records to Apache Kafka, with an awaitable for each.

        async with Producer("localhost:9092") as producer:
            metadata = await producer.send("orders", b"value", key=b"key")

    `async with` connects within `start_timeout_ms` and delivers what was taken within `close_timeout_ms`; what it cannot
    deliver then is a WARNING in the log.

    Args:
        servers: `"host:port,host:port"`, a list of such (also as `bootstrap_servers=`); or a whole `ProducerConfig`; or a
            mapping with the names of other clients, as `ProducerConfig.from_mapping` takes it.
        **options: the options of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown, has the wrong type or conflicts with another; a file cannot be read, or is no PEM.
        CodecUnavailableError: the package of `compression_type` is not installed.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Mapping[str, Any] | ProducerConfig | None = None,
        /,
        **options: Unpack[ProducerOptions],
    ) -> None:
        if isinstance(servers, ProducerConfig):
            config = servers.replace(**options) if options else servers
        elif isinstance(servers, Mapping):
            config = ProducerConfig.from_mapping(servers, **options)
        elif servers is None:
            config = ProducerConfig.of(**options)
        else:
            named = options.get("bootstrap_servers")
            if named is not None:
                raise ConfigError(
                    f"the servers are given twice, as the first argument ({shown(servers)}) and as bootstrap_servers"
                    f" ({shown(named)}): leave one out"
                )
            options["bootstrap_servers"] = servers
            config = ProducerConfig.of(**options)
        check_codec(config.compression_type, config.compression_level)
        self._check_files(config)
        self.config = config
        self._metrics = Metrics()
        self._log = StateLog("producer", client_id=config.client_id)
        self._unwatched = UnwatchedFailures(config.on_delivery_error, self._log)
        self._intake = Intake(config, self._log)
        self._pipeline: Pipeline | None = None
        self._path: SendPath | None = None  # while records can be sent
        self._send_call = SendCall(MethodType(SEND, self))  # has the same path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = ProducerState.NEW
        self._since = time.time()
        self._forks = 0
        self._started: asyncio.Event | None = None  # while a start is under way
        self._starting: Pipeline | None = None  # while a start is under way
        self._closing: Closing | None = None  # the last one of this start
        self._closes = 0  # how often a close() ended a start
        self._unclosed: Unclosed | None = None  # while it is started
        self._left = CloseReport.empty()  # of a start whose loop was closed before the producer was

    def _check_files(self, config: ProducerConfig) -> None:
        """What is wrong with the files of certificates is known now, not when the application starts."""
        check_files(config)

    # ------------------------------------------------------------------ life
    async def start(self, timeout: float | None = 30.0, *, wait: bool = True) -> Self:
        """Connect. `wait=False` comes up without a cluster and connects in the background.

        Args:
            timeout: seconds; None waits without bound.

        Called again on a started producer it does nothing; while another task starts it, it waits for that start.

        Raises:
            BootstrapError: no bootstrap server answered; it says host, port and cause of each.
            AuthenticationError, TlsError: the cluster refused us, or we it.
            ProducerClosedError, ProducerFailedError: it is closing, or has failed: await `close()` first.
            ConfigError: `timeout` is no number of seconds, or below 0; nothing was started.
            UsageError: no event loop of asyncio runs (under trio, say).

        Cancellation: nothing is left behind; the producer can be started again.
        """
        check_timeout("timeout of start()", timeout)
        loop = running_loop()
        if self._has_lost_its_loop():
            await self._leave_loop()
        closes = self._closes
        while self._started is not None and self._forks == _Forks.count:
            self._check_loop()
            await self._started.wait()
            if self._closes != closes:
                raise _closed_while_starting()
        if self._state is ProducerState.READY and self._forks == _Forks.count:
            self._check_loop()
            return self
        if self._closing is not None and not self._closing.is_done and self._forks == _Forks.count:
            raise ProducerClosedError("the producer is closing: await close() before start()")
        if self._pipeline is not None and self._forks == _Forks.count:
            raise self._pipeline.closed_error()
        self._intake.configure()
        self._loop = loop
        self._forks = _Forks.count
        self._closing, self._left = None, CloseReport.empty()
        self._metrics.buffer_limit_bytes.set(self.config.buffer_memory)
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
            self._pipeline = pipeline
            self._path = self._send_call.path = SendPath(pipeline.entrance, self._intake, self._loop, self._refusal)
            _Forks.started.add(self)
            close_hooks = partial(self._intake.close, HOOK_CLOSE_S)  # holds nothing of this producer
            self._unclosed = Unclosed(self, pipeline, close_hooks, self._log, partial(_Forks.is_at, self._forks))
            self._move(ProducerState.READY, "connected" if wait else "connecting in the background")
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
        return self

    def _make_pipeline(self) -> Pipeline:
        return Pipeline(
            self.config, self._metrics, self._log, self._unwatched, self._intake.interceptors, weakly(self._failed)
        )

    async def close(self, timeout: float | None = 30.0) -> CloseReport:
        """Stop taking records, deliver what was taken, end. Idempotent; a hard bound.

        Args:
            timeout: seconds until what is left fails, each record with its exact persistence. None sets no bound of its
                own: the records' own ends, `delivery_timeout_ms` and `max_block_ms`, are the bound then.

        Returns:
            What was not delivered.

        Raises:
            ConfigError: `timeout` is no number of seconds, or below 0; the producer goes on.

        Cancellation: the closing goes on; call `close` again to wait for it.
        """
        check_timeout("timeout of close()", timeout)
        if self._forks != _Forks.count:
            return CloseReport.empty()
        if self._has_lost_its_loop():
            return await self._leave_loop()
        if self._started is not None:
            return await self._close_while_starting(self._started)
        if self._closing is None and self._pipeline is not None:
            self._check_loop()
            self._closes += 1
            self._move(ProducerState.CLOSING, "close() was called")
            self._closing = Closing(self._pipeline, self._close_hooks, self._closed, self._log)
        if self._closing is None:
            return self._left
        if not self._closing.is_done:
            self._check_loop()
            self._closing.within(timeout)
        return await self._closing.report()

    async def _close_while_starting(self, started: asyncio.Event) -> CloseReport:
        """The start fails with ProducerClosedError, and leaves nothing behind; nothing was sent yet."""
        self._check_loop()
        self._closes += 1
        if self._starting is not None:
            await self._starting.client.close()
        await started.wait()
        if self._closing is not None:  # the start was cancelled while it closed its hooks, and has not waited for them
            await self._closing.report()
        return CloseReport.empty()

    def _close_hooks(self) -> Coroutine[Any, Any, None]:
        return self._intake.close(HOOK_CLOSE_S)

    def _has_lost_its_loop(self) -> bool:
        """Was the loop closed before the producer was?"""
        is_closing = self._closing is not None and not self._closing.is_done
        is_up = self._pipeline is not None or self._started is not None or is_closing
        return is_up and self._forks == _Forks.count and self._loop is not None and self._loop.is_closed()

    async def _leave_loop(self) -> CloseReport:
        """Nothing of the ended loop can be closed any more: count what is lost, and be ready for another start."""
        unclosed, self._unclosed = self._unclosed, None
        self._left = CloseReport.empty() if unclosed is None else unclosed.leave_loop()
        self._metrics.connections_open.set(0)  # they ended with their loop, and did not say so
        self._pipeline = self._starting = self._started = self._closing = None
        self._path = self._send_call.path = None
        self._move(ProducerState.CLOSED, "its event loop was closed")
        await self._intake.close(HOOK_CLOSE_S)
        warnings.warn(f"{self!r} was not closed before its event loop was", ResourceWarning, stacklevel=3)
        return self._left

    def _closed(self) -> None:
        if self._unclosed is not None:
            self._unclosed.end()
            self._unclosed = None
        self._pipeline = None
        self._path = self._send_call.path = None
        self._move(ProducerState.CLOSED, "close() is done")

    async def __aenter__(self) -> Self:
        return await self.start(self.config.start_timeout)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            tell_unclean(await self.close(self.config.close_timeout), self._log)
        except AiokprodError:
            if error is None:  # an exception of the body wins
                raise

    def _failed(self, cause: BaseException) -> None:
        if self._unclosed is not None:
            self._unclosed.crashed()
        self._move(ProducerState.FAILED, f"{type(cause).__name__}: {cause}")

    def _move(self, state: ProducerState, why: str) -> None:
        self._log.moved(self._state.value, state.value, why)
        self._state = state
        self._since = time.time()

    # ------------------------------------------------------------------ sending
    @_marked
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersArgument = (),
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Accept one record; await the Delivery for its metadata, or never.

        A plain call: order is the order of the calls, per partition, over all tasks.

        Args:
            topic: its name.
            value: bytes (or what `value_serializer` takes); None is a tombstone.
            key: bytes (or what `key_serializer` takes); None is no key, b"" is a key.
            partition: this one; else the partitioner chooses.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is now.
            timeout: seconds for this record alone; the producer's delivery_timeout_ms holds besides.

        Returns:
            A Delivery: `await` it for `RecordMetadata`; it raises a typed error that tells whether the record may be
            in the log.

        Raises:
            RecordTypeError, RecordTooLargeError, InvalidTopicError, ...: the record cannot be sent; nothing was taken.
            BufferFullError: buffer_memory is full and max_waiting_bytes wait for room.
            ProducerNotStartedError, ProducerClosedError, WrongLoopError, ForkedError: not now, not here.
        """
        path = self._path
        if path is None:
            raise self._refusal()
        return path.send(topic, value, key, partition, headers, timestamp_ms, timeout)  # type: ignore[return-value]

    @_marked
    def try_send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersArgument = (),
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """`send` that never waits for room: there is room now, or `BufferFullError`. An unknown topic is waited for.

        Returns:
            A Delivery, as `send` does.

        Raises:
            BufferFullError: no room; `await ready()` waits for as much as this record wanted.
            RecordTypeError, RecordTooLargeError, ...: as `send`; nothing was taken.
        """
        path = self._path
        if path is None:
            raise self._refusal()
        return path.try_send(topic, value, key, partition, headers, timestamp_ms, timeout)  # type: ignore[return-value]

    def send_threadsafe(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersArgument = (),
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Future[RecordMetadata]:
        """`send` from another thread than the event loop's: `producer.send_threadsafe("orders", b"v").result(timeout=30)`.

        The order of the calls of one thread is the order of its records. Arguments as `send`; key, value and headers that
        could change are copied.

        Returns:
            A `concurrent.futures.Future` of the metadata; ask it for its result: a failure is told to nothing else. It gets
            every error that `send` raises and that a Delivery has. `cancel()` works until the loop has taken the record.

        Raises:
            UsageError: called on the event loop itself, where waiting for the Future would never end: use `send`.
            ProducerNotStartedError, ProducerClosedError, ForkedError: the producer cannot be used in its current state.
        """
        loop = self._loop
        if self._path is None or loop is None or loop.is_closed():
            raise self._refusal()
        if asyncio._get_running_loop() is loop:
            raise UsageError("send_threadsafe() was called on the producer's event loop: use send() there")
        options = {"partition": partition, "headers": headers, "timestamp_ms": timestamp_ms, "timeout": timeout}
        return send_from_thread(loop, self.send, topic, value, key, **options)

    async def send_many(
        self, topic: str, values: Iterable[Any] | AsyncIterable[Any], *, timeout: float | None = None
    ) -> SendReport:
        """Send many records with back-pressure inside; wait for all of them.

        Args:
            topic: of each value, and of each `Record` that names none.
            values: values or `Record`s; an iterable or an async one. Taken only as fast as there is room.
            timeout: seconds for each record, from when it is taken.

        Returns:
            How many were delivered, and the offsets per partition; no object per record.

        Raises:
            SendManyError: some failed; its `report` says which and why.
            UnknownTopicError: the topic does not exist; nothing was taken.
            RecordTypeError: `timeout` is no number of seconds above 0, or `values` is one value; nothing was taken.
            ProducerClosedError, ProducerFailedError: before all were taken.
            Exception: what `values` raises. Of these two a note says how many records were taken before, which go on: a
                failure of one of them is told to `on_delivery_error`, and logged.

        Cancellation: stops taking; what was taken goes on.
        """
        pipeline = self._check_open()
        self._intake.checked_topic(topic)
        self._intake.check_values(values, topic)
        if timeout is not None:
            self._intake.checked_timeout(timeout, topic)
        await self.partitions_for(topic)
        bulk = BulkSend(pipeline.report)
        try:
            await self._room(bulk)  # before a value is asked for: one that is in hand is taken, so that none is lost
            if isinstance(values, AsyncIterable):
                async for value in values:
                    await self._take_many(bulk, topic, iter((value,)), timeout)
            else:
                await self._take_many(bulk, topic, iter(values), timeout)
            bulk.urge()
            report = await bulk.settled()
        except BaseException as ended:
            bulk.release()
            bulk.tell_taken(ended)
            raise
        if report.failures:
            raise SendManyError(report)
        return report

    async def _take_many(self, bulk: BulkSend, topic: str, values: Iterator[Any], timeout: float | None) -> None:
        """Take all the values, as fast as there is room; the first of them at once."""
        while not self._path_of(bulk).take(bulk, topic, values, timeout, TAKEN_AT_ONCE):
            await asyncio.sleep(0)
            await self._room(bulk)

    async def _room(self, bulk: BulkSend) -> None:
        entrance = self._path_of(bulk).entrance
        if not entrance.gate.has_room_now() and not bulk.is_last_refused:
            try:
                await entrance.ready(unless=bulk.limited())
            except AiokprodError as ended:
                bulk.end_by(ended)
                raise

    def _path_of(self, bulk: BulkSend) -> SendPath:
        if self._path is None:
            raise bulk.end_by(self._refusal())
        return self._path

    async def send_columns(
        self,
        topic: str,
        values: BytesColumn,
        keys: BytesColumn | None = None,
        *,
        headers: HeadersColumn | None = None,
        partitions: object = None,
        timestamps_ms: object = None,
        placements: bool = False,
    ) -> ColumnsReport:
        """Send many records out of columns, without an object for each; wait for all of them. See docs/columns.md.

        Order, retries, idempotence and expiry are those of `send`; each partition gets its rows in their order, and those of
        several calls of a topic in the order of the calls.

        Args:
            topic: of all of them.
            values: a null is a tombstone.
            keys: a null is no key.
            headers: a null, or an empty list: none.
            partitions: a buffer of int32 or int64, or an `IntColumn`: where it is null the partitioner chooses.
            timestamps_ms: a buffer of int64, or an `IntColumn`: milliseconds since 1970; null is now.
            placements: tell too where each row is (`report.placements`): up to 8 bytes for a row.

        Returns:
            Count, bytes and offsets of each partition.

        Raises:
            SendColumnsError: some records failed, or were not taken any more; its `report` says how many, where and why.
            InvalidColumnError, RecordTooLargeError, PartitionOutOfRangeError, InvalidTimestampError: a column or a row
                (`error.row`) cannot be sent; nothing was taken.
            ConfigError: the producer has interceptors or serializers: they see records, and here are none.
            UnknownTopicError: the topic does not exist; nothing was taken.

        Cancellation: stops taking; what was taken goes on.
        """
        pipeline = self._check_open()
        self._intake.checked_topic(topic)
        if not self._intake.is_plain:
            raise ConfigError("send_columns passes by interceptors and serializers: use a producer without them")
        table = table_of(values, keys, headers, partitions, timestamps_ms)
        send = ColumnsSend(
            pipeline,
            pipeline.entrance,
            self._intake,
            topic,
            table,
            pipeline.partitions_for,
            pipeline.closed_error,
            placements,
        )
        report = await send.run()
        if report.failed or report.untaken:
            raise SendColumnsError(report)
        return report

    async def ready(self) -> None:
        """Wait until a record has room; first in, first out.

        Raises:
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: no record is taken.

        Cancellation: gives up its place in the line.
        """
        await self._check_open().entrance.ready()

    async def flush(self) -> None:
        """Wait until everything sent before this call is settled; linger is cut short.

        A record that failed is settled, too: its Delivery or `on_delivery_error` has the error, this call raises none for it.
        The records' own ends, `delivery_timeout_ms` and `max_block_ms`, are the bound.

        Raises:
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: not now, not here.

        Cancellation: stops waiting; the records go on.
        """
        await self._check_open().flush()

    # ------------------------------------------------------------------ asking
    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """The partitions of a topic, from metadata; asks the cluster if it is unknown.

        Args:
            timeout: seconds; None is max_block_ms.

        Returns:
            Their numbers, ascending from 0.

        Raises:
            UnknownTopicError: it does not exist, or no broker has answered; with the last cause.
            TopicAuthorizationError, InvalidTopicError: it may not be asked about; no topic can have this name.
            ProducerClosedError, ProducerFailedError: it is closed, or was closed meanwhile; it has failed.
            ConfigError: `timeout` is no number of seconds, or below 0.
        """
        check_timeout("timeout of partitions_for()", timeout)
        if timeout is not None:
            timeout = checked_seconds(timeout)
        pipeline = self._check_open()
        self._intake.checked_topic(topic)
        return await pipeline.partitions_for(topic, timeout)

    async def ping(self, timeout: float | None = 10.0) -> float:
        """Ask the cluster for a sign of life.

        Args:
            timeout: seconds; None is request_timeout_ms.

        Returns:
            The round trip in seconds; the way to a new connection included, if one was needed.

        Raises:
            ClusterError: no broker answered in time (BootstrapError, RequestTimeoutError, AuthenticationError, TlsError).
            ConfigError: `timeout` is no number of seconds, or below 0.
        """
        check_timeout("timeout of ping()", timeout)
        pipeline = self._check_open()
        if timeout is None:
            timeout = self.config.request_timeout_ms / 1000
        began = time.perf_counter()  # not the loop's clock: uvloop's counts whole milliseconds
        await pipeline.client.request(MetadataRequest(topics=[]), timeout_s=timeout)
        return time.perf_counter() - began

    def health(self) -> Health:
        """State, readiness and liveness, at once, from any thread, without I/O."""
        pipeline = self._pipeline
        if pipeline is None:
            return Health(
                state=self._state,
                ready=False,
                live=self._state is not ProducerState.FAILED,
                since=self._since,
                brokers_connected=0,
                buffered_bytes=0,
                oldest_record_s=None,
                last_error=None,
            )
        return pipeline.health(self._state, self._since)

    def metrics(self) -> dict[str, Any]:
        """A snapshot of all counters, gauges and histograms; from any thread. Units: docs/metrics.md."""
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.measure()
        return self._metrics.snapshot()

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
        if running is self._loop:
            return None
        if self._loop is not None and self._loop.is_closed():
            return WrongLoopError("the event loop the producer was started on is closed: close() it and start() again")
        return WrongLoopError("the producer was started on another event loop")

    def _check_open(self) -> Pipeline:
        pipeline = self._pipeline
        if pipeline is None or pipeline.is_refusing or self._forks != _Forks.count:
            raise self._refusal()
        self._check_loop()
        return pipeline

    def _refusal(self) -> AiokprodError:
        """Why nothing can be sent now, or not here."""
        if self._forks != _Forks.count and self._state is not ProducerState.NEW:
            return ForkedError("the producer was started before this process was forked")
        if self._pipeline is not None and (self._pipeline.failure is not None or self._pipeline.is_closing):
            return self._pipeline.closed_error()
        if self._state in (ProducerState.CLOSED, ProducerState.CLOSING):
            return ProducerClosedError("the producer is closed")
        wrong_loop = self._wrong_loop() if self._pipeline is not None else None
        return wrong_loop or ProducerNotStartedError("the producer has not been started")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse `pickle`, `copy.copy` and `copy.deepcopy`: sockets and a loop cannot be in two places."""
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: give each process, or each part of a program, the"
            " ProducerConfig (producer.config) and let it build a producer of its own"
        )

    def __repr__(self) -> str:
        return f"<Producer {self.config.client_id} {self._state.value}>"


SEND: Final = Producer.send
if is_compiled():
    setattr(_Base, "send", SendAttribute(SEND))  # noqa: B010 - to the type checkers it stays a method
    del Producer.send
