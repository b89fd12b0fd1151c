"""Everything that is in the log, as a client that is not ours reads it (librdkafka), past the proxy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from values import DAMAGED, identity_of

from aiokprod.testing import KafkaCluster
from aiokprod.testing.checker import LogRecord
from aiokprod.testing.kafka_cluster.spec import HOST, INTERNAL


def read_topics(
    cluster: KafkaCluster, topics: Iterable[str], timeout_s: float, *, isolation: str = "read_uncommitted"
) -> list[LogRecord]:
    """Yield every record of these topics, in log order within a partition. A damaged one has none of our identities.

    Raises:
        TimeoutError: the end was not reached; says where.
    """
    servers = ",".join(f"{HOST}:{broker.node.bound[INTERNAL]}" for broker in cluster.brokers.values())
    ends = {topic: cluster.end_offsets(topic) for topic in topics}
    left = {(topic, index): end for topic, of in ends.items() for index, end in enumerate(of) if end > 0}
    settings = {"bootstrap.servers": servers, "group.id": "soak-check", "enable.auto.commit": False}
    consumer = Consumer(settings | {"isolation.level": isolation, "queued.max.messages.kbytes": 131_072})
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in left])
        return _drain(consumer, left, time.monotonic() + timeout_s)
    finally:
        consumer.close()


def _drain(consumer: Consumer, left: dict[tuple[str, int], int], deadline: float) -> list[LogRecord]:
    found: list[LogRecord] = []
    clock: Callable[[], float] = time.monotonic
    while left:
        if clock() > deadline:
            raise TimeoutError(f"{len(found)} records read; the end was not reached in {dict(list(left.items())[:5])}")
        for message in consumer.consume(10_000, timeout=0.5):
            if message.error() is not None:
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            key = message.key()
            assert key is None or isinstance(key, bytes)
            identity = identity_of(message.value(), topic, key)
            found.append(LogRecord(topic, partition, offset, identity if identity is not None else (DAMAGED, offset)))
            if offset + 1 >= left.get((topic, partition), 0):
                left.pop((topic, partition), None)
    return found
