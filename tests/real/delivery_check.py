"""The outcome told of each record against what a foreign client finds in the log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from aiokprod.testing.checker import Finding, LogRecord, Outcome, Promise, Sent, check_delivery

DELIVERED, NOT, POSSIBLY = Outcome.DELIVERED, Outcome.NOT_PERSISTED, Outcome.POSSIBLY_PERSISTED


@dataclass(slots=True)
class Told:
    """The outcome that the producer told of one record."""

    partition: int
    number: int
    outcome: Outcome | None = None
    offset: int | None = None


def judge(
    told: Sequence[Told], logs: Mapping[int, Sequence[tuple[int, int]]], *, idempotent: bool = True
) -> list[Finding]:
    """Return what is wrong. `logs`: per partition (offset, number) in log order; `told` is in the order of the sends.

    Others may write to the topic: a test warms a partition up, or sends from a second producer.
    """
    sends = [
        Sent(
            one.number, "", one.partition, outcome=one.outcome, offset=one.offset, settled=int(one.outcome is not None)
        )
        for one in told
    ]
    log = [LogRecord("", partition, offset, number) for partition, part in logs.items() for offset, number in part]
    promise = Promise.EXACTLY_ONCE if idempotent else Promise.AT_LEAST_ONCE
    return check_delivery(sends, log, promise=promise, others_write=True)


def read_log(
    bootstrap_servers: str, topic: str, ends: Sequence[int], timeout_s: float = 120.0
) -> dict[int, list[tuple[int, int]]]:
    """Return (offset, number) of every record by partition; the number is the value up to the first space."""
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
