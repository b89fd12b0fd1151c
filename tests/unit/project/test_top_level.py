"""The root of the repository holds what a newcomer looks for, and no file that a tool left there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMES = {"pyproject.toml", "aiokprod", "tests", "bench", "docs", "noxfile.py", "README.md", "LICENSE"}


def test_the_root_holds_these_names_and_hidden_ones() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("only a checkout knows which files are tracked")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {Path(name).parts[0] for name in listed.split("\0") if name}
    assert {name for name in found if not name.startswith(".")} == NAMES
