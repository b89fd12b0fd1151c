"""The options that both clients of confluent-kafka give to librdkafka."""

from __future__ import annotations

from typing import Any

from job import Job


def settings_of(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": job.servers,
        "enable.idempotence": True,
        "compression.type": job.compression,
    }
    if job.keys:
        settings["partitioner"] = "murmur2_random"  # as all the others; the default hashes with CRC-32
    if job.linger_ms is not None:
        settings["linger.ms"] = job.linger_ms
    return settings | job.settings
