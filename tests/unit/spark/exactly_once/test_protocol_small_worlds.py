"""The protocol in small worlds: all of their schedules, and each rule switched off once.

The worlds that take longest are long tests. With AIOKPROD_TEST_SPARK_SCHEDULES from 1,000 on (nox -s sink_protocol) the larger
worlds are explored as well, which takes minutes.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from protocol_variants import VARIANTS
from protocol_world import Faults
from small_worlds import (
    COSTS,
    LARGER_WORLDS,
    SMALL_WORLDS,
    Explored,
    Small,
    explore,
    has_circle,
    story,
)

from aiokprod.spark.exactly_once.protocol import Refusal

WORLDS = SMALL_WORLDS | LARGER_WORLDS
IS_LONG = int(os.environ.get("AIOKPROD_TEST_SPARK_SCHEDULES", "0")) >= 1000
REFUSED = {
    "transactions time out, rows move": Refusal.OTHER_ROWS,
    "rows move, duplicates are allowed": Refusal.OTHER_ROWS,
    "jobs are skipped": Refusal.UNFINISHED,
    "markers expire": Refusal.NO_FACTS,
    "facts expire": Refusal.NO_FACTS,
    "queries stay away for a week": Refusal.NO_FACTS,
    "queries take turns": Refusal.NO_FACTS,
    "old checkpoints come back": Refusal.REWOUND,
    "old checkpoints come back, rows are added": Refusal.OTHER_COUNT,
}
"""Refusals that schedules of these worlds come to."""
SHOWN = {
    "X1": "two drivers",
    "X1, leftovers": "two drivers, rows move",
    "X2": "drivers crash",
    "X3": "drivers crash, rows move",
    "X4": "transactions time out, rows move",
    "X5": "checkpoints are deleted",
    "X6": "transactions time out, rows move",
    "X7": "drivers crash",
    "X8": "commits are stopped, rows move",
    "X8, token": "commits are stopped, rows move",
    "X9": "transactions time out",
    "X10": "transactions time out, rows move",
    "X11": "old checkpoints come back",
    "X12": "facts expire",
    "X13": "queries take turns",
    "X14": "jobs are skipped",
    "X15": "old checkpoints come back, rows are added",
    "X16": "rows move, duplicates are allowed",
    "X17": "markers expire",
    "X18": "queries stay away for a week",
}
"""The world in which each rule is missed."""
RULES = {variant.rule: variant for variant in VARIANTS}
ON_VERSION_1 = {"X4", "X16"}
"""Rules that are not missed there on version 2, whose coordinator still tells of a transaction that has timed out how it ended.
Its id would have to be taken over as well, by a task that is 16 generations younger."""


LONG = {
    "drivers crash, rows move",
    "commits are stopped, rows move",
    "transactions time out, rows move",
    "checkpoints are deleted",
    "jobs are skipped",
    "rows move, duplicates are allowed",
    "facts expire",
}
"""Worlds whose schedules take several seconds."""


def long_ones(names: Iterable[str], long: Collection[str]) -> list[Any]:
    """Return parameters of a test: those that take long are marked."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in long else name for name in names]


def explored_well(name: str, version: int) -> Explored:
    explored = explore(WORLDS[name], version=version)
    for wrong, path in explored.found.items():
        moves = "\n".join(story(WORLDS[name], path, version=version))
        pytest.fail(f"{wrong.value}:\n{moves}")
    return explored


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", long_ones([*SMALL_WORLDS, *(LARGER_WORLDS if IS_LONG else ())], LONG))
def test_every_schedule_of_a_small_world_ends_well(name: str, version: int) -> None:
    explored = explored_well(name, version)
    small = WORLDS[name]
    assert len(explored.keys) > small.floor, "less than it was is explored"
    ends = explored.ends.values()
    assert any(end.finished == small.batches for end in ends)
    assert any(end.restarts > 1 for end in ends) or name.startswith("tasks fail")
    assert {refusal for end in ends for refusal in end.refusals} >= {REFUSED[name]} if name in REFUSED else True


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("rule", long_ones(RULES, {"X16"}))
def test_a_small_world_misses_a_rule_that_is_switched_off(rule: str) -> None:
    variant = RULES[rule]
    small = WORLDS[SHOWN[variant.rule]]
    found = {
        version
        for version in (1, 2)
        if variant.symptom <= explore(small, variant.rules, version=version, until=variant.symptom).found.keys()
    }
    assert found == ({1} if variant.rule in ON_VERSION_1 else {1, 2})


# ---------------------------------------------------------------------- the exploration itself
CHECKED = {
    "tasks fail": Small(Faults(task_fails=COSTS, zombie=1), 1, 1),
    "transactions time out": Small(Faults(timeout=COSTS), 1, 1),
    "transactions time out, rows move": Small(Faults(timeout=COSTS, moves=True), 1, 1),
}


@pytest.mark.parametrize("name", long_ones(CHECKED, {"transactions time out, rows move"}))
def test_no_state_is_missed_as_another_one_has_the_same_key(name: str) -> None:
    """Without the key every path is run to its end."""
    known = explore(CHECKED[name], version=1)
    assert explore(CHECKED[name], version=1, prunes=False).keys.keys() == known.keys.keys()


@pytest.mark.parametrize(
    "name",
    long_ones(
        [
            "tasks fail, copies, zombies",
            "drivers crash",
            "commits are stopped, rows move",
            "transactions time out",
            "markers expire",
        ],
        {"tasks fail, copies, zombies", "commits are stopped, rows move"},
    ),
)
def test_no_end_is_missed_as_some_orders_of_moves_are_left_out(name: str) -> None:
    few, all_of_them = (explore(SMALL_WORLDS[name], version=2, reduces=reduces) for reduces in (True, False))
    assert few.ends == all_of_them.ends
    assert few.keys.keys() <= all_of_them.keys.keys()


def test_a_circle_of_states_is_found() -> None:
    assert not has_circle(array("q", [-1, 0, 0, 1, 0, 2, 1, 2]))
    assert has_circle(array("q", [-1, 0, 0, 1, 1, 2, 2, 1]))
