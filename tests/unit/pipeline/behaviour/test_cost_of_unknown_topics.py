"""Names of topics that do not exist: what a producer keeps of them, and what each costs."""

from __future__ import annotations

from functools import cache

import pytest
from work_counter import counts_of

SIZES = (200, 1_000)
IN_USE = 1
BOUND = 100  # names that failed a short while ago


@cache
def counts() -> list[dict[str, int]]:
    return counts_of("topics_that_do_not_exist", SIZES)


@pytest.mark.slow
def test_names_that_do_not_exist_are_not_kept_for_ever() -> None:
    assert all(count["kept"] <= IN_USE + BOUND and count["kept later"] <= IN_USE + BOUND for count in counts())


def test_a_name_that_does_not_exist_costs_the_same_however_many_were_tried_before() -> None:
    some, many = (count["work"] / size for count, size in zip(counts(), SIZES, strict=True))
    assert many <= 1.3 * some
