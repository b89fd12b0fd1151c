"""python tests/simulation/swarm [--first N] [--seeds N]: count findings. --replay SEED | --shrink SEED | --file PATH."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from swarm.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
