"""The swarm: worlds drawn from seeds, each with other features of the whole producer, played and judged in virtual time."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from swarm.draw import draw_world
from swarm.draw_process import is_process
from swarm.play import play
from swarm.themes_narrow import is_transactional
from swarm.world_values import World

SEEDS = int(os.environ.get("AIOKPROD_TEST_SWARM_SEEDS", "80"))
FIRST = int(os.environ.get("AIOKPROD_TEST_SWARM_FIRST", "0"))
PARTS = 20
FOUND = (16_326, 18_906, 25_266, 26_886, 28_526, 31_706, 37_366, 37_966)
"""Worlds beyond those that are played each night, in which something was found."""
PROCESS_WORLDS = int(os.environ.get("AIOKPROD_TEST_SWARM_PROCESS_WORLDS", "600"))
PROCESS_PARTS = 6
FROZEN_EVERY = 25
"""Worlds. Compiled, some objects of a world stay (their loop is in a circle that nothing collects); with those of thousands of
worlds, the collections after each world took three times as long as the worlds."""


@pytest.fixture(autouse=True, scope="module")
def _looked_at_once() -> Iterator[None]:
    """Freeze earlier objects: they are no garbage of any world, and collections between worlds leave them out."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("part", range(PARTS))
def test_no_world_of_the_swarm_breaks_a_promise(part: int) -> None:
    for number, seed in enumerate(range(FIRST + part, FIRST + SEEDS, PARTS)):
        if number % FROZEN_EVERY == 0:
            gc.freeze()
        run = play(draw_world(seed))
        assert not run.wrongs, f"{run.story}\nsmaller: python tests/simulation/swarm --shrink {seed}"


def test_no_world_of_transactions_breaks_a_promise() -> None:
    outcomes: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in [seed for seed in range(FIRST + 300, FIRST + 2_300) if is_transactional(seed)]:
        run = play(draw_world(seed))
        assert not run.wrongs, f"{run.story}\nsmaller: python tests/simulation/swarm --shrink {seed}"
        outcomes += run.outcomes
        kinds.update(step.kind for step in run.world.operations)
    assert min(outcomes["committed"], outcomes["aborted"]) > 100, outcomes
    assert {"begin", "block", "commit", "abort", "offsets", "prepare", "end_elsewhere", "many", "recall"} <= set(kinds)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PROCESS_PARTS))
def test_no_world_with_faults_of_the_process_breaks_a_promise(part: int) -> None:
    kinds: Counter[str] = Counter()
    seeds = [seed for seed in range(FIRST, FIRST + 20 * PROCESS_WORLDS) if is_process(seed)]
    for number, seed in enumerate(seeds[part::PROCESS_PARTS]):
        if number % FROZEN_EVERY == 0:
            gc.freeze()
        run = play(draw_world(seed))
        assert not run.wrongs, f"{run.story}\nsmaller: python tests/simulation/swarm --shrink {seed}"
        kinds.update(step.kind for step in run.world.operations)
    assert {"strike", "deep", "interrupt", "threads"} <= set(kinds)


@pytest.mark.parametrize("seed", FOUND)
def test_a_world_that_found_something_breaks_no_promise(seed: int) -> None:
    run = play(draw_world(seed))
    assert not run.wrongs, run.story


def test_the_same_seed_is_the_same_world_and_the_same_run() -> None:
    for seed in (3, 11, 40, 118, 126, 206, 386):
        world = draw_world(seed)
        first, again = play(world), play(World.from_json(draw_world(seed).to_json()))
        assert first.records and first.story == again.story


def digests(seeds: Sequence[int]) -> dict[str, str]:
    runs = {seed: play(draw_world(seed)) for seed in seeds}
    return {f"{seed}": f"{sha256(run.story.encode()).hexdigest()} {run.drawn_next}" for seed, run in runs.items()}


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Earlier worlds and the hashes of the process change nothing."""
    with_columns = [seed for seed in range(400) if any(s.kind == "columns" for s in draw_world(seed).operations)]
    seeds = (*with_columns[:5], 3, 17, 126, 206, 386, 426, *with_columns[5:8])
    told = []
    for hashes, order in (("1", seeds), ("2", seeds[::-1])):
        code = f"import json, sys; sys.path[:0] = {sys.path!r}\nfrom test_swarm import digests\n"
        code += f"print(json.dumps(digests({order})))"
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        command = [sys.executable, "-c", code]
        folder = Path(__file__).parent
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
        told.append(json.loads(done.stdout))
    assert told[0] == told[1] == digests(seeds)


@pytest.mark.slow
def test_most_worlds_are_survivable() -> None:
    runs = [play(draw_world(seed)) for seed in range(FIRST, FIRST + 40)]
    assert sum(run.delivered for run in runs) > sum(run.records for run in runs) / 5
