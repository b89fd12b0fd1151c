"""confluent-kafka's AIOProducer, which has no headers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice, repeat
from typing import Any

from child import Stopwatch
from confluent_kafka.aio import AIOProducer
from job import Job, Row

from peers import waiting
from peers.librdkafka import settings_of
from peers.sources import Rows, arrow, plain

ROUND = 10_000


def producer(job: Job, **options: Any) -> AIOProducer:
    return AIOProducer(settings_of(job), **options)


async def send_all(source: Callable[[Job], Rows], job: Job, stopwatch: Stopwatch) -> None:
    """Send round robin over the topics, and await the futures in groups."""
    rows = source(job)
    client, names = producer(job), job.topic_list()
    topics = cycle(names)

    async def send_round(some: Iterator[Row]) -> int:
        futures = [await client.produce(next(topics), value, key) for value, key, _ in some]
        await client.flush()
        return len(await asyncio.gather(*futures))

    await send_round(zip([job.value()] * len(names), repeat(None), repeat(None), strict=False))
    stopwatch.before = len(names) - 1
    with stopwatch.running():
        left = rows()
        while await send_round(islice(left, ROUND)):
            pass
    await client.close()


async def one_at_a_time(job: Job, stopwatch: Stopwatch) -> None:
    """Send with a flush after each: on its own the client looks for acknowledgements every 0.1 s at best."""
    client = producer(job, batch_size=1)

    async def send(value: bytes, key: bytes | None) -> None:
        acknowledged = await client.produce(job.topic, value, key)
        await client.flush()
        await acknowledged

    await send(b"warm", None)
    await waiting.one_at_a_time(job, stopwatch, send)
    await client.close()


async def tasks(job: Job, stopwatch: Stopwatch) -> None:
    # The client's own buffer would hold a single record back for a second; every send polls for earlier acknowledgements.
    client = producer(job, batch_size=1, buffer_timeout=0.1)

    async def send(value: bytes, key: bytes | None) -> None:
        await (await client.produce(job.topic, value, key))

    await send(b"warm", None)
    await waiting.tasks(job, stopwatch, send)
    await client.close()


async def open_loop(job: Job, stopwatch: Stopwatch) -> None:
    # The client's own buffer would hold records back for a second, or until there are a thousand.
    client, value = producer(job, batch_size=100, buffer_timeout=0.1), job.value()
    await (await client.produce(job.topic, value))

    async def submit(told: waiting.Told) -> None:
        (await client.produce(job.topic, value)).add_done_callback(told)

    await waiting.open_loop(job, stopwatch, submit, waiting.nothing)
    await client.close()


WAYS = {
    "firehose": partial(send_all, plain),
    "columns": partial(send_all, arrow),
    "many_topics": partial(send_all, plain),
    "open_loop": open_loop,
    "one_at_a_time": one_at_a_time,
    "tasks": tasks,
}
