"""confluent-kafka's Producer (librdkafka), with a callback for each record."""

from __future__ import annotations

from itertools import cycle

from child import Stopwatch
from confluent_kafka import Producer
from job import Job


def firehose(job: Job, stopwatch: Stopwatch) -> None:
    settings = {
        "bootstrap.servers": job.servers,
        "enable.idempotence": True,
        "linger.ms": job.linger_ms,
        "compression.type": job.compression,
    }
    client = Producer(settings | job.settings)
    value, headers = job.value(), job.header_list() or None
    keys = cycle(job.key_list() or [None])
    delivered = 0

    def told(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    client.produce(job.topic, value, on_delivery=told)
    client.flush()
    delivered = 0
    produce, poll, topic = client.produce, client.poll, job.topic
    with stopwatch.running():
        for number in range(job.count):
            while True:
                try:
                    produce(topic, value, next(keys), on_delivery=told, headers=headers)
                    break
                except BufferError:
                    poll(0.01)
            if number % 500 == 0:
                poll(0)
        client.flush()
    assert delivered == job.count, delivered


WAYS = {"firehose": firehose}
