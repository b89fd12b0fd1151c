"""`Partitioner`: which functions are called with the whole record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from aiokprod import Partitioner, Producer, ProducerConfig
from aiokprod.config.partitioner import sees_records
from aiokprod.errors import ConfigError


class Full:
    """A partitioner of the full form."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, every: Sequence[int], available: Sequence[int]
    ) -> int:
        return every[0]


def of_five(topic: str, key: object, value: object, every: Sequence[int], available: Sequence[int]) -> int:
    return every[0]


def of_three_to_five(key: object, every: Any, available: Any, more: object = None, last: object = None) -> int:
    return 0


@pytest.mark.parametrize(
    ("function", "is_full"),
    [
        (of_five, True),
        (Full(), True),
        (Full().__call__, True),
        (lambda key, every, available: 0, False),
        (of_three_to_five, False),
        (lambda *anything: 0, False),
        (max, False),  # has no signature
    ],
)
def test_a_function_that_takes_three_arguments_is_called_with_three(
    function: Callable[..., object], is_full: bool
) -> None:
    assert sees_records(function) is is_full


def test_a_partitioner_with_another_number_of_arguments_is_refused_when_the_producer_is_made() -> None:
    full: Partitioner = Full()
    assert ProducerConfig.of(bootstrap_servers="kafka", partitioner=full).partitioner is full
    wrong: Any
    for wrong in (partial(of_five, "topic"), lambda key: 0, lambda a, b, c, d, e, f: 0, Full):
        with pytest.raises(ConfigError, match=r"\(topic, key, value, all_partitions, available_partitions\) -> int"):
            Producer("localhost:9092", partitioner=wrong)
