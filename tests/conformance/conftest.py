"""The clusters the cases run on: the mock and real Apache Kafka, by the same requests.

`target` is any of them, `three` one with three brokers (4.3 only), for what needs replicas. `alone` is a single broker
made for its cases: it creates topics by itself, takes small requests only and looks for old producers all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance_clusters import (
    KAFKA,
    KAFKA_ALONE,
    KAFKA_SLOWLY,
    MOCK,
    MOCK_ALONE,
    OF_2_8,
    OF_3_9,
    SMALL_REQUESTS_BYTES,
    THREE_OF_2_8,
    VERSIONS,
    for_one_case,
)
from conformance_targets import KafkaTarget, MockTarget, Target

from aiokprod.testing import KafkaCluster, MockCluster

HERE = Path(__file__).parent
ALONE = {
    "auto.create.topics.enable": "true",
    "socket.request.max.bytes": str(SMALL_REQUESTS_BYTES),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
IN_EVERY_RUN = ("test_first_batches.py", "test_duplicates.py", "test_transactions.py")
"""Where Kafka 4.3 answers in every run; the rest of its answers belongs to the long suites."""


@pytest.hookimpl(tryfirst=True)  # before pytest deselects what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in IN_EVERY_RUN and item.get_closest_marker("real"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=[MOCK, KAFKA])
def three(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=[MOCK, KAFKA_SLOWLY])
def three_slowly(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=[MOCK, KAFKA, *OF_3_9, *OF_2_8])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=[MOCK, KAFKA, *OF_3_9])
def since_3_9(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Yield clusters from 3.9 on, for what 2.8 does in another way that the mock of 2.8 does not follow."""
    yield from for_one_case(request)


@pytest.fixture(params=[MOCK_ALONE, KAFKA_ALONE, *OF_3_9, *OF_2_8])
def alone(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=[MOCK_ALONE, KAFKA_ALONE, *OF_3_9])
def looking(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Yield brokers that look for expired producers all the time; 2.8 cannot be set up to."""
    yield from for_one_case(request)


@pytest.fixture(params=[OF_3_9[1], OF_2_8[1]])
def older(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Yield real older brokers only."""
    yield from for_one_case(request)


@pytest.fixture(params=THREE_OF_2_8)
def three_of_2_8(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


# ---------------------------------------------------------------------- the clusters themselves


@pytest.fixture(scope="session")
def kafka_three(kafka_cluster: KafkaCluster) -> Target:
    return KafkaTarget("kafka-4.3", (4, 3), kafka_cluster)


@pytest.fixture(scope="module")  # its thread must not outlive the module, as other tests count threads
def mock_three() -> Iterator[Target]:
    with MockCluster(3, validate_records=True, auto_create_topics=False) as cluster:
        yield from _until_closed(MockTarget("mock", (4, 3), cluster))


@pytest.fixture(scope="module")
def mock_three_2_8() -> Iterator[Target]:
    with MockCluster(3, kafka_version="2.8", validate_records=True) as cluster:
        yield from _until_closed(MockTarget("mock-2.8", (2, 8), cluster))


@pytest.fixture(scope="module")
def kafka_three_2_8() -> Iterator[Target]:
    with KafkaCluster(brokers=3, version="2.8.2") as cluster:
        yield KafkaTarget("kafka-2.8", (2, 8), cluster)


def _mock_alone(version: str, transaction_version: int | None = None) -> Iterator[Target]:
    with MockCluster(
        1,
        kafka_version=version,
        validate_records=True,
        max_request_bytes=SMALL_REQUESTS_BYTES,
        producer_expiration_check_ms=500,
        transaction_check_interval_ms=200,
        transaction_version=transaction_version,
    ) as cluster:
        target = MockTarget(f"mock-{version}", VERSIONS[version][1], cluster)
        target.keep_transactions_as(transaction_version)
        yield from _until_closed(target)


def _kafka_alone(version: str, transaction_version: int | None = None) -> Iterator[Target]:
    full, short = VERSIONS[version]
    checks = {"producer.id.expiration.check.interval.ms": "500"} if short >= (3, 9) else {}
    with KafkaCluster(brokers=1, version=full, config=ALONE | checks) as cluster:
        target = KafkaTarget(f"kafka-{version}", short, cluster)
        if transaction_version is not None:
            target.downgrade_transactions(transaction_version)
        target.keep_transactions_as(transaction_version)
        yield target


def _until_closed(target: Target) -> Iterator[Target]:
    yield target
    target.close()


@pytest.fixture(scope="module")
def mock_alone_4_3() -> Iterator[Target]:
    yield from _mock_alone("4.3")


@pytest.fixture(scope="module")
def mock_alone_3_9() -> Iterator[Target]:
    yield from _mock_alone("3.9")


@pytest.fixture(scope="module")
def mock_alone_2_8() -> Iterator[Target]:
    yield from _mock_alone("2.8")


@pytest.fixture(scope="module")
def mock_tv1() -> Iterator[Target]:
    yield from _mock_alone("4.3", transaction_version=1)


@pytest.fixture(scope="module")
def mock_tv0() -> Iterator[Target]:
    yield from _mock_alone("4.3", transaction_version=0)


@pytest.fixture(scope="session")
def kafka_alone_4_3() -> Iterator[Target]:
    yield from _kafka_alone("4.3")


@pytest.fixture(scope="session")
def kafka_alone_3_9() -> Iterator[Target]:
    yield from _kafka_alone("3.9")


@pytest.fixture(scope="session")
def kafka_alone_2_8() -> Iterator[Target]:
    yield from _kafka_alone("2.8")


@pytest.fixture(scope="session")
def kafka_tv1() -> Iterator[Target]:
    yield from _kafka_alone("4.3", transaction_version=1)


@pytest.fixture(scope="session")
def kafka_tv0() -> Iterator[Target]:
    yield from _kafka_alone("4.3", transaction_version=0)
