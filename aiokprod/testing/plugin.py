"""pytest fixtures for tests against Kafka: `memory_kafka mock_kafka kafka_cluster kafka_bootstrap kafka_topic`.

And the marker `kafka_seeds(count)`, for an async test that is run seed after seed in virtual time (`SeededTest`).

Loaded by every run of pytest where aiokprod is installed, so nothing is imported here but pytest; a fixture brings in
what it needs. All fixtures are synchronous: they serve tests of any kind, under pytest-asyncio, anyio or neither.

Environment: `AIOKPROD_TEST_BOOTSTRAP_SERVERS` names a plaintext cluster to use instead of starting one;
`AIOKPROD_TEST_BACKEND` is "processes" (default), "containers" or "auto"; `AIOKPROD_KAFKA_IMAGE` names the image.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiokprod.testing.kafka_cluster import BackendName, KafkaCluster
    from aiokprod.testing.memory import MemoryProducer
    from aiokprod.testing.mock import MockCluster

BOOTSTRAP_VARIABLE = "AIOKPROD_TEST_BOOTSTRAP_SERVERS"
BACKEND_VARIABLE = "AIOKPROD_TEST_BACKEND"
BACKENDS: dict[str, BackendName] = {"processes": "processes", "containers": "containers", "auto": "auto"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the seeds."""
    group = parser.getgroup("aiokprod", "Kafka in virtual time (aiokprod)")
    group.addoption("--kafka-seed", type=int, action="append", metavar="N", help="run kafka_seeds tests with this seed")
    group.addoption("--kafka-seeds", type=int, metavar="COUNT", help="run kafka_seeds tests with so many seeds")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, for --strict-markers."""
    config.addinivalue_line(
        "markers",
        "kafka_seeds(count, *, faults=..., **options): run this async test once per seed, in virtual time, on a mock_kafka"
        " with random faults; options are those of MockCluster",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Replace the items of the marked tests, also those made by the plugin of an async runner."""
    for index, item in enumerate(session.items):
        if item.get_closest_marker("kafka_seeds") is not None and isinstance(item, pytest.Function):
            from aiokprod.testing.seeded import SeededTest

            session.items[index] = SeededTest.instead_of(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run the seeds of a marked test."""
    run_seeds = getattr(item, "run_seeds", None)
    if run_seeds is None:
        return None
    run_seeds(nextitem)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Run the async fixtures of a marked test on the loop of its seed."""
    running = getattr(request.node, "running_fixture", None)
    if running is None:
        return (yield)
    with running(fixturedef):
        return (yield)


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Yield three real brokers, started once per session. A test that kills one must bring it back."""
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
    """Yield the name of a new topic with three partitions on the real cluster; it is deleted after the test."""
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
def mock_kafka(request: pytest.FixtureRequest) -> Iterator[MockCluster]:
    """Yield an in-process cluster on real sockets, new for each test; in memory, new for each seed, with kafka_seeds."""
    from aiokprod.testing.mock import MockCluster

    make = getattr(request.node, "seeded_cluster", MockCluster)
    with make() as cluster:
        yield cluster


@pytest.fixture
def kafka_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this run of a test marked kafka_seeds, for the test's own random numbers."""
    seed: int | None = getattr(request.node, "kafka_seed", None)
    if seed is None:
        raise pytest.UsageError("kafka_seed is for tests marked kafka_seeds")
    return seed


@pytest.fixture
def memory_kafka() -> MemoryProducer:
    """Return a producer that keeps its records in memory, new for each test and not started: give it to the application."""
    from aiokprod.testing.memory import MemoryProducer

    return MemoryProducer()
