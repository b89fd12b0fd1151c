"""Transactions on a real three-broker Apache Kafka: readers of committed records see all of one, or nothing."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokprod import Producer, Reader, TransactionOutcome
from aiokprod.consuming.exactly_once import transactor_of
from aiokprod.errors import (
    OffsetCommitRefusedError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
)
from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real

PARTITIONS = 3
PER_PARTITION = 5
CLUSTERS = [
    pytest.param(("4.3.1", 2), id="4.3-TV2"),
    pytest.param(("4.3.1", 1), id="4.3-TV1", marks=pytest.mark.slow),
    pytest.param(("4.3.1", 0), id="4.3-TV0", marks=pytest.mark.slow),
    pytest.param(("3.9.1", None), id="3.9", marks=pytest.mark.slow),
    pytest.param(("2.8.2", None), id="2.8", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    version, feature = request.param
    features = None if feature is None else {"transaction.version": feature}
    with KafkaCluster(brokers=3, version=version, features=features) as started:
        yield started


@pytest.fixture
def topic(cluster: KafkaCluster, kafka_name: str) -> str:
    cluster.create_topic(kafka_name, partitions=PARTITIONS)
    return kafka_name


def producer_of(cluster: KafkaCluster, transactional_id: str, **options: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id=transactional_id, **options)


async def seen(cluster: KafkaCluster, topic: str, *, committed: bool = True) -> list[list[bytes | None]]:
    """Return what readers see of each partition."""
    logs: list[list[bytes | None]] = []
    async with Reader(cluster.bootstrap_servers) as reader:
        for partition in range(PARTITIONS):
            values = [record.value async for record in reader.read(topic, partition, read_committed=committed)]
            logs.append(values)
    return logs


async def eventually(look: Callable[[], Any], expected: object) -> None:
    """Wait until readers see this: markers are written a little after the commit is answered (broker: 12.3)."""
    for _ in range(100):
        if await look() == expected:
            return
        await asyncio.sleep(0.1)
    assert await look() == expected


def send_all(producer: Producer, topic: str, number: int) -> None:
    for partition in range(PARTITIONS):
        for index in range(PER_PARTITION):
            producer.send(topic, b"%d:%d" % (number, index), partition=partition)


def of_transactions(numbers: list[int]) -> list[list[bytes]]:
    return [[b"%d:%d" % (number, index) for number in numbers for index in range(PER_PARTITION)]] * PARTITIONS


def test_readers_see_what_was_committed_and_nothing_else(cluster: KafkaCluster, topic: str) -> None:
    async def scenario() -> None:
        committed = []
        async with producer_of(cluster, topic) as producer:
            for number in range(30):
                if number % 3 == 2:
                    with pytest.raises(KeyError):
                        async with producer.transaction() as transaction:
                            send_all(producer, topic, number)
                            if number % 2:
                                await producer.flush()
                            raise KeyError
                    assert transaction.outcome is TransactionOutcome.ABORTED
                else:
                    async with producer.transaction() as transaction:
                        send_all(producer, topic, number)
                    assert transaction.outcome is TransactionOutcome.COMMITTED
                    committed.append(number)
        await eventually(lambda: seen(cluster, topic), of_transactions(committed))

    asyncio.run(scenario())


def test_nothing_is_seen_before_the_commit(cluster: KafkaCluster, topic: str) -> None:
    async def scenario() -> None:
        async with producer_of(cluster, topic) as producer:
            async with producer.transaction():
                send_all(producer, topic, 1)
                await producer.flush()
                assert await seen(cluster, topic) == [[]] * PARTITIONS
                assert await seen(cluster, topic, committed=False) == of_transactions([1])
            await eventually(lambda: seen(cluster, topic), of_transactions([1]))

    asyncio.run(scenario())


def test_offsets_of_missing_and_deleted_partitions_are_refused_and_those_of_new_ones_taken(
    cluster: KafkaCluster, topic: str
) -> None:
    async def scenario() -> None:
        new = f"{topic}-new"
        async with producer_of(cluster, topic, max_block_ms=60_000) as producer:

            async def refused(offsets: dict[tuple[str, int], int], where: tuple[str, int]) -> None:
                with pytest.raises(
                    OffsetCommitRefusedError, match=r"the cluster has no partition \d of topic"
                ) as caught:
                    async with asyncio.timeout(40), producer.transaction() as transaction:
                        producer.send(topic, b"never", partition=0)
                        await transaction.send_offsets(offsets, topic)
                assert ((caught.value.topic, caught.value.partition), caught.value.code) == (where, 3)
                assert transaction.outcome is TransactionOutcome.ABORTED

            await refused({(topic, 0): 5, (topic, PARTITIONS): 5}, (topic, PARTITIONS))
            cluster.create_topic(new)
            async with producer.transaction() as transaction:
                await transaction.send_offsets({(topic, 1): 1, (new, 0): 1}, topic)
            cluster.delete_topic(new)
            await refused({(topic, 1): 9, (new, 0): 9}, (new, 0))
            places = [(topic, number) for number in range(PARTITIONS)]
            taken = await transactor_of(producer).committed_offsets(topic, places, lambda why: None)
            assert taken == {(topic, 1): 1}, "nothing of what was refused"
        await eventually(lambda: seen(cluster, topic), [[]] * PARTITIONS)

    asyncio.run(scenario())


def test_a_zombie_is_fenced_and_its_records_are_never_seen(cluster: KafkaCluster, topic: str) -> None:
    """faults: X1, X3, X22"""

    async def scenario() -> None:
        zombie = producer_of(cluster, topic, client_id="zombie")
        await zombie.start()
        zombie.begin_transaction()
        send_all(zombie, topic, 666)
        await zombie.flush()
        async with producer_of(cluster, topic, client_id="owner") as owner:
            async with owner.transaction():
                send_all(owner, topic, 1)
            send_late = zombie.send(topic, b"late", partition=0)
            with pytest.raises(ProducerFencedError):
                try:
                    await zombie.commit_transaction()
                except ProducerFencedError:
                    raise
                except Exception:  # version 2: that it is a fence is known after the abort
                    await zombie.abort_transaction()
            assert send_late.exception() is not None
            async with owner.transaction():
                send_all(owner, topic, 2)
        await zombie.close(1)
        await eventually(lambda: seen(cluster, topic), of_transactions([1, 2]))

    asyncio.run(scenario())


@pytest.mark.slow
def test_all_or_nothing_while_each_broker_is_killed(cluster: KafkaCluster, topic: str) -> None:
    """faults: X4, X5, X12"""
    outcomes: dict[int, TransactionOutcome | None] = {}

    def committed() -> list[int]:
        return [number for number, outcome in list(outcomes.items()) if outcome is TransactionOutcome.COMMITTED]

    async def scenario() -> None:
        number = 0
        async with producer_of(cluster, topic, request_timeout_ms=10_000) as producer:
            while not done.is_set() or number % 10:
                number += 1
                transaction = producer.transaction()
                try:
                    async with transaction:
                        send_all(producer, topic, number)
                        if number % 4 == 0:
                            await producer.flush()
                            raise KeyError
                except (KeyError, TransactionAbortedError):
                    pass
                except TransactionOutcomeUnknownError:
                    await producer.commit_transaction()
                outcomes[number] = transaction.outcome

    def kill_each() -> None:
        try:
            for node in sorted(cluster.brokers):
                work()
                cluster.broker(node).kill()
                pause.wait(4.0)
                cluster.broker(node).start()
                cluster.wait_all_in_sync(topic)
            work()
        finally:
            done.set()

    def work() -> None:
        """Wait for ten transactions, so that each kill meets a producer at work, however long a coordinator was away."""
        before = len(committed())
        while len(committed()) < before + 10 and not over.wait(0.1):
            pass

    over, done, pause = threading.Event(), threading.Event(), threading.Event()
    killer = threading.Thread(target=kill_each, name="killer")
    killer.start()
    try:
        asyncio.run(scenario())
    finally:
        over.set()
        killer.join()
    cluster.wait_all_in_sync(topic)
    assert len(committed()) >= 40
    assert set(outcomes.values()) <= {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED}
    asyncio.run(eventually(lambda: seen(cluster, topic), of_transactions(committed())))


def test_many_records_and_another_reader(cluster: KafkaCluster, topic: str) -> None:
    """librdkafka reads what is committed, each record once and in order."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    count = 20_000

    async def scenario() -> None:
        async with producer_of(cluster, topic, linger_ms=5) as producer:
            for first in range(0, count, 2000):
                async with producer.transaction():
                    await producer.send_many(topic, [b"%d" % number for number in range(first, first + 2000)])
                with pytest.raises(KeyError):
                    async with producer.transaction():
                        await producer.send_many(topic, [b"aborted"] * 500)
                        raise KeyError

    asyncio.run(scenario())
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    read: dict[int, list[int]] = defaultdict(list)
    while sum(len(values) for values in read.values()) < count:
        messages = consumer.consume(5000, timeout=20)
        assert messages, f"only {sum(len(values) for values in read.values())} records are read"
        for message in messages:
            read[message.partition()].append(int(message.value()))
    assert not consumer.consume(1, timeout=2)
    consumer.close()
    assert sorted(number for values in read.values() for number in values) == list(range(count))
    assert all(values == sorted(values) for values in read.values())
