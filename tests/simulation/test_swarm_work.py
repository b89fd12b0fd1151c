"""No turn of the loop takes longer than what it is about: the work of each callback is counted, in worlds of the swarm.

A callback may touch each record of its world some times: an answer settles thousands of them, a `send_many` takes as many.
What looks at all of them for each of them goes beyond any such bound.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from swarm.counted import is_too_much

import aiokprod

COUNTED = Path(__file__).with_name("swarm") / "counted.py"
SEEDS = 20
MANY = range(100, 300, 100)


def counted(first: int, seeds: int, *more: str) -> list[dict[str, Any]]:
    environment = os.environ | {"AIOKPROD_PURE": "1", "PYTHONPATH": str(Path(aiokprod.__file__).parents[1])}
    command = [sys.executable, str(COUNTED), str(first), str(seeds), *more]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stderr
    return [json.loads(line) for line in played.stdout.splitlines()]


def judged(worlds: list[dict[str, Any]], seeds: int) -> None:
    assert len(worlds) == seeds
    assert sum(world["all"] for world in worlds) > 1_000 * seeds, "nothing was counted"
    assert not [world for world in worlds if world["wrongs"]]
    bad = [world for world in worlds if is_too_much(world)]
    assert not bad, f"too much in one callback: {bad}"


def test_no_callback_does_more_than_its_records_are_worth() -> None:
    judged(counted(0, SEEDS), SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY)
def test_no_callback_does_more_in_hundreds_of_worlds(first: int) -> None:
    judged(counted(first, 100), 100)


def test_a_look_at_all_records_for_each_record_is_found() -> None:
    worlds = counted(0, SEEDS, "scan")
    assert [world for world in worlds if is_too_much(world)]
