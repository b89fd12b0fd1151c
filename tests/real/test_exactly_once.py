"""Every record once and in order, on a real three-broker Apache Kafka, while brokers are killed, frozen and rolled.

100,000 records in the short form, 1,000,000 in the long one; read back by librdkafka.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from delivery_check import POSSIBLY, Told, judge, read_log
from sending import send_numbered

from aiokprod import Persistence, Producer
from aiokprod.errors import AiokprodError
from aiokprod.testing import KafkaCluster
from aiokprod.testing.checker import Finding

pytestmark = pytest.mark.real

PARTITIONS = 24


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, version=kafka_version) as started:
        yield started


class Nemesis:
    """A thread that injects one fault after the other, one broker at a time, until stopped; then it heals the cluster."""

    def __init__(self, cluster: KafkaCluster, topic: str, seed: int, pause_s: float) -> None:
        self.done: list[str] = []
        self._cluster = cluster
        self._topic = topic
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nemesis")

    def __enter__(self) -> Nemesis:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        faults = [self._kill, self._freeze, self._roll, self._move]
        while not self._stop.wait(0.5):
            fault = faults[len(self.done) % len(faults)]
            node = self._random.choice(sorted(self._cluster.brokers))
            fault(node)
            self._cluster.wait_all_in_sync(self._topic)

    def _kill(self, node: int) -> None:
        self.done.append(f"kill -9 {node}")
        self._cluster.broker(node).kill()
        self._stop.wait(1.0)
        self._cluster.broker(node).start()

    def _freeze(self, node: int) -> None:
        self.done.append(f"freeze {node} for {self._pause_s} s")
        self._cluster.broker(node).pause()
        time.sleep(self._pause_s)
        self._cluster.broker(node).resume()

    def _roll(self, node: int) -> None:
        self.done.append(f"roll {node}")
        self._cluster.broker(node).restart()

    def _move(self, node: int) -> None:
        self.done.append("move leaders")
        for partition in range(3):
            self._cluster.move_leader(self._topic, partition, self._random.choice(sorted(self._cluster.brokers)))


async def produce(
    cluster: KafkaCluster,
    topic: str,
    count: int,
    rate: float,
    is_enough: Callable[[], bool],
    **options: object,
) -> list[Told]:
    """Send so many numbered records, and more until enough was done to the cluster; wait for every answer.

    They go to drawn partitions at a steady rate. On a slow machine a fault takes longer; there are more records then, of the
    same rate, up to five times as many.
    """
    draw = random.Random(7)
    told: list[Told] = []
    async with Producer(
        cluster.bootstrap_servers, request_timeout_ms=6_000, delivery_timeout_ms=240_000, **options
    ) as producer:
        began = time.monotonic()
        for number in range(5 * count):
            if number >= count and is_enough():
                break
            record = Told(draw.randrange(PARTITIONS), number)
            told.append(record)
            send_numbered(producer, topic, record)
            if number % 100 == 99:
                await producer.ready()
                ahead = number / rate - (time.monotonic() - began)
                await asyncio.sleep(max(0.0, ahead))
        await producer.flush()
    return told


def run(
    cluster: KafkaCluster,
    topic: str,
    count: int,
    rate: float,
    pause_s: float,
    seed: int,
    least_faults: int,
    **options: object,
) -> list[Finding]:
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    with Nemesis(cluster, topic, seed, pause_s) as nemesis:
        told = asyncio.run(produce(cluster, topic, count, rate, lambda: len(nemesis.done) >= least_faults, **options))
    cluster.wait_all_in_sync(topic)
    logs = read_log(cluster.bootstrap_servers, topic, cluster.end_offsets(topic))
    findings = judge(told, logs, idempotent=options.get("enable_idempotence") is not False)
    assert not any(record.outcome is POSSIBLY for record in told)
    print(f"{len(told)} records, {len(nemesis.done)} faults: {nemesis.done}")
    assert len(nemesis.done) >= least_faults
    return findings


@pytest.mark.parametrize(("count", "least_faults"), [(20_000, 2), pytest.param(100_000, 3, marks=pytest.mark.slow)])
def test_all_records_arrive_once_and_in_order_while_brokers_fail(
    cluster: KafkaCluster, kafka_name: str, count: int, least_faults: int
) -> None:
    findings = run(cluster, kafka_name, count, 2_500, 3.0, seed=1, least_faults=least_faults)
    assert not findings, findings


@pytest.mark.slow
def test_a_million_records_arrive_once_and_in_order_while_brokers_fail(cluster: KafkaCluster, kafka_name: str) -> None:
    findings = run(cluster, kafka_name, 1_000_000, 5_000, 8.0, seed=2, least_faults=10)
    assert not findings, findings


@pytest.mark.slow
def test_without_idempotence_what_is_reported_delivered_is_there_and_first_copies_are_in_order(
    cluster: KafkaCluster, kafka_name: str
) -> None:
    findings = run(cluster, kafka_name, 100_000, 2_500, 8.0, seed=3, least_faults=3, enable_idempotence=False)
    assert not findings, findings


@pytest.mark.slow
def test_fresh_topics_are_flooded_at_once_with_five_in_flight(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: I6
    async def flood(topics: list[str]) -> dict[str, list[Told]]:
        told: dict[str, list[Told]] = {topic: [] for topic in topics}
        async with Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=2_000) as producer:
            for topic in topics:
                await asyncio.to_thread(cluster.create_topic, topic, 6, 3)
                for number in range(600):
                    record = Told(number % 6, number)
                    told[topic].append(record)
                    send_numbered(producer, topic, record)
                    if number % 50 == 49:
                        await asyncio.sleep(0)
            await producer.flush()
        return told

    topics = [f"{kafka_name}-{index}" for index in range(10)]
    for topic, told in asyncio.run(flood(topics)).items():
        findings = judge(told, read_log(cluster.bootstrap_servers, topic, cluster.end_offsets(topic)))
        assert not findings, findings
        assert not any(record.outcome is POSSIBLY for record in told)


def test_close_is_a_hard_bound_while_everything_is_frozen(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: L11
    cluster.create_topic(kafka_name, partitions=3, replication_factor=3)

    async def scenario() -> None:
        producer = Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=1_000)
        await producer.start()
        for partition in range(3):
            await producer.send(kafka_name, b"0 first", partition=partition)
        for broker in cluster.brokers.values():
            broker.pause()
        try:
            deliveries = [producer.send(kafka_name, b"1 %s" % (b"x" * 300), partition=i % 3) for i in range(600)]
            await asyncio.sleep(0.5)
            began = time.monotonic()
            report = await producer.close(timeout=3.0)
            assert time.monotonic() - began < 4.0
        finally:
            for broker in cluster.brokers.values():
                broker.resume()
        errors = [delivery.exception() for delivery in deliveries]
        assert all(isinstance(error, AiokprodError) for error in errors)
        persistences = [error.persistence for error in errors if error is not None]
        assert Persistence.POSSIBLY_PERSISTED in persistences
        assert Persistence.NOT_PERSISTED in persistences
        assert report.count == 600

    asyncio.run(scenario())
    cluster.wait_ready()
    cluster.wait_all_in_sync(kafka_name)
