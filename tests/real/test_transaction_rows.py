"""Rows of the fault catalogue about transactions that only real brokers show: timeouts, late requests, size, coordinators.

`nox -s rows` runs them on `transaction.version` 0, on Kafka 3.9 and on 2.8, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from sending import FULL

from aiokprod import Producer, Reader, TransactionOutcome
from aiokprod.errors import AiokprodError, ProducerFencedError, TransactionOutcomeUnknownError
from aiokprod.testing import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

WAIT_S = 60.0
MANY = 1_000
PIECE_BYTES, PIECES = 100_000, 1_000  # 100 MB
CLUSTERS: list[tuple[str, int | None]] = [("4.3.1", 2), ("4.3.1", 1)]
if FULL:
    CLUSTERS += [("4.3.1", 0), ("3.9.1", None), ("2.8.2", None)]
OPTIONS = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 60_000, "linger_ms": 5}


@pytest.fixture(scope="module", params=CLUSTERS, ids=lambda each: each[0] if each[1] is None else f"TV{each[1]}")
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    version, feature = request.param
    with KafkaCluster(
        brokers=3,
        version=version,
        proxied=True,
        features=None if feature is None else {"transaction.version": feature},
        config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"},
    ) as started:
        yield started


@pytest.fixture
def topic(cluster: KafkaCluster, kafka_name: str) -> Iterator[str]:
    cluster.create_topic(kafka_name)
    yield kafka_name
    cluster.proxy.clear_faults()


def producer_of(cluster: KafkaCluster, transactional_id: str, **options: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id=transactional_id, **(OPTIONS | options))


async def committed(cluster: KafkaCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    async with Reader(cluster.bootstrap_servers) as reader:
        return [record.value async for record in reader.read(topic, partition, read_committed=True)]


async def until(look: Callable[[], Awaitable[Any]], expected: object) -> None:
    """Wait until that is seen: markers are written a little after the commit is answered (broker: 12.3)."""
    deadline = time.monotonic() + WAIT_S
    while (seen := await look()) != expected and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert seen == expected


async def until_known(producer: Producer, *, commits: bool) -> TransactionOutcome:
    """End the transaction, and ask until the end is known."""
    while True:
        try:
            if commits:
                await producer.commit_transaction(timeout=5.0)
                return TransactionOutcome.COMMITTED
            return await producer.abort_transaction(timeout=5.0)
        except TransactionOutcomeUnknownError:
            continue


def test_the_coordinator_aborts_by_timeout_and_the_producer_goes_on(cluster: KafkaCluster, topic: str) -> None:
    """faults: X10"""

    async def scenario() -> None:
        producer = producer_of(cluster, topic, transaction_timeout_ms=2_000)
        await producer.start()
        producer.begin_transaction()
        await producer.send(topic, b"late", partition=0)
        deadline = time.monotonic() + WAIT_S
        while cluster.end_offsets(topic) == [1] and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        assert cluster.end_offsets(topic) == [2], "the coordinator's abort marker"
        with pytest.raises(AiokprodError) as caught:
            await producer.commit_transaction()
        if isinstance(caught.value, ProducerFencedError):  # below version 2 it cannot be told from a fence
            await producer.close()
            await producer.start()
        else:
            await producer.abort_transaction()
        async with producer.transaction():
            producer.send(topic, b"next", partition=0)
        await producer.close()
        await until(lambda: committed(cluster, topic), [b"next"])

    asyncio.run(scenario())


def test_a_late_commit_does_not_commit_the_next_transaction(cluster: KafkaCluster, topic: str) -> None:
    """faults: X8"""

    async def scenario() -> None:
        async with producer_of(cluster, topic) as producer:
            producer.begin_transaction()
            await producer.send(topic, b"first", partition=0)
            held = cluster.proxy.hold("EndTxn", before_serving=True, times=1)
            assert await until_known(producer, commits=True) is TransactionOutcome.COMMITTED
            assert held.hits == 1
            producer.begin_transaction()
            await producer.send(topic, b"second", partition=0)
            cluster.proxy.release(held)
            await asyncio.sleep(2.0)  # the broker may carry it out now
            assert await until_known(producer, commits=False) is TransactionOutcome.ABORTED
            async with producer.transaction():
                producer.send(topic, b"third", partition=0)
        await until(lambda: committed(cluster, topic), [b"first", b"third"])

    asyncio.run(scenario())


def test_a_late_record_of_an_aborted_transaction_is_in_no_other(cluster: KafkaCluster, topic: str) -> None:
    """faults: X9"""

    async def scenario() -> None:
        async with producer_of(cluster, topic) as producer:
            async with producer.transaction():
                await producer.send(topic, b"zero", partition=0)
            held = cluster.proxy.hold("Produce", before_serving=True, times=1)
            producer.begin_transaction()
            late = producer.send(topic, b"late", partition=0)
            while not held.hits:
                await asyncio.sleep(0.02)
            assert await until_known(producer, commits=False) is TransactionOutcome.ABORTED
            assert late.exception() is not None
            producer.begin_transaction()
            await producer.send(topic, b"first", partition=0)
            cluster.proxy.release(held)
            await asyncio.sleep(2.0)
            await producer.send(topic, b"second", partition=0)
            assert await until_known(producer, commits=True) is TransactionOutcome.COMMITTED
        await until(lambda: committed(cluster, topic), [b"zero", b"first", b"second"])

    asyncio.run(scenario())


def test_offsets_are_taken_while_the_coordinator_of_their_group_is_killed(cluster: KafkaCluster, topic: str) -> None:
    """faults: X17"""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    async def scenario() -> None:
        async with producer_of(cluster, topic) as producer:
            async with producer.transaction() as transaction:
                await transaction.send_offsets({(topic, 0): 1}, topic)
            group = admin.describe_consumer_groups([topic])[topic].result()
            broker = cluster.broker(group.coordinator.id)
            async with producer.transaction() as transaction:
                await producer.send(topic, b"value", partition=0)
                await asyncio.to_thread(broker.kill)
                await transaction.send_offsets({(topic, 0): 2}, topic)
            assert transaction.outcome is TransactionOutcome.COMMITTED
        await asyncio.to_thread(broker.start)

    asyncio.run(scenario())
    cluster.wait_all_in_sync(topic)
    asyncio.run(until(lambda: committed(cluster, topic), [b"value"]))
    assert committed_offset(cluster, topic) == 2


def committed_offset(cluster: KafkaCluster, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
        return int(found.offset)
    finally:
        consumer.close()


def test_a_transaction_of_a_thousand_partitions_is_all_or_nothing(cluster: KafkaCluster, kafka_name: str) -> None:
    """faults: X23"""
    cluster.create_topic(kafka_name, partitions=MANY, replication_factor=1)

    async def scenario() -> None:
        async with producer_of(cluster, kafka_name, request_timeout_ms=30_000) as producer:
            for word, commits in ((b"aborted", False), (b"committed", True)):
                producer.begin_transaction()
                for partition in range(MANY):
                    producer.send(kafka_name, word, partition=partition)
                await producer.flush()
                end = await until_known(producer, commits=commits)
                assert (end is TransactionOutcome.COMMITTED) is commits
        async with Reader(cluster.bootstrap_servers) as reader:
            for partition in range(MANY):

                async def values(partition: int = partition) -> list[bytes | None]:
                    read = reader.read(kafka_name, partition, read_committed=True)
                    return [record.value async for record in read]

                await until(values, [b"committed"])

    asyncio.run(scenario())


def test_a_transaction_of_a_hundred_megabytes_is_all_or_nothing(cluster: KafkaCluster, topic: str) -> None:
    """faults: X23"""

    async def scenario() -> None:
        async with producer_of(cluster, topic, request_timeout_ms=30_000) as producer:
            for word, commits in ((b"a", False), (b"c", True)):
                producer.begin_transaction()
                report = await producer.send_many(topic, [word * PIECE_BYTES] * PIECES)
                assert report.delivered == PIECES
                await until_known(producer, commits=commits)

        async def counts() -> Counter[bytes]:
            return Counter((value or b"")[:1] for value in await committed(cluster, topic))

        await until(counts, Counter({b"c": PIECES}))

    asyncio.run(scenario())
