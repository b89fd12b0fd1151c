"""`Producer`: the public face. It checks the arguments of calls, passes them on to its life and its path, and decides nothing.

A producer can be made anywhere, also outside an event loop. It belongs to the loop that starts it. A closed one can be
started again, on any loop.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, Unpack, cast

from aiokprod.closing import tell_unclean
from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.config.call_timeouts import UNSET, Unset, check_timeout, checked_seconds, timeout_of_call
from aiokprod.config.option_checks import shown
from aiokprod.delivery_type import Delivery
from aiokprod.errors import (
    AiokprodError,
    BootstrapError,
    ColumnsReport,
    ConfigError,
    InvalidColumnError,
    RecordPurgedError,
    RecordTypeError,
    SendColumnsError,
    SendManyError,
    SendReport,
    UsageError,
)
from aiokprod.foreign_calls import ForeignCalls, without_arguments
from aiokprod.forms import is_compiled
from aiokprod.late import Late
from aiokprod.life import Life
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import CloseReport, Health, PurgeReport, TransactionOutcome
from aiokprod.pipeline.backend import Backend
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.send_many import SendMany
from aiokprod.pipeline.pipeline import Pipeline
from aiokprod.pipeline.sending.record_batch import RecordBatch, filled_of, is_made_by
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.pipeline.sending.send_call import SendAttribute, SendCall
from aiokprod.pipeline.sending.send_path import SendPath
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records.compression import check_codec
from aiokprod.thread_sends import send_from_thread

if TYPE_CHECKING:  # imported where it is used: a plain producer starts without them
    from aiokprod import explanation
    from aiokprod.cluster.metadata.snapshot import ClusterSnapshot
    from aiokprod.pipeline.columns.send_columns import ColumnsSend
    from aiokprod.records import columns
    from aiokprod.records.column_rows import ColumnTable
    from aiokprod.transactions import prepared
    from aiokprod.transactions import transaction as transactions
    from aiokprod.transactions.transactor import Transactor
else:
    columns, explanation = Late("aiokprod.records.columns"), Late("aiokprod.explanation")
    prepared, transactions = Late("aiokprod.transactions.prepared"), Late("aiokprod.transactions.transaction")

CallT = TypeVar("CallT", bound=Callable[..., Any])
HeadersArgument = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
TAKEN_AT_ONCE = 500  # records send_many takes before it lets the loop run


def _marked(call: CallT) -> CallT:
    """Mark a plain function that returns an awaitable, so that Starlette keeps it on the loop."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)
    call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return call


class _Base(ForeignCalls):
    """Carries the `send` descriptor in the compiled form.

    On a base class, so that `mock.patch.object(Producer, "send")` sees an inherited function and restores it by deletion.
    """


class Producer(_Base):
    """A producer of records for Apache Kafka, with an awaitable outcome for each record.

        async with Producer("localhost:9092") as producer:
            metadata = await producer.send("orders", b"value", key=b"key")

    `async with` connects within `start_timeout_ms`, and at its end delivers the accepted records within
    `close_timeout_ms`. Records that it could not deliver are a WARNING in the log.

    Args:
        servers: `"host:port,host:port"` or a list of `"host:port"` (also as `bootstrap_servers=`); or a `ProducerConfig`; or
            a mapping with the option names of other clients, as for `ProducerConfig.from_mapping`.
        **options: the options of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown, has a wrong type or conflicts with another; a file cannot be read, or is not PEM.
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
        check_codec(config.compression_type)
        self._check_files(config)
        self.config = config
        self._metrics = Metrics()
        self._log = StateLog("producer", client_id=config.client_id)
        unhandled = UnhandledErrors(config.on_delivery_error, self._log)
        self._checks = RecordChecks(config, self._log)
        self._path: SendPath | None = None  # while records can be sent
        self._send_call = SendCall(MethodType(SEND, self))  # has the same path
        self._life = Life(
            self, config, self._metrics, self._log, unhandled, self._checks, self._make_backend, self._use_path
        )

    # What a producer stands on: these three are the seam on which `aiokprod.testing.MemoryProducer` is built.
    def _check_files(self, config: ProducerConfig) -> None:
        """Check the files of certificates now, not when the application starts."""
        if config.ssl_cafile or config.ssl_certfile or config.ssl_keyfile:
            from aiokprod.cluster.dialing.connection_settings import check_files

            check_files(config)

    def _make_backend(self, context: PipelineContext) -> Backend:
        """Make what the pipeline of one start stands on."""
        from aiokprod.pipeline.broker_backend import (
            BrokerBackend,  # called at the start: no record waits for the import
        )

        return BrokerBackend(context)

    def _make_columns_send(self, pipeline: Pipeline, topic: str, table: ColumnTable, placements: bool) -> ColumnsSend:
        """Make one call of `send_columns`."""
        from aiokprod.pipeline.columns.send_columns import ColumnsSend

        return ColumnsSend(
            pipeline.context,
            pipeline.parking,
            self._checks,
            pipeline.column_tickets,
            topic,
            table,
            pipeline.closed_error,
            placements,
        )

    def _use_path(self, path: SendPath | None) -> None:
        """Send on this path from now on; None: nothing can be sent."""
        self._path = self._send_call.path = path

    @property
    def _pipeline(self) -> Pipeline | None:
        return self._life.pipeline

    # ------------------------------------------------------------------ life
    async def start(self, timeout: float | Unset | None = UNSET, *, wait: bool = True) -> Self:
        """Connect to the cluster.

        On a started producer this does nothing. While another task starts the producer, this waits for that start, within the
        timeout of this call.

        Args:
            timeout: seconds to wait for a connection; None waits without bound. Without it `start_timeout_ms` applies.
            wait: False returns at once, also without a cluster, and connects in the background.

        Returns:
            The producer itself.

        Raises:
            BootstrapError: no bootstrap server answered; the message has host, port and cause of each.
            RequestTimeoutError: the transactional id was not given in time; or another task's start was not done, and goes on.
            AuthenticationError, TlsError: the broker rejected our credentials or certificate, or we rejected the broker's.
            ClusterAuthorizationError, UnsupportedVersionError, BrokerAnswerError: the transactional id is refused.
            ProducerClosedError, ProducerFailedError: the producer is closing, or has failed: await `close()` first.
            ConfigError: `timeout` is not a number of seconds, or is negative; nothing was started.
            WrongLoopError: another event loop has started the producer.
            UsageError: no asyncio event loop is running (but trio's, for example).

        Cancellation: undoes the start; the producer can be started again.
        """
        timeout_s = timeout_of_call("timeout of start()", timeout, self.config.start_timeout)
        await self._life.start(timeout_s, wait=wait)
        return self

    async def close(self, timeout: float | Unset | None = UNSET) -> CloseReport:
        """Stop accepting records, deliver the accepted ones, and end all connections. Further calls do nothing more.

        Args:
            timeout: seconds, a hard bound: the records that are left then fail, each with its exact persistence. None waits
                until each record has its outcome, which `delivery_timeout_ms` and `max_block_ms` bound. Without it
                `close_timeout_ms` applies.

        Returns:
            The number of records that were not delivered, by topic and partition.

        Raises:
            ConfigError: `timeout` is not a number of seconds, or is negative; the producer was not closed.
            WrongLoopError: another event loop has started the producer.

        Cancellation: stops waiting; the close goes on. Call `close` again to wait for it.
        """
        return await self._life.close(timeout_of_call("timeout of close()", timeout, self.config.close_timeout))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            tell_unclean(await self.close(), self._log)
        except AiokprodError:
            if error is None:  # an exception of the body wins
                raise

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
        """Accept one record. Await the Delivery for the outcome, at once, later, or never.

        A plain call, not a coroutine: the order of the calls is the order of the records of a partition, over all tasks.

        Args:
            topic: topic name.
            value: bytes, or the argument of `value_serializer`; None is a tombstone.
            key: bytes, or the argument of `key_serializer`; None is no key, b"" is a key.
            partition: partition number; None lets the partitioner choose.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is the current time.
            timeout: bound for the delivery of this record, in seconds; `delivery_timeout_ms` applies as well.

        Returns:
            A Delivery: awaiting it gives `RecordMetadata`, or raises an error whose `persistence` says whether the record
            may be in the log.

        Raises:
            RecordTypeError, InvalidTopicError, InvalidPartitionError, InvalidTimestampError: an argument is wrong; the record
                was not accepted.
            RecordTooLargeError: the record is larger than `max_request_size` or `buffer_memory`; it was not accepted.
            BufferFullError: `buffer_memory` is full, and `max_waiting_bytes` of records wait for room already.
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.

        Cancellation: cancelling a task that awaits the Delivery stops its wait; the record is still sent.
        """
        path = self._path
        if path is None:
            raise self._life.refusal()
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
        """Accept one record like `send`, but only if there is room for it in `buffer_memory` now.

        A record for an unknown topic still waits for metadata.

        Args:
            topic: topic name.
            value: bytes, or the argument of `value_serializer`; None is a tombstone.
            key: bytes, or the argument of `key_serializer`; None is no key, b"" is a key.
            partition: partition number; None lets the partitioner choose.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is the current time.
            timeout: bound for the delivery of this record, in seconds; `delivery_timeout_ms` applies as well.

        Returns:
            A Delivery, as from `send`.

        Raises:
            BufferFullError: there is no room; `await ready()` waits for as much as this record needs.
            AiokprodError: see `send`; the record was not accepted.

        Cancellation: cancelling a task that awaits the Delivery stops its wait; the record is still sent.
        """
        path = self._path
        if path is None:
            raise self._life.refusal()
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
        """Send one record from a thread without the event loop: `producer.send_threadsafe("orders", b"v").result(timeout=30)`.

        The order of the calls of one thread is the order of its records. A bytearray or memoryview is copied, as key, value or
        header; any other object that a serializer gets later must not change until then.

        Args:
            topic: topic name.
            value: bytes, or the argument of `value_serializer`; None is a tombstone.
            key: bytes, or the argument of `key_serializer`; None is no key, b"" is a key.
            partition: partition number; None lets the partitioner choose.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is the current time.
            timeout: bound for the delivery of this record, in seconds; `delivery_timeout_ms` applies as well.

        Returns:
            A `concurrent.futures.Future` of the metadata. It has the errors that `send` raises and those of a Delivery; a
            failure is reported nowhere else, so ask for the result. `cancel()` works until the loop has taken the record. If
            the loop ends before that, the Future is never done: give `result` a timeout.

        Raises:
            UsageError: called on the event loop itself, where waiting for the Future would block for ever: use `send`.
            ProducerNotStartedError, ProducerClosedError, ForkedError: the producer cannot be used in its current state.
        """
        loop = self._life.loop
        if self._path is None or loop is None or loop.is_closed():
            raise self._life.refusal()
        if asyncio._get_running_loop() is loop:
            raise UsageError("send_threadsafe() was called on the producer's event loop: use send() there")
        options = {"partition": partition, "headers": headers, "timestamp_ms": timestamp_ms, "timeout": timeout}
        return send_from_thread(loop, self._life.untaken, self.send, topic, value, key, **options)

    async def send_many(
        self, topic: str, values: Iterable[Any] | AsyncIterable[Any], *, timeout: float | None = None
    ) -> SendReport:
        """Send many records and wait for all of them. Back-pressure is built in.

        Args:
            topic: topic name, for each value and for each `Record` without a topic.
            values: values or `Record`s, in an iterable or an async iterable; read only as fast as there is room.
            timeout: bound for the delivery of each record, in seconds from when it is read.

        Returns:
            The number of delivered records, and their offsets per partition; no object per record.

        Raises:
            SendManyError: some records failed; its `report` says which and why.
            UnknownTopicError: the topic does not exist; no record was accepted.
            RecordTypeError: `timeout` is not a number of seconds above 0, or `values` is one value; no record was accepted.
            ProducerClosedError, ProducerFailedError: the producer ended before all values were read.
            Exception: an exception of `values`. A note of this and the two above says how many records were accepted before;
                they are still sent, and their failures go to `on_delivery_error` and the log.

        Cancellation: stops reading values; the accepted records are still sent.
        """
        pipeline = self._life.check_open()
        self._checks.checked_topic(topic)
        self._checks.check_values(values, topic)
        if timeout is not None:
            self._checks.checked_timeout(timeout, topic)
        opening = pipeline.parking.opening
        await self.partitions_for(topic)
        bulk = SendMany(pipeline.reports.failed_outside, opening)
        try:
            await self._room(bulk)  # before a value is asked for: one that is in hand is taken, so that none is lost
            if isinstance(values, AsyncIterable):
                async for value in values:
                    await self._take_many(bulk, topic, iter((value,)), timeout)
            elif type(values) is list or type(values) is tuple:
                await self._take_list(bulk, topic, cast("Sequence[Any]", values), timeout)
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

    async def _take_many(self, bulk: SendMany, topic: str, values: Iterator[Any], timeout: float | None) -> None:
        """Take all values, as fast as there is room; the first one at once."""
        while not self._path_of(bulk).take(bulk, topic, values, timeout, TAKEN_AT_ONCE):
            await asyncio.sleep(0)
            await self._room(bulk)

    async def _take_list(self, bulk: SendMany, topic: str, values: Sequence[Any], timeout: float | None) -> None:
        """Take all values of a list or tuple: no code of the user gives them, so they are taken in runs."""
        at = 0
        while at < len(values):
            at = self._path_of(bulk).take_list(bulk, topic, values, at, timeout, TAKEN_AT_ONCE)
            if at < len(values):
                await asyncio.sleep(0)
                await self._room(bulk)

    async def _room(self, bulk: SendMany) -> None:
        parking = self._path_of(bulk).parking
        if not parking.gate.has_room_now() and not bulk.is_last_refused:
            try:
                await parking.ready(unless=bulk.limited())
            except AiokprodError as ended:
                bulk.end_by(ended)
                raise

    def _path_of(self, bulk: SendMany) -> SendPath:
        path = self._path
        if path is None:
            raise bulk.end_by(self._life.refusal())
        if path.parking.is_open:
            try:
                path.parking.check_same(bulk.opening)
            except UsageError as over:
                raise bulk.end_by(over) from None
        return path

    async def send_columns(
        self,
        topic: str,
        values: columns.BytesColumn,
        keys: columns.BytesColumn | None = None,
        *,
        headers: columns.HeadersColumn | None = None,
        partitions: object = None,
        timestamps_ms: object = None,
        placements: bool = False,
    ) -> ColumnsReport:
        """Send many records out of columns, without an object for each, and wait for all of them. See docs/columns.md.

        Order, retries, idempotence and expiry are those of `send`. Each partition gets its rows in their order, and the rows
        of several calls for a topic in the order of the calls.

        Args:
            topic: topic name.
            values: values of the records; a null is a tombstone.
            keys: keys of the records; a null is no key.
            headers: headers of the records; a null, or an empty list, is none.
            partitions: partition numbers: a buffer of int32 or int64, or an `IntColumn`; a null lets the partitioner choose.
            timestamps_ms: milliseconds since 1970: a buffer of int64, or an `IntColumn`; a null is the current time.
            placements: True adds the place of each row in the log (`report.placements`), up to 8 bytes of memory per row.

        Returns:
            Count, bytes and offsets for each partition.

        Raises:
            SendColumnsError: some records failed, or were not accepted; its `report` says how many, where and why.
            InvalidColumnError, RecordTooLargeError, PartitionOutOfRangeError, InvalidTimestampError: a column or a row
                (`error.row`) cannot be sent; no row was accepted.
            ConfigError: the producer has interceptors or serializers, which work on records (unless an interceptor says
                `may_miss_columns`).
            UnknownTopicError: the topic does not exist; no row was accepted.

        Cancellation: stops accepting rows; the accepted ones are still sent.
        """
        pipeline = self._life.check_open()
        self._checks.checked_topic(topic)
        if not self._checks.may_send_columns:
            raise ConfigError("send_columns passes by interceptors and serializers: use a producer without them")
        if not isinstance(placements, bool):
            raise InvalidColumnError(f"placements is True or False, not {type(placements).__name__}", topic=topic)
        from aiokprod.records.column_rows import table_of

        table = table_of(values, keys, headers, partitions, timestamps_ms)
        if self._path is not None:
            self._path.check_caller()
        report = await self._make_columns_send(pipeline, topic, table, placements).run()
        if report.failed or report.untaken:
            raise SendColumnsError(report)
        return report

    def create_batch(self, topic: str, partition: int, *, size: int | None = None) -> RecordBatch:
        """Return an empty batch for one partition, to be filled by `append` and sent by `send_batch`. See docs/sending.md.

        Args:
            topic: topic name.
            partition: partition number.
            size: bytes of the batch before compression, at most; None is `batch_size`, and `max_request_size` is the most.

        Returns:
            The batch.

        Raises:
            RecordTypeError, InvalidTopicError, InvalidPartitionError: an argument is wrong.
            ConfigError: the producer has interceptors, which work on single records (unless they say `may_miss_columns`).
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.
        """
        self._life.check_open()
        config, checks = self.config, self._checks
        checks.checked_topic(topic)
        checks.checked_partition(partition, topic)
        if not checks.interceptors.may_miss_columns:
            raise ConfigError("create_batch passes by interceptors: use a producer without them")
        if size is None:
            size = config.batch_size
        elif isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise RecordTypeError(f"size must be a number of bytes above 0, or None, not {shown(size)}", topic=topic)
        return RecordBatch(checks, topic, partition, min(size, config.max_request_size), config.buffer_memory)

    async def send_batch(self, batch: RecordBatch) -> list[Delivery]:
        """Send the records of a batch to its partition as one batch: they are written together, or none of them is.

        Returns when the batch is queued, behind what was sent before this call; await the Deliveries for the outcomes. While it
        waits for room or for its topic, records that are sent later may go before it. A broker for which the batch is too
        large gets it in parts.

        Args:
            batch: what `create_batch` of this producer returned; it takes no more records from now on.

        Returns:
            A Delivery for each record, in the order of `append`.

        Raises:
            UnknownTopicError, TopicAuthorizationError, PartitionOutOfRangeError: there is no such partition; nothing was taken.
            RecordTypeError: the argument is something else.
            UsageError: the batch is of another producer, or has been sent; or the transaction in which the call began is over.
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.

        Cancellation: the batch is not sent; it can be given to `send_batch` again.
        """
        pipeline = self._life.check_open()
        given: object = batch
        if not isinstance(given, RecordBatch):
            raise RecordTypeError(f"batch must be what create_batch() has returned, not {type(given).__name__}")
        if not is_made_by(batch, self._checks):
            raise UsageError("the batch was made by another producer: each has limits and serializers of its own")
        if self._path is not None:
            self._path.check_caller()
        filled, opening = filled_of(batch), pipeline.parking.opening
        if filled.is_given:
            raise UsageError("the batch has been given to send_batch() before: make another one with create_batch()")
        batch.close()
        if not filled.values:
            return []
        filled.is_given = True
        try:
            taken = await pipeline.parking.place(filled, batch.topic, batch.partition, opening)
        finally:
            filled.is_given = filled.is_taken
        return cast("list[Delivery]", taken)

    # ------------------------------------------------------------------ transactions
    def transaction(self) -> transactions.Transaction:
        """Return a transaction for an `async with` block; see docs/transactions.md.

            async with producer.transaction() as transaction:
                producer.send("orders", b"value")
            print(transaction.outcome)

        The end of the block commits; an exception of it, cancellation included, aborts and is raised. Source: KIP-98, KIP-890.

        Returns:
            The transaction, which begins with the block.

        Raises:
            UsageError: the producer has no `transactional_id`.

        `async with` raises:
            TransactionAbortedError: the transaction was aborted, as a record of it failed, for example; the cause says why.
            TransactionOutcomeUnknownError: the coordinator did not say in time how it ended; `commit_transaction()` or
                `abort_transaction()` goes on asking.
            TransactionTimeoutError: it is not known how the last one ended, after `max_block_ms`; nothing has begun.
            ProducerFencedError: another instance has taken the `transactional_id`.
            UsageError: another transaction is open, or it is not known whether it was committed.

        Cancellation: ends the block at once. It is aborted without its task; a commit that was under way goes on. The `outcome`
            of the transaction tells how it ended, and the next block begins behind that.
        """
        if self.config.transactional_id is None:
            raise UsageError("the producer has no transactional_id: give it one to write in transactions")
        return transactions.Transaction(self._transactor)

    def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on is part of it. A plain call; nothing is sent by it.

        Raises:
            UsageError: another transaction is open, or its end is not known, or the producer has no `transactional_id`.
            ProducerFencedError: another instance has taken the `transactional_id`.
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.
        """
        self._transactor().begin()

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver what was sent in the transaction, then commit it: all its records and offsets become visible together.

        `send` is refused from this call on. After `TransactionOutcomeUnknownError` call it again: it goes on asking. A call
        beside one that is under way, also one whose task was cancelled, joins it: it goes on for the longer of their timeouts,
        and each call waits for its own.

        Args:
            timeout: seconds; None is `delivery_timeout_ms` for the records and `max_block_ms` for the coordinator.

        Raises:
            DeliveryError: a record of the transaction has failed: this is the error of the first one. Not committed; call
                `abort_transaction()`.
            TransactionAbortedError: the transaction can only be aborted, or was aborted.
            TransactionTimeoutError: it was open for longer than `transaction_timeout_ms`, or the timeout of this call was over
                before anything was asked for. Not committed; call `abort_transaction()`.
            OffsetCommitRefusedError: offsets were refused. Not committed; call `abort_transaction()`.
            TransactionOutcomeUnknownError: the coordinator did not answer in time; or the commit goes on for another call.
            ProducerFencedError: another instance has taken the `transactional_id`.
            UsageError: no transaction is open, or it is being aborted.
            ConfigError: `timeout` is not a number of seconds, or is negative.

        Cancellation: stops waiting; the commit goes on, and the next call tells its end.
        """
        check_timeout("timeout of commit_transaction()", timeout)
        await self._transactor().commit(None if timeout is None else checked_seconds(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> TransactionOutcome:
        """Abort the transaction: no reader of committed records sees any of it. What has no outcome yet fails at once.

        After `TransactionOutcomeUnknownError` the producer goes on asking by itself; called again, it waits for that.

        Args:
            timeout: seconds; None is as long as for a commit.

        Returns:
            ABORTED; or COMMITTED, if an earlier commit whose answer was lost had been done.

        Raises:
            TransactionOutcomeUnknownError: the coordinator did not answer in time; or the abort goes on for another call.
            ProducerFencedError: another instance has taken the `transactional_id`.
            UsageError: no transaction is open, or it is being committed.
            ConfigError: `timeout` is not a number of seconds, or is negative.

        Cancellation: stops waiting; the abort goes on, and the next call tells its end.
        """
        check_timeout("timeout of abort_transaction()", timeout)
        return await self._transactor().abort(None if timeout is None else checked_seconds(timeout))

    async def prepare_transaction(self, timeout: float | None = None) -> prepared.PreparedTransaction:
        """Deliver what was sent in the transaction, and leave its end to another process: see docs/transactions.md.

            prepared = await producer.prepare_transaction()
            store(prepared.to_json())                                   # then, anywhere:
            is_committed = await end_transaction("localhost:9092", prepared, commit=True)

        Until its end, readers of committed records wait before its first record; after `transaction_timeout_ms` (900,000 at
        most, by default) its coordinator aborts it. The next `start()` with this `transactional_id` aborts it, too.

        Afterwards this producer sends nothing and begins nothing. `commit_transaction()` and `abort_transaction()` end the
        transaction here, and the producer goes on. `close()` leaves it as it is. Another call returns the same value.

        Args:
            timeout: seconds; None is as long as for a commit.

        Returns:
            All that `end_transaction` needs.

        Raises:
            DeliveryError, TransactionAbortedError, TransactionTimeoutError, OffsetCommitRefusedError: as for
                `commit_transaction`; not prepared, call `abort_transaction()`.
            TransactionOutcomeUnknownError: the preparation goes on for another call with a longer timeout; call it again.
            ProducerFencedError: another instance has taken the `transactional_id`.
            UsageError: no transaction is open, or it is being ended.
            ConfigError: `timeout` is not a number of seconds, or is negative.

        Cancellation: stops waiting; the preparation goes on, and the next call returns it. A `close()` before that aborts.
        """
        check_timeout("timeout of prepare_transaction()", timeout)
        return await self._transactor().prepare(None if timeout is None else checked_seconds(timeout))

    async def send_offsets_to_transaction(self, offsets: object, group: object) -> None:
        """Take offsets of a consumer group into the transaction: they are committed with its records. Source: KIP-447.

            async with producer.transaction() as transaction:
                producer.send("out", transform(record))
                await transaction.send_offsets({("in", 0): record.offset + 1}, consumer)

        Args:
            offsets: mapping from (topic, partition), or objects with `topic` and `partition`, to the offset of the record that
                is read next, or to objects with `offset` (and `metadata`, `leader_epoch`): what aiokafka, kafka-python and
                confluent-kafka have. A list of confluent-kafka's `TopicPartition` will do.
            group: id of the group; a `GroupMetadata`; or a consumer of aiokafka, confluent-kafka or kafka-python, whose
                generation and member the coordinator then checks.

        Raises:
            OffsetCommitRefusedError: the group has moved on (its generation, member or instance), or may not be written: call
                `abort_transaction()`, and read the records again. Or a partition does not exist, which the error names: known
                after three to four seconds.
            TransactionAbortedError: the transaction can only be aborted.
            TransactionTimeoutError: they were not taken within `max_block_ms`; the transaction can only be aborted.
            ProducerFencedError: another instance has taken the `transactional_id`.
            UsageError: no transaction is open, or it is being ended.
            RecordTypeError: an argument is something else; nothing was sent.

        Cancellation: stops waiting; the offsets may become part of the transaction.
        """
        from aiokprod.transactions.offsets import GroupMetadata, offsets_of

        taken, metadata = offsets_of(offsets), GroupMetadata.of(group)
        await self._transactor().send_offsets(taken, metadata)

    def _transactor(self) -> Transactor:
        """Return the transactions of this start."""
        if self.config.transactional_id is None:
            raise UsageError("the producer has no transactional_id: give it one to write in transactions")
        transactor = self._life.check_open().transactor
        assert transactor is not None
        return transactor

    # ------------------------------------------------------------------ waiting
    async def ready(self) -> None:
        """Wait until `buffer_memory` has room for a record; waiting tasks are served in their order.

        Raises:
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.

        Cancellation: gives up the place in the queue.
        """
        await self._life.check_open().parking.ready()

    @_marked
    @without_arguments("bound the wait by `async with asyncio.timeout(10): await producer.flush()`")
    async def flush(self) -> None:
        """Wait until each record sent before this call has its outcome; batches do not linger meanwhile.

        A failed record has an outcome too: its error goes to its Delivery or to `on_delivery_error`, and is not raised here.
        `delivery_timeout_ms` and `max_block_ms` bound the wait; for a shorter one use `asyncio.timeout`.

        Raises:
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.

        Cancellation: stops waiting; the records go on.
        """
        await self._life.check_open().flush()

    def purge(self, topic: str | None = None, partition: int | None = None) -> PurgeReport:
        """Let go of what is queued: records that are in no request yet fail with `RecordPurgedError` (NOT_PERSISTED).

        A plain call. Records that were written to a broker, and may be in the log, are left: they go on to their true outcome,
        which `flush()` waits for. `RecordPurgedError` goes to code that awaits a record, to interceptors and the metrics, and
        not to `on_delivery_error`. In a transaction the records that were let go are left out of it, as by `recall()`.

        Args:
            topic: topic name; None is all topics.
            partition: partition number; None is all partitions of the topic, and records that have no partition yet.

        Returns:
            How many records were let go, and how many were left.

        Raises:
            UsageError: a partition without a topic; or called in the middle of the producer's work (by a serializer, a
                partitioner or a finalizer). Nothing was purged.
            RecordTypeError, InvalidTopicError, InvalidPartitionError: an argument is wrong; nothing was purged.
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.
        """
        pipeline = self._life.check_open()
        if topic is not None:
            self._checks.checked_topic(topic)
            if partition is not None:
                self._checks.checked_partition(partition, topic)
        elif partition is not None:
            raise UsageError("purge() was given a partition without its topic: name the topic, too")
        purged, in_flight = pipeline.parking.recall_all(topic, partition, RecordPurgedError("purged"))
        return PurgeReport(purged=purged, in_flight=in_flight)

    # ------------------------------------------------------------------ asking
    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partitions of a topic from metadata, which is requested if the topic is unknown.

        Args:
            topic: topic name.
            timeout: seconds; None is `max_block_ms`.

        Returns:
            The partition numbers, ascending from 0.

        Raises:
            UnknownTopicError: the topic does not exist, or no broker has answered; the cause is the last failure.
            TopicAuthorizationError: the principal may not describe the topic.
            InvalidTopicError: the topic name is not valid.
            ConfigError: `timeout` is not a number of seconds, or is negative.
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.

        Cancellation: stops waiting.
        """
        check_timeout("timeout of partitions_for()", timeout)
        if timeout is not None:
            timeout = checked_seconds(timeout)
        pipeline = self._life.check_open()
        self._checks.checked_topic(topic)
        return await pipeline.parking.partitions_for(topic, timeout)

    async def ping(self, timeout: float | None = 10.0) -> float:
        """Send an empty metadata request to a broker, to see that the cluster answers.

        Args:
            timeout: seconds; None is `request_timeout_ms`.

        Returns:
            The round trip in seconds, with the time for a new connection if one was needed.

        Raises:
            ClusterError: no broker answered in time (BootstrapError, RequestTimeoutError, AuthenticationError, TlsError).
            ConfigError: `timeout` is not a number of seconds, or is negative.
            ProducerNotStartedError, ProducerClosedError, ProducerFailedError, WrongLoopError, ForkedError: the producer cannot
                be used in its current state, from this loop, or in this process.

        Cancellation: stops waiting.
        """
        check_timeout("timeout of ping()", timeout)
        pipeline = self._life.check_open()
        if timeout is None:
            timeout = self.config.request_timeout_ms / 1000
        began = time.perf_counter()  # not the loop's clock: uvloop's counts whole milliseconds
        from aiokprod.wire.messages.metadata import MetadataRequest

        await pipeline.client.request(MetadataRequest(topics=[]), timeout_s=timeout)
        return time.perf_counter() - began

    def health(self) -> Health:
        """Return state, readiness and liveness, without I/O; callable from any thread."""
        return self._life.health()

    def explain(self) -> explanation.ProducerExplanation:
        """Return why deliveries are slow or stuck, with numbers, and the oldest record; see docs/explain.md.

        Computed when it is called, without I/O, in any state: before the start, while starting or closing, closed, failed, in a
        forked child. Callable from any thread. The cost grows with the partitions that had records, not with the records.

        Returns:
            The explanation; `str()` of it is a few lines of plain English.
        """
        return self._life.explain()

    def metrics(self) -> dict[str, Any]:
        """Return a snapshot of all counters, gauges and histograms; callable from any thread. Units: docs/metrics.md."""
        self._life.measure()
        return self._metrics.snapshot()

    def topic_metrics(self) -> dict[str, dict[str, int | float]]:
        """Return a snapshot of the counters of each topic; callable from any thread.

        Returns:
            Topic name -> counter -> value, as docs/metrics.md says. At most 100 topics, and those of `keep_topic_metrics`, are
            counted by name, the others together under "(other)".
        """
        return self._metrics.topics_snapshot()

    def keep_topic_metrics(self, topics: Iterable[str]) -> None:
        """Let `topic_metrics` have these topics by name always, beside the 100 others.

        Args:
            topics: topic names; they are added to those of earlier calls.
        """
        self._metrics.keep_topics(topics)

    def broker_metrics(self) -> dict[str, dict[str, Any]]:
        """Return a snapshot of the metrics of the requests to each broker; callable from any thread.

        Returns:
            Id of the broker, as a text -> metric -> value, as docs/metrics.md says. From the 101st broker on, brokers are
            counted together under "(other)".
        """
        self._life.measure()
        return self._metrics.brokers_snapshot()

    def error_metrics(self) -> dict[str, dict[str, int | float]]:
        """Return a snapshot of the failures by error; callable from any thread.

        Returns:
            Name of an error class or of a Kafka code -> counter -> value, as docs/metrics.md says. Errors that did not happen
            are left out.
        """
        return self._metrics.errors_snapshot()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse `pickle`, `copy.copy` and `copy.deepcopy`: sockets and a loop cannot be in two places."""
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: give each process, or each part of a program, the"
            " ProducerConfig (producer.config) and let it build a producer of its own"
        )

    def __repr__(self) -> str:
        return f"<Producer {self.config.client_id} {self._life.state.value}>"


SEND: Final = Producer.send
if is_compiled():
    setattr(_Base, "send", SendAttribute(SEND))  # noqa: B010 - to the type checkers it stays a method
    del Producer.send


def unreachable(producer: Producer) -> BootstrapError | None:
    """Return why a start under way may be given up: no bootstrap server has a connection, and each was tried.

    For callers that start again by themselves. A start goes on trying until its timeout.

    Args:
        producer: one that another task starts.

    Returns:
        The error, which names each server with its cause; None if a server has not been tried yet, or has answered.
    """
    return producer._life.unreachable()  # pyright: ignore[reportPrivateUsage] - of this module


def snapshot_of(producer: Producer) -> ClusterSnapshot:
    """Return what a producer knows of its cluster; nothing before its start.

    Args:
        producer: in any state.
    """
    pipeline = producer._pipeline  # pyright: ignore[reportPrivateUsage] - of this module
    from aiokprod.cluster.metadata.snapshot import ClusterSnapshot

    return ClusterSnapshot() if pipeline is None else pipeline.client.snapshot


def room_of(producer: Producer) -> Callable[[], bool]:
    """Return the function that says whether a record would find room in `buffer_memory` now.

    Args:
        producer: in any state; called on its loop. One that takes no records answers True, and refuses them.
    """
    pipeline = producer._pipeline  # pyright: ignore[reportPrivateUsage] - of this module
    return _always if pipeline is None or pipeline.is_refusing else pipeline.parking.gate.has_room_now


def _always() -> bool:
    return True


def untaken_of(producer: Producer) -> set[Future[RecordMetadata]]:
    """Return the set of records that threads have handed over and the loop has not taken: at exit they are counted as lost.

    Args:
        producer: a started one.
    """
    return producer._life.untaken  # pyright: ignore[reportPrivateUsage] - of this module


async def go_on_as(producer: Producer, transactional_id: str, timeout: float | None) -> None:
    """Let a producer go on with another transactional id, on its connections; for programs with many short transactions.

    The transaction at hand, if there is one, is prepared, and stays as it is.

    Args:
        producer: a started one with a transactional id.
        transactional_id: the other one.
        timeout: seconds; None tries without bound.

    Raises:
        UsageError: a transaction is open, or its end is not known.
        AiokprodError: the id is refused, or was not given in time; close the producer.

    Cancellation: the producer can only be closed.
    """
    transactor = producer._transactor()  # pyright: ignore[reportPrivateUsage] - of this module
    await transactor.go_on_as(transactional_id, timeout)
