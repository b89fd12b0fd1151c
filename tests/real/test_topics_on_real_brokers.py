"""Topics that change under the producer, and every shape of record in every codec read back by two other clients."""

from __future__ import annotations

import asyncio
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition
from delivery_check import DELIVERED, Told, judge, read_log
from sending import send_numbered

from aiokprod import Delivery, Producer
from aiokprod.model import TimestampType
from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real

PATIENCE_S = 120.0
Content = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]  # key, value, headers, timestamp


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, version=kafka_version) as started:
        yield started


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- topics that change
@pytest.mark.parametrize(
    "partitions",
    [
        pytest.param(3, id="with as many", marks=pytest.mark.slow),
        pytest.param(1, id="with fewer"),
        pytest.param(5, id="with more"),
    ],
)
def test_a_topic_that_is_deleted_and_made_again_while_producing_has_no_ghosts(
    cluster: KafkaCluster, kafka_name: str, partitions: int
) -> None:  # faults: T5, T6
    cluster.create_topic(kafka_name, partitions=3)
    told: list[Told] = []

    def delivered() -> set[int]:
        return {record.number for record in told if record.outcome == DELIVERED}

    async def scenario() -> tuple[set[int], set[int]]:
        options = {"delivery_timeout_ms": 10_000, "request_timeout_ms": 5_000}
        async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]

            async def keep_sending() -> None:
                while True:
                    for _ in range(5):
                        record = Told(len(told) % 3, len(told))
                        told.append(record)
                        send_numbered(producer, kafka_name, record)
                    await asyncio.sleep(0.01)
                    await producer.ready()

            sender = asyncio.create_task(keep_sending())
            await until(lambda: len(delivered()) > 100)
            await asyncio.to_thread(cluster.delete_topic, kafka_name)
            to_the_old_one = delivered()
            await asyncio.to_thread(cluster.create_topic, kafka_name, partitions)
            to_either = delivered()
            sent = len(told)
            await until(lambda: len([number for number in delivered() if number >= sent]) > 100)
            sender.cancel()
            await producer.flush()
            await asyncio.sleep(0)
            return to_the_old_one, to_either

    to_the_old_one, to_either = asyncio.run(scenario())
    print(Counter(record.outcome for record in told))
    cluster.wait_all_in_sync(kafka_name)
    logs = read_log(cluster.bootstrap_servers, kafka_name, cluster.end_offsets(kafka_name))
    assert not to_the_old_one & {number for log in logs.values() for _, number in log}
    findings = judge([record for record in told if record.number not in to_either], logs)
    assert not findings, findings


def test_partitions_that_are_added_while_producing_are_used(cluster: KafkaCluster, kafka_name: str) -> None:
    # faults: T7
    cluster.create_topic(kafka_name, partitions=3)
    deliveries: list[Delivery] = []

    async def scenario() -> None:
        options: dict[str, Any] = {"metadata_max_age_ms": 300, "partitioner": "round_robin", "linger_ms": 1}
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            used: set[int] = set()

            async def keep_sending() -> None:
                while True:
                    some = [producer.send(kafka_name, b"%d" % (len(deliveries) + index)) for index in range(12)]
                    deliveries.extend(some)
                    used.update(metadata.partition for metadata in await asyncio.gather(*some))

            sender = asyncio.create_task(keep_sending())
            await until(lambda: used == {0, 1, 2})
            await asyncio.to_thread(cluster.add_partitions, kafka_name, 6)
            await until(lambda: used == {0, 1, 2, 3, 4, 5} or sender.done())
            sender.cancel()
            await asyncio.wait([sender])
            assert sender.cancelled(), sender.exception()
            await producer.flush()

    asyncio.run(scenario())
    logs = read_log(cluster.bootstrap_servers, kafka_name, cluster.end_offsets(kafka_name))
    places = {number: (partition, offset) for partition, log in logs.items() for offset, number in log}
    assert sum(len(log) for log in logs.values()) == len(places) == len(deliveries)
    for number, delivery in enumerate(deliveries):
        if not delivery.cancelled():  # by the gather that was cancelled with the sender
            assert places[number] == (delivery.result().partition, delivery.result().offset)
    for log in logs.values():
        assert [number for _, number in log] == sorted(number for _, number in log)


def test_a_partition_is_known_as_soon_as_it_is_asked_for(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=1)

    async def scenario() -> None:
        async with Producer(cluster.bootstrap_servers, metadata_max_age_ms=600_000) as producer:
            await producer.send(kafka_name, b"0")
            await asyncio.to_thread(cluster.add_partitions, kafka_name, 4)
            assert (await producer.send(kafka_name, b"1", partition=3)).offset == 0
            assert await producer.partitions_for(kafka_name) == [0, 1, 2, 3]

    asyncio.run(scenario())


# ---------------------------------------------------------------------- records of every shape
def contents() -> list[Content]:
    draw = random.Random(20)
    keys = [None, b"", b"k", bytes(range(256)) * 4]
    values = [None, b"", b"v", b"compressible " * 1_000, draw.randbytes(10_000)]
    many = [(f"h{index}", b"x" * index) for index in range(40)]
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("h", b"1")],
        [("h", None), ("h", b""), ("h", b"again")],
        [("ключ é", b"\x00\xff"), ("", b"no name")],
        list(many),
    ]
    times = [0, 1, 1_700_000_000_000, 1_600_000_000_000, 1_800_000_000]  # forth and back within a batch
    return [
        (key, value, some, times[number % len(times)])
        for number, (key, value, some) in enumerate(product(keys, values, headers))
    ]


def read_by_librdkafka(cluster: KafkaCluster, topic: str, count: int) -> list[Content]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "shapes", "enable.auto.commit": False}
    )
    found: list[Content] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            for message in consumer.consume(1_000, timeout=1.0):
                if message.error() is None:
                    kind, timestamp = message.timestamp()
                    assert kind == TIMESTAMP_CREATE_TIME
                    found.append((message.key(), message.value(), list(message.headers() or ()), timestamp))
    finally:
        consumer.close()
    return found


async def read_by_aiokafka(cluster: KafkaCluster, topic: str, count: int) -> list[Content]:
    found: list[Content] = []
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([AioTopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        while len(found) < count:
            record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            found.append((record.key, record.value, list(record.headers), record.timestamp))
    finally:
        await consumer.stop()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_shape_are_read_back_equal(cluster: KafkaCluster, kafka_name: str, codec: str) -> None:
    cluster.create_topic(kafka_name, config={"retention.ms": "-1"})  # some are from 1970
    sent = contents()

    async def scenario() -> dict[str, Any]:
        async with Producer(cluster.bootstrap_servers, compression_type=codec, linger_ms=50) as producer:
            metadatas = await asyncio.gather(
                *(
                    producer.send(kafka_name, value, key, headers=headers, timestamp_ms=timestamp_ms, partition=0)
                    for key, value, headers, timestamp_ms in sent
                )
            )
            assert [metadata.offset for metadata in metadatas] == list(range(len(sent)))
            assert [metadata.timestamp for metadata in metadatas] == [each[3] for each in sent]
            return producer.metrics()

    metrics = asyncio.run(scenario())
    assert metrics["batches_sent"] < len(sent) / 4, "many records share a batch"
    assert (metrics["batch_compressed_bytes"] < metrics["batch_uncompressed_bytes"]) == (codec != "none")
    assert read_by_librdkafka(cluster, kafka_name, len(sent)) == sent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert asyncio.run(read_by_aiokafka(cluster, kafka_name, len(sent))) == sent


def test_the_brokers_clock_dates_records_where_the_topic_wants_it(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, config={"message.timestamp.type": "LogAppendTime"})

    async def scenario() -> list[tuple[int | None, int | None]]:
        async with Producer(cluster.bootstrap_servers) as producer:
            metadatas = [await producer.send(kafka_name, b"v", timestamp_ms=1_000) for _ in range(5)]
            assert {metadata.timestamp_type for metadata in metadatas} == {TimestampType.LOG_APPEND_TIME}
            return [(metadata.offset, metadata.timestamp) for metadata in metadatas]

    told = asyncio.run(scenario())
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "times"})
    try:
        consumer.assign([TopicPartition(kafka_name, 0, 0)])
        found: list[tuple[int | None, int | None]] = []
        while len(found) < 5:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is None:
                kind, timestamp = message.timestamp()
                assert kind == TIMESTAMP_LOG_APPEND_TIME
                found.append((message.offset(), timestamp))
    finally:
        consumer.close()
    assert found == told
