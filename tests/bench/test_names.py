"""Modules that find each other by their folder share one name space in a test run: no two may have the same name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEVER_IMPORTED = {"conftest", "__main__", "__init__", "run"}  # or by its folder's name, or, as bench/run.py, a script


def test_no_module_hides_another() -> None:
    found = [path.stem for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts]
    found += [path.parent.name for path in (ROOT / "tests").rglob("__init__.py")]
    found += [path.stem for path in (ROOT / "bench").glob("*.py")]
    found += [path.name for path in (ROOT / "bench").iterdir() if path.is_dir() and path.name != "__pycache__"]
    counts = Counter(name for name in found if name not in NEVER_IMPORTED)
    assert [name for name, count in counts.items() if count > 1] == []
