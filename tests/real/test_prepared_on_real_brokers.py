"""Transactions that one process prepares before it is killed, and another one ends, on a real Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from child_process import Child

from aiokprod import PreparedTransaction, Producer, Reader, end_transaction
from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real

CLUSTERS = [
    pytest.param(("4.3.1", 2), id="4.3-TV2"),
    pytest.param(("4.3.1", 1), id="4.3-TV1", marks=pytest.mark.slow),
    pytest.param(("4.3.1", 0), id="4.3-TV0", marks=pytest.mark.slow),
    pytest.param(("3.9.1", None), id="3.9", marks=pytest.mark.slow),
    pytest.param(("2.8.2", None), id="2.8", marks=pytest.mark.slow),
]
ALL = [b"%d" % index for index in range(5)]


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    version, feature = request.param
    features = None if feature is None else {"transaction.version": feature}
    with KafkaCluster(brokers=1, version=version, features=features) as started:
        yield started


@pytest.fixture
def topic(cluster: KafkaCluster, kafka_name: str) -> str:
    cluster.create_topic(kafka_name, partitions=3)
    return kafka_name


def told_and_killed(cluster: KafkaCluster, topic: str, *, prepares: bool, **options: Any) -> bytes:
    """Write a transaction in a process, kill that process (SIGKILL), and return what it has told."""
    job = {
        "servers": cluster.bootstrap_servers, "topic": topic, "id": topic, "group": topic, "options": options,
        "prepares": prepares,
    }  # fmt: skip
    client = Path(__file__).with_name("prepared_client.py")
    with Child([sys.executable, client, json.dumps(job)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        return process.stdout.readline()


def prepared_and_killed(cluster: KafkaCluster, topic: str, **options: Any) -> PreparedTransaction:
    """Prepare a transaction in a process, and kill that process."""
    return PreparedTransaction.from_json(told_and_killed(cluster, topic, prepares=True, **options))


async def seen(cluster: KafkaCluster, topic: str) -> list[list[bytes | None]]:
    async with Reader(cluster.bootstrap_servers) as reader:
        return [
            [record.value async for record in reader.read(topic, partition, read_committed=True)]
            for partition in range(3)
        ]


async def eventually(cluster: KafkaCluster, topic: str, expected: list[list[bytes]]) -> None:
    """Wait for the markers: they are written a little after EndTxn is answered (broker: 12.3)."""
    for _ in range(100):
        if await seen(cluster, topic) == expected:
            return
        await asyncio.sleep(0.1)
    assert await seen(cluster, topic) == expected


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_another_process_ends_what_a_killed_one_has_prepared(cluster: KafkaCluster, topic: str, commit: bool) -> None:
    """faults: X22"""
    prepared = prepared_and_killed(cluster, topic)
    places = [(each.partition, each.first_offset, each.last_offset, each.count) for each in prepared.partitions]
    assert sorted(places) == [(partition, 0, 4, 5) for partition in range(3)]

    async def scenario() -> None:
        assert await seen(cluster, topic) == [[]] * 3
        for verdict in (commit, commit, not commit):
            assert await end_transaction(cluster.bootstrap_servers, prepared, verdict) is commit
        await eventually(cluster, topic, [ALL if commit else []] * 3)
        async with Producer(cluster.bootstrap_servers, transactional_id=topic) as successor, successor.transaction():
            successor.send(topic, b"next", partition=0)
        for verdict in (True, False):  # by the log alone: the id has gone on
            assert await end_transaction(cluster.bootstrap_servers, prepared, verdict) is commit

    asyncio.run(scenario())


def test_what_a_killed_process_has_written_in_an_open_transaction_is_never_seen(
    cluster: KafkaCluster, topic: str
) -> None:
    """faults: X22"""
    assert told_and_killed(cluster, topic, prepares=False) == b"written\n"

    async def scenario() -> None:
        began = time.monotonic()
        async with Producer(cluster.bootstrap_servers, transactional_id=topic) as successor, successor.transaction():
            await successor.send(topic, b"next", partition=0)
            print(f"the first record of the successor is written after {time.monotonic() - began:.2f} s")
        await eventually(cluster, topic, [[b"next"], [], []])

    asyncio.run(scenario())


def test_a_successor_that_starts_first_aborts_it(cluster: KafkaCluster, topic: str) -> None:
    prepared = prepared_and_killed(cluster, topic)

    async def scenario() -> None:
        async with Producer(cluster.bootstrap_servers, transactional_id=topic):
            pass
        assert await end_transaction(cluster.bootstrap_servers, prepared) is False
        assert await seen(cluster, topic) == [[]] * 3

    asyncio.run(scenario())


def test_the_timeout_of_the_coordinator_aborts_it(cluster: KafkaCluster, topic: str) -> None:
    """faults: X10"""
    prepared = prepared_and_killed(cluster, topic, transaction_timeout_ms=1000)

    async def scenario() -> None:
        async with Reader(cluster.bootstrap_servers) as reader:
            while await reader.latest(topic, 0, read_committed=True) <= 4:
                await asyncio.sleep(0.2)
        for verdict in (True, False):
            assert await end_transaction(cluster.bootstrap_servers, prepared, verdict) is False

    asyncio.run(scenario())
