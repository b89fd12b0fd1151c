"""Columns on a real three-broker Apache Kafka, a broker killed in the middle; read back by librdkafka, field by field."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from aiokprod import BytesColumn, HeadersColumn, IntColumn, Producer
from aiokprod.pipeline.columns import column_encoder
from aiokprod.pipeline.sending.hashes import murmur2_partition
from aiokprod.records.column_rows import Encoder, PlainEncoder
from aiokprod.records.vectorised import VectorEncoder
from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real

PARTITIONS = 6
COUNT = 80_000
BASE_MS = int(1000 * time.time()) - 3_600_000  # not so old that a lost answer could not be asked for again
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, version=kafka_version) as started:
        yield started


def drawn() -> dict[str, list[Any]]:
    random = Random(5)
    return {
        "value": [None if row % 97 == 0 else b"%d " % row + b"v" * random.randrange(120) for row in range(COUNT)],
        "key": [b"key-%d" % random.randrange(5_000) if row % 5 else None for row in range(COUNT)],
        "headers": [[{"key": "row", "value": b"%d" % row}, {"key": "ä", "value": None}] for row in range(COUNT)],
        "time": [None if row == 9 else BASE_MS + row for row in range(COUNT)],
    }


def read_back(servers: str, topic: str, ends: list[int]) -> dict[int, list[Any]]:
    """Return all records by partition."""
    logs: dict[int, list[Any]] = {partition: [] for partition in range(len(ends))}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "columns", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(len(ends))])
        deadline = time.monotonic() + 120
        while sum(map(len, logs.values())) < sum(ends):
            assert time.monotonic() < deadline, "not read to the end"
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error() is None:
                    logs[message.partition()].append(message)
    finally:
        consumer.close()
    return logs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "codec"), [(PlainEncoder(), "none"), (VectorEncoder(), "none"), (VectorEncoder(), "zstd")]
)
def test_every_row_arrives_once_where_it_belongs_while_a_broker_dies(
    cluster: KafkaCluster, encoder: Encoder, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_encoder, "KNOWN", [encoder])
    topic = f"columns-{type(encoder).__name__}-{codec}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    rows = drawn()

    async def scenario() -> Any:
        async with Producer(cluster.bootstrap_servers, compression_type=codec, buffer_memory=2_000_000) as producer:
            sending = asyncio.ensure_future(
                producer.send_columns(
                    topic,
                    BytesColumn.from_arrow(pa.array(rows["value"], pa.binary())),
                    BytesColumn.from_arrow(pa.array(rows["key"], pa.binary())),
                    headers=HeadersColumn.from_arrow(pa.array(rows["headers"], pa.list_(PAIR))),
                    timestamps_ms=IntColumn.from_arrow(pa.array(rows["time"], pa.int64())),
                )
            )
            while producer.metrics()["records_delivered"] < COUNT // 10:
                await asyncio.sleep(0.001)
            node = sorted(cluster.brokers)[0]
            killing = threading.Thread(target=cluster.broker(node).kill)
            killing.start()
            report = await sending
            killing.join()
            cluster.broker(node).start()
            assert producer.metrics()["buffer_used_bytes"] == 0
            return report

    report = asyncio.run(scenario())
    cluster.wait_all_in_sync(topic)
    ends = cluster.end_offsets(topic)
    assert report.delivered == COUNT == sum(ends)
    seen: set[int] = set()
    for partition, log in read_back(cluster.bootstrap_servers, topic, ends).items():
        told = report.partitions[topic, partition]
        assert (told.count, told.first_offset, told.last_offset) == (len(log), log[0].offset(), log[-1].offset())
        before = -1
        for message in log:
            row = int(dict(message.headers())["row"])
            assert row > before, "the rows of a partition are in their order"
            before = row
            seen.add(row)
            assert message.value() == rows["value"][row]
            assert message.key() == rows["key"][row]
            assert message.headers() == [("row", b"%d" % row), ("ä", None)]
            if rows["time"][row] is not None:
                assert message.timestamp()[1] == rows["time"][row]
            if rows["key"][row] is not None:
                assert murmur2_partition(rows["key"][row], PARTITIONS) == partition
    assert len(seen) == COUNT
