"""Clients we did not write use transactions on the mock cluster: librdkafka and aiokafka.

They write, commit, abort, send offsets to transactions, are fenced, and read what is committed.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from aiokprod.reader import Reader
from aiokprod.testing import MockCluster

DEADLINE_S = 60.0
FAST: dict[str, Any] = {
    "retry.backoff.ms": 1, "retry.backoff.max.ms": 20, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20, "log_level": 0, "linger.ms": 1,
}  # fmt: skip

VERSIONS = [
    pytest.param({"kafka_version": "4.3"}, id="4.3"),
    pytest.param({"transaction_version": 1}, id="4.3-tv1", marks=pytest.mark.slow),
    pytest.param({"transaction_version": 0}, id="4.3-tv0", marks=pytest.mark.slow),
    pytest.param({"kafka_version": "3.9"}, id="3.9", marks=pytest.mark.slow),
    pytest.param({"kafka_version": "2.8"}, id="2.8", marks=pytest.mark.slow),
    pytest.param({"kafka_version": "2.1"}, id="2.1"),
]


class Librdkafka:
    """A transactional producer of librdkafka's, and what it was told."""

    def __init__(self, cluster: MockCluster, transactional_id: str = "tx", **options: Any) -> None:
        self.failed: list[int] = []
        config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, **FAST}
        self.client = Producer({**config, **{name.replace("_", "."): value for name, value in options.items()}})
        self.client.init_transactions(DEADLINE_S)

    def write(self, *values: bytes, topic: str = "t", partition: int = 0) -> None:
        for value in values:
            self.client.produce(topic, value, partition=partition, on_delivery=self._told)
        self.client.flush(DEADLINE_S)

    def _told(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self.failed.append(error.code())

    def transaction(self, *values: bytes, commits: bool = True, **where: Any) -> None:
        self.client.begin_transaction()
        self.write(*values, **where)
        end: Callable[[float], None] = self.client.commit_transaction if commits else self.client.abort_transaction
        end(DEADLINE_S)


def reader(cluster: MockCluster, isolation: str = "read_committed", **options: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False,
            "isolation.level": isolation, "enable.partition.eof": True, "fetch.wait.max.ms": 20, **FAST, **options,
        }
    )  # fmt: skip


def read(
    cluster: MockCluster, isolation: str = "read_committed", partitions: int = 1, at_least: int = 0
) -> list[bytes]:
    """Read to the end of every partition, and on until there are so many values."""
    consumer = reader(cluster, isolation)
    try:
        consumer.assign([TopicPartition("t", index, 0) for index in range(partitions)])
        values, ends, until = list[bytes](), 0, time.monotonic() + DEADLINE_S
        while (ends < partitions or len(values) < at_least) and time.monotonic() < until:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
        return values
    finally:
        consumer.close()


def error_of(failure: pytest.ExceptionInfo[KafkaException]) -> KafkaError:
    error: KafkaError = failure.value.args[0]
    return error


# ---------------------------------------------------------------------- librdkafka


@pytest.mark.parametrize("options", VERSIONS)
def test_librdkafka_commits_and_aborts_and_readers_see_what_was_committed(options: dict[str, Any]) -> None:
    with MockCluster(3, validate_records=True, **options) as cluster:
        cluster.create_topic("t", partitions=2)
        producer = Librdkafka(cluster)
        producer.transaction(b"one", b"two")
        producer.transaction(b"gone", b"gone too", commits=False)
        producer.transaction(b"three", partition=1)
        producer.transaction(b"four")
        assert producer.failed == [] and cluster.counters.crashes == []
        assert sorted(read(cluster, partitions=2)) == [b"four", b"one", b"three", b"two"]
        assert len(read(cluster, "read_uncommitted", partitions=2)) == 6
        assert [record.value for record in cluster.records("t", 0, committed=True)] == [b"one", b"two", b"four"]
        assert cluster.transaction("tx").state.value == "CompleteCommit"


def test_an_aborted_transaction_of_several_fetches_is_hidden_from_our_reader() -> None:
    async def values(cluster: MockCluster) -> list[bytes | None]:
        async with Reader(cluster.bootstrap_servers) as ours:
            # One batch at a time.
            return [record.value async for record in ours.read("t", 0, read_committed=True, max_bytes=1)]

    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        producer, other = Librdkafka(cluster), Librdkafka(cluster, "other")
        producer.client.begin_transaction()
        producer.write(b"gone")
        other.transaction(b"one")
        producer.write(b"gone too")
        producer.client.abort_transaction(DEADLINE_S)
        producer.transaction(b"two")
        assert asyncio.run(values(cluster)) == [b"one", b"two"]
        assert cluster.requests_seen("Fetch") >= 5


def test_readers_of_committed_records_stop_before_an_open_transaction() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        producer, other = Librdkafka(cluster), Librdkafka(cluster, "other")
        producer.transaction(b"before")
        producer.client.begin_transaction()
        producer.write(b"open")
        other.transaction(b"behind")
        assert read(cluster) == [b"before"]
        assert read(cluster, "read_uncommitted") == [b"before", b"open", b"behind"]
        producer.client.commit_transaction(DEADLINE_S)
        assert read(cluster) == [b"before", b"open", b"behind"]


@pytest.mark.parametrize("options", VERSIONS)
def test_librdkafka_sends_offsets_to_a_transaction(options: dict[str, Any]) -> None:
    with MockCluster(3, **options) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(cluster)
        consumer = reader(cluster)
        try:
            consumer.assign([TopicPartition("t", 0)])
            group = consumer.consumer_group_metadata()
            for offset, commits in ((5, True), (9, False)):
                producer.client.begin_transaction()
                producer.write(b"v")
                offsets = [TopicPartition("t", 0, offset)]
                producer.client.send_offsets_to_transaction(offsets, group, DEADLINE_S)
                assert cluster.committed_offsets("g").get(("t", 0)) != offset
                end = producer.client.commit_transaction if commits else producer.client.abort_transaction
                end(DEADLINE_S)
                assert cluster.committed_offsets("g")["t", 0].offset == 5
            (found,) = consumer.committed([TopicPartition("t", 0)], DEADLINE_S)
            assert found.offset == 5
            consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
            (found,) = consumer.committed([TopicPartition("t", 0)], DEADLINE_S)
            assert found.offset == 7
        finally:
            consumer.close()
        assert cluster.counters.crashes == []


@pytest.mark.parametrize("options", VERSIONS)
def test_a_second_producer_fences_the_first(options: dict[str, Any]) -> None:
    with MockCluster(3, **options) as cluster:
        cluster.create_topic("t")
        first = Librdkafka(cluster)
        first.transaction(b"one")
        first.client.begin_transaction()
        first.write(b"lost")
        second = Librdkafka(cluster)
        with pytest.raises(KafkaException) as failure:
            first.client.commit_transaction(DEADLINE_S)
        assert error_of(failure).fatal() and error_of(failure).code() == KafkaError._FENCED
        second.transaction(b"two")
        assert read(cluster) == [b"one", b"two"]


@pytest.mark.parametrize("options", VERSIONS)
def test_a_transaction_that_outlives_its_timeout_is_aborted(options: dict[str, Any]) -> None:
    now_ms = time.time_ns() // 1_000_000
    with MockCluster(1, now_ms=lambda: now_ms, **options) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(cluster, transaction_timeout_ms=1000)
        producer.client.begin_transaction()
        producer.write(b"late")
        now_ms += 1001
        assert cluster.abort_timed_out_transactions() == ["tx"]
        with pytest.raises(KafkaException) as failure:
            producer.client.commit_transaction(DEADLINE_S)
        assert error_of(failure).fatal()  # it speaks the first version, where this cannot be told from a fence
        assert read(cluster) == []


def test_librdkafka_commits_through_a_coordinator_that_moves_loads_and_completes() -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(cluster)
        producer.client.begin_transaction()
        producer.write(b"one")
        before = cluster.coordinator("tx")
        cluster.move_coordinator("tx", before % 3 + 1)
        cluster.fail_next("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
        cluster.drop_answer("EndTxn", nth=3)
        producer.client.commit_transaction(DEADLINE_S)
        assert cluster.requests_seen("EndTxn", before) + cluster.requests_seen("EndTxn", before % 3 + 1) >= 3
        cluster.fail_next("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS", times=3)
        producer.transaction(b"two")
        cluster.kill_broker(cluster.coordinator("tx"))
        producer.transaction(b"three")
        assert producer.failed == [] and read(cluster) == [b"one", b"two", b"three"]


def test_librdkafka_waits_while_markers_are_written() -> None:
    with MockCluster(1, transaction_completion_ms=30) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(cluster)
        for number in range(4):
            producer.transaction(b"%d" % number, commits=number != 2)
        assert cluster.requests_seen("AddPartitionsToTxn") > 4  # it was told 51 and asked again
        assert read(cluster, at_least=3) == [b"0", b"1", b"3"]  # the last marker may be on its way yet


# ---------------------------------------------------------------------- aiokafka


def run_quietly(scenario: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its own, not ours
        asyncio.run(scenario())


async def aiokafka_read(cluster: MockCluster, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        consumer.assign([AioTopicPartition("t", 0)])
        values: list[bytes] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(values) < count:
                for messages in (await consumer.getmany(timeout_ms=50)).values():
                    values += [message.value or b"" for message in messages]
        return values
    finally:
        await consumer.stop()


@pytest.mark.parametrize("options", VERSIONS)
def test_aiokafka_commits_aborts_and_sends_offsets(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with MockCluster(3, **options) as cluster:
            cluster.create_topic("t")
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, transactional_id="tx", retry_backoff_ms=5
            )
            await producer.start()
            try:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"one")
                    await producer.send_offsets_to_transaction({AioTopicPartition("t", 0): 5}, "g")
                await producer.begin_transaction()
                await producer.send_and_wait("t", b"gone")
                await producer.send_offsets_to_transaction({AioTopicPartition("t", 0): 9}, "g")
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send_and_wait("t", b"two")
            finally:
                await producer.stop()
            assert cluster.committed_offsets("g")["t", 0].offset == 5
            assert await aiokafka_read(cluster, 2) == [b"one", b"two"]
            assert cluster.counters.crashes == []

    run_quietly(scenario)


def test_aiokafka_is_fenced() -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster:
            cluster.create_topic("t")
            servers = cluster.bootstrap_servers
            producers = [
                AIOKafkaProducer(bootstrap_servers=servers, transactional_id="tx", retry_backoff_ms=5) for _ in range(2)
            ]
            first, second = producers
            await first.start()
            try:
                await first.begin_transaction()
                await first.send_and_wait("t", b"lost")
                await second.start()
                with pytest.raises(ProducerFenced):
                    await first.send_and_wait("t", b"late")
                async with second.transaction():
                    await second.send_and_wait("t", b"two")
            finally:
                for producer in producers:
                    await producer.stop()
            assert await aiokafka_read(cluster, 1) == [b"two"]

    run_quietly(scenario)
