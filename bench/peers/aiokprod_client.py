"""aiokprod."""

from __future__ import annotations

import asyncio
from itertools import cycle, repeat
from time import perf_counter
from typing import Any

from child import Stopwatch
from job import Job

from aiokprod import Producer, Record
from peers import transacting, waiting

ROUND = 500  # sends between two waits for room; fewer if records are large
ROUND_BYTES = 1 << 20


def producer(job: Job) -> Producer:
    settings: dict[str, Any] = {"compression_type": job.compression}
    if job.linger_ms is not None:
        settings["linger_ms"] = job.linger_ms
    return Producer(job.servers, **(settings | job.settings))


async def firehose(job: Job, stopwatch: Stopwatch) -> None:
    """Call `send` for each record: one Delivery each."""
    value, headers = job.value(), job.header_list()
    keys = cycle(job.key_list() or [None])
    at_once = max(1, min(ROUND, ROUND_BYTES // job.size))
    async with producer(job) as client:
        await client.send(job.topic, value)
        send, topic = client.send, job.topic
        with stopwatch.running():
            for start in range(0, job.count, at_once):
                for _ in range(min(at_once, job.count - start)):
                    send(topic, value, next(keys), headers=headers)
                await client.ready()
            await client.flush()


async def many_topics(job: Job, stopwatch: Stopwatch) -> None:
    """Send as `firehose` does, round robin over the topics."""
    value, names = job.value(), job.topic_list()
    async with producer(job) as client:
        for name in names:
            client.send(name, value)
        await client.flush()
        stopwatch.before = len(names) - 1
        send, topics = client.send, cycle(names)
        with stopwatch.running():
            for start in range(0, job.count, ROUND):
                for _ in range(min(ROUND, job.count - start)):
                    send(next(topics), value)
                await client.ready()
            await client.flush()


async def open_loop(job: Job, stopwatch: Stopwatch) -> None:
    value = job.value()
    async with producer(job) as client:
        await client.send(job.topic, value)

        async def submit(told: waiting.Told) -> None:
            client.send(job.topic, value).add_done_callback(told)

        await waiting.open_loop(job, stopwatch, submit, client.ready)


async def gathered(job: Job, stopwatch: Stopwatch) -> None:
    """Await all Deliveries with `asyncio.gather`."""
    value = job.value()
    async with producer(job) as client:
        await client.send(job.topic, value)
        with stopwatch.running():
            await asyncio.gather(*[client.send(job.topic, value) for _ in range(job.count)])


async def send_many(job: Job, stopwatch: Stopwatch) -> None:
    """Send all records with one call of `send_many`."""
    value = job.value()
    async with producer(job) as client:
        await client.send(job.topic, value)
        with stopwatch.running():
            report = await client.send_many(job.topic, (value for _ in range(job.count)))
        assert report.delivered == job.count, report


async def columns(job: Job, stopwatch: Stopwatch) -> None:
    """Send all records with one call of `send_columns`."""
    from column_data import columns_of

    from aiokprod import BytesColumn, HeadersColumn

    values, keys, headers = columns_of(job)
    async with producer(job) as client:
        await client.send_columns(job.topic, BytesColumn.from_arrow(values.slice(0, 1)))
        with stopwatch.running():
            report = await client.send_columns(
                job.topic,
                BytesColumn.from_arrow(values),
                None if keys is None else BytesColumn.from_arrow(keys),
                headers=None if headers is None else HeadersColumn.from_arrow(headers),
            )
        assert report.delivered == job.count, report


async def columns_plain(job: Job, stopwatch: Stopwatch) -> None:
    """Send as `columns` does where numpy and pyarrow are not installed."""
    from aiokprod.pipeline.columns import column_encoder
    from aiokprod.records.column_rows import PlainEncoder

    column_encoder.KNOWN[:] = [PlainEncoder()]
    await columns(job, stopwatch)


async def columns_by_row(job: Job, stopwatch: Stopwatch) -> None:
    """Send the same Arrow columns with `send_many`."""
    from column_data import columns_of, header_pairs

    values, keys, headers = columns_of(job)
    async with producer(job) as client:
        await client.send(job.topic, b"warm")
        with stopwatch.running():
            rows: Any = iter(values.to_pylist())
            if keys is not None or headers is not None:
                pairs = repeat(()) if headers is None else map(header_pairs, headers.to_pylist())
                of_keys = repeat(None) if keys is None else keys.to_pylist()
                rows = map(record, rows, of_keys, pairs)
            report = await client.send_many(job.topic, rows)
        assert report.delivered == job.count, report


def record(value: bytes, key: bytes | None, headers: Any) -> Record:
    return Record(value=value, key=key, headers=headers)


async def one_at_a_time(job: Job, stopwatch: Stopwatch) -> None:
    async with producer(job) as client:
        await client.send(job.topic, b"warm")
        await waiting.one_at_a_time(job, stopwatch, lambda value, key: client.send(job.topic, value, key))


async def tasks(job: Job, stopwatch: Stopwatch) -> None:
    async with producer(job) as client:
        await client.send(job.topic, b"warm")
        await waiting.tasks(job, stopwatch, lambda value, key: client.send(job.topic, value, key))


async def transactions(job: Job, stopwatch: Stopwatch) -> None:
    """Send in transactions, one after another; the latency is that of the commit."""
    value, topic = job.value(), job.topic
    async with producer(job) as client:
        async with client.transaction():
            client.send(topic, value)
        send, note = client.send, stopwatch.latencies_s.append
        with stopwatch.running():
            for portions in transacting.transactions(job):
                client.begin_transaction()
                for size in portions:
                    for _ in range(size):
                        send(topic, value)
                    await client.ready()
                began = perf_counter()
                await client.commit_transaction()
                note(perf_counter() - began)


WAYS = {
    "firehose": firehose,
    "many_topics": many_topics,
    "open_loop": open_loop,
    "gathered": gathered,
    "send_many": send_many,
    "columns": columns,
    "columns_plain": columns_plain,
    "columns_by_row": columns_by_row,
    "one_at_a_time": one_at_a_time,
    "tasks": tasks,
    "transactions": transactions,
}
