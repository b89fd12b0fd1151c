"""The swarm: worlds drawn from seeds, each with other features of the whole producer, played and judged in virtual time."""

from __future__ import annotations

import os

import pytest
from swarm.draw import draw_world
from swarm.play import play
from swarm.world_values import World

SEEDS = int(os.environ.get("AIOKPROD_SWARM_SEEDS", "300"))
FIRST = int(os.environ.get("AIOKPROD_SWARM_FIRST", "0"))
PARTS = 20


@pytest.mark.parametrize("part", range(PARTS))
def test_no_world_of_the_swarm_breaks_a_promise(part: int) -> None:
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        run = play(draw_world(seed))
        assert not run.wrongs, f"{run.story}\nsmaller: python tests/simulation/swarm --shrink {seed}"


def test_the_same_seed_is_the_same_world_and_the_same_run() -> None:
    for seed in (3, 11, 40):
        world = draw_world(seed)
        first, again = play(world), play(World.from_json(draw_world(seed).to_json()))
        assert first.records and first.story == again.story


def test_most_worlds_are_survivable() -> None:
    runs = [play(draw_world(seed)) for seed in range(FIRST, FIRST + 40)]
    assert sum(run.delivered for run in runs) > sum(run.records for run in runs) / 5
