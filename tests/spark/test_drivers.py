"""The wait of tests for a driver of Spark that has died."""

from __future__ import annotations

from pathlib import Path

import pytest
from child_process import Child
from drivers import Driver


def test_a_wait_fails_at_once_when_the_jvm_is_killed_and_the_program_lives_on(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with Child(["sleep", "60"]) as jvm, Child(["sleep", "60"]) as program:
        running = Driver(tmp_path, program)
        assert not running.has_died()
        (tmp_path / "jvm.pid").touch()  # its text comes later
        assert not running.has_died()
        (tmp_path / "jvm.pid").write_text(str(jvm.pid))
        running.wait_for("a JVM that lives", lambda: not running.has_died())
        jvm.kill()  # its parent does not ask for it: the kernel keeps its number
        with pytest.raises(AssertionError, match=r"a sink is held: not seen \(driver dead, held \[\], killed \{\}\)"):
            running.wait_for("a sink is held", lambda: bool(running.held()))
