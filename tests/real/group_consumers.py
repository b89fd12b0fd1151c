"""Consumers of other clients in a group, as exactly_once takes them: of aiokafka, and of confluent-kafka in all its ways.

Shared by tests on real brokers and on the mock. Sessions are short, so that a member that was killed is soon missed.

    python group_consumers.py '{"servers": ..., "topic": ..., "name": ..., "kind": "aiokafka", "session_ms": 6000}'

runs an instance that copies from the topic to the topic with "-out" at the end of its name, until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from aiokprod import Producer, exactly_once


@asynccontextmanager
async def aiokafka_consumer(servers: str, topic: str, session_ms: int) -> AsyncIterator[Any]:
    aiokafka: Any = import_module("aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=topic, enable_auto_commit=False, isolation_level="read_committed",
        auto_offset_reset="earliest", session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 20, metadata_max_age_ms=5000,
    )  # fmt: skip
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


def confluent_options(servers: str, topic: str, session_ms: int, **more: Any) -> dict[str, Any]:
    classic = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": session_ms // 20}
    return {
        "bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False, "enable.auto.offset.store": False,
        "isolation.level": "read_committed", "auto.offset.reset": "earliest",
    } | ({} if "group.protocol" in more else classic) | more  # fmt: skip


@asynccontextmanager
async def confluent_consumer(servers: str, topic: str, session_ms: int, **more: Any) -> AsyncIterator[Any]:
    confluent_kafka: Any = import_module("confluent_kafka")
    consumer = confluent_kafka.Consumer(confluent_options(servers, topic, session_ms, **more))
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        await asyncio.to_thread(consumer.close)


@asynccontextmanager
async def cooperative_consumer(servers: str, topic: str, session_ms: int) -> AsyncIterator[Any]:
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    async with confluent_consumer(servers, topic, session_ms, **strategy) as consumer:
        yield consumer


@asynccontextmanager
async def next_generation_consumer(servers: str, topic: str, session_ms: int) -> AsyncIterator[Any]:
    """Return a member of KIP-848; its session is the brokers' (`group.consumer.session.timeout.ms`)."""
    async with confluent_consumer(servers, topic, session_ms, **{"group.protocol": "consumer"}) as consumer:
        yield consumer


@asynccontextmanager
async def aio_consumer(servers: str, topic: str, session_ms: int) -> AsyncIterator[Any]:
    aio: Any = import_module("confluent_kafka.aio")
    consumer = aio.AIOConsumer(confluent_options(servers, topic, session_ms))
    await consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        await consumer.close()


CONSUMERS: dict[str, Any] = {
    "aiokafka": aiokafka_consumer,
    "confluent": confluent_consumer,
    "confluent cooperative": cooperative_consumer,
    "confluent KIP-848": next_generation_consumer,
    "confluent aio": aio_consumer,
}


def value_of(record: Any) -> bytes:
    return record.value() if callable(record.value) else record.value


async def copy(
    servers: str, topic: str, name: str, kind: str, session_ms: int, done: asyncio.Event | None = None, most: int = 100
) -> None:
    """Run one instance, as a process would: until it is cancelled, or has committed a batch after `done`."""
    async with (
        Producer(servers, transactional_id=f"{topic}-{name}", linger_ms=5) as producer,
        CONSUMERS[kind](servers, topic, session_ms) as consumer,
        exactly_once(consumer, producer, max_records=most, timeout=0.5) as batches,
    ):
        async for records in batches:
            for record in records:
                producer.send(f"{topic}-out", value_of(record))
            if random.random() < 0.3:
                await asyncio.sleep(0.05)
            if done is not None and done.is_set():
                batches.stop()


def command_of(**job: Any) -> list[str]:
    """Return the command that runs `copy` in a process of its own."""
    return [sys.executable, __file__, json.dumps(job)]


if __name__ == "__main__":
    asyncio.run(copy(**json.loads(sys.argv[1])))
