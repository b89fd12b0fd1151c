"""The clusters the cases run on: the mock and real Apache Kafka, by the same requests.

`target` is any of them. `three` has three brokers, for what needs replicas. `alone` is one broker that was started for
this, with auto-creation, a small limit for requests and an early look for old producers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from targets import KafkaTarget, MockTarget, Target

from aiokprod.testing import KafkaCluster, MockCluster

REAL = pytest.mark.real
SLOW = (pytest.mark.real, pytest.mark.slow)


@pytest.fixture(scope="module")  # its thread shall not live on beside tests that count threads
def mock_three() -> Iterator[Target]:
    with MockCluster(3, validate_records=True, auto_create_topics=False) as cluster:
        mock = MockTarget("mock", (4, 3), cluster)
        yield mock
        mock.close()


@pytest.fixture(scope="session")
def kafka_three(kafka_cluster: KafkaCluster) -> Target:
    return KafkaTarget("kafka-4.3", (4, 3), kafka_cluster)


THREE = [pytest.param("mock_three", id="mock"), pytest.param("kafka_three", id="kafka-4.3", marks=REAL)]


@pytest.fixture(params=THREE)
def three(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _for_one_case(request)


@pytest.fixture(params=[THREE[0], pytest.param("kafka_three", id="kafka-4.3", marks=SLOW)])
def three_slowly(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _for_one_case(request)


@pytest.fixture(params=THREE)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _for_one_case(request)


def _for_one_case(request: pytest.FixtureRequest) -> Iterator[Target]:
    found: Target = request.getfixturevalue(request.param)
    yield found
    found.hang_up()
