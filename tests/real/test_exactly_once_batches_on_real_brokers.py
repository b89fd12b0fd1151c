"""exactly_once with the real consumers on a real Kafka: tasks are killed, partitions move, the output is the input's image.

Two instances share a group, each with a producer and a `transactional_id` of its own. One of them is cancelled every now and
then and started again, in the middle of what it does: so both rebalance. At the end each value of the input is in the output
once, for readers of committed records, and the group has committed the end of the input.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokprod import Producer, Reader, exactly_once
from aiokprod.testing import KafkaCluster

pytestmark = [
    pytest.mark.real,
    # A consumer of aiokafka that is cancelled while it starts leaves its connections to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

PARTITIONS = 4
COUNT = 2000
KILLS = 3
CLUSTERS = [
    pytest.param(("4.3.1", 2), id="4.3-TV2"),
    pytest.param(("4.3.1", 1), id="4.3-TV1", marks=pytest.mark.slow),
    pytest.param(("3.9.1", None), id="3.9", marks=pytest.mark.slow),
    pytest.param(("2.8.2", None), id="2.8", marks=pytest.mark.slow),
]

Consumers = Callable[[str, str], Any]


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    version, feature = request.param
    features = None if feature is None else {"transaction.version": feature}
    with KafkaCluster(brokers=1, version=version, features=features) as started:
        yield started


@asynccontextmanager
async def aiokafka_consumer(servers: str, topic: str) -> AsyncIterator[Any]:
    aiokafka = pytest.importorskip("aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=topic, enable_auto_commit=False, isolation_level="read_committed",
        auto_offset_reset="earliest", session_timeout_ms=6000, heartbeat_interval_ms=300, metadata_max_age_ms=5000,
    )  # fmt: skip
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


def confluent_options(servers: str, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False, "enable.auto.offset.store": False,
        "isolation.level": "read_committed", "auto.offset.reset": "earliest",
    } | (more or {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300})  # fmt: skip


@asynccontextmanager
async def confluent_consumer(servers: str, topic: str, **more: Any) -> AsyncIterator[Any]:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(confluent_options(servers, topic, **more))
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        await asyncio.to_thread(consumer.close)


@asynccontextmanager
async def cooperative_consumer(servers: str, topic: str) -> AsyncIterator[Any]:
    async with confluent_consumer(
        servers, topic,
        **{"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6000, "heartbeat.interval.ms": 300},
    ) as consumer:  # fmt: skip
        yield consumer


@asynccontextmanager
async def next_generation_consumer(servers: str, topic: str) -> AsyncIterator[Any]:
    async with confluent_consumer(servers, topic, **{"group.protocol": "consumer"}) as consumer:
        yield consumer


@asynccontextmanager
async def aio_consumer(servers: str, topic: str) -> AsyncIterator[Any]:
    aio = pytest.importorskip("confluent_kafka.aio")
    consumer = aio.AIOConsumer(confluent_options(servers, topic))
    await consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        await consumer.close()


CONSUMERS: dict[str, Any] = {
    "aiokafka": aiokafka_consumer,
    "confluent": confluent_consumer,
    "confluent cooperative": cooperative_consumer,
    "confluent KIP-848": next_generation_consumer,
    "confluent aio": aio_consumer,
}


def value_of(record: Any) -> bytes:
    return record.value() if callable(record.value) else record.value


async def values_of(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    """Return what readers of committed records see."""
    async with Reader(cluster.bootstrap_servers) as reader:
        return [
            record.value
            for partition in range(PARTITIONS)
            async for record in reader.read(topic, partition, read_committed=True)
        ]


async def instance(cluster: KafkaCluster, consumers: Any, topic: str, name: str, done: asyncio.Event) -> None:
    """Run one instance, as a process would."""
    servers = cluster.bootstrap_servers
    async with (
        Producer(servers, transactional_id=f"{topic}-{name}", linger_ms=5) as producer,
        consumers(servers, topic) as consumer,
        exactly_once(consumer, producer, max_records=100, timeout=0.5) as batches,
    ):
        async for records in batches:
            for record in records:
                producer.send(f"{topic}-out", value_of(record))
            if random.random() < 0.3:
                await asyncio.sleep(0.05)
            if done.is_set():
                batches.stop()


SLOW = ("confluent cooperative", "confluent aio")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in CONSUMERS])
def test_the_output_is_the_image_of_the_input(cluster: KafkaCluster, kafka_name: str, kind: str) -> None:
    if kind == "confluent KIP-848" and not cluster.version.startswith("4"):
        pytest.skip("KIP-848 needs Kafka 4")
    topic, consumers = kafka_name, CONSUMERS[kind]
    for name in (topic, f"{topic}-out"):
        cluster.create_topic(name, partitions=PARTITIONS)
    given = [b"%d" % number for number in range(COUNT)]

    async def scenario() -> Counter[bytes | None]:
        done = asyncio.Event()

        def start(name: str) -> asyncio.Task[None]:
            return asyncio.create_task(instance(cluster, consumers, topic, name, done), name=name)

        tasks = {name: start(name) for name in ("a", "b")}
        each = COUNT // (KILLS + 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(KILLS):
                await producer.send_many(topic, given[number * each :][:each])
                await asyncio.sleep(random.uniform(0.5, 2.5))
                name = "ab"[number % 2]
                for task in tasks.values():
                    assert not task.done(), task
                tasks[name].cancel()
                await asyncio.gather(tasks[name], return_exceptions=True)
                tasks[name] = start(name)
            await producer.send_many(topic, given[KILLS * each :])

        for _ in range(200):
            for task in tasks.values():
                assert not task.done(), task.exception()
            if len(await values_of(cluster, f"{topic}-out")) >= COUNT:
                break
            await asyncio.sleep(0.3)
        for task in tasks.values():
            task.cancel()
        ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
        return Counter(await values_of(cluster, f"{topic}-out"))

    copied = asyncio.run(scenario())
    doubled = {value: count for value, count in copied.items() if count > 1}
    lost = set(given) - set(copied)
    assert (len(lost), len(doubled)) == (0, 0)
    assert sum(copied.values()) == COUNT
