"""Transactions on the mock and on a real broker: drawn requests, and every answer is the same on both."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest
from drawn_transactions import Ask, Connection, Drawn, Side

from aiokprod.testing import KafkaCluster, MockCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

SEEDS = 100
REQUESTS = 25


async def compare(kafka: KafkaCluster, mock: MockCluster, newest_protocol: bool) -> int:
    """How many requests were answered alike; an AssertionError names the seed and what came before."""
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


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_drawn_requests_are_answered_alike(version: str) -> None:
    with (
        KafkaCluster(brokers=1, version=version) as kafka,
        MockCluster(1, kafka_version=version, auto_create_topics=False) as mock,
    ):
        asked = asyncio.run(compare(kafka, mock, newest_protocol=version.startswith("4")))
        assert asked == SEEDS * REQUESTS and mock.counters.crashes == []
