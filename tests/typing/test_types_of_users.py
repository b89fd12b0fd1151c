"""Programs of users have the types that a strict type checker asks for. Those of pages: tests/pages/test_page_types.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("user_program.py")
LIMIT_S = 600.0


def test_every_idiom_of_users_has_its_types(tmp_path: Path) -> None:
    """Run mypy --strict as a user does, without this project's settings."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--ignore-missing-imports"]
    command += ["--follow-imports=silent", "--cache-dir", str(tmp_path / "mypy"), str(PROGRAM)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
