"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import Any

from child import Stopwatch
from job import Job
from kafka import KafkaProducer

from peers import blocking, bridges, waiting
from peers.sources import Rows, arrow, plain


def producer(job: Job) -> KafkaProducer:
    settings: dict[str, Any] = {
        "bootstrap_servers": job.servers,
        "enable_idempotence": True,
        "acks": "all",
        "compression_type": None if job.compression == "none" else job.compression,
    }
    if job.linger_ms is not None:
        settings["linger_ms"] = job.linger_ms
    return KafkaProducer(**(settings | job.settings))


def send_all(source: Callable[[Job], Rows], job: Job, stopwatch: Stopwatch) -> None:
    """Send, round robin over the topics."""
    rows = source(job)
    client, names = producer(job), job.topic_list()
    topics = cycle(names)
    with ThreadPoolExecutor(100) as threads:  # the first send to a topic takes a tenth of a second or more
        list(threads.map(lambda name: client.send(name, job.value()), names))
    client.flush()
    stopwatch.before = len(names) - 1
    with stopwatch.running():
        for value, key, headers in rows():
            client.send(next(topics), value, key, headers)
        client.flush()
    client.close()


def one_at_a_time(job: Job, stopwatch: Stopwatch) -> None:
    client = producer(job)
    client.send(job.topic, b"warm").get(30)
    blocking.one_at_a_time(job, stopwatch, lambda value: client.send(job.topic, value).get(30))
    client.close()


async def tasks(job: Job, stopwatch: Stopwatch) -> None:
    async with bridges.of_kafka_python(producer(job)) as send:
        await send(job.topic, b"warm", None)
        await waiting.tasks(job, stopwatch, lambda value, key: send(job.topic, value, key))


def open_loop(job: Job, stopwatch: Stopwatch) -> None:
    client, value = producer(job), job.value()
    client.send(job.topic, value).get(30)

    def submit(told: blocking.Told) -> None:
        client.send(job.topic, value).add_callback(told, None)  # on success only: failures show at the end

    blocking.open_loop(job, stopwatch, submit, time.sleep, client.flush)
    client.close()


WAYS = {
    "firehose": partial(send_all, plain),
    "columns": partial(send_all, arrow),
    "many_topics": partial(send_all, plain),
    "open_loop": open_loop,
    "one_at_a_time": one_at_a_time,
    "tasks": tasks,
}
