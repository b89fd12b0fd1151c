"""The whole producer in virtual time: as many seeds as are asked for, each a different world."""

from __future__ import annotations

import os

import pytest
from world import explore

SEEDS = int(os.environ.get("AIOKPROD_SEEDS", "1000"))
FIRST = int(os.environ.get("AIOKPROD_FIRST_SEED", "0"))
PARTS = 20


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_loses_repeats_or_reorders_a_record(part: int) -> None:
    records = delivered = 0
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        run = explore(seed)
        assert not run.wrongs, f"{run.story}\nreplay: AIOKPROD_FIRST_SEED={seed} AIOKPROD_SEEDS=1"
        records += len(run.sent)
        delivered += sum(1 for sent in run.sent if sent.failed is None)
    assert SEEDS < PARTS or delivered > records / 2, "most worlds are survivable"


def test_the_same_seed_is_the_same_run() -> None:
    first, again = explore(11), explore(11)
    assert first.sent
    assert (first.sent, first.deeds, first.metrics) == (again.sent, again.deeds, again.metrics)
