"""`Reader` on the in-process cluster: offsets, times, transactions, and what it says when it cannot read."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

import aiokprod.reader
from aiokprod import Producer, ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BootstrapError,
    BrokerAnswerError,
    ConfigError,
    ConnectionLostError,
    InvalidTopicError,
    PartitionOutOfRangeError,
    ProtocolError,
    RecordTypeError,
    RequestTimeoutError,
    UnknownTopicError,
    UsageError,
)
from aiokprod.reader import LOOK_EVERY, Reader
from aiokprod.records.batch import batch_header, encode_records
from aiokprod.records.compression import CODEC_BITS, compress
from aiokprod.records.crc import checksum
from aiokprod.records.headers import encode_headers
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

T0 = 1_700_000_000_000
TRANSACTIONAL, CONTROL = 0x10, 0x20


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


@asynccontextmanager
async def reading(
    records: int = 0, *, partitions: int = 1, **options: Any
) -> AsyncIterator[tuple[MockCluster, Reader]]:
    """Yield a reader of a topic `t` with so many records in partition 0, ten a batch, a second between them."""
    async with MockCluster() as cluster:
        cluster.create_topic("t", partitions=partitions)
        async with Producer(cluster.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
            for number in range(records):
                producer.send("t", b"%d" % number, partition=0, timestamp_ms=T0 + 1_000 * number)
                if number % 10 == 9:
                    await producer.flush()
        async with Reader(cluster.bootstrap_servers, **options) as reader:
            yield cluster, reader
        assert not cluster.counters.crashes


async def numbers(reader: Reader, *arguments: Any, **options: Any) -> list[int]:
    return [int(record.value or b"-1") async for record in reader.read("t", 0, *arguments, **options)]


# ---------------------------------------------------------------------- offsets
def test_the_ends_of_a_partition_are_its_first_offset_and_the_one_after_its_last() -> None:
    async def scenario() -> None:
        async with reading(25, partitions=2) as (cluster, reader):
            assert await reader.partitions("t") == [0, 1]
            assert (await reader.earliest("t", 0), await reader.latest("t", 0)) == (0, 25)
            assert (await reader.earliest("t", 1), await reader.latest("t", 1)) == (0, 0)
            cluster.delete_records("t", 0, 7)
            assert await reader.earliest("t", 0) == 7
            assert await numbers(reader) == list(range(7, 25))

    run(scenario())


def test_a_time_is_the_first_offset_not_older_or_none() -> None:
    async def scenario() -> None:
        async with reading(30) as (_, reader):
            for at_ms, offset in ((0, 0), (T0, 0), (T0 + 1, 1), (T0 + 12_000, 12), (T0 + 29_000, 29)):
                assert await reader.offset_at("t", 0, at_ms) == offset
            assert await reader.offset_at("t", 0, T0 + 29_001) is None

    run(scenario())


# ---------------------------------------------------------------------- reading
@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, range(35)),
        (0, 35, range(35)),
        (13, None, range(13, 35)),  # in the middle of a batch
        (13, 14, range(13, 14)),
        (None, 9, range(9)),
        (20, 20, range(0)),
        (35, None, range(0)),
        (30, 20, range(0)),
    ],
)
def test_it_reads_from_start_up_to_and_not_including_stop(start: int | None, stop: int | None, expected: range) -> None:
    async def scenario() -> None:
        async with reading(35) as (_, reader):
            records = [record async for record in reader.read("t", 0, start, stop)]
            assert [record.offset for record in records] == list(expected)
            assert [record.value for record in records] == [b"%d" % number for number in expected]
            assert [record.timestamp_ms for record in records] == [T0 + 1_000 * number for number in expected]

    run(scenario())


@pytest.mark.parametrize("max_bytes", [1, 100, 500])
def test_it_reads_on_however_little_comes_at_once(max_bytes: int) -> None:
    async def scenario() -> None:
        async with reading(40) as (_, reader):
            assert await numbers(reader, max_bytes=max_bytes) == list(range(40))

    run(scenario())


def test_it_ends_where_the_partition_ended_when_it_began() -> None:
    async def scenario() -> None:
        async with reading(10) as (cluster, reader), Producer(cluster.bootstrap_servers) as producer:
            seen: list[int] = []
            async for record in reader.read("t", 0):
                seen.append(record.offset)
                await producer.send("t", b"later", partition=0)
            assert seen == list(range(10))
            assert await reader.latest("t", 0) == 20

    run(scenario())


def test_a_stop_beyond_the_end_waits_for_records_to_come() -> None:
    async def scenario() -> None:
        async with reading(10) as (cluster, reader):
            asked = cluster.requests_seen("Fetch")
            task = asyncio.create_task(numbers(reader, 0, 11))
            while cluster.requests_seen("Fetch") <= asked + 1:
                await asyncio.sleep(0)
            assert not task.done()
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send("t", b"10", partition=0)
            assert await task == list(range(11))

    run(scenario())


def test_keys_headers_nulls_and_every_codec_come_back() -> None:
    async def scenario() -> None:
        async with reading() as (cluster, reader):
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                async with Producer(cluster.bootstrap_servers, compression_type=codec) as producer:
                    await producer.send("t", None, b"k", headers=[("a", b"1"), ("b", None)])
                    await producer.send("t", b"x" * 5_000, None)
            records = [record async for record in reader.read("t", 0)]
            assert [record.offset for record in records] == list(range(10))
            for first, second in zip(records[::2], records[1::2], strict=True):
                assert (first.key, first.value, list(first.headers)) == (b"k", None, [("a", b"1"), ("b", None)])
                assert (second.key, second.value, list(second.headers)) == (None, b"x" * 5_000, [])

    run(scenario())


# ---------------------------------------------------------------------- transactions
def batch(base_offset: int, *values: bytes, producer_id: int = -1, attributes: int = 0) -> bytes:
    section = bytes(encode_records(list(values), None, None, [0] * len(values)))
    header = batch_header(
        section, count=len(values), attributes=attributes, base_timestamp_ms=T0, max_timestamp_ms=T0,
        producer_id=producer_id, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    return base_offset.to_bytes(8, "big") + bytes(header)[8:] + section


def a_log_with_transactions(topic_id: bytes) -> Any:
    """Return a log in which producer 7 aborts 0 and 3 and commits 6; 8 commits 1; 5 belongs to neither."""
    data = b"".join(
        [
            batch(0, b"aborted", producer_id=7, attributes=TRANSACTIONAL),
            batch(1, b"committed", producer_id=8, attributes=TRANSACTIONAL),
            batch(2, b"marker", producer_id=8, attributes=TRANSACTIONAL | CONTROL),
            batch(3, b"aborted too", producer_id=7, attributes=TRANSACTIONAL),
            batch(4, b"marker", producer_id=7, attributes=TRANSACTIONAL | CONTROL),
            batch(5, b"plain"),
            batch(6, b"after the abort", producer_id=7, attributes=TRANSACTIONAL),
            batch(7, b"marker", producer_id=7, attributes=TRANSACTIONAL | CONTROL),
        ]
    )

    def answer(request: object, version: int) -> FetchResponse:
        assert isinstance(request, FetchRequest)
        aborted = [AbortedTransaction(producer_id=7, first_offset=0)] if request.isolation_level else None
        found = PartitionData(
            partition_index=0, high_watermark=8, last_stable_offset=8, aborted_transactions=aborted, records=data
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=[found])])

    return answer


def test_aborted_records_are_hidden_from_read_committed_and_markers_from_all_readers() -> None:
    async def scenario() -> None:
        async with reading() as (cluster, reader):
            cluster.answer_with("Fetch", a_log_with_transactions(cluster.topic_id("t")), times=None)
            seen = [record.value async for record in reader.read("t", 0, 0, 8, read_committed=True)]
            assert seen == [b"committed", b"plain", b"after the abort"]
            seen = [record.value async for record in reader.read("t", 0, 0, 8)]
            assert seen == [b"aborted", b"committed", b"aborted too", b"plain", b"after the abort"]

    run(scenario())


def test_messages_of_older_formats_are_read_from_the_offset_that_is_asked_for() -> None:
    """Also of packed ones, whose message has the offset of the last; a reader of committed records sees them all."""
    builder = LegacyRecordBatchBuilder(1, 1, 1_000_000)
    for number in range(10):
        builder.append(number, T0 + number, None, b"%d" % number)
    packed = struct.pack(">q", 9) + bytes(builder.build())[8:]
    single = LegacyRecordBatchBuilder(0, 0, 1_000_000)
    single.append(10, None, None, b"10")
    data = packed + bytes(single.build()) + batch(11, b"11")

    async def scenario() -> None:
        async with reading() as (cluster, reader):

            def answer(request: object, version: int) -> FetchResponse:
                found = PartitionData(partition_index=0, high_watermark=12, last_stable_offset=12, records=data)
                topic = FetchableTopicResponse(topic="t", topic_id=cluster.topic_id("t"), partitions=[found])
                return FetchResponse(responses=[topic])

            cluster.answer_with("Fetch", answer, times=None)
            assert await numbers(reader, 0, 12) == list(range(12))
            assert await numbers(reader, 4, 7) == [4, 5, 6]
            assert await numbers(reader, 9, 11, read_committed=True) == [9, 10]
            times = [record.timestamp_ms async for record in reader.read("t", 0, 8, 11)]
            assert times == [T0 + 8, T0 + 9, -1]

    run(scenario())


def test_a_reader_of_committed_records_ends_where_an_open_transaction_begins() -> None:
    async def scenario() -> None:
        async with (
            reading() as (cluster, reader),
            Producer(cluster.bootstrap_servers, transactional_id="tx") as producer,
        ):
            producer.begin_transaction()
            await producer.send("t", b"open", partition=0)
            assert await reader.latest("t", 0, read_committed=True) == 0
            assert [record async for record in reader.read("t", 0, read_committed=True)] == []
            assert [record.value async for record in reader.read("t", 0)] == [b"open"]
            await producer.commit_transaction()
            assert [record.value async for record in reader.read("t", 0, read_committed=True)] == [b"open"]

    run(scenario())


def test_of_the_aborted_transactions_an_answer_names_nothing_is_kept_for_the_next() -> None:
    """Made-up ones, ten thousand in an answer, grew a set for ever. A broker names again those that go on."""

    async def scenario() -> None:
        async with reading() as (cluster, reader):
            asked: list[int] = []

            def answer(request: object, version: int) -> FetchResponse:
                assert isinstance(request, FetchRequest)
                at = request.topics[0].partitions[0].fetch_offset
                asked.append(at)
                aborted = [AbortedTransaction(producer_id=7, first_offset=0)] if at != 1 else []
                found = PartitionData(
                    partition_index=0, high_watermark=3, last_stable_offset=3, aborted_transactions=aborted,
                    records=batch(at, b"%d" % at, producer_id=7, attributes=TRANSACTIONAL),
                )  # fmt: skip
                topic = FetchableTopicResponse(topic="t", topic_id=cluster.topic_id("t"), partitions=[found])
                return FetchResponse(responses=[topic])

            cluster.answer_with("Fetch", answer, times=None)
            assert await numbers(reader, 0, 3, read_committed=True) == [1]
            assert asked == [0, 1, 2]

    run(scenario())


# ---------------------------------------------------------------------- trouble
def test_a_leader_that_moves_or_fails_is_followed() -> None:
    async def scenario() -> None:
        async with reading(30) as (cluster, reader):
            seen: list[int] = []
            async for record in reader.read("t", 0, max_bytes=1):
                seen.append(record.offset)
                if record.offset == 9:
                    leader = cluster.leader("t")
                    cluster.move_leader("t", 0, next(node for node in cluster.broker_ids if node != leader))
                if record.offset == 19:
                    cluster.close_connections(abort=True)
            assert seen == list(range(30))
            cluster.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
            cluster.fail_next("ListOffsets", "LEADER_NOT_AVAILABLE", times=2)
            assert await numbers(reader) == list(range(30))

    run(scenario())


@pytest.mark.parametrize(
    ("api", "code"), [("Fetch", "TOPIC_AUTHORIZATION_FAILED"), ("ListOffsets", "UNSUPPORTED_VERSION")]
)
def test_a_refusal_for_good_is_told_at_once_with_its_code(api: str, code: str) -> None:
    async def scenario() -> None:
        async with reading(10) as (cluster, reader):
            cluster.fail_next(api, code, times=None)
            async with asyncio.timeout(20):
                with pytest.raises(BrokerAnswerError, match=code) as raised:
                    await numbers(reader)
            assert (raised.value.topic, raised.value.partition) == ("t", 0)
            assert ("READ on topic 't'" in "".join(raised.value.__notes__)) is (api == "Fetch")

    run(scenario())


@pytest.mark.parametrize("start", [-5, 11, 10_000])
def test_an_offset_that_is_not_there_is_told_at_once(start: int) -> None:
    async def scenario() -> None:
        async with reading(10) as (_, reader):
            async with asyncio.timeout(20):
                with pytest.raises(BrokerAnswerError, match="OFFSET_OUT_OF_RANGE"):
                    await numbers(reader, start, 20_000)

    run(scenario())


def test_a_topic_that_does_not_exist_is_told_when_the_time_is_over() -> None:
    async def scenario() -> None:
        async with reading(timeout=2.0) as (_, reader):
            began = time.monotonic()
            with pytest.raises(UnknownTopicError):
                await reader.earliest("never", 0)
            assert time.monotonic() - began < 20

    run(scenario())


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", UnknownTopicError, "topic 't' was not found: UNKNOWN_TOPIC_OR_PARTITION"),
        ("LEADER_NOT_AVAILABLE", UnknownTopicError, "topic 't' cannot be used: LEADER_NOT_AVAILABLE"),
        ("TOPIC_AUTHORIZATION_FAILED", BrokerAnswerError, "topic 't': TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_the_error_of_a_topic_says_what_the_brokers_said(code: str, error: type[AiokprodError], text: str) -> None:
    async def scenario() -> None:
        async with reading(timeout=2.0) as (cluster, reader):

            def refuse(answer: Any, version: int) -> Any:
                for topic in answer.topics:
                    topic.error_code, topic.partitions = ErrorCode[code], []
                return answer

            cluster.rewrite_answer("Metadata", refuse, times=None)
            with pytest.raises(error) as raised:
                await reader.partitions("t")
            assert (raised.value.message, raised.value.code) == (text, ErrorCode[code])
            (advice,) = raised.value.__notes__
            assert ("READ" in advice) is (error is BrokerAnswerError)
            assert ("Create the topic" in advice) is (code == "UNKNOWN_TOPIC_OR_PARTITION")
            assert ("Try again in some seconds" in advice) is (code == "LEADER_NOT_AVAILABLE")

    run(scenario())


def test_brokers_that_did_not_answer_have_not_said_that_a_topic_does_not_exist() -> None:
    async def scenario() -> None:
        async with reading(timeout=1.0) as (cluster, reader):
            cluster.hold("Metadata")
            with pytest.raises(
                UnknownTopicError, match=r"^no broker has told of topic 't': no metadata within "
            ) as raised:
                await reader.partitions("t")
            assert isinstance(raised.value.__cause__, RequestTimeoutError)
            assert raised.value.__notes__ == [RequestTimeoutError.advice]

    run(scenario())


@pytest.mark.parametrize("partition", [2, 7, -1])
def test_the_error_of_a_partition_that_does_not_exist_names_it_and_those_that_do(partition: int) -> None:
    async def scenario() -> None:
        async with reading(partitions=2) as (_, reader):
            text = f"^partition {partition} does not exist: topic 't' has partitions 0 to 1 "
            with pytest.raises(PartitionOutOfRangeError, match=text) as caught:
                await reader.latest("t", partition)
            assert (caught.value.topic, caught.value.partition) == ("t", partition)

    run(scenario())


def test_a_reader_that_is_not_started_or_closed_says_so() -> None:
    async def scenario() -> None:
        with MockCluster() as cluster:
            cluster.create_topic("t")
            reader = Reader(cluster.bootstrap_servers)
            with pytest.raises(UsageError, match=r"^the reader is not started"):
                await reader.partitions("t")
            async with reader:
                assert await reader.partitions("t") == [0]
            with pytest.raises(UsageError, match="or closed: use `async with Reader"):
                await numbers(reader)

    run(scenario())


def test_a_partition_without_a_leader_is_an_error_when_the_time_is_over() -> None:
    async def scenario() -> None:
        async with reading(10, timeout=2.0) as (cluster, reader):
            assert await reader.latest("t", 0) == 10
            cluster.move_leader("t", 0, None)
            async with asyncio.timeout(20):
                with pytest.raises(AiokprodError):
                    await numbers(reader)

    run(scenario())


@pytest.mark.parametrize("at", [25, 70])
def test_bytes_that_were_changed_on_the_way_are_no_records(at: int) -> None:
    async def scenario() -> None:
        async with reading(1) as (cluster, reader):
            broken = bytearray(batch(0, b"value"))
            broken[at] ^= 0xFF

            def answer(request: object, version: int) -> FetchResponse:
                found = PartitionData(partition_index=0, high_watermark=1, records=bytes(broken))
                topic = FetchableTopicResponse(topic="t", topic_id=cluster.topic_id("t"), partitions=[found])
                return FetchResponse(responses=[topic])

            cluster.answer_with("Fetch", answer, times=None)
            with pytest.raises(ProtocolError):
                await numbers(reader)

    run(scenario())


def fetched(cluster: MockCluster, records: bytes | None, topic: str = "t", index: int = 0, end: int = 1) -> Any:
    """Answer every Fetch with these records, whatever was asked."""

    def answer(request: object, version: int) -> FetchResponse:
        found = PartitionData(partition_index=index, high_watermark=end, last_stable_offset=end, records=records)
        item = FetchableTopicResponse(topic=topic, topic_id=cluster.topic_id(topic), partitions=[found])
        return FetchResponse(responses=[item])

    return answer


@pytest.mark.parametrize("records", [None, batch(0, b"an old one"), batch(0, b"1", b"2")], ids=["none", "one", "two"])
@pytest.mark.parametrize("stop", [None, 20])
def test_a_broker_that_leads_no_further_fails_the_reader_when_its_time_is_over(
    records: bytes | None, stop: int | None
) -> None:
    """The broker was asked again and again, without a pause and without an end."""

    async def scenario() -> None:
        async with reading(20, timeout=2.0) as (cluster, reader):
            cluster.answer_with("Fetch", fetched(cluster, records, end=20), times=None)
            began = time.monotonic()
            with pytest.raises(RequestTimeoutError, match=r"t-0 goes on to 20, and for 2 s no broker gave a record"):
                await numbers(reader, 5, stop)
            assert time.monotonic() - began < 20
            assert cluster.requests_seen("Fetch") < 40  # it asks ten times in a second

    run(scenario())


def one_at_a_time(cluster: MockCluster, of: Callable[[int], tuple[bytes | None, int]]) -> Any:
    """Answer each Fetch with what `of` makes of its offset: the records, and the end of the partition."""

    def answer(request: object, version: int) -> FetchResponse:
        assert isinstance(request, FetchRequest)
        records, known_end = of(request.topics[0].partitions[0].fetch_offset)
        found = PartitionData(
            partition_index=0, high_watermark=known_end, last_stable_offset=known_end, records=records
        )
        item = FetchableTopicResponse(topic="t", topic_id=cluster.topic_id("t"), partitions=[found])
        return FetchResponse(responses=[item])

    return answer


def virtually(scenario: Callable[[MockCluster, Reader], Coroutine[Any, Any, None]], timeout: float) -> None:
    """Run a scenario with a reader of `t` in virtual time; an answer takes about 2 ms."""

    async def with_reader(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(network=network) as cluster:
            cluster.create_topic("t")
            config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, dialer=network.dial)
            async with Reader(config, timeout=timeout) as reader:
                await scenario(cluster, reader)

    run_virtual(with_reader, seed=1)


@pytest.mark.parametrize("stop", [None, 10**9])
def test_batches_without_records_are_no_reason_to_read_on_for_ever(stop: int | None) -> None:
    """Each of them led the reader one offset further, so that its time was never over."""

    async def scenario(cluster: MockCluster, reader: Reader) -> None:
        last = ListOffsetsPartitionResponse(partition_index=0, offset=10**9)
        offsets = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[last])])
        cluster.answer_with("ListOffsets", lambda request, version: offsets, times=None)
        marker = one_at_a_time(cluster, lambda at: (batch(at, b"marker", attributes=CONTROL), 10**9))
        cluster.answer_with("Fetch", marker, times=None)
        async with asyncio.timeout(20):
            with pytest.raises(RequestTimeoutError, match=r"t-0 goes on to 1000000000, and for 5 s no broker gave"):
                await numbers(reader, 0, stop)

    virtually(scenario, 5)


@pytest.mark.parametrize("max_bytes", [1, 140])
def test_answers_full_of_batches_without_records_are_read_for_longer_than_the_timeout(max_bytes: int) -> None:
    """A log with many aborted transactions, or after its compaction, is such a log."""

    async def scenario(cluster: MockCluster, reader: Reader) -> None:
        def of(at: int) -> tuple[bytes, int]:
            return (batch(at, b"marker", attributes=CONTROL) if at < 30 else batch(at, b"30")), 31

        cluster.answer_with("Fetch", one_at_a_time(cluster, of), times=None)
        began = asyncio.get_running_loop().time()
        assert await numbers(reader, 0, 31, max_bytes=max_bytes) == [30]
        assert asyncio.get_running_loop().time() - began > 2 * timeout

    timeout = 0.02
    virtually(scenario, timeout)


def test_the_time_does_not_run_while_there_is_nothing_to_read() -> None:
    """The next answer, if it had no record, could end the read at once."""

    async def scenario(cluster: MockCluster, reader: Reader) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()

        def late(at: int) -> tuple[bytes | None, int]:
            if clock() - began < 5:
                return None, 0
            return (batch(at, b"marker", attributes=CONTROL) if at == 0 else batch(at, b"1")), 2

        cluster.answer_with("Fetch", one_at_a_time(cluster, late), times=None)
        assert await numbers(reader, 0, 2) == [1]

    virtually(scenario, 1)


@pytest.mark.parametrize(("topic", "index"), [("t", 1), ("u", 0), ("t", -1)])
def test_an_answer_about_another_partition_is_none(topic: str, index: int) -> None:
    """The records of another partition came as those that were asked for."""

    async def scenario() -> None:
        async with reading(1) as (cluster, reader):
            cluster.create_topic("u")
            cluster.answer_with("Fetch", fetched(cluster, batch(0, b"0"), topic, index), times=None)
            with pytest.raises(ProtocolError, match="asked for t-0, a broker answered about"):
                await numbers(reader, 0, 1)

            def offsets(request: object, version: int) -> ListOffsetsResponse:
                found = ListOffsetsPartitionResponse(partition_index=index, offset=7)
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=[found])])

            cluster.answer_with("ListOffsets", offsets, times=None)
            with pytest.raises(ProtocolError, match="asked for t-0, a broker answered about"):
                await reader.latest("t", 0)

    run(scenario())


def test_an_end_below_zero_is_no_end() -> None:
    """Nothing was read, and nothing was said."""

    async def scenario() -> None:
        async with reading(1) as (cluster, reader):

            def offsets(request: object, version: int) -> ListOffsetsResponse:
                found = ListOffsetsPartitionResponse(partition_index=0, offset=-1)
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

            cluster.answer_with("ListOffsets", offsets, times=None)
            with pytest.raises(ProtocolError, match="t-0 ends at the offset -1"):
                await numbers(reader)

    run(scenario())


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets"])
def test_an_answer_without_the_partition_is_asked_for_again_until_the_time_is_over(api: str) -> None:
    async def scenario() -> None:
        async with reading(3, timeout=2.0) as (cluster, reader):
            empty = {"Fetch": FetchResponse(), "ListOffsets": ListOffsetsResponse()}[api]
            cluster.answer_with(api, lambda request, version: empty)
            assert await numbers(reader) == [0, 1, 2]
            cluster.answer_with(api, lambda request, version: empty, times=None)
            with pytest.raises(ConnectionLostError, match="left t-0 out"):
                await numbers(reader)

    run(scenario())


def test_a_small_batch_that_stands_for_millions_of_records_is_decoded_between_turns_of_the_loop() -> None:
    """6 KB of zstd were 9.6 million records, six seconds of the loop and 0.9 GiB."""
    count = 200_000
    plain = bytes(encode_records([b""] * count, None, None, [0] * count))
    section = compress("zstd", None, plain)
    header = batch_header(
        section, count=count, attributes=CODEC_BITS["zstd"], base_timestamp_ms=T0, max_timestamp_ms=T0,
        producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip

    async def scenario() -> None:
        async with reading(1) as (cluster, reader):
            cluster.answer_with(
                "Fetch", fetched(cluster, bytes(8) + bytes(header)[8:] + section, end=count), times=None
            )
            turns = 0
            is_over = False

            def turn() -> None:
                nonlocal turns
                turns += 1
                if not is_over:
                    asyncio.get_running_loop().call_soon(turn)

            turn()
            seen = 0
            before = 0
            async for _ in reader.read("t", 0, 0, count):
                before = before or turns
                seen += 1
            is_over = True
            assert seen == count
            assert turns - before >= 10  # it takes more than ten times TURN_S, on any machine

    run(scenario())


def test_the_loop_turns_between_batches_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of 8 MB holds 137,000 of them: a third of a second of the loop."""
    monkeypatch.setattr(aiokprod.reader, "TURN_S", -1.0)  # each look at the clock is a turn
    count = 20 * LOOK_EVERY
    header = batch_header(
        b"", count=1, attributes=0, base_timestamp_ms=T0, max_timestamp_ms=T0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1,
    )  # fmt: skip
    none = bytearray(header[8:])
    none[49:53] = bytes(4)  # one offset, no records: what compaction leaves
    crc = checksum((bytes(none[13:]),))
    none[9:13] = crc.to_bytes(4, "big")
    empty = b"".join(number.to_bytes(8, "big") + bytes(none) for number in range(count))

    async def scenario() -> None:
        async with reading(1) as (cluster, reader):
            cluster.answer_with("Fetch", fetched(cluster, empty, end=count))
            turns = 0

            def turn() -> None:
                nonlocal turns
                turns += 1
                again.append(asyncio.get_running_loop().call_soon(turn))

            again: list[asyncio.Handle] = []
            turn()
            assert [record async for record in reader.read("t", 0, 0, count)] == []
            again[-1].cancel()
            assert turns >= 20

    run(scenario())


def test_the_loop_turns_between_records_of_many_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-three of them in one block of snappy, 178 KB on the wire, were a second of the loop."""
    monkeypatch.setattr(aiokprod.reader, "TURN_S", -1.0)  # each look at the clock is a turn
    count = 20
    headers: list[bytes | None] = [encode_headers([("", None)] * (2 * LOOK_EVERY))] * count
    plain = bytes(encode_records([b"v"] * count, None, headers, [0] * count))
    header = batch_header(
        plain, count=count, attributes=0, base_timestamp_ms=T0, max_timestamp_ms=T0, producer_id=-1,
        producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip

    async def scenario() -> None:
        async with reading(1) as (cluster, reader):
            cluster.answer_with("Fetch", fetched(cluster, bytes(8) + bytes(header)[8:] + plain, end=count))
            turns = 0

            def turn() -> None:
                nonlocal turns
                turns += 1
                again.append(asyncio.get_running_loop().call_soon(turn))

            again: list[asyncio.Handle] = []
            turn()
            seen = [turns async for _ in reader.read("t", 0, 0, count)]
            again[-1].cancel()
            assert len(seen) == len(set(seen)) == count

    run(scenario())


def test_a_cluster_that_is_not_there_is_told_by_start() -> None:
    async def scenario() -> None:
        with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
            await Reader("127.0.0.1:1").start(timeout=1.0)

    run(scenario())


def test_a_producers_own_config_serves_a_reader() -> None:
    async def scenario() -> None:
        async with reading(3) as (cluster, _):
            config = Producer(cluster.bootstrap_servers, client_id="me").config
            async with Reader(config, client_id="reads") as reader:
                assert await numbers(reader) == [0, 1, 2]
            assert {seen.client_id for seen in cluster.requests("Fetch")} == {"reads"}

    run(scenario())


# ---------------------------------------------------------------------- bad arguments
@pytest.mark.parametrize("max_bytes", [0, -1, True, "x", 2**31])
def test_it_asks_for_a_number_of_bytes_above_0(max_bytes: Any) -> None:
    async def scenario() -> None:
        async with reading(1) as (_, reader):
            with pytest.raises(ConfigError, match=r"max_bytes is .*from 1 to 2147483647"):
                await anext(reader.read("t", 0, max_bytes=max_bytes))

    run(scenario())


@pytest.mark.parametrize(
    ("topic", "error"),
    [(5, RecordTypeError), (b"t", RecordTypeError), (["t"], RecordTypeError), (None, RecordTypeError),
     ("", InvalidTopicError), ("a b", InvalidTopicError), ("\ud800", InvalidTopicError), ("x" * 250, InvalidTopicError)],
)  # fmt: skip
def test_a_topic_that_cannot_be_is_told_at_once_and_the_reader_reads_on(topic: Any, error: type[AiokprodError]) -> None:
    """The task that asks for metadata ended with it, so every topic that was asked for after it was not found, either."""

    async def scenario() -> None:
        async with reading(1) as (_, reader):
            for call in (
                reader.partitions(topic),
                reader.earliest(topic, 0),
                reader.latest(topic, 0),
                reader.offset_at(topic, 0, T0),
                anext(reader.read(topic, 0)),
            ):
                async with asyncio.timeout(20):
                    with pytest.raises(error):
                        await call
            assert await numbers(reader) == [0]

    run(scenario())


@pytest.mark.parametrize("number", ["0", True, 1.0, [0], 2**63, -(2**63) - 1])
def test_numbers_that_are_none_are_told_by_name(number: Any) -> None:
    """They were errors of `struct` or of a comparison, or were taken."""

    async def scenario() -> None:
        async with reading(1) as (_, reader):
            calls = [
                ("partition", reader.earliest("t", number)),
                ("partition", reader.latest("t", number)),
                ("partition", reader.offset_at("t", number, T0)),
                ("partition", anext(reader.read("t", number))),
                ("timestamp_ms", reader.offset_at("t", 0, number)),
                ("start", anext(reader.read("t", 0, number))),
                ("stop", anext(reader.read("t", 0, None, number))),
            ]
            for name, call in calls:
                with pytest.raises(ConfigError, match=f"^{name} is .*whole number"):
                    await call
            for needed in (reader.earliest("t", cast("Any", None)), reader.offset_at("t", 0, cast("Any", None))):
                with pytest.raises(ConfigError, match=r"is None .*whole number"):
                    await needed
            assert await numbers(reader) == [0]

    run(scenario())


def test_read_committed_is_true_or_false() -> None:
    async def scenario() -> None:
        async with reading(1) as (_, reader):
            bad = cast("Any", "no")
            for call in (reader.latest("t", 0, read_committed=bad), anext(reader.read("t", 0, read_committed=bad))):
                with pytest.raises(ConfigError, match="read_committed is 'no'"):
                    await call

    run(scenario())


@pytest.mark.parametrize("timeout", ["5", None, True, -1, float("nan"), float("inf"), 10**400, 1e10])
def test_a_timeout_of_a_reader_is_a_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(ConfigError, match=r"timeout of Reader"):
        Reader("127.0.0.1:1", timeout=timeout)


@pytest.mark.parametrize("timeout", ["5", True, -1, float("nan"), 10**400])
def test_a_timeout_of_a_start_is_a_number_of_seconds(timeout: Any) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match=r"timeout of start\(\)"):
            await Reader("127.0.0.1:1").start(timeout)

    run(scenario())


@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_a_broker_that_hangs_up_each_time_is_told_so_and_not_as_slow(api: str) -> None:
    async def main() -> None:
        async with MockCluster(1) as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send("t", b"v")
            cluster.drop_answer(api, times=None)
            async with Reader(cluster.bootstrap_servers, timeout=2.0) as reader:
                with pytest.raises(ConnectionLostError, match="closed the connection"):
                    _ = [record async for record in reader.read("t", 0, stop=1)]

    run(main())
