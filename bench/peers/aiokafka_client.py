"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import Any

from aiokafka import AIOKafkaProducer
from child import Stopwatch
from job import Job

from peers import transacting, waiting
from peers.sources import Rows, arrow, plain

WINDOW = 20_000


def producer(job: Job) -> AIOKafkaProducer:
    settings: dict[str, Any] = {
        "enable_idempotence": True,
        "acks": "all",
        "compression_type": None if job.compression == "none" else job.compression,
    }
    if job.linger_ms is not None:
        settings["linger_ms"] = job.linger_ms
    return AIOKafkaProducer(bootstrap_servers=job.servers, **(settings | job.settings))


async def send_all(source: Callable[[Job], Rows], job: Job, stopwatch: Stopwatch) -> None:
    """Send, round robin over the topics."""
    rows = source(job)
    names = job.topic_list()
    topics = cycle(names)
    async with producer(job) as client:
        await asyncio.gather(*(client.send_and_wait(name, job.value()) for name in names))
        stopwatch.before = len(names) - 1
        with stopwatch.running():
            for value, key, headers in rows():
                await client.send(next(topics), value, key, headers=headers)
            await client.flush()


async def awaited(job: Job, stopwatch: Stopwatch) -> None:
    """Send windows of records, and await the future of each."""
    value = job.value()
    async with producer(job) as client:
        await client.send_and_wait(job.topic, value)
        with stopwatch.running():
            for start in range(0, job.count, WINDOW):
                futures = [await client.send(job.topic, value) for _ in range(min(WINDOW, job.count - start))]
                for future in futures:
                    assert (await future).offset >= 0


async def one_at_a_time(job: Job, stopwatch: Stopwatch) -> None:
    async with producer(job) as client:
        await client.send_and_wait(job.topic, b"warm")
        await waiting.one_at_a_time(job, stopwatch, lambda value, key: client.send_and_wait(job.topic, value, key))


async def tasks(job: Job, stopwatch: Stopwatch) -> None:
    async with producer(job) as client:
        await client.send_and_wait(job.topic, b"warm")
        await waiting.tasks(job, stopwatch, lambda value, key: client.send_and_wait(job.topic, value, key))


async def open_loop(job: Job, stopwatch: Stopwatch) -> None:
    value = job.value()
    async with producer(job) as client:
        await client.send_and_wait(job.topic, value)

        async def submit(told: waiting.Told) -> None:
            (await client.send(job.topic, value)).add_done_callback(told)

        await waiting.open_loop(job, stopwatch, submit, waiting.nothing)


async def transactions(job: Job, stopwatch: Stopwatch) -> None:
    """Send in transactions, one after another; the latency is that of the commit."""
    value, topic = job.value(), job.topic
    async with producer(job) as client:
        async with client.transaction():
            await client.send(topic, value)
        send, note = client.send, stopwatch.latencies_s.append
        with stopwatch.running():
            for portions in transacting.transactions(job):
                await client.begin_transaction()
                for size in portions:
                    for _ in range(size):
                        await send(topic, value)
                began = perf_counter()
                await client.commit_transaction()
                note(perf_counter() - began)


WAYS = {
    "firehose": partial(send_all, plain),
    "awaited": awaited,
    "columns": partial(send_all, arrow),
    "many_topics": partial(send_all, plain),
    "open_loop": open_loop,
    "one_at_a_time": one_at_a_time,
    "tasks": tasks,
    "transactions": transactions,
}
