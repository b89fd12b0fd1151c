"""The record of the long run, and the lines of the README that the gate runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate.change import SHARDS
from gate.environments import line_of
from gate.long_run import all_steps
from gate.record import Record
from gate.steps import StepFailedError


def test_what_passed_is_known_to_the_next_run_of_the_same_commit(tmp_path: Path) -> None:
    first = Record(tmp_path / "long", "abc")
    assert not first.has("a")
    first.add("a", "9 passed")
    assert Record(tmp_path / "long", "abc").passed == {"a": "9 passed"}
    assert not Record(tmp_path / "long", "def").has("a")


def test_the_record_is_whole_when_the_run_is_killed_while_it_writes(tmp_path: Path) -> None:
    Record(tmp_path, "abc").add("a", "9 passed")
    (tmp_path / "abc.new").write_text('{"a": "9 pas')
    assert Record(tmp_path, "abc").has("a")


def test_the_steps_of_the_long_run_have_names_of_their_own() -> None:
    names = [step.name for step in all_steps()]
    assert len(set(names)) == len(names)
    assert f"long tests, shard {SHARDS} of {SHARDS}" in names


@pytest.mark.parametrize("section", ["Test it", "Run it"])
def test_the_readme_has_the_lines_that_the_gate_runs(section: str) -> None:
    assert line_of(section).startswith("python3 -m venv .venv && ")


def test_a_section_without_a_line_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("## Test it\n\n```sh\n```\n\n## Run it\n\n```sh\ntrue\n```\n")
    assert line_of("Run it", page) == "true"
    for missing in ("Test it", "Other"):
        with pytest.raises(StepFailedError, match=missing):
            line_of(missing, page)
