"""`bench/` is no package: its modules find each other by the folder they are run from."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
