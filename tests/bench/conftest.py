"""`bench/` is no package: its modules find each other by the folder they are run from."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))  # last: no module of the tests is hidden
