"""Transactions on the mock and on a real broker: drawn requests, and every answer is the same on both."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import AsyncExitStack
from random import Random

import pytest
from drawn_transactions import Ask, Connection, Drawn, Side

from aiokprod.testing import KafkaCluster, MockCluster
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

pytestmark = [pytest.mark.real, pytest.mark.slow]

SEEDS = 50
REQUESTS = 25


async def compare(kafka: KafkaCluster, mock: MockCluster, newest_protocol: bool) -> int:
    """Return how many requests were answered alike; an AssertionError names the seed and the earlier requests."""
    connections = []
    async with AsyncExitStack() as stack:
        for servers in (mock.bootstrap_servers, kafka.bootstrap_servers):
            host, port = servers.split(",")[0].rsplit(":", 1)
            connection = Connection(*await asyncio.open_connection(host, int(port)))
            stack.push_async_callback(connection.close)
            connections.append(connection)
        return await _compare(kafka, mock, newest_protocol, connections)


async def _compare(kafka: KafkaCluster, mock: MockCluster, newest_protocol: bool, connections: list[Connection]) -> int:
    asked = 0
    for connection in connections:
        await connection.until_coordinated()
    for seed in range(SEEDS):
        name = f"drawn-{seed}"
        mock.create_topic(name, partitions=2)
        await asyncio.to_thread(kafka.create_topic, name, 2)
        sides = [Side(connection, name) for connection in connections]
        drawn = Drawn(Random(seed), newest_protocol)
        ask = Ask("init", (-1, -1), 1)
        before: list[object] = []
        for _ in range(REQUESTS):
            on_mock, on_kafka = [await side.answer(ask) for side in sides]
            assert on_mock == on_kafka, f"seed {seed}: {ask}\nmock  {on_mock}\nkafka {on_kafka}\nbefore: {before[-6:]}"
            before.append((ask, on_mock))
            drawn.took(ask, on_mock[0])
            asked += 1
            ask = drawn.next()
    return asked


def downgrade(kafka: KafkaCluster, version: str, transaction_version: int) -> None:
    """Bring the feature transaction.version down; a new cluster has the newest."""
    tool = [find_java(), "-Xmx128m", "-cp", kafka_classpath(version), "org.apache.kafka.tools.FeatureCommand"]
    asked = ["--bootstrap-server", kafka.bootstrap_servers, "downgrade", "--feature"]
    subprocess.run([*tool, *asked, f"transaction.version={transaction_version}"], check=True, capture_output=True)


@pytest.mark.parametrize(("version", "transaction_version"), [("4.3.1", 2), ("4.3.1", 1), ("4.3.1", 0), ("3.9.1", 0)])
def test_drawn_requests_are_answered_alike(version: str, transaction_version: int) -> None:
    is_new = version.startswith("4")
    with (
        KafkaCluster(brokers=1, version=version) as kafka,
        MockCluster(
            1, kafka_version=version, transaction_version=transaction_version, auto_create_topics=False
        ) as mock,
    ):
        if is_new and transaction_version < 2:
            downgrade(kafka, version, transaction_version)
        asked = asyncio.run(compare(kafka, mock, newest_protocol=is_new))
        assert asked == SEEDS * REQUESTS and mock.counters.crashes == []
