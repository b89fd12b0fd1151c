"""Records that have no partition yet: what it costs to take one back, or to let it time out."""

from __future__ import annotations

import pytest
from work_counter import counts_of

SIZES = (20, 200, 2_000)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "scenario",
    [
        "recalls_while_the_topic_is_unknown",
        "recalls_while_a_partition_is_missing",
        "recalls_while_there_is_no_room",
        "timeouts_while_the_topic_is_unknown",
    ],
)
def test_a_parked_record_that_leaves_costs_the_same_however_many_are_parked(scenario: str) -> None:
    of_each = [count["work"] / size for count, size in zip(counts_of(scenario, SIZES), SIZES, strict=True)]
    assert of_each[2] <= 1.3 * of_each[0], of_each
