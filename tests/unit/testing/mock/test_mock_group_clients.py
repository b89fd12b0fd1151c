"""Consumers of other clients in groups on the mock cluster: join, rebalance, a member killed, offsets kept over a restart."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from child_process import Child
from confluent_kafka import Consumer, KafkaError, TopicPartition

from aiokprod import Producer
from aiokprod.testing import MockCluster

PARTITIONS = 4
DEADLINE_S = 60.0
QUICK = {
    "group.min.session.timeout.ms": 100,
    "group.consumer.session.timeout.ms": 1500,
    "group.consumer.heartbeat.interval.ms": 100,
}
"""Sessions are short, so that a test on the real clock is."""


async def fill(cluster: MockCluster, count: int, first: int = 0) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(first, first + count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# ---------------------------------------------------------------------- aiokafka


def on_loop(scenario: Callable[[MockCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with MockCluster(3, group_options=QUICK) as cluster, asyncio.timeout(DEADLINE_S):
            cluster.create_topic("t", partitions=PARTITIONS)
            await scenario(cluster)
            assert cluster.counters.crashes == []

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # aiokafka's own
        asyncio.run(run())


@asynccontextmanager
async def aiokafka_consumer(cluster: MockCluster, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=1000,
        heartbeat_interval_ms=50,
        rebalance_timeout_ms=5000,
        **options,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def assigned(consumer: Any) -> list[int]:
    return sorted(where.partition for where in consumer.assignment())


async def until_assigned(*consumers: AIOKafkaConsumer) -> None:
    """Poll until all partitions are assigned, and no consumer has none."""
    while True:
        for consumer in consumers:
            await consumer.getmany(timeout_ms=20)
        shares = [assigned(consumer) for consumer in consumers]
        if all(shares) and sorted(index for share in shares for index in share) == list(range(PARTITIONS)):
            return


async def read(consumer: AIOKafkaConsumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        for messages in (await consumer.getmany(timeout_ms=100)).values():
            got += [message.value for message in messages]
    return sorted(got, key=int)


def test_aiokafka_consumers_share_the_partitions_and_take_over() -> None:
    async def scenario(cluster: MockCluster) -> None:
        async with aiokafka_consumer(cluster) as first:
            assert assigned(first) == list(range(PARTITIONS))
            async with aiokafka_consumer(cluster) as second:
                await until_assigned(first, second)
            await until_assigned(first)  # the second has left

    on_loop(scenario)


def test_aiokafka_takes_over_from_a_member_that_was_killed() -> None:
    async def scenario(cluster: MockCluster) -> None:
        async with aiokafka_consumer(cluster) as first, aiokafka_consumer(cluster, client_id="dead") as second:
            await until_assigned(first, second)
            coordinator = second._coordinator
            coordinator._coordination_task.cancel()  # as SIGKILL: no LeaveGroup, no more heartbeats
            coordinator._heartbeat_task.cancel()
            await until_assigned(first)
            coordinator.coordinator_id = None

    on_loop(scenario)


def test_an_aiokafka_consumer_goes_on_where_it_stopped() -> None:
    async def scenario(cluster: MockCluster) -> None:
        await fill(cluster, 20)
        async with aiokafka_consumer(cluster) as consumer:
            assert await read(consumer, 20) == numbers(0, 20)
            await consumer.commit()
        await fill(cluster, 12, first=20)
        async with aiokafka_consumer(cluster) as consumer:
            assert await read(consumer, 12) == numbers(20, 12)
        committed = cluster.committed_offsets("g")
        assert {where[1]: found.offset for where, found in committed.items()} == dict.fromkeys(range(PARTITIONS), 5)

    on_loop(scenario)


def test_aiokafka_goes_on_with_another_coordinator() -> None:
    async def scenario(cluster: MockCluster) -> None:
        await fill(cluster, 8)
        async with aiokafka_consumer(cluster) as consumer:
            assert await read(consumer, 8) == numbers(0, 8)
            cluster.move_group_coordinator("g", cluster.group_coordinator("g") % 3 + 1)
            await consumer.commit()
        assert sum(found.offset for found in cluster.committed_offsets("g").values()) == 8

    on_loop(scenario)


# ---------------------------------------------------------------------- librdkafka


@contextmanager
def on_thread(**options: int) -> Iterator[MockCluster]:
    with MockCluster(
        3, group_options={**QUICK, **{key.replace("_", "."): value for key, value in options.items()}}
    ) as it:
        it.create_topic("t", partitions=PARTITIONS)
        yield it
        assert it.counters.crashes == []


class Librdkafka:
    """A librdkafka consumer in the group."""

    def __init__(self, cluster: MockCluster, **options: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **options,
            }
        )
        self.consumer.subscribe(["t"])
        self.got: list[bytes] = []

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            error = message.error()
            assert error is None or error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN, error
            if error is None:
                self.got.append(message.value() or b"")

    @property
    def partitions(self) -> list[int]:
        return sorted(where.partition for where in self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


CLASSIC = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 100}
CONSUMER = {"group.protocol": "consumer"}
PROTOCOLS = [pytest.param(CLASSIC, id="classic"), pytest.param(CONSUMER, id="consumer")]


def until_shared(*consumers: Librdkafka) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        for consumer in consumers:
            consumer.poll()
        shares = [consumer.partitions for consumer in consumers]
        if all(shares) and sorted(index for share in shares for index in share) == list(range(PARTITIONS)):
            return
        assert time.monotonic() < deadline, shares


def read_numbers(consumer: Librdkafka, first: int, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(consumer.got) < count:
        consumer.poll()
        assert time.monotonic() < deadline, consumer.got
    assert sorted(consumer.got, key=int) == numbers(first, count)
    consumer.got.clear()


@pytest.mark.parametrize("options", PROTOCOLS)
def test_librdkafka_consumers_share_the_partitions_and_take_over(options: dict[str, Any]) -> None:
    with on_thread() as cluster:
        first = Librdkafka(cluster, **options)
        until_shared(first)
        second = Librdkafka(cluster, **options)
        until_shared(first, second)
        second.close()
        until_shared(first)
        first.close()


@pytest.mark.parametrize("options", PROTOCOLS)
def test_librdkafka_goes_on_where_it_stopped(options: dict[str, Any]) -> None:
    with on_thread() as cluster:
        asyncio.run(fill(cluster, 20))
        consumer = Librdkafka(cluster, **options)
        read_numbers(consumer, 0, 20)
        consumer.consumer.commit(asynchronous=False)
        consumer.close()
        asyncio.run(fill(cluster, 12, first=20))
        again = Librdkafka(cluster, **options)
        read_numbers(again, 20, 12)
        (found,) = again.consumer.committed([TopicPartition("t", 0)], timeout=DEADLINE_S)
        assert found.offset == 5
        again.close()


KILLED = """
import json, sys
from confluent_kafka import Consumer

consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe(["t"])
while not consumer.assignment():
    consumer.poll(0.05)
print("assigned", flush=True)
while True:
    consumer.poll(0.05)
"""


@pytest.mark.parametrize("options", PROTOCOLS)
def test_librdkafka_takes_over_from_a_process_that_was_killed(options: dict[str, Any]) -> None:
    with on_thread() as cluster:
        first = Librdkafka(cluster, **options)
        until_shared(first)
        given = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0, **options}
        command = [sys.executable, "-c", KILLED, json.dumps(given)]
        with Child(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            deadline = time.monotonic() + DEADLINE_S
            while len(first.partitions) == PARTITIONS and time.monotonic() < deadline:
                first.poll()
            while len(first.partitions) != PARTITIONS // 2 and time.monotonic() < deadline:
                first.poll()
            assert process.stdout.readline() == "assigned\n"
        until_shared(first)
        first.close()
