"""aiokprod: the ways in which a program reads the outcomes of its records. What is read is the offset."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from child import Stopwatch
from job import Job

from aiokprod import Delivery, Producer
from peers.aiokprod_client import ROUND, producer

WINDOW = 20_000
Reading = Callable[[Producer, Job, bytes], Awaitable[int]]
"""Sends all records, reads their outcomes, and returns the number of offsets it has read."""


def way(reading: Reading) -> Callable[[Job, Stopwatch], Awaitable[None]]:
    async def run(job: Job, stopwatch: Stopwatch) -> None:
        value = job.value()
        async with producer(job) as client:
            await client.send(job.topic, value)
            with stopwatch.running():
                read = await reading(client, job, value)
        assert read == job.count, f"{read:,} outcomes of {job.count:,} were read"

    return run


async def sent(client: Producer, job: Job, value: bytes) -> list[Delivery]:
    """Send all, as fast as there is room, and flush."""
    send, topic, deliveries = client.send, job.topic, list[Delivery]()
    for start in range(0, job.count, ROUND):
        deliveries += [send(topic, value) for _ in range(min(ROUND, job.count - start))]
        await client.ready()
    await client.flush()
    return deliveries


def windows(client: Producer, job: Job, value: bytes) -> Iterator[list[Delivery]]:
    """Send a window each time that the one before has been read."""
    send, topic = client.send, job.topic
    for start in range(0, job.count, WINDOW):
        yield [send(topic, value) for _ in range(min(WINDOW, job.count - start))]


async def not_read(client: Producer, job: Job, value: bytes) -> int:
    """Drop the Deliveries; the number that flush has waited for."""
    send, topic = client.send, job.topic
    for start in range(0, job.count, ROUND):
        for _ in range(min(ROUND, job.count - start)):
            send(topic, value)
        await client.ready()
    await client.flush()
    return job.count


async def awaited_by_window(client: Producer, job: Job, value: bytes) -> int:
    read = 0
    for deliveries in windows(client, job, value):
        for delivery in deliveries:
            read += (await delivery).offset >= 0
    return read


async def awaited_after_flush(client: Producer, job: Job, value: bytes) -> int:
    read = 0
    for delivery in await sent(client, job, value):
        read += (await delivery).offset >= 0
    return read


async def result_after_flush(client: Producer, job: Job, value: bytes) -> int:
    return sum([delivery.result().offset >= 0 for delivery in await sent(client, job, value)])


async def exception_after_flush(client: Producer, job: Job, value: bytes) -> int:
    return sum([delivery.exception() is None for delivery in await sent(client, job, value)])


async def called_back(client: Producer, job: Job, value: bytes) -> int:
    """Give each Delivery a done callback, one function for all."""
    send, topic, read = client.send, job.topic, 0

    def heard(delivery: Delivery) -> None:
        nonlocal read
        read += delivery.result().offset >= 0

    for start in range(0, job.count, ROUND):
        for _ in range(min(ROUND, job.count - start)):
            send(topic, value).add_done_callback(heard)
        await client.ready()
    await client.flush()
    while read < job.count:
        await asyncio.sleep(0)
    return read


async def gathered(client: Producer, job: Job, value: bytes) -> int:
    read = 0
    for deliveries in windows(client, job, value):
        read += sum([metadata.offset >= 0 for metadata in await asyncio.gather(*deliveries)])
    return read


async def as_completed(client: Producer, job: Job, value: bytes) -> int:
    read = 0
    for deliveries in windows(client, job, value):
        for done in asyncio.as_completed(deliveries):
            read += (await done).offset >= 0
    return read


async def waited(client: Producer, job: Job, value: bytes) -> int:
    read = 0
    for deliveries in windows(client, job, value):
        done, _ = await asyncio.wait(deliveries)
        read += sum([delivery.result().offset >= 0 for delivery in done])
    return read


async def task_group(client: Producer, job: Job, value: bytes) -> int:
    read = 0
    for deliveries in windows(client, job, value):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(delivery.wait()) for delivery in deliveries]
        read += sum([task.result().offset >= 0 for task in tasks])
    return read


WAYS = {
    "not_read": way(not_read),
    "awaited_by_window": way(awaited_by_window),
    "awaited_after_flush": way(awaited_after_flush),
    "result_after_flush": way(result_after_flush),
    "exception_after_flush": way(exception_after_flush),
    "called_back": way(called_back),
    "gathered": way(gathered),
    "as_completed": way(as_completed),
    "waited": way(waited),
    "task_group": way(task_group),
}
