"""python tests/simulation/swarm/counted.py FIRST SEEDS [scan]: the work of each callback of the loop, in worlds of the swarm.

A line of JSON for each world: the most units of work in one callback (`work_counter.py` says what a unit is), what that
callback was, how many records the world sent, how many units in all. What the books and the judges read is not counted.
The sources are rewritten as they are imported, so this is a process of its own, and the sources, not the compiled form.
`scan` plants a defect: each record that goes into a batch looks at all of this world that did before.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(tests), str(tests / "simulation"), str(tests / "unit" / "pipeline")]

    from work_counter import count_work

if TYPE_CHECKING:
    from work_counter import Work

MOST_OF_A_CALLBACK = 5_000
MOST_OF_A_RECORD = 100
MOST_OF_A_BATCH = 250
"""Units: of a callback, and more for each record of its world and for each batch that is encoded in it (seen: 63 and 195)."""
READERS = {
    "swarm.books": ("Account.record_outcome", "Account.settled_at", "Account.handle_error", "Account.seen", "Account.__str__"),
    "swarm.scene": ("Scene.sample",),
    "swarm.judge": ("judge",),
    "aiokprod.producer": ("Producer.health", "Producer.metrics"),  # programs call them now and then, worlds all the time
}  # fmt: skip


def is_too_much(world: dict[str, Any]) -> bool:
    """Return whether a callback of this world does more than its records are worth."""
    allowed: int = MOST_OF_A_CALLBACK + MOST_OF_A_RECORD * world["records"] + MOST_OF_A_BATCH * world["batches"]
    return bool(world["most"] > allowed)


def main(work: Work, first: int, seeds: int, *, has_scan: bool) -> None:
    """Count the work of each seed, up to the last."""
    from swarm import play
    from swarm.draw import draw_world

    for module, names in READERS.items():
        for name in names:
            _leave_out(work, module, name)
    planted = _plant_scan(work) if has_scan else []
    play.judge = sys.modules["swarm.judge"].judge
    most = _Most(work)
    logging.basicConfig(level=logging.CRITICAL + 1)
    for seed in range(first, first + seeds):
        most.units, before = 0, work.done
        planted.clear()
        run = play.play(draw_world(seed))
        told = {
            "seed": seed,
            "most": most.units,
            "batches": most.batches,
            "what": most.what,
            "records": run.records,
            "all": work.done - before,
        }
        print(json.dumps(told | {"wrongs": [str(wrong) for wrong in run.wrongs]}), flush=True)


class _Most:
    """The callback with the most work."""

    def __init__(self, work: Work) -> None:
        from aiokprod.pipeline.partition.partition_queue import PartitionQueue

        self.units = 0
        self.batches = 0
        self.what = ""
        self._prepared = 0
        run = asyncio.Handle._run

        def counted(handle: asyncio.Handle) -> None:
            before, what = work.done, repr(handle)
            self._prepared = 0
            run(handle)
            if work.done - before > self.units:
                self.units, self.batches, self.what = work.done - before, self._prepared, what[:200]

        asyncio.Handle._run = counted  # type: ignore[method-assign]
        prepare = PartitionQueue.prepare

        def prepared(queue: PartitionQueue, *args: Any) -> Any:
            self._prepared += 1
            return prepare(queue, *args)

        PartitionQueue.prepare = prepared  # type: ignore[method-assign]


def _leave_out(work: Work, module: str, name: str) -> None:
    """Leave the work that this function causes out of the count."""
    owner: Any = __import__(module, fromlist=["*"])
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    function: Callable[..., Any] = getattr(owner, last)

    @functools.wraps(function)
    def uncounted(*args: Any, **named: Any) -> Any:
        before = work.done
        try:
            return function(*args, **named)
        finally:
            work.done = before

    setattr(owner, last, uncounted)


def _plant_scan(work: Work) -> list[object]:
    """Plant the defect; return the list of what it sees."""
    from aiokprod.pipeline.partition.batch import ProducerBatch

    every: list[object] = []
    write = ProducerBatch.write

    def scanning(batch: ProducerBatch, *record: Any) -> None:
        every.append(record)
        work.walked(every)
        write(batch, *record)

    ProducerBatch.write = scanning  # type: ignore[method-assign]
    return every


if __name__ == "__main__":
    main(count_work(), *map(int, sys.argv[1:3]), has_scan="scan" in sys.argv)
