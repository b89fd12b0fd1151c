"""The command `python tests/simulation/swarm`."""

from __future__ import annotations

import argparse
import gc
import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .draw import draw_world, theme_of
from .play import play
from .shrink import shrink
from .themes_narrow import is_narrow
from .world_values import Run, World


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="swarm", description="Explore the whole producer in virtual time.")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--narrow", action="store_true", help="of these seeds, only those that have a narrow theme")
    parser.add_argument("--theme", help="of these seeds, only those of this theme, such as process or transactions")
    parser.add_argument("--operations", type=int, help="as many operations in each world")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one seed, with its story")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="the smallest world with the same kind of finding")
    parser.add_argument("--kind", help="of the finding to shrink to; the first one otherwise")
    parser.add_argument("--file", type=Path, help="a world as JSON, instead of a seed")
    parser.add_argument("--json", action="store_true", help="print the world as JSON too")
    parser.add_argument("--log", action="store_true", help="show the producer's log")
    parser.add_argument(
        "--without", metavar="NAME", help="seeds until the defect is found whose mend is taken out; or all"
    )
    parser.add_argument(
        "--themed", action="store_true", help="with --without: only worlds of the theme that shows it most"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO if given.log else logging.CRITICAL + 1)
    if given.without is not None:
        return _without(given.without, given.seeds, given.themed)
    if given.file is not None or given.replay is not None or given.shrink is not None:
        return _one(given)
    chosen = [seed for seed in range(given.first, given.first + given.seeds) if is_narrow(seed) or not given.narrow]
    if given.theme is not None:
        chosen = [seed for seed in chosen if theme_of(seed) == given.theme]
    return _many(chosen, given.operations)


def _one(given: argparse.Namespace) -> int:
    if given.file is not None:
        world = World.from_json(given.file.read_text())
    else:
        world = draw_world(given.replay if given.shrink is None else given.shrink, given.operations)
    if given.shrink is not None:
        run = shrink(world, given.kind, tell=print)
    else:
        run = play(world, with_log=given.log)
    print(run.story)
    if given.json:
        print(run.world.to_json())
    return 1 if run.wrongs else 0


def _many(chosen: Sequence[int], operations: int | None) -> int:
    gc.collect()
    gc.freeze()  # what was there before is no garbage of any world
    began = time.process_time()
    kinds: Counter[str] = Counter()
    firsts: dict[str, int] = {}
    failing = records = 0
    for number, seed in enumerate(chosen):
        if number % 25 == 0:
            gc.freeze()  # compiled, some of each world stays: docs of test_swarm.py
        run = _played(seed, operations)
        failing += bool(run.wrongs)
        records += run.records
        for kind in sorted(run.kinds):
            kinds[kind] += 1
            if firsts.setdefault(kind, seed) == seed:
                print(f"seed {seed}: {next(w for w in run.wrongs if w.kind == kind)}"[:400], flush=True)
    spent = time.process_time() - began
    print(f"{len(chosen)} seeds, {failing} with findings, {records} records, {spent:.1f} s CPU, {len(kinds)} kinds")
    for kind, count in kinds.most_common():
        print(f"{count:6}  {kind:45} first {firsts[kind]}")
    return 1 if failing else 0


def _without(name: str, seeds: int, is_themed: bool) -> int:
    from .without.defects import DEFECTS, EVERY
    from .without.hunting import table

    defects = list(DEFECTS) if name == "all" else [EVERY[each] for each in name.split(",")]
    hunts = table(defects, seeds, print, is_themed=is_themed)
    return 1 if any(found.seed is None for found in hunts) else 0


def _played(seed: int, operations: int | None) -> Run:
    return play(draw_world(seed, operations))
