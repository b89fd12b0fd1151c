"""`aiokprod.compat.aiokafka` on a real Kafka: transactions with aiokafka's consumer, every codec, a frozen broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaTimeoutError

from aiokprod import Reader
from aiokprod.compat.aiokafka import AIOKafkaProducer
from aiokprod.errors import DeliveryTimeoutError
from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real
LIMIT_S = 120.0
COUNT = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1) as started:
        yield started


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def create(cluster: KafkaCluster, *topics: str) -> None:
    for topic in topics:
        cluster.create_topic(topic, partitions=1, replication_factor=1)


async def committed(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    async with Reader(cluster.bootstrap_servers) as reader:
        return [record.value async for record in reader.read(topic, 0, read_committed=True)]


def test_records_are_consumed_and_produced_in_transactions_of_which_some_are_aborted(
    cluster: KafkaCluster, kafka_name: str
) -> None:
    source, target = f"{kafka_name}-in", f"{kafka_name}-out"
    create(cluster, source, target)

    async def scenario() -> None:
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="gzip") as feeder:
            await asyncio.gather(*[await feeder.send(source, b"%d" % number) for number in range(COUNT)])
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=kafka_name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=kafka_name)
        async with consumer, producer:
            done = turn = 0
            while done < COUNT:
                batches = await consumer.getmany(timeout_ms=1_000, max_records=50)
                for partition, records in batches.items():
                    turn += 1
                    await producer.begin_transaction()
                    for record in records:
                        await producer.send(target, record.value + b"!")
                    if turn % 2:
                        await producer.abort_transaction()
                        consumer.seek(partition, records[0].offset)
                        continue
                    await producer.send_offsets_to_transaction({partition: records[-1].offset + 1}, kafka_name)
                    await producer.commit_transaction()
                    done += len(records)
            # The coordinator answers EndTxn before the last offsets and records are visible.
            for _ in range(300):
                if await consumer.committed(TopicPartition(source, 0)) == COUNT:
                    break
                await asyncio.sleep(0.1)
            assert await consumer.committed(TopicPartition(source, 0)) == COUNT
        for _ in range(300):
            if len(await committed(cluster, target)) == COUNT:
                break
            await asyncio.sleep(0.1)
        assert await committed(cluster, target) == [b"%d!" % number for number in range(COUNT)]

    run(scenario)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_read_back_in_every_codec(cluster: KafkaCluster, kafka_name: str, codec: str | None) -> None:
    create(cluster, kafka_name)

    async def scenario() -> None:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "compression_type": codec}
        async with AIOKafkaProducer(**options) as producer:
            batch = producer.create_batch()
            while batch.append(timestamp=None, key=b"k", value=b"%d" % batch.record_count()) is not None:
                pass
            placed = await (await producer.send_batch(batch, kafka_name, partition=0))
            assert (placed.offset, placed.timestamp) == (0, -1)
        values = await committed(cluster, kafka_name)
        assert values == [b"%d" % number for number in range(batch.record_count())]

    run(scenario)


def test_a_frozen_broker_ends_the_wait_of_a_record_and_of_stop(cluster: KafkaCluster, kafka_name: str) -> None:
    create(cluster, kafka_name)

    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=2_500)
        await producer.start()
        await producer.send_and_wait(kafka_name, b"first")
        (broker,) = cluster.brokers
        cluster.broker(broker).pause()
        try:
            began = time.monotonic()
            with pytest.raises(KafkaTimeoutError) as late:
                await producer.send_and_wait(kafka_name, b"second")
            assert isinstance(late.value, DeliveryTimeoutError) and late.value.persistence is not None
            await producer.stop()
            assert time.monotonic() - began < 60  # aiokafka with idempotence waits as long as the broker is frozen
        finally:
            cluster.broker(broker).resume()

    run(scenario)
