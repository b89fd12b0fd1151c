"""pytest fixtures for tests against Kafka: `memory_kafka mock_kafka kafka_cluster kafka_bootstrap kafka_topic`.

Loaded by every run of pytest where aiokprod is installed, so nothing is imported here but pytest; a fixture brings in
what it needs. All fixtures are synchronous: they serve tests of any kind, under pytest-asyncio, anyio or neither.

Environment: `AIOKPROD_TEST_BOOTSTRAP_SERVERS` names a plaintext cluster to use instead of starting one;
`AIOKPROD_TEST_BACKEND` is "processes" (default), "containers" or "auto"; `AIOKPROD_KAFKA_IMAGE` names the image.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aiokprod.testing.kafka_cluster import BackendName, KafkaCluster
    from aiokprod.testing.memory import MemoryProducer
    from aiokprod.testing.mock import MockCluster

BOOTSTRAP_VARIABLE = "AIOKPROD_TEST_BOOTSTRAP_SERVERS"
BACKEND_VARIABLE = "AIOKPROD_TEST_BACKEND"
BACKENDS: dict[str, BackendName] = {"processes": "processes", "containers": "containers", "auto": "auto"}


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three real brokers, started once per session. A test that kills one must bring it back."""
    from aiokprod.testing.kafka_cluster import KafkaCluster

    backend = BACKENDS.get(os.environ.get(BACKEND_VARIABLE, "processes"))
    if backend is None:
        raise pytest.UsageError(f"{BACKEND_VARIABLE}: {', '.join(BACKENDS)}")
    with KafkaCluster(brokers=3, backend=backend) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    """bootstrap.servers of a real cluster: the one the environment names, else `kafka_cluster`."""
    if named := os.environ.get(BOOTSTRAP_VARIABLE):
        return named
    cluster: KafkaCluster = request.getfixturevalue("kafka_cluster")
    return cluster.bootstrap_servers


@pytest.fixture
def kafka_topic(kafka_bootstrap: str) -> Iterator[str]:
    """The name of a new topic with three partitions on the real cluster, deleted after the test."""
    from aiokprod.testing.kafka_cluster.admin import Admin

    admin = Admin.from_bootstrap(kafka_bootstrap)
    name = f"test-{uuid.uuid4().hex[:12]}"
    try:
        admin.create_topic(name, 3, -1, {})
        yield name
        admin.delete_topic(name)
    finally:
        admin.close()


@pytest.fixture
def mock_kafka() -> Iterator[MockCluster]:
    """An in-process cluster on real sockets, new for each test."""
    from aiokprod.testing.mock import MockCluster

    with MockCluster() as cluster:
        yield cluster


@pytest.fixture
def memory_kafka() -> MemoryProducer:
    """A producer that keeps its records in memory, new for each test and not started: give it to the application."""
    from aiokprod.testing.memory import MemoryProducer

    return MemoryProducer()
