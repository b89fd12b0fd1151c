"""The clusters that `aiokprod demo` can use: an embedded one, a local Apache Kafka, or an existing one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.cluster.hosts import address_of
from aiokprod.config import ProducerConfig
from aiokprod.errors import BrokerAnswerError
from aiokprod.metrics import Metrics
from aiokprod.reader import Reader
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A cluster, how to make a topic on it, and how to break it."""

    title: str
    config: ProducerConfig
    """of what connects to it"""
    create_topic: Callable[[str, int], None]
    break_something: Callable[[str], list[str]]
    records_in: Callable[[str], int]
    """how many records are in a topic"""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(address_of(*each) for each in self.config.bootstrap_addresses)


@contextmanager
def embedded() -> Generator[DemoCluster]:
    """Return a cluster of three brokers in this process, on real loopback sockets."""
    from aiokprod.testing.mock import MockCluster

    with MockCluster(brokers=3) as cluster:

        def create(topic: str, partitions: int) -> None:
            cluster.create_topic(topic, partitions=partitions)

        def break_something(topic: str) -> list[str]:
            leader = cluster.leader(topic, 0)
            target = next(node for node in cluster.broker_ids if node != leader)
            cluster.drop_answer("Produce", after_append=True, times=1)
            cluster.move_leader(topic, 0, target)
            return [
                "dropped an acknowledgement after the append, and the connection with it",
                f"moved the leader of partition 0 from broker {leader} to broker {target}",
            ]

        def records_in(topic: str) -> int:
            return len(cluster.records(topic))

        yield DemoCluster(
            "three embedded brokers", _own(cluster.bootstrap_servers), create, break_something, records_in
        )


@contextmanager
def local_kafka() -> Generator[DemoCluster]:
    """Return a cluster of Apache Kafka in three local JVM processes."""
    from aiokprod.testing.kafka_cluster import KafkaCluster

    with KafkaCluster(brokers=3, proxied=True) as cluster:

        def create(topic: str, partitions: int) -> None:
            cluster.create_topic(topic, partitions=partitions)

        def break_something(topic: str) -> list[str]:
            leaders = cluster.leaders(topic)
            victim = leaders[0]
            others = [node for node in cluster.brokers if node != victim]
            cluster.proxy.drop_answer("Produce", topic=topic, times=1)
            cluster.move_leader(topic, 1, next(node for node in cluster.brokers if node != leaders[1]))
            cluster.broker(victim).kill()
            return [
                "dropped an acknowledgement after the append, and the connection with it",
                f"moved the leader of partition 1 off broker {leaders[1]}",
                f"killed broker {victim} (-9); brokers {' and '.join(map(str, others))} go on",
            ]

        def records_in(topic: str) -> int:
            return sum(cluster.end_offsets(topic))

        yield DemoCluster(
            "three brokers of Apache Kafka", _own(cluster.bootstrap_servers), create, break_something, records_in
        )


def _own(bootstrap_servers: str) -> ProducerConfig:
    return ProducerConfig.of(bootstrap_servers=bootstrap_servers, request_timeout_ms=5_000)


def external(config: ProducerConfig) -> DemoCluster:
    """Return a cluster of the user's, in which nothing is broken."""

    def create(topic: str, partitions: int) -> None:
        asyncio.run(_create_topic(config, topic, partitions))

    def records_in(topic: str) -> int:
        return asyncio.run(_records_in(config, topic))

    title = ",".join(address_of(*each) for each in config.bootstrap_addresses)
    return DemoCluster(title, config, create, lambda topic: [], records_in)


async def _records_in(config: ProducerConfig, topic: str) -> int:
    async with Reader(config) as reader:
        partitions = await reader.partitions(topic)
        ends = [await reader.latest(topic, partition) for partition in partitions]
        return sum(ends) - sum([await reader.earliest(topic, partition) for partition in partitions])


async def _create_topic(config: ProducerConfig, topic: str, partitions: int) -> None:
    client = ClusterClient(config, Metrics(), SilentListener())
    try:
        await client.start(config.start_timeout)
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1)], timeout_ms=30_000
        )
        answer: CreateTopicsResponse = await client.request(
            request, node_id=client.snapshot.controller_id, timeout_s=30.0
        )
        code = answer.topics[0].error_code
        if code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise BrokerAnswerError(f"creating topic {topic}: {name_of(code)}", topic=topic, code=code)
    finally:
        await client.close()
