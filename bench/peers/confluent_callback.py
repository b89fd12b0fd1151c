"""confluent-kafka's Producer (librdkafka), with a callback for each record or without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import Any

from child import Stopwatch
from confluent_kafka import Message, Producer
from job import Job

from peers import blocking, bridges, transacting, waiting
from peers.librdkafka import settings_of
from peers.sources import Rows, arrow, plain


def send_all(source: Callable[[Job], Rows], job: Job, stopwatch: Stopwatch, *, is_read: bool) -> None:
    """Send round robin over the topics; with `is_read`, a callback for each record counts those delivered."""
    rows = source(job)
    client, names, value = Producer(settings_of(job)), job.topic_list(), job.value()
    topics = cycle(names)
    delivered = 0

    def told(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    for name in names:
        client.produce(name, value, on_delivery=told)
    client.flush()
    stopwatch.before = len(names) - 1
    delivered = 0
    options: dict[str, Any] = {"on_delivery": told} if is_read else {}
    produce, poll = client.produce, client.poll
    with stopwatch.running():
        for number, (value, key, headers) in enumerate(rows()):
            topic = next(topics)
            while True:
                try:
                    produce(topic, value, key, headers=headers, **options)
                    break
                except BufferError:
                    poll(0.01)
            if number % 500 == 0:
                poll(0)
        client.flush()
    assert delivered == job.count * is_read, delivered


def offset_read(job: Job, stopwatch: Stopwatch) -> None:
    """Send with a callback that reads the record's offset, one topic."""
    client, topic, value = Producer(settings_of(job)), job.topic, job.value()
    read = 0

    def told(error: object, message: Message) -> None:
        nonlocal read
        assert error is None, error
        read += (message.offset() or 0) >= 0

    client.produce(topic, value, on_delivery=told)
    client.flush()
    read = 0
    produce, poll = client.produce, client.poll
    with stopwatch.running():
        for number in range(job.count):
            while True:
                try:
                    produce(topic, value, on_delivery=told)
                    break
                except BufferError:
                    poll(0.01)
            if number % 500 == 0:
                poll(0)
        client.flush()
    assert read == job.count, read


def one_at_a_time(job: Job, stopwatch: Stopwatch) -> None:
    """Produce, and poll until the callback is called."""
    client, topic = Producer(settings_of(job)), job.topic
    is_acknowledged = False

    def told(error: object, _: object) -> None:
        nonlocal is_acknowledged
        assert error is None, error
        is_acknowledged = True

    def send(value: bytes) -> None:
        nonlocal is_acknowledged
        is_acknowledged = False
        client.produce(topic, value, on_delivery=told)
        while not is_acknowledged:
            client.poll(1)

    send(b"warm")
    blocking.one_at_a_time(job, stopwatch, send)


async def tasks(job: Job, stopwatch: Stopwatch) -> None:
    async with bridges.of_callbacks(Producer(settings_of(job))) as send:
        await send(job.topic, b"warm", None)
        await waiting.tasks(job, stopwatch, lambda value, key: send(job.topic, value, key))


def open_loop(job: Job, stopwatch: Stopwatch) -> None:
    client, value, topic = Producer(settings_of(job)), job.value(), job.topic
    client.produce(topic, value)
    client.flush()

    def submit(told: blocking.Told) -> None:
        while True:
            try:
                return client.produce(topic, value, on_delivery=told)
            except BufferError:
                client.poll(0.01)

    blocking.open_loop(job, stopwatch, submit, client.poll, client.flush)


def transactions(job: Job, stopwatch: Stopwatch) -> None:
    """Send in transactions, one after another; the latency is that of the commit."""
    client, value, topic = Producer(settings_of(job)), job.value(), job.topic
    delivered = 0

    def told(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    client.init_transactions()
    client.begin_transaction()
    client.produce(topic, value, on_delivery=told)
    client.commit_transaction()
    delivered = 0
    produce, poll, note = client.produce, client.poll, stopwatch.latencies_s.append
    with stopwatch.running():
        for portions in transacting.transactions(job):
            client.begin_transaction()
            for size in portions:
                for _ in range(size):
                    while True:
                        try:
                            produce(topic, value, on_delivery=told)
                            break
                        except BufferError:
                            poll(0.01)
                poll(0)
            began = perf_counter()
            client.commit_transaction()
            note(perf_counter() - began)
    assert delivered == job.count, delivered


WAYS = {
    "firehose": partial(send_all, plain, is_read=False),
    "called_back": partial(send_all, plain, is_read=True),
    "offset_read": offset_read,
    "columns": partial(send_all, arrow, is_read=True),
    "many_topics": partial(send_all, plain, is_read=False),
    "open_loop": open_loop,
    "one_at_a_time": one_at_a_time,
    "tasks": tasks,
    "transactions": transactions,
}
