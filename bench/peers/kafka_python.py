"""kafka-python."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from child import Stopwatch
from job import Job
from kafka import KafkaProducer


def firehose(job: Job, stopwatch: Stopwatch) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": job.servers,
        "enable_idempotence": True,
        "acks": "all",
        "compression_type": None if job.compression == "none" else job.compression,
    }
    if job.linger_ms is not None:
        settings["linger_ms"] = job.linger_ms
    client = KafkaProducer(**(settings | job.settings))
    value, headers = job.value(), job.header_list()
    keys = cycle(job.key_list() or [None])
    client.send(job.topic, value).get(30)
    with stopwatch.running():
        for _ in range(job.count):
            client.send(job.topic, value, next(keys), headers=headers)
        client.flush()
    client.close()


WAYS = {"firehose": firehose}
