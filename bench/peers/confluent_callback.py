"""confluent-kafka's Producer (librdkafka), with a callback for each record."""

from __future__ import annotations

import time
from functools import partial
from itertools import cycle, repeat
from typing import Any

from child import Stopwatch
from confluent_kafka import Producer
from job import Job

from peers import waiting


def producer(job: Job) -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": job.servers,
        "enable.idempotence": True,
        "compression.type": job.compression,
    }
    if job.linger_ms is not None:
        settings["linger.ms"] = job.linger_ms
    return Producer(settings | job.settings)


def firehose(job: Job, stopwatch: Stopwatch) -> None:
    """A callback for each record; round the topics, if there are several."""
    client, names = producer(job), job.topic_list()
    value, headers = job.value(), job.header_list() or None
    keys, topics = cycle(job.key_list() or [None]), cycle(names)
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
    produce, poll = client.produce, client.poll
    with stopwatch.running():
        for number in range(job.count):
            topic, key = next(topics), next(keys)
            while True:
                try:
                    produce(topic, value, key, on_delivery=told, headers=headers)
                    break
                except BufferError:
                    poll(0.01)
            if number % 500 == 0:
                poll(0)
        client.flush()
    assert delivered == job.count, delivered


def columns(job: Job, stopwatch: Stopwatch) -> None:
    """`produce` for each row of Arrow columns."""
    from column_data import columns_of

    values, keys, headers = columns_of(job)
    client, topic = producer(job), job.topic
    delivered = 0

    def told(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    client.produce(topic, b"warm", on_delivery=told)
    client.flush()
    delivered = 0
    produce, poll = client.produce, client.poll
    with stopwatch.running():
        of_keys = repeat(None) if keys is None else keys.to_pylist()
        pairs = repeat(None) if headers is None else headers.to_pylist()
        for number, (value, key, given) in enumerate(zip(values.to_pylist(), of_keys, pairs, strict=False)):
            of_record = None if given is None else [(header["key"], header["value"]) for header in given]
            while True:
                try:
                    produce(topic, value, key, on_delivery=told, headers=of_record)
                    break
                except BufferError:
                    poll(0.01)
            if number % 500 == 0:
                poll(0)
        client.flush()
    assert delivered == job.count, delivered


def open_loop(job: Job, stopwatch: Stopwatch) -> None:
    """As `waiting.open_loop`, in a thread that polls between the sends."""
    client, value, topic = producer(job), job.value(), job.topic
    client.produce(topic, value)
    client.flush()
    told = [0.0] * (waiting.TRIAL)
    count = 0

    def tell(intended: float, error: object, _: object) -> None:
        nonlocal count
        assert error is None, error
        told[count] = time.perf_counter() - intended
        count += 1

    began = time.perf_counter()
    for number in range(waiting.TRIAL):
        client.produce(topic, value, on_delivery=partial(tell, began))
        if number % 500 == 0:
            client.poll(0)
    client.flush()
    rate = waiting.SHARE * waiting.TRIAL / (time.perf_counter() - began)
    stopwatch.offered, stopwatch.before = rate, waiting.TRIAL
    stopwatch.sent = records = int(rate * job.seconds)
    told, count = [0.0] * records, 0
    with stopwatch.running():
        began = time.perf_counter()
        sent = 0
        while sent < records:
            now = time.perf_counter()
            while sent < records and (intended := began + sent / rate) <= now:
                client.produce(topic, value, on_delivery=partial(tell, intended))
                sent += 1
            client.poll(max(0.0, min(0.001, began + sent / rate - time.perf_counter())))
        client.flush()
    assert count == records, count
    stopwatch.latencies_s = told


WAYS = {"firehose": firehose, "columns": columns, "many_topics": firehose, "open_loop": open_loop}
