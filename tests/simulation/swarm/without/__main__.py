"""python tests/simulation/swarm/without NAME FIRST SEEDS [themed]: plays worlds with a mend taken out, tells in JSON."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

if __package__ in (None, ""):
    folders = Path(__file__).resolve().parents
    sys.path[:0] = [str(folders[2]), str(folders[3])]  # the swarm, and source_points.py

from swarm.without.defects import EVERY
from swarm.without.patching import TakenOut


def main(name: str, first: int, seeds: int, is_themed: bool) -> None:
    """Play all seeds with the defect, until the caller ends this process. `is_themed`: only seeds of its theme."""
    defect = EVERY[name]
    taken_out = TakenOut(defect)
    taken_out.install()
    from swarm.draw import draw_world, theme_of
    from swarm.play import play

    taken_out.check()
    logging.basicConfig(level=logging.CRITICAL + 1)
    for seed in range(first, first + seeds):
        if is_themed and defect.theme and theme_of(seed) != defect.theme:
            continue
        world = draw_world(seed)
        if not defect.needs(world):
            continue
        print(json.dumps({"begins": seed}), flush=True)
        wrongs = play(world).wrongs
        if wrongs:
            print(json.dumps({"seed": seed, "wrongs": [[wrong.kind, wrong.text] for wrong in wrongs]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "themed" in sys.argv[4:])
