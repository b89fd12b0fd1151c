"""A child process of a test ends with its block, also if the test fails there."""

from __future__ import annotations

import ast
import signal
import sys
from pathlib import Path

import pytest
from child_process import Child

TESTS = Path(__file__).resolve().parents[2]
ENDS_IT_ITSELF = {"simulation/swarm/without/hunting.py"}
"""programs that cannot import the helper"""


def test_a_process_of_a_test_that_fails_ends_with_it() -> None:
    with pytest.raises(AssertionError), Child([sys.executable, "-c", "while True: pass"]) as process:
        raise AssertionError
    assert process.returncode == -signal.SIGKILL


def waits(file: Path) -> bool:
    """Return whether a block of the file would wait for its process: Popen does that."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    items = [item.context_expr for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    return any(isinstance(each, ast.Call) and ast.unparse(each.func).endswith("Popen") for each in items)


def test_no_test_has_a_block_that_waits_for_its_process() -> None:
    assert {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py") if waits(path)} == ENDS_IT_ITSELF
