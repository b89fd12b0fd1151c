"""The copiers of a soak, from outside: started, drained, and what they have made read back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clients import Client
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from copier import COPY, GROUP
from image import CopierLife, Copies
from profiles import SIX, TOPICS

from aiokprod.testing import KafkaCluster
from aiokprod.testing.checker import LogRecord
from aiokprod.testing.kafka_cluster.spec import HOST, INTERNAL

NAMES = ("copy-a", "copy-b")
"""Two, so that the group is rebalanced when one of them is away."""

POLL_S = 0.5
OPEN_S = 45.0  # longer than a transaction's timeout: what a killed copier left open has been aborted


def copiers_of(
    cluster: KafkaCluster, folder: Path, job: Mapping[str, Any], options: Mapping[str, dict[str, Any]]
) -> list[Client]:
    """Make the topic of copies, and return the copiers, not started.

    Args:
        cluster: the brokers.
        folder: of the books.
        job: of every client.
        options: by name of the copier; `plant` names a defect of the copier, the others are its producer's.
    """
    cluster.create_topic(COPY, TOPICS[SIX])
    inside = {"inside": _inside(cluster), "security": {}}
    copiers: list[Client] = []
    for name in NAMES:
        given = dict(options.get(name, {}))
        own = {"plant": given.pop("plant", None), "options": given}
        copiers.append(Client(name, folder, {**job, **inside, **own}, "copier.py"))
    return copiers


def until_copied(cluster: KafkaCluster, timeout_s: float) -> None:
    """Wait until the group has committed the end of the input, or the time is over; the verdict tells what is missing."""
    ends = cluster.end_offsets(SIX)
    deadline = time.monotonic() + timeout_s
    consumer = Consumer({"bootstrap.servers": _inside(cluster), "group.id": GROUP, "isolation.level": "read_committed"})
    try:
        while time.monotonic() < deadline:
            try:
                found = consumer.committed([TopicPartition(SIX, index) for index in range(len(ends))], timeout=10.0)
            except KafkaException:
                found = []
            if found and all(each.offset >= ends[each.partition] or not ends[each.partition] for each in found):
                return
            time.sleep(POLL_S)
    finally:
        consumer.close()


def read_copies(
    cluster: KafkaCluster,
    copiers: Sequence[Client],
    statuses: Mapping[str, int | None],
    log: Iterable[LogRecord],
    s: float,
) -> Copies:
    """Return what there was to copy and what was made of it. `s`: how long the soak took, in seconds."""
    given: dict[int, list[int]] = {}
    for record in log:
        if record.topic == SIX:
            given.setdefault(record.partition, []).append(record.offset)
    made, open_partitions = _read(cluster)
    lives = [
        CopierLife(
            name=name,
            lines=client.book(name).read_text().splitlines(),
            log=client.log(name).read_text(encoding="utf-8", errors="replace"),
            is_killed=name in client.killed_at,
            status=statuses.get(client.name) if name == client.lives[-1] else None,
        )
        for client in copiers
        for name in client.lives
    ]
    return Copies(given=given, made=made, lives=lives, open_partitions=open_partitions, seconds=s)


def _read(cluster: KafkaCluster) -> tuple[dict[int, list[tuple[int, int]]], list[int]]:
    """Return the copies by partition, and the partitions in which a transaction stays open."""
    ends = cluster.end_offsets(COPY)
    settings = {"bootstrap.servers": _inside(cluster), "group.id": "soak-copies-check", "enable.auto.commit": False}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
    made: dict[int, list[tuple[int, int]]] = {}
    at = dict.fromkeys(range(len(ends)), 0)
    deadline = time.monotonic() + OPEN_S
    try:
        consumer.assign([TopicPartition(COPY, index, OFFSET_BEGINNING) for index in at])
        while any(at[index] < ends[index] for index in at) and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=POLL_S):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    first, second = value.split(b" ")
                    made.setdefault(partition, []).append((int(first), int(second)))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at[partition] = offset
    finally:
        consumer.close()
    return made, [index for index in at if at[index] < ends[index]]


def _inside(cluster: KafkaCluster) -> str:
    return ",".join(f"{HOST}:{broker.node.bound[INTERNAL]}" for broker in cluster.brokers.values())
