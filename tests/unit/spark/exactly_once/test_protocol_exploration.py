"""The protocol in a hostile world: thousands of schedules, and each rule switched off once."""

from __future__ import annotations

import pytest
from protocol_variants import VARIANTS, Variant
from protocol_world import KINDS, Faults, World, schedule

SCHEDULES = 150
"""Of each kind and version: some 3,000 in all."""
CALM = Faults()


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
            for second in range(first + 1, first + steps, 7):
                world = World(1, Faults(moves=moves), version=version, batches=2)
                world.crash_at = [first, second]
                world.run()
                assert world.verdict() == [], f"crashes at {first} and {second}"
                assert world.refusals == []
                assert len(world.finished) == 2


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.rule)
def test_a_rule_that_is_switched_off_is_missed(variant: Variant) -> None:
    for seed in range(4000):
        world = World(seed, KINDS[variant.kind], variant.rules, version=1 + seed % 2, most=3000)
        try:
            world.run()
        except AssertionError:
            return  # it does not come to an end
        if world.verdict():
            return
    pytest.fail(f"without {variant.rule} nothing goes wrong in 4,000 schedules")
