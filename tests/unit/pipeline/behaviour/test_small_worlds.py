"""Random worlds with too little of everything (`small_world.py`): nothing is lost, doubled, reordered, leaked or hushed up."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from small_world import SmallWorld

from aiokprod.testing.virtual import VirtualNetwork, run_virtual

SEEDS = 15


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["all calls", "serializers", "nothing is awaited"])
def test_what_is_told_is_true_and_nothing_is_left(seed: int, kind: str) -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        world = SmallWorld(network, random, serializes=kind == "serializers", is_quiet=kind == "nothing is awaited")
        async with asyncio.timeout(100_000):
            await world.run()

    run_virtual(scenario, seed=seed)
