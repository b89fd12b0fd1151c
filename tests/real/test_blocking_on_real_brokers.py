"""`aiokprod.blocking` on a real Kafka: records of threads, of a forked child, and of a program that ends without a close."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiokprod import Reader
from aiokprod.blocking import Producer
from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real
LIMIT_S = 120.0
COUNT = 2_000
PROGRAM = """
import os, sys
from aiokprod.blocking import Producer
servers, topic = sys.argv[1:]
producer = Producer(servers)
producer.send(topic, b"parent")
child = os.fork()
for number in range(500):
    producer.submit(topic, b"%d-%d" % (child == 0, number))
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1) as started:
        yield started


def values(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        async with Reader(cluster.bootstrap_servers) as reader:
            return [record.value async for record in reader.read(topic, 0)]

    return asyncio.run(asyncio.wait_for(read(), LIMIT_S))


def test_records_of_threads_are_there_once_and_in_order(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=1, replication_factor=1)

    with Producer(cluster.bootstrap_servers, compression_type="gzip") as producer:

        def work(number: int) -> list[int | None]:
            futures = [producer.submit(kafka_name, b"%d-%d" % (number, turn)) for turn in range(COUNT)]
            return [future.result(LIMIT_S).offset for future in futures]

        with ThreadPoolExecutor(4) as threads:
            told = list(threads.map(work, range(4)))
        assert producer.send_many(kafka_name, (b"many" for _ in range(COUNT))).delivered == COUNT
        assert producer.send(kafka_name, b"last").offset == 5 * COUNT
    log = values(cluster, kafka_name)
    assert len(log) == 5 * COUNT + 1
    for number, offsets in enumerate(told):
        assert [log[offset or 0] for offset in offsets] == [b"%d-%d" % (number, turn) for turn in range(COUNT)]


def test_a_program_that_forks_and_ends_without_a_close_loses_nothing(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=1, replication_factor=1)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, cluster.bootstrap_servers, kafka_name]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    log = values(cluster, kafka_name)
    assert len(log) == 1_001
    for who in (0, 1):
        assert [value for value in log if value and value.startswith(b"%d-" % who)] == [
            b"%d-%d" % (who, number) for number in range(500)
        ]
