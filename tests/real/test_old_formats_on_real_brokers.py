"""`Reader` on topics whose log has messages of formats 0 and 1: Kafka 2.8 writes them where `message.format.version` is old."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aiokprod import Producer, Reader
from aiokprod.testing import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
T0 = 1_700_000_000_000
PACKED = [(b"key" if number % 2 else None, b"v%d" % number * 30) for number in range(10)]
SINGLE = [(None, b"w%d" % number) for number in range(3)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1, version="2.8.2") as cluster:
        yield cluster


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize(("version", "record_format"), [("0.9.0", 0), ("0.10.2", 1)])
def test_records_of_an_old_format_are_read_back(
    kafka: KafkaCluster, version: str, record_format: int, codec: str
) -> None:
    topic = f"old-{version}-{codec}"
    kafka.create_topic(topic, partitions=1, config={"message.format.version": version})

    async def scenario() -> None:
        options = {"enable_idempotence": False, "compression_type": codec, "linger_ms": 50}
        async with Producer(kafka.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            for pairs in (PACKED, SINGLE):
                await asyncio.gather(
                    *[
                        producer.send(topic, value, key, timestamp_ms=T0 + number)
                        for number, (key, value) in enumerate(pairs)
                    ]
                )
        async with Reader(kafka.bootstrap_servers) as reader:
            found = [record async for record in reader.read(topic, 0)]
            assert [record.offset for record in found] == list(range(13))
            assert [(record.key, record.value) for record in found] == PACKED + SINGLE
            times = [T0 + number for number in (*range(10), *range(3))]
            assert [record.timestamp_ms for record in found] == (times if record_format else [-1] * 13)
            assert [record.offset async for record in reader.read(topic, 0, 5, 7)] == [5, 6]

    asyncio.run(scenario())
