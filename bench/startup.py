"""Import, first acknowledged record, idle size: each client in fresh processes, taking turns."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from typing import Any

from brokers import HERE
from compiled import environment_of

from aiokprod.testing import KafkaCluster

TOPIC = "bench-startup"
LINES = (
    ("aiokprod, compiled", "aiokprod", "compiled"),
    ("aiokprod, pure", "aiokprod", "pure"),
    ("confluent-kafka", "confluent_callback", ""),
    ("confluent-kafka, AIOProducer", "confluent_asyncio", ""),
    ("aiokafka", "aiokafka", ""),
    ("kafka-python", "kafka_python", ""),
)


def measure(cluster: KafkaCluster, compiled: str, *, quick: bool) -> dict[str, Any]:
    """Measure; client -> figure -> [median, minimum, maximum]."""
    cluster.create_topic(TOPIC, partitions=1, replication_factor=1)
    runs: dict[str, list[dict[str, float]]] = {}
    for number in range(3 if quick else 10):
        for name, client, form in LINES:
            python = compiled if form == "compiled" else sys.executable
            command = [python, str(HERE / "startup_child.py"), client, cluster.bootstrap_servers, TOPIC]
            environment = environment_of(form or "pure")
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            if number:  # the first round writes byte code and warms the disk's cache
                runs.setdefault(name, []).append(json.loads(done.stdout))
    sent, written = sum(map(len, runs.values())) + len(LINES), sum(cluster.end_offsets(TOPIC))
    assert written == sent, f"{sent} were acknowledged, the log has {written}"
    cluster.delete_topic(TOPIC)
    return {
        name: {figure: figures([run[figure] for run in found]) for figure in found[0]} for name, found in runs.items()
    }


def figures(values: list[float]) -> list[float]:
    return [round(value, 1) for value in (median(values), min(values), max(values))]
