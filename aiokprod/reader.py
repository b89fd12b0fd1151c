"""`Reader`: a small reader of partitions, for tools, tests and the demo. No groups, no commits.

    async with Reader("localhost:9092") as reader:
        async for record in reader.read("orders", 0):
            ...

It reads from an offset up to the end the partition had when `read` was called (or to `stop`), and ends there. What a broker
answers is bounded by what it was asked: batches are decoded in pieces between which the loop turns, and a broker that brings
neither a record nor answers full of hidden ones fails the reader when the timeout is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Self, Unpack, cast

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.cluster.metadata.snapshot import TopicSnapshot
from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.config.call_timeouts import LONGEST_S, UNSET, Unset, check_timeout, timeout_of_call
from aiokprod.config.option_checks import shown
from aiokprod.errors import (
    TRY_LATER,
    BrokerAnswerError,
    ClusterError,
    ConfigError,
    ConnectionLostError,
    PartitionOutOfRangeError,
    ProtocolError,
    RequestTimeoutError,
    UnknownTopicError,
    UsageError,
    advise,
)
from aiokprod.logs import printable
from aiokprod.metrics import Metrics
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.records.decoder import DecodedBatch, DecodedRecord
from aiokprod.records.old_messages import OldMessage, decode_entries
from aiokprod.records.pieces import records_in_pieces
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokprod.wire.reader import ZERO_UUID

LATEST = -1
EARLIEST = -2
CONSUMER = -1
"""The replica id of a consumer. A broker tells any other one the end of the log, whatever isolation level it asks for."""
PAUSE_S = 0.1
TURN_S = 0.005
"""The loop is held no longer at a time."""
LOOK_EVERY = 64  # records and headers between two looks at the clock: a record may have 30,000 headers
UNPACKED_BYTES = 16 * 1024 * 1024
"""What a batch may unpack to, if `max_bytes` is not large: sixteen times `max_bytes` else, and half of it for a record."""
_LATER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)  # fmt: skip


class Reader:
    """A reader of partitions by offset or time, for tests and tools. It has no consumer group.

        async with Reader("localhost:9092") as reader:
            async for record in reader.read("orders", 0): ...

    It reads all record formats, with their codecs: 2, and 0 and 1, which topics have from before Kafka 0.11. Records of format
    0 have no timestamp (-1), those of both have no headers.

    Args:
        servers: `"host:port,host:port"`, a list of `"host:port"`, or a `ProducerConfig`, whose connection options are used.
        timeout: bound of each call, in seconds, retries included. For `read` it is the longest time without a record; an
            answer of at least half of `max_bytes` counts too if all its records are hidden (aborted, markers, compacted).
        **options: the options of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown, has a wrong type or conflicts with another; `timeout` is not a number of seconds.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | ProducerConfig,
        /,
        *,
        timeout: float = 30.0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        if isinstance(servers, ProducerConfig):
            self.config = servers.replace(**options) if options else servers
        else:
            options["bootstrap_servers"] = servers
            self.config = ProducerConfig.of(**options)
        check_timeout("timeout of Reader()", timeout)
        if cast("object", timeout) is None or timeout >= LONGEST_S:
            raise ConfigError(f"timeout of Reader() is {timeout}: it must be below {LONGEST_S:g} seconds, and not None")
        self._timeout_s = timeout
        reading = self.config.replace(allow_auto_create_topics=False)  # to ask for a topic must not create it
        self._client = ClusterClient(reading, Metrics(), SilentListener())
        self._is_started = False

    async def start(self, timeout: float | Unset | None = UNSET) -> Self:
        """Connect to the cluster.

        Args:
            timeout: seconds to wait for a connection; None waits without bound. Without it `start_timeout_ms` applies.

        Returns:
            The reader itself.

        Raises:
            BootstrapError: no bootstrap server answered; the message has host, port and cause of each.
            AuthenticationError, TlsError: the broker rejected our credentials or certificate, or we rejected the broker's.
            ConfigError: `timeout` is not a number of seconds, or is negative.

        Cancellation: undoes the start.
        """
        await self._client.start(timeout_of_call("timeout of start()", timeout, self.config.start_timeout))
        self._is_started = True
        return self

    async def close(self) -> None:
        """End all connections.

        Cancellation: stops waiting for them to end.
        """
        self._is_started = False
        await self._client.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------ offsets
    async def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions, ascending from 0.

        Args:
            topic: topic name.

        Raises:
            UnknownTopicError: the topic does not exist, or no broker has answered; then the cause says why.
            BrokerAnswerError: the principal may not see the topic.
            RecordTypeError, InvalidTopicError: `topic` is no topic name.
            UsageError: the reader is not started, or closed.

        Cancellation: stops waiting.
        """
        RecordChecks.checked_name(topic)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        return [partition.partition for partition in (await self._topic(topic, deadline)).partitions]

    async def earliest(self, topic: str, partition: int) -> int:
        """Return the first offset that can be read (ListOffsets, timestamp -2).

        Args:
            topic: topic name.
            partition: partition number.

        Raises:
            ConfigError: an argument has a wrong type.
            RecordTypeError, InvalidTopicError: `topic` is no topic name.
            UnknownTopicError, PartitionOutOfRangeError: the topic or the partition does not exist.
            BrokerAnswerError, ClusterError: the broker did not tell the offset.
            UsageError: the reader is not started, or closed.

        Cancellation: stops waiting.
        """
        return await self._offset(topic, partition, EARLIEST, False)

    async def latest(self, topic: str, partition: int, *, read_committed: bool = False) -> int:
        """Return the offset after the last record (ListOffsets, timestamp -1).

        Args:
            topic: topic name.
            partition: partition number.
            read_committed: True returns the last stable offset, where the first open transaction begins (KIP-98).

        Raises:
            ConfigError: an argument has a wrong type.
            RecordTypeError, InvalidTopicError: `topic` is no topic name.
            UnknownTopicError, PartitionOutOfRangeError: the topic or the partition does not exist.
            BrokerAnswerError, ClusterError: the broker did not tell the offset.
            UsageError: the reader is not started, or closed.

        Cancellation: stops waiting.
        """
        return await self._offset(topic, partition, LATEST, read_committed)

    async def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset with a timestamp of at least `timestamp_ms`; None if there is none (KIP-79).

        Args:
            topic: topic name.
            partition: partition number.
            timestamp_ms: milliseconds since 1970.

        Raises:
            ConfigError: an argument has a wrong type.
            RecordTypeError, InvalidTopicError: `topic` is no topic name.
            UnknownTopicError, PartitionOutOfRangeError: the topic or the partition does not exist.
            BrokerAnswerError, ClusterError: the broker did not tell the offset.
            UsageError: the reader is not started, or closed.

        Cancellation: stops waiting.
        """
        offset = await self._offset(topic, partition, timestamp_ms, False)
        return None if offset < 0 else offset

    async def _offset(self, topic: str, partition: int, timestamp_ms: int, read_committed: bool) -> int:
        _check_place(topic, partition, read_committed)
        _check_number("timestamp_ms", timestamp_ms)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        lost: ClusterError | None = None
        while True:
            node, leader_epoch, _ = await self._leader(topic, partition, deadline)
            asked = ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp_ms
            )
            request = ListOffsetsRequest(
                replica_id=CONSUMER,
                isolation_level=int(read_committed),
                topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
            )
            given_s = self._left(deadline)
            try:
                answer: ListOffsetsResponse = await self._client.request(request, node_id=node, timeout_s=given_s)
            except ClusterError as error:
                lost = self._telling(lost, error, given_s)
                await self._again(topic, deadline, lost)
                continue
            found = None
            for item in answer.topics:
                for each in item.partitions:
                    if item.name != topic or each.partition_index != partition:
                        raise _answered_other(topic, partition, item.name, each.partition_index)
                    found = found or each
            if found is None:
                await self._again(topic, deadline, _left_out(topic, partition))
                continue
            if found.error_code == 0:
                if found.offset < 0 and timestamp_ms < 0:
                    raise ProtocolError(f"{topic}-{partition} ends at the offset {found.offset}, says broker {node}")
                return found.offset
            await self._refused(topic, partition, found.error_code, deadline)

    # ------------------------------------------------------------------ records
    async def read(
        self,
        topic: str,
        partition: int,
        start: int | None = None,
        stop: int | None = None,
        *,
        read_committed: bool = False,
        max_bytes: int = 1_048_576,
    ) -> AsyncIterator[DecodedRecord]:
        """Yield the records from `start` up to, not including, `stop`.

        Args:
            topic: topic name.
            partition: partition number.
            start: offset of the first record; None is the earliest.
            stop: offset after the last record; None is the end of the partition at the call. If it lies beyond the end, the
                iteration waits for further records, without bound.
            read_committed: True leaves out records of aborted and open transactions (KIP-98).
            max_bytes: bytes to request at a time. A batch may be larger, but must not unpack to more than 16 MiB or sixteen
                times this.

        Yields:
            Each record with its offset, timestamp, key, value and headers.

        Raises:
            ConfigError: `max_bytes` is not a whole number above 0, or an argument has a wrong type.
            RecordTypeError, InvalidTopicError: `topic` is no topic name.
            UnknownTopicError, PartitionOutOfRangeError: the topic or the partition does not exist.
            BrokerAnswerError, ClusterError: the partition cannot be read.
            UsageError: the reader is not started, or closed.
            RequestTimeoutError: the broker has more records, and returned none of them for `timeout` seconds (see `Reader`).
            ProtocolError: the answer holds no records of a known format, has a wrong checksum, or is about another partition.

        Cancellation: ends the iteration.
        """
        _check_place(topic, partition, read_committed)
        _check_number("max_bytes", max_bytes, 1, 2**31 - 1)
        for name, offset in (("start", start), ("stop", stop)):
            if offset is not None:
                _check_number(name, offset)
        at = await self.earliest(topic, partition) if start is None else start
        end = await self.latest(topic, partition, read_committed=read_committed) if stop is None else stop
        limit_bytes = max(UNPACKED_BYTES, 16 * max_bytes)
        clock = asyncio.get_running_loop().time
        moved_at = clock()
        while at < end:
            data = await self._fetch(topic, partition, at, read_committed, max_bytes)
            aborted: set[int] = set()  # each answer names all that reach into what it brings, however early they began
            transactions = deque(sorted(data.aborted_transactions or (), key=lambda item: item.first_offset))
            before = at
            is_found = False
            turned_at = clock()
            looked = 0
            for batch in decode_entries(data.records or b""):
                if at >= end:
                    break
                base, last_delta = _offsets_of(batch)
                while transactions and transactions[0].first_offset <= base:
                    aborted.add(transactions.popleft().producer_id)
                pieces: Iterator[DecodedRecord | None] = iter((None,))
                if isinstance(batch, OldMessage):
                    pieces = batch.records(limit_bytes, limit_bytes // 2)
                elif not self._is_hidden(batch, aborted, read_committed):
                    pieces = records_in_pieces(batch, limit_bytes, limit_bytes // 2)
                for record in pieces:
                    if record is not None:
                        looked += 1 + len(record.headers)
                        if at <= record.offset < end:
                            is_found = True
                            yield record
                    if (record is None or looked >= LOOK_EVERY) and clock() - turned_at >= TURN_S:
                        await asyncio.sleep(0)
                        turned_at = clock()
                        looked = 0
                at = max(at, base + last_delta + 1)
            known_end = data.last_stable_offset if read_committed else data.high_watermark
            # A lying broker can advance one offset at a time for ever, but a log of aborted transactions fills its answers.
            is_full = at > before and 2 * len(data.records or b"") >= max_bytes
            if is_found or is_full or (stop is not None and known_end <= at):
                moved_at = clock()
            elif at < end and clock() - moved_at >= self._timeout_s:
                raise RequestTimeoutError(
                    f"{topic}-{partition} goes on to {max(end, known_end) if stop is None else known_end}, and for "
                    f"{self._timeout_s:g} s no broker gave a record from {at} on"
                )
            if at == before:
                await asyncio.sleep(PAUSE_S)

    @staticmethod
    def _is_hidden(batch: DecodedBatch, aborted: set[int], read_committed: bool) -> bool:
        if batch.is_control:
            aborted.discard(batch.producer_id)  # the marker ends the transaction
            return True
        return read_committed and batch.is_transactional and batch.producer_id in aborted

    async def _fetch(
        self, topic: str, partition: int, offset: int, read_committed: bool, max_bytes: int
    ) -> PartitionData:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        lost: ClusterError | None = None
        while True:
            node, leader_epoch, snapshot = await self._leader(topic, partition, deadline)
            wanted = FetchPartition(
                partition=partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=max_bytes,
            )
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=int(read_committed),
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, topic_id=snapshot.topic_id, partitions=[wanted])],
            )
            given_s = self._left(deadline)
            try:
                answer: FetchResponse = await self._client.request(request, node_id=node, timeout_s=given_s)
            except ClusterError as error:
                lost = self._telling(lost, error, given_s)
                await self._again(topic, deadline, lost)
                continue
            if answer.error_code:
                await self._refused(topic, partition, answer.error_code, deadline)
                continue
            topic_id = snapshot.topic_id
            data = None
            for item in answer.responses:
                is_topic = item.topic == topic or (topic_id != ZERO_UUID and item.topic_id == topic_id)
                for each in item.partitions:
                    if not is_topic or each.partition_index != partition:
                        raise _answered_other(topic, partition, item.topic or item.topic_id.hex(), each.partition_index)
                    data = data or each
            if data is None:
                await self._again(topic, deadline, _left_out(topic, partition))
                continue
            if data.error_code == 0:
                return data
            await self._refused(topic, partition, data.error_code, deadline)

    # ------------------------------------------------------------------ leaders
    async def _topic(self, topic: str, deadline: float) -> TopicSnapshot:
        while True:
            if not self._is_started:  # each time round: it may have been closed meanwhile
                text = "the reader is not started, or closed: use `async with Reader(...)`, or await start()"
                raise UsageError(text, topic=topic)
            snapshot = self._client.topic(topic)
            if snapshot is not None and snapshot.partitions:
                return snapshot
            self._client.want(topic)
            lost: ClusterError | None = None
            try:
                await self._client.refreshed(self._left(deadline))
            except ClusterError as error:
                lost = error
            code, _ = self._client.last_error(topic) or (0, None)
            if lost is None and code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise _refusal(f"topic {topic!r}", topic, None, code)
            if lost is not None or asyncio.get_running_loop().time() >= deadline:
                raise _unknown(topic, code, lost) from lost

    async def _leader(self, topic: str, partition: int, deadline: float) -> tuple[int, int, TopicSnapshot]:
        while True:
            snapshot = await self._topic(topic, deadline)
            if not 0 <= partition < len(snapshot.partitions):
                text = f"partition {partition} does not exist: topic {topic!r} has partitions 0 to "
                raise PartitionOutOfRangeError(
                    f"{text}{len(snapshot.partitions) - 1}", topic=topic, partition=partition
                )
            leader = snapshot.partitions[partition]
            if leader.leader_id >= 0:
                return leader.leader_id, leader.leader_epoch, snapshot
            await self._again(topic, deadline, None)

    async def _refused(self, topic: str, partition: int, code: int, deadline: float) -> None:
        error = _refusal(f"{topic}-{partition}", topic, partition, code)
        if code not in _LATER:
            raise error
        await self._again(topic, deadline, error)

    def _telling(self, earlier: ClusterError | None, latest: ClusterError, given_s: float) -> ClusterError:
        """Return the error that says why there is no answer: the timeout of a last try with little time does not."""
        is_short = isinstance(latest, RequestTimeoutError) and given_s < self._timeout_s / 2
        return earlier if earlier is not None and is_short else latest

    async def _again(self, topic: str, deadline: float, cause: Exception | None) -> None:
        if self._left(deadline) <= PAUSE_S:
            raise cause or ConnectionLostError(f"topic {topic!r} has a partition without a leader", topic=topic)
        await asyncio.sleep(PAUSE_S)
        self._client.refresh(f"reading {topic}")

    @staticmethod
    def _left(deadline: float) -> float:
        return max(0.05, deadline - asyncio.get_running_loop().time())


def _check_place(topic: object, partition: object, read_committed: object) -> None:
    """Check arguments before anything is asked: found by an encoder, a bad topic would end the task that asks for metadata."""
    RecordChecks.checked_name(topic)
    _check_number("partition", partition)
    if not isinstance(read_committed, bool):
        raise ConfigError(f"read_committed is {shown(read_committed)}: it must be True or False")


def _check_number(name: str, number: object, lowest: int = -(2**63), highest: int = 2**63 - 1) -> None:
    """Check that a number can be written. An offset or a partition that is not there is refused by the broker."""
    if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= highest:
        raise ConfigError(
            f"{name} is {shown(number)} ({type(number).__name__}): it must be a whole number from {lowest} to {highest}"
        )


def _refusal(what: str, topic: str, partition: int | None, code: int) -> BrokerAnswerError:
    error = BrokerAnswerError(f"{what}: {name_of(code)}", topic=topic, partition=partition, code=code)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        advise(error, f"Grant this principal READ on topic {topic!r}.")
    return error


def _unknown(topic: str, code: int, lost: ClusterError | None) -> UnknownTopicError:
    """Return the error of a topic of which no leaders are known when the time is over."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        text = f"topic {topic!r} was not found: {name_of(code)}"
    elif code:
        text = f"topic {topic!r} cannot be used: {name_of(code)}"
    elif lost is not None:
        text = f"no broker has told of topic {topic!r}: {lost.message}"
    else:
        text = f"no broker tells of the partitions of topic {topic!r}"
    error = UnknownTopicError(text, topic=topic, code=code or None)
    if not code and lost is not None and lost.advice:
        advise(error, lost.advice)
    elif code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        advise(error, TRY_LATER)
    return error


def _left_out(topic: str, partition: int) -> ConnectionLostError:
    return ConnectionLostError(f"the broker's answer left {topic}-{partition} out", topic=topic, partition=partition)


def _answered_other(topic: str, partition: int, answered: str, number: int) -> ProtocolError:
    text = f"asked for {topic}-{partition}, a broker answered about {printable(answered)}-{number}"
    return ProtocolError(text, topic=topic, partition=partition)


def _offsets_of(batch: DecodedBatch | OldMessage) -> tuple[int, int]:
    """Return the first offset and the number of those behind it; of messages that are packed together the last one alone."""
    return (batch.offset, 0) if isinstance(batch, OldMessage) else (batch.base_offset, batch.last_offset_delta)
