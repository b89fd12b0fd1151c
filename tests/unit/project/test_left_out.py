"""A run that leaves out tests for want of time (AIOKPROD_TEST_UNTIL) fails if it leaves out too many of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
SMALL = Path(__file__).with_name("test_slow_steps.py")
TIME_IS_OVER = """
import os
import pytest
@pytest.mark.parametrize("number", range(10))
def test_it(number):
    if number == 4:
        os.environ["AIOKPROD_TEST_UNTIL"] = "0"
"""
"""The last five of these ten tests are left out."""


def run_of(*arguments: str, until: str, most: str) -> tuple[int, str, str]:
    """Return the exit status of a run, whether it told why it failed, and its last line."""
    limits = {"AIOKPROD_TEST_UNTIL": until, "AIOKPROD_TEST_MOST_NOT_RUN": most}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        capture_output=True, text=True, check=False, env=os.environ | limits, timeout=100, cwd=TESTS,
    )  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, "".join(line for line in lines if line.startswith("FAILED")), lines[-1]


@pytest.mark.parametrize(
    ("most", "status", "told"),
    [
        ("0.5", 0, ""),
        ("0.4", 1, "FAILED, 5 of 10 tests were not run: more than 0.4 of them (AIOKPROD_TEST_MOST_NOT_RUN)"),
    ],
)
def test_a_run_fails_if_it_leaves_out_more_than_it_may(tmp_path: Path, most: str, status: int, told: str) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(TIME_IS_OVER)
    found = run_of("-p", "conftest", "--rootdir", str(tmp_path), str(file), until="4000000000", most=most)
    assert found[:2] == (status, told)
    assert "5 passed, 5 skipped" in found[2]


@pytest.mark.parametrize(("until", "most", "status"), [("0", "0.9", 1), ("0", "1", 0), ("4000000000", "0", 0)])
def test_a_run_of_several_processes_counts_the_tests_of_all(until: str, most: str, status: int) -> None:
    found = run_of("-n", "1", str(SMALL), until=until, most=most)
    assert (found[0], bool(found[1])) == (status, status == 1), found
    assert ("1 skipped" if until == "0" else "1 passed") in found[2]


def test_a_share_is_a_number_up_to_one() -> None:
    assert run_of(str(SMALL), until="0", most="90")[0] == pytest.ExitCode.USAGE_ERROR
