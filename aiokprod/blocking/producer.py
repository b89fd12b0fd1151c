"""`Producer`: the face for programs without asyncio. Each call is handed to the producer's thread, and most wait there.

The thread is started by the first call that needs it. A forked child forgets it, and starts one of its own: nothing of the
parent's is sent there.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from queue import SimpleQueue
from types import TracebackType
from typing import Any, ClassVar, Final, NoReturn, Self, TypeAlias, TypeVar, Unpack

from aiokprod import producer as asyncio_producer
from aiokprod.blocking.loop_thread import LoopThread, closed_error
from aiokprod.closing import tell_unclean
from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.config.call_timeouts import check_timeout
from aiokprod.errors import AiokprodError, ConfigError, RecordTypeError, SendReport, UsageError
from aiokprod.explanation import ProducerExplanation
from aiokprod.foreign_calls import WITH_ASYNC
from aiokprod.logs import StateLog
from aiokprod.model import CloseReport, Health, PurgeReport
from aiokprod.producer import HeadersArgument
from aiokprod.record_metadata import RecordMetadata

T = TypeVar("T")
Read = tuple[list[Any], "Exception | None"]
Wish: TypeAlias = "asyncio.Future[Read]"
AT_ONCE: Final = 500  # values that send_many reads in the caller's thread before it hands them over


class Producer:
    """A producer of records for programs without asyncio. Its methods may be called from any number of threads.

        with Producer("localhost:9092") as producer:
            metadata = producer.send("orders", b"value", key=b"key")

    `with` connects within `start_timeout_ms`, and delivers the accepted records within `close_timeout_ms` at its end. Without
    `with`, the first call that sends or asks connects; call `close()` at the end. A program that ends without it has its
    records delivered within `close_timeout_ms`.

    A producer may be made before a fork: each child connects by itself at its first call, and sends none of the parent's
    records. Transactions are left out: use `aiokprod.Producer`.

    Args:
        servers: `"host:port,host:port"` or a list of `"host:port"` (also as `bootstrap_servers=`); or a `ProducerConfig`; or
            a mapping with the option names of other clients, as for `ProducerConfig.from_mapping`.
        **options: the options of `ProducerConfig`, without `transactional_id`.

    Raises:
        ConfigError: an option is unknown, has a wrong type or conflicts with another; a file cannot be read, or is not PEM;
            there is a `transactional_id`.
        CodecUnavailableError: the package of `compression_type` is not installed.
    """

    _alive: ClassVar[weakref.WeakSet[Producer]] = weakref.WeakSet()
    _of_parents: ClassVar[list[object]] = []  # in a child: what must be neither used nor collected

    def __init__(
        self,
        servers: str | Sequence[str] | Mapping[str, Any] | ProducerConfig | None = None,
        /,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._inner: asyncio_producer.Producer | None = asyncio_producer.Producer(servers, **options)
        self.config = self._inner.config
        if self.config.transactional_id is not None:
            raise ConfigError(
                "aiokprod.blocking.Producer has no transactions: leave transactional_id out, or write them with"
                " aiokprod.Producer on asyncio"
            )
        self._lock = threading.RLock()
        self._thread: LoopThread | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._is_closed = False
        self._alive.add(self)

    # ------------------------------------------------------------------ life
    def __enter__(self) -> Self:
        self._at_work("`with`")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            tell_unclean(self.close(), StateLog("producer", client_id=self.config.client_id))
        except AiokprodError:
            if error is None:  # an exception of the body wins
                raise

    def close(self, timeout: float | None = None) -> CloseReport:
        """Stop accepting records, deliver the accepted ones, and end the connections and the thread. It cannot be undone.

        Threads that wait in other calls get their outcomes. Further calls do nothing more, and return the same report.

        Args:
            timeout: seconds, a hard bound: the records that are left then fail, each with its exact persistence. None is
                `close_timeout_ms`.

        Returns:
            The number of records that were not delivered, by topic and partition.

        Raises:
            ConfigError: `timeout` is not a number of seconds, or is negative; the producer was not closed.
            UsageError: called where an event loop runs, which it would block.
            ProducerFailedError: a function of the program blocks the producer's thread.
            KeyboardInterrupt: stops waiting; the close goes on. Call `close` again to wait for it.
        """
        check_timeout("timeout of close()", timeout)
        _check_caller("close()")
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is None:
            return CloseReport.empty()
        report = thread.close(self.config.close_timeout if timeout is None else float(timeout))
        if self._finalizer is not None:
            self._finalizer.detach()
        return report

    # ------------------------------------------------------------------ sending
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
    ) -> RecordMetadata:
        """Send one record, and wait for its outcome.

        Args:
            topic: topic name.
            value: bytes, or the argument of `value_serializer`; None is a tombstone.
            key: bytes, or the argument of `key_serializer`; None is no key, b"" is a key.
            partition: partition number; None lets the partitioner choose.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is the current time.
            timeout: bound for the delivery of this record, in seconds; `delivery_timeout_ms` applies as well.

        Returns:
            The place of the record in the log.

        Raises:
            BufferFullError: `buffer_memory` is full, and there was no room within `max_block_ms`; the record was not accepted.
            AiokprodError: as `aiokprod.Producer.send` and its Delivery raise; `persistence` says whether the record may be in
                the log. The first call raises what a start raises: BootstrapError, AuthenticationError, TlsError.
            ProducerClosedError, ProducerFailedError: the producer was closed, or its thread has ended.
            UsageError: called where an event loop runs, which it would block: use `aiokprod.Producer` there.
            KeyboardInterrupt: stops waiting; the record is still sent, and the producer can be used.
        """
        thread = self._at_work("send()")
        return thread.hand_over.put(topic, value, key, partition, headers, timestamp_ms, timeout).result()

    def submit(
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
        """Hand over one record, and do not wait for its outcome.

        The order of the calls of one thread is the order of its records. While `buffer_memory` is full, the call waits for
        room, for `max_block_ms` at most (with 0 not at all). A bytearray or memoryview is copied, as key, value or header; any
        other object that a serializer gets later must not change until then.

        Args:
            topic: topic name.
            value: bytes, or the argument of `value_serializer`; None is a tombstone.
            key: bytes, or the argument of `key_serializer`; None is no key, b"" is a key.
            partition: partition number; None lets the partitioner choose.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is the current time.
            timeout: bound for the delivery of this record, in seconds; `delivery_timeout_ms` applies as well.

        Returns:
            A Future of the metadata. It has all errors of the record, also of wrong arguments; a failure is reported nowhere
            else, so ask for the result. `cancel()` works until the producer's thread has taken the record. Functions that are
            given to `add_done_callback` are called in that thread, and must not block it.

        Raises:
            BufferFullError: there was no room within `max_block_ms`; the record was not accepted.
            BootstrapError, AuthenticationError, TlsError: the first call connects, and could not.
            ProducerClosedError, ProducerFailedError: the producer was closed, or its thread has ended.
            UsageError: called where an event loop runs, which it may block: use `aiokprod.Producer` there.
        """
        thread = self._at_work("submit()")
        return thread.hand_over.put(topic, value, key, partition, headers, timestamp_ms, timeout)

    def send_many(self, topic: str, values: Iterable[Any], *, timeout: float | None = None) -> SendReport:
        """Send many records and wait for all of them. Back-pressure is built in.

        Args:
            topic: topic name, for each value and for each `Record` without a topic.
            values: values or `Record`s; read in this thread, only as fast as there is room.
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
            UsageError: called where an event loop runs, which it would block.
            KeyboardInterrupt: stops reading values; the accepted records are still sent.
        """
        thread = self._at_work("send_many()")
        inner = thread.producer
        if isinstance(values, list | tuple) or not _is_iterable(values):
            if hasattr(values, "__aiter__"):
                raise RecordTypeError("values is an async iterable: use aiokprod.Producer for it", topic=topic)
            return _wait(thread, thread.call(partial(inner.send_many, topic, values, timeout=timeout)))
        wishes: SimpleQueue[Wish | None] = SimpleQueue()
        outcome = thread.call(lambda: inner.send_many(topic, _asked_for(wishes), timeout=timeout))
        outcome.add_done_callback(lambda _: wishes.put(None))
        try:
            left = iter(values)
            while (wish := wishes.get()) is not None:
                thread.post(_fulfil, wish, _read(left))
        except BaseException:
            thread.cancel(outcome)
            raise
        return outcome.result()

    # ------------------------------------------------------------------ waiting, asking
    def flush(self, timeout: float | None = None) -> None:
        """Wait until each record sent before this call has its outcome; batches do not linger meanwhile.

        A failed record has an outcome too: its error is in its Future, and is not raised here.

        Args:
            timeout: seconds; None leaves the wait to `delivery_timeout_ms` and `max_block_ms`, which bound it.

        Raises:
            TimeoutError: records have no outcome yet; they are still sent.
            ConfigError: `timeout` is not a number of seconds, or is negative.
            ProducerClosedError, ProducerFailedError: the producer was closed, or its thread has ended.
            UsageError: called where an event loop runs, which it would block.
        """
        check_timeout("timeout of flush()", timeout)
        thread = self._at_work("flush()")
        try:
            _wait(thread, thread.call(thread.producer.flush), timeout)
        except TimeoutError:  # of the wait: a flush raises none
            raise TimeoutError(f"flush() took longer than {timeout:g} s: the records are still sent") from None

    def purge(self, topic: str | None = None, partition: int | None = None) -> PurgeReport:
        """Let go of what is queued: records that are in no request yet fail with `RecordPurgedError` (NOT_PERSISTED).

        Records that were written to a broker, and may be in the log, are left: they go on to their true outcome. All that was
        handed over before the call is in one of the two counts.

        Args:
            topic: topic name; None is all topics.
            partition: partition number; None is all partitions of the topic, and records that have no partition yet.

        Returns:
            How many records were let go, and how many were left.

        Raises:
            RecordTypeError, InvalidTopicError, InvalidPartitionError: an argument is wrong; nothing was purged.
            ProducerClosedError, ProducerFailedError: the producer was closed, or its thread has ended.
            UsageError: a partition without a topic; or called where an event loop runs, which it would block.
        """
        thread = self._at_work("purge()")
        return _wait(thread, thread.call(partial(_purge, thread.producer, topic, partition)))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
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
            ProducerClosedError, ProducerFailedError: the producer was closed, or its thread has ended.
            UsageError: called where an event loop runs, which it would block.
        """
        thread = self._at_work("partitions_for()")
        return _wait(thread, thread.call(lambda: thread.producer.partitions_for(topic, timeout)))

    def health(self) -> Health:
        """Return state, readiness and liveness, without I/O and without connecting."""
        return self._producer.health()

    def explain(self) -> ProducerExplanation:
        """Return why deliveries are slow or stuck, with numbers, and the oldest record; without I/O. See docs/explain.md.

        Returns:
            The explanation; `str()` of it is a few lines of plain English.
        """
        return self._producer.explain()

    def metrics(self) -> dict[str, Any]:
        """Return a snapshot of all counters, gauges and histograms. Units: docs/metrics.md."""
        return self._producer.metrics()

    # ------------------------------------------------------------------ the thread
    @property
    def _producer(self) -> asyncio_producer.Producer:
        """The producer on asyncio; a forked child makes its own."""
        inner = self._inner
        if inner is None:
            with self._lock:
                inner = self._inner = self._inner or asyncio_producer.Producer(self.config)
        return inner

    def _at_work(self, call: str) -> LoopThread:
        """Return the thread, connected. Threads that come during a start wait for it, and share its error."""
        if asyncio._get_running_loop() is not None:
            _check_caller(call)
        thread = self._thread
        if thread is None or not thread.is_started or self._is_closed:
            thread = self._started_thread()
        return thread

    def _started_thread(self) -> LoopThread:
        with self._lock:
            thread = self._thread
            if self._is_closed:
                raise closed_error()
            if thread is None or (thread.started.done() and thread.started.exception() is not None):
                thread = self._thread = LoopThread(self._producer)
                self._finalizer = weakref.finalize(self, thread.drop)
                self._finalizer.atexit = False  # `aiokprod.unclosed` closes what the end of the program finds open
            thread.begin()
        thread.started.result()
        return thread

    def _forget_parent(self) -> None:
        """Leave what is the parent's alone. Called in a forked child, whose only thread is this one."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._of_parents.append((self._thread, self._inner))  # collected, they would close what the parent uses
        self._lock = threading.RLock()  # another thread may have held it
        self._thread = self._inner = self._finalizer = None

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse `pickle`, `copy.copy` and `copy.deepcopy`: sockets and a thread cannot be in two places."""
        raise TypeError(
            "an aiokprod.blocking.Producer cannot be copied or pickled: give each process the ProducerConfig"
            " (producer.config) and let it build a producer of its own"
        )

    def __repr__(self) -> str:
        return f"<aiokprod.blocking.Producer {self.config.client_id} {self.health().state.value}>"


def _check_caller(call: str) -> None:
    if asyncio._get_running_loop() is not None:
        raise UsageError(
            f"{call} of aiokprod.blocking.Producer was called in a thread whose event loop runs, which it would block: use"
            " aiokprod.Producer there, or call it by asyncio.to_thread()"
        )


def _wait(thread: LoopThread, future: Future[T], timeout: float | None = None) -> T:
    """Wait for a call; it is cancelled if the wait is interrupted or takes too long."""
    try:
        return future.result(timeout)
    except BaseException:
        if not future.done():
            thread.cancel(future)
        raise


async def _purge(producer: asyncio_producer.Producer, topic: str | None, partition: int | None) -> PurgeReport:
    return producer.purge(topic, partition)


def _is_iterable(values: object) -> bool:
    """Return whether this is many values, of a kind that has to be read here. All else is answered by the other producer."""
    return isinstance(values, Iterable) and not isinstance(values, str | bytes | bytearray | memoryview | Mapping)


async def _asked_for(wishes: SimpleQueue[Wish | None]) -> AsyncIterator[Any]:
    """Yield values that another thread reads on request."""
    loop = asyncio.get_running_loop()
    while True:
        wish: Wish = loop.create_future()
        wishes.put(wish)
        values, error = await wish
        for value in values:
            yield value
        if error is not None:
            raise error
        if not values:
            return


def _read(left: Iterator[Any]) -> Read:
    """Read some values for the loop, with the exception of the program that ended them, if there was one."""
    values: list[Any] = []
    try:
        values.extend(islice(left, AT_ONCE))  # what comes before an exception is kept
    except Exception as error:
        return values, error
    return values, None


def _fulfil(wish: Wish, read: Read) -> None:
    if not wish.done():  # by a cancellation
        wish.set_result(read)


def _forked() -> None:
    for producer in tuple(Producer._alive):  # pyright: ignore[reportPrivateUsage] - of this module
        producer._forget_parent()  # pyright: ignore[reportPrivateUsage] - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
setattr(Producer, "__aenter__", WITH_ASYNC)  # noqa: B010 - type checkers still report `async with`
