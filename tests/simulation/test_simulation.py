"""The whole producer in virtual time: as many seeds as are asked for, each a different world."""

from __future__ import annotations

import os
from dataclasses import astuple

import pytest
from world import explore

from aiokprod.testing.checker import Outcome

SEEDS = int(os.environ.get("AIOKPROD_TEST_SEEDS", "240"))
FIRST = int(os.environ.get("AIOKPROD_TEST_FIRST_SEED", "0"))
PARTS = 20


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_loses_repeats_or_reorders_a_record(part: int) -> None:
    records = delivered = 0
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        run = explore(seed)
        assert not run.wrongs, f"{run.story}\nreplay: AIOKPROD_TEST_FIRST_SEED={seed} AIOKPROD_TEST_SEEDS=1"
        records += len(run.sends)
        delivered += sum(sent.outcome is Outcome.DELIVERED for sent in run.sends)
    assert SEEDS < PARTS or delivered > records / 2, "most worlds are survivable"


def test_the_same_seed_is_the_same_run() -> None:
    first, again = explore(11), explore(11)
    assert first.sends
    assert [astuple(sent) for sent in first.sends] == [astuple(sent) for sent in again.sends]
    assert (first.faults, first.metrics) == (again.faults, again.metrics)
