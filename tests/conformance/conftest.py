"""The clusters the cases run on: the mock and real Apache Kafka, by the same requests.

`target` is any of them, `three` one with three brokers (4.3 only), for what needs replicas. `alone` is a single broker
made for its cases: it creates topics by itself, takes small requests only and looks for old producers all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance_targets import KafkaTarget, MockTarget, Target

from aiokprod.testing import KafkaCluster, MockCluster

HERE = Path(__file__).parent
REAL = pytest.mark.real
SLOW = (pytest.mark.real, pytest.mark.slow)

SMALL_REQUESTS_BYTES = 2_000_000
VERSIONS = {"4.3": ("4.3.1", (4, 3)), "3.9": ("3.9.1", (3, 9)), "2.8": ("2.8.2", (2, 8))}
ALONE = {
    "auto.create.topics.enable": "true",
    "socket.request.max.bytes": str(SMALL_REQUESTS_BYTES),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="session")
def kafka_three(kafka_cluster: KafkaCluster) -> Target:
    return KafkaTarget("kafka-4.3", (4, 3), kafka_cluster)


@pytest.fixture(scope="module")  # its thread shall not live on beside tests that count threads
def mock_three() -> Iterator[Target]:
    with MockCluster(3, validate_records=True, auto_create_topics=False) as cluster:
        yield from _until_closed(MockTarget("mock", (4, 3), cluster))


def _mock_alone(version: str) -> Iterator[Target]:
    with MockCluster(
        1,
        kafka_version=version,
        validate_records=True,
        max_request_bytes=SMALL_REQUESTS_BYTES,
        producer_expiration_check_ms=500,
        transaction_check_interval_ms=200,
    ) as cluster:
        yield from _until_closed(MockTarget(f"mock-{version}", VERSIONS[version][1], cluster))


def _kafka_alone(version: str) -> Iterator[Target]:
    full, short = VERSIONS[version]
    checks = {"producer.id.expiration.check.interval.ms": "500"} if short >= (3, 9) else {}
    with KafkaCluster(brokers=1, version=full, config=ALONE | checks) as cluster:
        yield KafkaTarget(f"kafka-{version}", short, cluster)


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


@pytest.fixture(scope="session")
def kafka_alone_4_3() -> Iterator[Target]:
    yield from _kafka_alone("4.3")


@pytest.fixture(scope="session")
def kafka_alone_3_9() -> Iterator[Target]:
    yield from _kafka_alone("3.9")


@pytest.fixture(scope="session")
def kafka_alone_2_8() -> Iterator[Target]:
    yield from _kafka_alone("2.8")


MOCK = pytest.param("mock_three", id="mock")
KAFKA = pytest.param("kafka_three", id="kafka-4.3", marks=REAL)
OLDER = [
    pytest.param("mock_alone_3_9", id="mock-3.9"),
    pytest.param("kafka_alone_3_9", id="kafka-3.9", marks=SLOW),
    pytest.param("mock_alone_2_8", id="mock-2.8"),
    pytest.param("kafka_alone_2_8", id="kafka-2.8", marks=SLOW),
]


@pytest.fixture(params=[MOCK, KAFKA])
def three(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _for_one_case(request)


@pytest.fixture(params=[MOCK, pytest.param("kafka_three", id="kafka-4.3", marks=SLOW)])
def three_slowly(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _for_one_case(request)


@pytest.fixture(params=[MOCK, KAFKA, *OLDER])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _for_one_case(request)


@pytest.fixture(params=[MOCK, KAFKA, *OLDER[:2]])
def since_3_9(request: pytest.FixtureRequest) -> Iterator[Target]:
    """For what 2.8 does in another way, which the mock of 2.8 does not follow."""
    yield from _for_one_case(request)


@pytest.fixture(
    params=[
        pytest.param("mock_alone_4_3", id="mock"),
        pytest.param("kafka_alone_4_3", id="kafka-4.3", marks=SLOW),
        *OLDER,
    ]
)
def alone(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _for_one_case(request)


IN_EVERY_RUN = ("test_first_batches.py", "test_duplicates.py", "test_transactions.py")
"""Where Kafka 4.3 answers in every run; the rest of its answers belongs to the long suites."""


@pytest.hookimpl(tryfirst=True)  # before pytest deselects what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in IN_EVERY_RUN and item.get_closest_marker("real"):
            item.add_marker(pytest.mark.slow)


def _for_one_case(request: pytest.FixtureRequest) -> Iterator[Target]:
    found: Target = request.getfixturevalue(request.param)
    yield found
    found.hang_up()


@pytest.fixture(
    params=[
        pytest.param("mock_alone_4_3", id="mock"),
        pytest.param("kafka_alone_4_3", id="kafka-4.3", marks=SLOW),
        *OLDER[:2],
    ]
)
def looking(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A broker that looks for old producers all the time; 2.8 cannot be told to."""
    yield from _for_one_case(request)


@pytest.fixture(params=[OLDER[1], OLDER[3]])
def older(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Real brokers only."""
    yield from _for_one_case(request)
