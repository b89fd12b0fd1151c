"""Which clusters the cases run on, by the names of their fixtures in conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from conformance_targets import Target

REAL = pytest.mark.real
SLOW = (pytest.mark.real, pytest.mark.slow)

SMALL_REQUESTS_BYTES: Final = 2_000_000
VERSIONS: Final = {"4.3": ("4.3.1", (4, 3)), "3.9": ("3.9.1", (3, 9)), "2.8": ("2.8.2", (2, 8))}

MOCK = pytest.param("mock_three", id="mock")
KAFKA = pytest.param("kafka_three", id="kafka-4.3", marks=REAL)
KAFKA_SLOWLY = pytest.param("kafka_three", id="kafka-4.3", marks=SLOW)
MOCK_ALONE = pytest.param("mock_alone_4_3", id="mock")
KAFKA_ALONE = pytest.param("kafka_alone_4_3", id="kafka-4.3", marks=SLOW)
OF_3_9 = [
    pytest.param("mock_alone_3_9", id="mock-3.9"),
    pytest.param("kafka_alone_3_9", id="kafka-3.9", marks=SLOW),
]
OF_2_8 = [
    pytest.param("mock_alone_2_8", id="mock-2.8"),
    pytest.param("kafka_alone_2_8", id="kafka-2.8", marks=SLOW),
]
THREE_OF_2_8 = [
    pytest.param("mock_three_2_8", id="mock-2.8"),
    pytest.param("kafka_three_2_8", id="kafka-2.8", marks=SLOW),
]
OLDER_TRANSACTIONS = [
    pytest.param("mock_tv1", id="mock-tv1"),
    pytest.param("kafka_tv1", id="kafka-tv1", marks=SLOW),
    pytest.param("mock_tv0", id="mock-tv0"),
    pytest.param("kafka_tv0", id="kafka-tv0", marks=SLOW),
]
"""Kafka 4.3 with the finalized transaction.version of clusters that were upgraded."""


def for_one_case(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Yield the cluster that the parameter names; close what the case opened afterwards."""
    found: Target = request.getfixturevalue(request.param)
    yield found
    found.hang_up()
