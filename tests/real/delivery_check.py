"""What was told of each record against what a client that is not ours finds in the log. The judge is pure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, TopicPartition

DELIVERED, NOT, POSSIBLY = "delivered", "not", "possibly"


@dataclass(slots=True)
class Told:
    """What the producer said of one record."""

    partition: int
    number: int
    outcome: str | None = None
    offset: int | None = None


@dataclass(slots=True)
class Findings:
    """Numbers of records that are wrong."""

    lost: list[int] = field(default_factory=list)
    ghosts: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    reordered: list[int] = field(default_factory=list)
    wrong_offset: list[int] = field(default_factory=list)
    unresolved: list[int] = field(default_factory=list)
    possibly: int = 0

    @property
    def is_clean(self) -> bool:
        return not (
            self.lost or self.ghosts or self.duplicates or self.reordered or self.wrong_offset or self.unresolved
        )


def judge(told: Sequence[Told], logs: Mapping[int, Sequence[tuple[int, int]]], *, idempotent: bool = True) -> Findings:
    """`logs`: per partition (offset, number) in log order; numbers grow with the sends of a partition."""
    found = Findings()
    present: Counter[int] = Counter()
    places: dict[int, set[tuple[int, int]]] = {}
    for partition, log in logs.items():
        for offset, number in log:
            present[number] += 1
            places.setdefault(number, set()).add((partition, offset))
    delivered: set[int] = set()
    for record in told:
        number = record.number
        if record.outcome is None:
            found.unresolved.append(number)
        elif record.outcome == DELIVERED:
            delivered.add(number)
            if not present[number]:
                found.lost.append(number)
            elif record.offset is not None and (record.partition, record.offset) not in places[number]:
                found.wrong_offset.append(number)
        elif record.outcome == NOT and present[number]:
            found.ghosts.append(number)
        elif record.outcome == POSSIBLY:
            found.possibly += 1
    if idempotent:
        found.duplicates = sorted(number for number, times in present.items() if times > 1)
    for log in logs.values():
        firsts = [number for number in dict.fromkeys(number for _, number in log) if number in delivered]
        for before, after in pairwise(firsts):
            if after < before:
                found.reordered.append(after)
    return found


def read_log(
    bootstrap_servers: str, topic: str, ends: Sequence[int], timeout_s: float = 120.0
) -> dict[int, list[tuple[int, int]]]:
    """(offset, number) of every record by partition; the number is the value up to the first space."""
    logs: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(len(ends))}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "aiokprod-check", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(len(ends))])
        missing = {partition for partition, end in enumerate(ends) if end > 0}
        deadline = time.monotonic() + timeout_s
        while missing:
            assert time.monotonic() < deadline, f"partitions {sorted(missing)} were not read to their end"
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error() is not None:
                    continue
                partition, offset = message.partition(), message.offset()
                logs[partition].append((offset, int(message.value().split(b" ", 1)[0])))
                if offset >= ends[partition] - 1:
                    missing.discard(partition)
    finally:
        consumer.close()
    return logs
