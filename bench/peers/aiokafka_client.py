"""aiokafka."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from aiokafka import AIOKafkaProducer
from child import Stopwatch
from job import Job

from peers import waiting


def producer(job: Job) -> AIOKafkaProducer:
    settings: dict[str, Any] = {
        "enable_idempotence": True,
        "acks": "all",
        "compression_type": None if job.compression == "none" else job.compression,
    }
    if job.linger_ms is not None:
        settings["linger_ms"] = job.linger_ms
    return AIOKafkaProducer(bootstrap_servers=job.servers, **(settings | job.settings))


async def firehose(job: Job, stopwatch: Stopwatch) -> None:
    value, headers = job.value(), job.header_list()
    keys = cycle(job.key_list() or [None])
    async with producer(job) as client:
        await client.send_and_wait(job.topic, value)
        with stopwatch.running():
            for _ in range(job.count):
                await client.send(job.topic, value, next(keys), headers=headers)
            await client.flush()


async def many_topics(job: Job, stopwatch: Stopwatch) -> None:
    """`firehose`, round the topics."""
    value, names = job.value(), job.topic_list()
    async with producer(job) as client:
        for name in names:
            await client.send_and_wait(name, value)
        stopwatch.before = len(names) - 1
        topics = cycle(names)
        with stopwatch.running():
            for _ in range(job.count):
                await client.send(next(topics), value)
            await client.flush()


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


WAYS = {
    "firehose": firehose,
    "many_topics": many_topics,
    "open_loop": open_loop,
    "one_at_a_time": one_at_a_time,
    "tasks": tasks,
}
