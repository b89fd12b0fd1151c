"""confluent-kafka's AIOProducer."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any

from child import Stopwatch
from confluent_kafka.aio import AIOProducer
from job import Job

from peers import waiting


def producer(job: Job, **options: Any) -> AIOProducer:
    settings: dict[str, Any] = {
        "bootstrap.servers": job.servers,
        "enable.idempotence": True,
        "compression.type": job.compression,
    }
    if job.linger_ms is not None:
        settings["linger.ms"] = job.linger_ms
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


async def one_at_a_time(job: Job, stopwatch: Stopwatch) -> None:
    """With a flush behind each: by itself it looks for acknowledgements once in a tenth of a second at best."""
    client = producer(job, batch_size=1)

    async def send(value: bytes, key: bytes | None) -> None:
        acknowledged = await client.produce(job.topic, value, key)
        await client.flush()
        await acknowledged

    await send(b"warm", None)
    await waiting.one_at_a_time(job, stopwatch, send)
    await client.close()


async def tasks(job: Job, stopwatch: Stopwatch) -> None:
    # Its own buffer would keep a lone record back for a second; every send looks for acknowledgements of others.
    client = producer(job, batch_size=1, buffer_timeout=0.1)

    async def send(value: bytes, key: bytes | None) -> None:
        await (await client.produce(job.topic, value, key))

    await send(b"warm", None)
    await waiting.tasks(job, stopwatch, send)
    await client.close()


async def open_loop(job: Job, stopwatch: Stopwatch) -> None:
    # Its own buffer would keep records back for a second, or until there are a thousand.
    client, value = producer(job, batch_size=100, buffer_timeout=0.1), job.value()
    await (await client.produce(job.topic, value))

    async def submit(told: waiting.Told) -> None:
        (await client.produce(job.topic, value)).add_done_callback(told)

    await waiting.open_loop(job, stopwatch, submit, waiting.nothing)
    await client.close()


WAYS = {"firehose": firehose, "open_loop": open_loop, "one_at_a_time": one_at_a_time, "tasks": tasks}
