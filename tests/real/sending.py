"""Numbered records from our producer, and what it said of each. Shared by the tests on a real cluster."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

from delivery_check import DELIVERED, NOT, POSSIBLY, Told, judge, read_log

from aiokprod import Delivery, Persistence, Producer
from aiokprod.testing import KafkaCluster
from aiokprod.testing.checker import Finding

FULL = bool(os.environ.get("AIOKPROD_TEST_FULL"))  # durations and counts of the fault catalogue, not the short ones


def scaled(short: float, full: float) -> float:
    """Return a duration (seconds) or a count: the short one, or the catalogue's (`nox -s rows`)."""
    return full if FULL else short


def settle(record: Told, delivery: Delivery) -> None:
    """Note what was said of the record."""
    error = delivery.exception()
    assert record.outcome is None, "settled twice"
    if error is None:
        record.outcome = DELIVERED
        record.offset = delivery.result().offset
    else:
        record.outcome = NOT if error.persistence is Persistence.NOT_PERSISTED else POSSIBLY


def send_numbered(producer: Producer, topic: str, record: Told, size: int = 80) -> Delivery:
    """Send the record; what becomes of it is noted when it is known."""
    delivery = producer.send(topic, b"%d %s" % (record.number, b"x" * size), partition=record.partition)
    delivery.add_done_callback(lambda done: settle(record, done))
    return delivery


def under_load(
    cluster: KafkaCluster,
    topic: str,
    fault: Callable[[], object],
    *,
    partitions: int = 6,
    rate: float = 1_000,
    **options: Any,
) -> tuple[list[Finding], list[Told], dict[str, Any]]:
    """Send numbered records at a steady rate while `fault` runs on a thread, and a while after; read everything back.

    Returns what is wrong, what was told of each record, and the producer's metrics.
    """
    if cluster.admin.topic(topic) is None:
        cluster.create_topic(topic, partitions=partitions)
    told, metrics = asyncio.run(_under_load(cluster, topic, fault, partitions, rate, options))
    cluster.wait_all_in_sync(topic)
    logs = read_log(cluster.bootstrap_servers, topic, cluster.end_offsets(topic))
    return judge(told, logs, idempotent=options.get("enable_idempotence") is not False), told, metrics


async def _under_load(
    cluster: KafkaCluster,
    topic: str,
    fault: Callable[[], object],
    partitions: int,
    rate: float,
    options: dict[str, Any],
) -> tuple[list[Told], dict[str, Any]]:
    draw = random.Random(11)
    told: list[Told] = []
    settings: dict[str, Any] = {"request_timeout_ms": 4_000, "delivery_timeout_ms": 120_000} | options
    async with Producer(cluster.bootstrap_servers, **settings) as producer:

        def send_some() -> None:
            for _ in range(max(1, round(rate / 100))):
                record = Told(draw.randrange(partitions), len(told))
                told.append(record)
                send_numbered(producer, topic, record)

        async def keep_sending() -> None:
            while True:
                send_some()
                await asyncio.sleep(0.01)
                await producer.ready()

        sender = asyncio.create_task(keep_sending())
        try:
            await asyncio.sleep(0.3)
            await asyncio.to_thread(fault)
            await asyncio.sleep(0.5)
            assert not sender.done(), await sender
        finally:
            sender.cancel()
        await producer.flush()
        return told, producer.metrics()
