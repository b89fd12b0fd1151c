"""python tests/simulation/swarm [--first N] [--seeds N]: count findings. --replay SEED | --shrink SEED | --file PATH."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    folders = Path(__file__).resolve().parents
    sys.path[:0] = [str(folders[1]), str(folders[2])]  # this package, and source_points.py

from swarm.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
