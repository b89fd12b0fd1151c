"""The protocol in a hostile world: thousands of schedules, and each rule switched off once.

AIOKPROD_TEST_SPARK_SCHEDULES sets how many random schedules of each kind and version are run (nox -s sink_protocol: 3,000).
From 1,000 on, the second of two crashes comes at every step, and not at each seventh.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from protocol_variants import VARIANTS, Variant
from protocol_world import KINDS, Faults, World, findings, schedule

SCHEDULES = int(os.environ.get("AIOKPROD_TEST_SPARK_SCHEDULES", "60"))
"""Of each kind and version: some 6,000 in all."""
STRIDE = 1 if SCHEDULES >= 1000 else 7
SEARCH = max(1500, SCHEDULES)
"""Schedules in which the harm is looked for that a missing rule does; it mostly shows within a hundred."""


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_of_a_finished_batch_is_there_once(kind: str, version: int) -> None:
    ended, refused = 0, 0
    for seed in range(SCHEDULES):
        world = schedule(seed, KINDS[kind], version=version)
        assert world.verdict() == [], f"seed {seed}"
        refused += bool(world.refusals)
        ended += world.checkpoint.committed == world.batches
    assert ended > SCHEDULES // 4
    assert refused < SCHEDULES


@pytest.mark.parametrize("version", [1, 2])
def test_a_driver_may_crash_at_every_step_and_its_successor_at_every_step_again(version: int) -> None:
    for moves in (False, True):
        calm = World(1, Faults(moves=moves), version=version, batches=2)
        calm.run()
        steps = calm.steps_of_driver
        for first in range(1, steps + 1):
            for second in range(first + 1, first + steps, STRIDE):
                world = World(1, Faults(moves=moves), version=version, batches=2)
                world.crash_at = [first, second]
                world.run()
                assert world.verdict() == [], f"crashes at {first} and {second}"
                assert world.refusals == []
                assert len(world.finished) == 2


SEARCHED_LONG = "X1, leftovers"
"""The rule that takes most schedules to miss; test_protocol_small_worlds.py shows it in every run."""


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, id=variant.rule, marks=[pytest.mark.slow] if variant.rule == SEARCHED_LONG else [])
        for variant in VARIANTS
    ],
)
def test_a_rule_that_is_switched_off_is_missed_by_its_own_symptom(variant: Variant) -> None:
    others: Counter[str] = Counter()
    for seed in range(SEARCH):
        found = {finding.wrong for finding in findings(seed, KINDS[variant.kind], variant.rules)}
        if found >= variant.symptom:
            return
        others.update(wrong.value for wrong in found)
    expected = " and ".join(sorted(wrong.value for wrong in variant.symptom))
    pytest.fail(
        f"without {variant.rule}, {SEARCH} schedules never show that {expected}; but {dict(others) or 'nothing'}"
    )
