"""Frameworks on `aiokprod.compat.aiokafka`, each by a program that knows nothing of it, on a real Kafka.

`python -m aiokprod.compat.aiokafka PROGRAM` runs a program as `python PROGRAM` does, with the producer installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real
PROGRAMS = Path(__file__).with_name("drop_in_programs")
LIMIT_S = 150
OURS = "aiokprod.compat.aiokafka.producer"
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1) as started:
        yield started


def told_by(program: str, *arguments: str) -> dict[str, Any]:
    """Return what a program prints; one that imports a framework before `install` fails."""
    command = [sys.executable, "-W", "error::RuntimeWarning:aiokprod", "-m", "aiokprod.compat.aiokafka"]
    run = subprocess.run(
        [*command, str(PROGRAMS / program), *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert run.returncode == 0, run.stderr
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert told["producer"] == OURS
    assert "ResourceWarning" not in run.stderr and "never retrieved" not in run.stderr, run.stderr
    return told


def create(cluster: KafkaCluster, *topics: str) -> None:
    for topic in topics:
        cluster.create_topic(topic, partitions=1 if topic == "faust-words" else PARTITIONS, replication_factor=1)


def test_a_service_of_faststream_consumes_and_publishes_also_batches(cluster: KafkaCluster) -> None:
    create(cluster, "faststream-orders", "faststream-confirmed")
    told = told_by("faststream_orders.py", cluster.bootstrap_servers, "faststream")
    numbers = [*range(20), 100, 101, 102]
    assert told["seen"] == numbers
    assert told["confirmed"] == sorted(f"confirmed {number}" for number in numbers)
    assert (told["batch"], told["ping"]) == (0, True)


def test_tasks_of_taskiq_are_kicked_and_run(cluster: KafkaCluster) -> None:
    told = told_by("taskiq_sums.py", cluster.bootstrap_servers, "taskiq")
    assert told["sums"] == list(range(1, 11))


def test_opentelemetry_instruments_each_record_with_its_partition(cluster: KafkaCluster) -> None:
    create(cluster, "instrumented")
    told = told_by("instrumented.py", cluster.bootstrap_servers, "instrumented")
    assert told["partitions"] == [str(told["partition"]), "0"]
    assert told["clients"] == ["orders", "orders"]
    assert told["servers"] == [cluster.bootstrap_servers] * 2
    assert sorted(map(len, told["headers"])) == [1, 2]  # `traceparent` with each, and the program's own
    assert told["spans"].count("instrumented send") == 2


def test_an_application_of_faust_keeps_a_table(cluster: KafkaCluster, tmp_path: Path) -> None:
    create(cluster, "faust-words")
    told = told_by("faust_counts.py", cluster.bootstrap_servers, "faust", str(tmp_path))
    assert told["counts"] == {"a": 3, "b": 1, "c": 1}
