"""`RecordChecks`: what `send` is given becomes what the pipeline takes. One per producer.

Checks types, sizes, topic names and timestamps at once, before anything is accepted; runs interceptors and serializers.
Bytes are what the pipeline carries: a caller's bytearray, memoryview or header list is copied, so that changing it after
`send` changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    ConfigError,
    InvalidPartitionError,
    InvalidTimestampError,
    InvalidTopicError,
    RecordTooLargeError,
    RecordTypeError,
    SerializationError,
    advise,
)
from aiokprod.interceptor_chain import InterceptorChain, raise_soon
from aiokprod.logs import StateLog
from aiokprod.model import Record
from aiokprod.pipeline.partition.batch import BATCH_OVERHEAD_BYTES
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.records.batch import record_size_bound
from aiokprod.records.headers import encode_headers, encode_plain
from aiokprod.serializers import HeaderList, checked, three_arguments

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # broker: 8.6
LAST_TIMESTAMP_MS = 2**63 - 1
KNOWN_TOPICS = 10_000  # names remembered as valid
YEAR_MS = 31_556_952_000
SECONDS_FROM, SECONDS_BELOW = (
    10**9,
    10**11,
)  # as seconds since 1970, a time from 2001 on; as milliseconds, one before 1973
OF_FILES = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
AWAY = "Nothing of this record was sent. See that what its serializer asks can be reached, and send the record again."
LONGEST_TIMEOUT_S = 1e9  # thirty years: what a timer of every event loop takes

Closes: TypeAlias = "deque[tuple[str, Callable[[], object]]]"


class RecordChecks:
    """Checks of everything a caller hands in."""

    def __init__(self, config: ProducerConfig, log: StateLog) -> None:
        self.interceptors = InterceptorChain(config.interceptors, log)
        self._serialize_key = three_arguments(config.key_serializer, "key_serializer")
        self._serialize_value = three_arguments(config.value_serializer, "value_serializer")
        self._log = log
        self._config = config
        self._serializers = [
            (name, serializer)
            for name, serializer in (
                ("key_serializer", config.key_serializer),
                ("value_serializer", config.value_serializer),
            )
            if serializer is not None
        ]
        self._unclosed: tuple[Closes, ...] = ()  # since `configure`: interceptors, serializers
        self._closing: deque[tuple[str, object]] = deque()  # what these have returned, which may have to be awaited
        self.is_plain = not self.interceptors and not self._serializers
        self.may_send_columns = not self._serializers and self.interceptors.may_miss_columns
        self._max_request_bytes = config.max_request_size
        self._buffer_bytes = config.buffer_memory
        self.largest_record_bytes = min(
            config.max_request_size - BATCH_OVERHEAD_BYTES, config.buffer_memory - RECORD_OVERHEAD_BYTES
        )
        self._has_told_seconds = False
        self._last_bytes = 0  # of the last record whose serializer was awaited: what the next one may come to
        self.valid_topics: set[str] = set()

    def checked_topic(self, topic: object) -> str:
        """Return a valid topic name, which is remembered; raise `InvalidTopicError` for any other."""
        if isinstance(topic, str) and topic in self.valid_topics:
            return topic
        name = self.checked_name(topic)
        if len(self.valid_topics) < KNOWN_TOPICS:
            self.valid_topics.add(name)
        return name

    @staticmethod
    def checked_name(topic: object) -> str:
        """Return a valid topic name; raise `RecordTypeError` or `InvalidTopicError` for anything else."""
        if not isinstance(topic, str):
            raise RecordTypeError(f"topic must be a str, not {type(topic).__name__}{_whole(topic)}")
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise InvalidTopicError(
                f"{topic[:260]!r} is no topic name: 1 to 249 of the characters a-z A-Z 0-9 . _ - and not '.' or '..'",
            )
        return topic

    @staticmethod
    def to_bytes(data: object, what: str, topic: str) -> bytes:
        """Copy a bytearray or memoryview; refuse what is not bytes."""
        if isinstance(data, (bytes, bytearray, memoryview)):
            try:
                return bytes(cast("bytes", data))
            except ValueError as released:
                raise RecordTypeError(f"{what}: {released}", topic=topic) from None
        wants = _whole(data) or f": encode it, or give the producer a {what}_serializer{_with_key(data, what)}"
        raise RecordTypeError(f"{what} must be bytes or None, not {type(data).__name__}{wants}", topic=topic)

    @staticmethod
    def encoded_headers(headers: Iterable[Any], topic: str) -> bytes | None:
        """Return the headers as they stand in the record; None if there are none."""
        pairs = RecordChecks.header_pairs(headers, topic)
        return encode_headers(pairs) if pairs else None

    @staticmethod
    def header_pairs(headers: Iterable[Any], topic: str) -> HeaderList:
        """Return a copy of the headers, all checked, their values bytes."""
        pairs: Iterable[Any]
        if isinstance(headers, Mapping):
            pairs = cast("Mapping[str, bytes]", headers).items()
        elif isinstance(headers, Iterable) and not isinstance(headers, str | bytes):
            pairs = headers
        else:
            raise RecordTypeError(f"headers must be (str, bytes) pairs, not {type(headers).__name__}", topic=topic)
        checked_pairs: HeaderList = []
        pair: Sequence[Any]
        name: str
        value: bytes | bytearray | memoryview | None
        for pair in pairs:
            if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
                raise RecordTypeError(f"a header must be a (str, bytes) pair, not {type(pair).__name__}", topic=topic)
            name, value = pair
            if not isinstance(name, str):
                raise RecordTypeError(f"a header's key must be a str, not {type(name).__name__}", topic=topic)
            if not name.isascii():
                try:
                    name.encode()
                except UnicodeEncodeError:
                    raise RecordTypeError(
                        f"the header's key {name!r} cannot be encoded in UTF-8: it must be a text without lone surrogates",
                        topic=topic,
                    ) from None
            if value is not None and not isinstance(value, bytes):
                if not isinstance(value, bytearray | memoryview):
                    raise RecordTypeError(
                        f"the header {name!r} must be bytes or None, not {type(value).__name__}: encode it", topic=topic
                    )
                value = RecordChecks.to_bytes(value, f"header {name!r}", topic)
            checked_pairs.append((name, value))
        return checked_pairs

    @staticmethod
    def check_values(values: object, topic: str) -> None:
        """Refuse one value where `send_many` wants many."""
        kind: type[object] = type(values)
        is_one = isinstance(values, str | bytes | bytearray | memoryview | Mapping | Record)
        if is_one or not (isinstance(values, Iterable | AsyncIterable) or RecordChecks._is_sequence(values)):
            raise RecordTypeError(
                f"values must be an iterable of values or Records, not one {kind.__name__}: "
                "use send() for it, or put it into a list",
                topic=topic,
            )

    @staticmethod
    def _is_sequence(values: object) -> bool:
        """Return whether this can be iterated by `__getitem__`. A number of numpy has that method, and cannot."""
        try:
            iter(values)  # type: ignore[call-overload]
        except TypeError:
            return False
        return True

    @staticmethod
    def checked_partition(partition: object, topic: str) -> int:
        """Return the partition, if it is a number from 0 on."""
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise RecordTypeError(f"partition must be an int or None, not {type(partition).__name__}", topic=topic)
        if not 0 <= partition < 2**31:
            raise InvalidPartitionError(
                f"partition {partition} cannot exist: partitions are numbered from 0", topic=topic
            )
        return partition

    def checked_timestamp(self, timestamp_ms: object, topic: str) -> int:
        """Return the timestamp, if it is in whole milliseconds since 1970."""
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
            raise RecordTypeError(
                f"timestamp_ms must be an int (milliseconds since 1970) or None, not {type(timestamp_ms).__name__}",
                topic=topic,
            )
        if not 0 <= timestamp_ms <= LAST_TIMESTAMP_MS:
            raise InvalidTimestampError(f"timestamp_ms {timestamp_ms} is not between 0 and 2**63 - 1", topic=topic)
        if timestamp_ms < SECONDS_BELOW:
            self.look_at_unit(timestamp_ms, topic)
        return timestamp_ms

    def look_at_unit(self, timestamp_ms: int, topic: str) -> None:
        """Warn, once for the producer, of a timestamp that is a recent time in seconds."""
        if SECONDS_FROM <= timestamp_ms < SECONDS_BELOW and not self._has_told_seconds:
            self._has_told_seconds = True
            self._log.warned(
                "timestamp in seconds",
                f"timestamp_ms={timestamp_ms} of a record for {topic!r} is a day of {1970 + timestamp_ms // YEAR_MS}, and"
                " retention deletes such a record: it looks like seconds; give milliseconds: int(time.time() * 1000)",
            )

    @staticmethod
    def checked_timeout(timeout: object, topic: str) -> float:
        """Return the timeout in seconds, more than 0, as a float."""
        if not isinstance(timeout, bool) and isinstance(timeout, int | float) and timeout > 0:
            try:
                seconds = float(timeout)
            except OverflowError:
                seconds = math.inf
            if seconds <= LONGEST_TIMEOUT_S:
                return seconds
            raise RecordTypeError(f"timeout must be at most {LONGEST_TIMEOUT_S:.0f} seconds, or None", topic=topic)
        raise RecordTypeError(f"timeout must be a number of seconds above 0 or None, not {timeout!r}", topic=topic)

    def too_large(self, size_bytes: int, topic: str) -> RecordTooLargeError:
        """Return the error of a record above a limit: it says which."""
        if size_bytes + BATCH_OVERHEAD_BYTES > self._max_request_bytes:
            needed, where, limit, name = (
                size_bytes + BATCH_OVERHEAD_BYTES, "in a batch of its own", self._max_request_bytes, "max_request_size",
            )  # fmt: skip
        else:
            needed, where, limit, name = (
                size_bytes + RECORD_OVERHEAD_BYTES, "with what is kept beside it", self._buffer_bytes, "buffer_memory",
            )  # fmt: skip
        return RecordTooLargeError(f"the record needs up to {needed} bytes {where} and {name} is {limit}", topic=topic)

    # ------------------------------------------------------------------ interceptors and serializers
    def check_topic_of(self, record: Record) -> None:
        """Check the topic again: interceptors may have changed it."""
        if not isinstance(record.topic, str) or record.topic not in self.valid_topics:
            self.checked_topic(record.topic)

    def checked_options(self, record: Record) -> float | None:
        """Check the parts of the record that no serializer changes, before one is called; return its timeout in seconds."""
        topic = record.topic
        assert topic is not None
        if record.partition is not None:
            self.checked_partition(record.partition, topic)
        if record.timestamp_ms is not None:
            self.checked_timestamp(record.timestamp_ms, topic)
        return None if record.timeout is None else self.checked_timeout(record.timeout, topic)

    def estimated_bytes(self, record: Record) -> int:
        """Estimate the size of a record before its serializers are called: bytes and texts as large as they are, anything
        else as large as the last one became."""
        known = 0
        data: str | bytes | bytearray | memoryview | None
        for data in (record.key, record.value):
            if isinstance(data, str | bytes | bytearray | memoryview):
                known += len(data)
        return min(max(known, self._last_bytes), self.largest_record_bytes)

    def serialize(self, record: Record) -> list[Awaitable[object]]:
        """Put bytes into the record; returns what must be awaited: nothing, as a rule.

        An awaited result is put in by `finish`.
        """
        topic = record.topic
        assert topic is not None
        headers: HeaderList = self.header_pairs(record.headers, topic) if record.headers else []
        waiting: list[Awaitable[object]] = []
        record.headers = headers
        for name, serializer in (("key", self._serialize_key), ("value", self._serialize_value)):
            if serializer is None:
                continue
            try:
                result = serializer(topic, headers, getattr(record, name))
            except SerializationError as told:  # in words of its own
                told.topic = topic
                raise
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:
                raise raised(name, broken, topic) from broken
            setattr(record, name, result)
            if inspect.isawaitable(result):
                waiting.append(result)
        return waiting

    async def finish(self, record: Record) -> None:
        """Await what the serializers returned."""
        for name in ("key", "value"):
            result = getattr(record, name)
            if inspect.isawaitable(result):
                try:
                    setattr(record, name, await result)
                except SerializationError as told:
                    told.topic = record.topic
                    raise
                except asyncio.CancelledError as cancelled:
                    if is_cancelled_now():
                        raise  # else what it awaited was cancelled
                    raise SerializationError(
                        f"what {name}_serializer returned was cancelled", topic=record.topic
                    ) from cancelled
                except (SystemExit, KeyboardInterrupt, GeneratorExit):  # the last: this coroutine is thrown away
                    raise
                except BaseException as broken:
                    raise raised(name, broken, record.topic) from broken

    def frozen(self, record: Record) -> tuple[bytes | None, bytes | None, bytes | None, int, int]:
        """Return key, value, headers, timestamp and size bound of a record whose serializers are done, all checked."""
        topic = record.topic
        assert topic is not None
        key, value = record.key, record.value
        if self._serialize_key is not None:
            key = checked(key, "key", topic)
        elif key is not None and type(key) is not bytes:
            key = self.to_bytes(key, "key", topic)
        if self._serialize_value is not None:
            value = checked(value, "value", topic)
        elif value is not None and type(value) is not bytes:
            value = self.to_bytes(value, "value", topic)
        headers = None
        if record.headers:
            headers = encode_plain(record.headers)  # unless a serializer has put in what is none
            if headers is None:
                headers = self.encoded_headers(record.headers, topic)
        if record.timestamp_ms is None:
            record.timestamp_ms = wall_ms()
        size_bytes = record_size_bound(
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            0 if headers is None else len(headers),
        )
        if size_bytes > self.largest_record_bytes:
            raise self.too_large(size_bytes, topic)
        self._last_bytes = size_bytes
        return key, value, headers, record.timestamp_ms, size_bytes

    @staticmethod
    def serialized(record: Record) -> Record | None:
        """Return a copy of a record that waits for its turn, or was refused by `frozen`; None while it has no bytes."""
        topic = record.topic
        assert topic is not None
        for data in (record.key, record.value):  # an awaitable until its serializer has returned
            if data is not None and not isinstance(data, bytes | bytearray | memoryview):
                return None
        try:
            return Record(
                value=None if record.value is None else RecordChecks.to_bytes(record.value, "value", topic),
                key=None if record.key is None else RecordChecks.to_bytes(record.key, "key", topic),
                topic=topic,
                partition=record.partition,
                headers=tuple(RecordChecks.header_pairs(record.headers, topic)),
                timestamp_ms=record.timestamp_ms,
            )
        except RecordTypeError:  # a serializer may add what is no header, or return a memoryview that it releases
            return None

    # ------------------------------------------------------------------ life of the hooks
    def configure(self) -> None:
        """Tell interceptors and serializers that the producer starts, before anything is sent.

        Raises:
            ConfigError: one of them raised.
        """
        self.interceptors.forget()
        interceptors = [(type(each).__name__, each) for each in self._config.interceptors]
        self._unclosed = (_closes(interceptors), _closes(self._serializers))
        self._closing.clear()
        for name, hook, arguments in self._configurable():
            configure = getattr(hook, "configure", None)
            if callable(configure):
                try:
                    configure(*arguments)
                except Exception as broken:
                    raise ConfigError(f"{name}: configure raised {type(broken).__name__}: {broken}") from broken

    def skip(self) -> int | None:
        """Return how many records, from the next one on, need not be shown to an interceptor; None: all for a while."""
        return 0 if self._serializers else self.interceptors.skip()

    def _configurable(self) -> list[tuple[str, object, tuple[object, ...]]]:
        hooks: list[tuple[str, object, tuple[object, ...]]] = [
            (type(interceptor).__name__, interceptor, (self._config,)) for interceptor in self._config.interceptors
        ]
        for name, serializer in self._serializers:
            hooks.append((name, serializer, (self._config, name == "key_serializer")))
        return hooks

    async def close(self, timeout_s: float) -> None:
        """Close interceptors and serializers, with the producer. Those whose `close` is async share `timeout_s`.

        Each is closed once for each `configure`: called again after a cancellation, or an exception between two lines, this
        closes those that are left.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        for hooks in self._unclosed:
            while hooks:
                count, name = len(hooks), hooks[0][0]
                try:
                    self._closing.append((name, hooks.popleft()[1]()))
                except BaseException as broken:  # also CancelledError
                    if len(hooks) == count:
                        raise  # not of the hook
                    if isinstance(broken, SystemExit | KeyboardInterrupt):
                        raise_soon(broken)  # the others are closed: the loop may go on
                    else:
                        self._log.hook_failed(name, broken)
            while self._closing:
                name, result = self._closing.popleft()
                if inspect.isawaitable(result):
                    await self._closed(name, result, deadline)

    async def _closed(self, name: str, waiting: Awaitable[object], deadline: float) -> None:
        bound = asyncio.timeout_at(deadline)
        try:
            async with bound:
                await waiting
        except asyncio.CancelledError as cancelled:
            if is_cancelled_now():
                raise
            self._log.hook_failed(name, cancelled)
        except (SystemExit, KeyboardInterrupt) as ended:
            raise_soon(ended)
        except BaseException as broken:
            if bound.expired():
                self._log.warned(f"slow {name}", f"{name} did not end in time, and was cancelled")
            else:
                self._log.hook_failed(name, broken)


def _closes(hooks: Sequence[tuple[str, object]]) -> Closes:
    """Return what closes these hooks, by name; a serializer need not have it."""
    found = [(f"{name}.close", getattr(hook, "close", None)) for name, hook in hooks]
    return deque((name, close) for name, close in found if callable(close))


def raised(name: str, broken: BaseException, topic: str | None) -> SerializationError:
    """Return the error of a record whose serializer raised.

    Args:
        name: "key" or "value".
        broken: what it raised. Without a connection, or an answer in time, the same record may have more luck later.
        topic: of the record.
    """
    error = SerializationError(f"{name}_serializer raised {type(broken).__name__}", topic=topic)
    if isinstance(broken, OSError) and not isinstance(broken, OF_FILES):
        error.may_help_again = True
        advise(error, AWAY)
    return error


def is_cancelled_now() -> bool:
    """Return whether the running task is cancelled, and not only what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _whole(given: object) -> str:
    """Return the advice for a `Record` that was given where one of its parts is wanted."""
    return ": send_many(topic, [record]) takes records whole" if isinstance(given, Record) else ""


def _with_key(given: object, what: str) -> str:
    """Return how a record with a key is written, for a pair or a dict that seems to be one."""
    if what != "value" or not isinstance(given, tuple | list | Mapping):
        return ""
    return "; a record with a key is Record(value, key=key) in a list for send_many, and send(topic, value, key) alone"
