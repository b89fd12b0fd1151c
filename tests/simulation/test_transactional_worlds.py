"""Transactional producers in virtual time: a quarter of AIOKPROD_TEST_SEEDS worlds, each another one."""

from __future__ import annotations

import os
from dataclasses import astuple

import pytest
from transactional_world import explore_transactions

from aiokprod.testing.checker import Outcome

SEEDS = max(1, int(os.environ.get("AIOKPROD_TEST_SEEDS", "240")) // 4)
FIRST = int(os.environ.get("AIOKPROD_TEST_FIRST_SEED", "0"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_tears_a_transaction_or_tells_it_wrongly(part: int) -> None:
    records = delivered = 0
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        run = explore_transactions(seed)
        assert not run.wrongs, f"{run.story}\nreplay: AIOKPROD_TEST_FIRST_SEED={seed} AIOKPROD_TEST_SEEDS=1"
        records += len(run.sends)
        delivered += sum(sent.outcome is Outcome.DELIVERED for sent in run.sends)
    assert SEEDS < PARTS or delivered > records / 3, "most worlds are survivable"


def test_the_same_seed_is_the_same_transactional_run() -> None:
    first, again = explore_transactions(11), explore_transactions(11)
    assert first.sends
    assert [astuple(sent) for sent in first.sends] == [astuple(sent) for sent in again.sends]
    assert first.faults == again.faults
