"""confluent-kafka's AIOProducer."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any

from child import Stopwatch
from confluent_kafka.aio import AIOProducer
from job import Job

from clients import waiting


def producer(job: Job, **options: Any) -> AIOProducer:
    settings = {
        "bootstrap.servers": job.servers,
        "enable.idempotence": True,
        "linger.ms": job.linger_ms,
        "compression.type": job.compression,
    }
    return AIOProducer(settings | job.settings, **options)


async def firehose(job: Job, stopwatch: Stopwatch) -> None:
    """Its futures are awaited in rounds; it has no headers."""
    client, value = producer(job), job.value()
    keys = cycle(job.key_list() or [None])
    await (await client.produce(job.topic, value))
    with stopwatch.running():
        for start in range(0, job.count, 10_000):
            futures = [
                await client.produce(job.topic, value, next(keys)) for _ in range(min(10_000, job.count - start))
            ]
            await client.flush()
            await asyncio.gather(*futures)
    await client.close()


async def _waiting(job: Job, stopwatch: Stopwatch, way: Any) -> None:
    # Its own buffer would keep a lone record back for a second.
    client = producer(job, batch_size=1)

    async def send(value: bytes, key: bytes | None) -> None:
        await (await client.produce(job.topic, value, key))

    await send(b"warm", None)
    await way(job, stopwatch, send)
    await client.close()


async def one_at_a_time(job: Job, stopwatch: Stopwatch) -> None:
    await _waiting(job, stopwatch, waiting.one_at_a_time)


async def tasks(job: Job, stopwatch: Stopwatch) -> None:
    await _waiting(job, stopwatch, waiting.tasks)


WAYS = {"firehose": firehose, "one_at_a_time": one_at_a_time, "tasks": tasks}
