"""The newcomer's exercise: its bugs fit the sources as they are."""

from __future__ import annotations

import pytest
from exercise import BUGS, main
from swarm.without.patching import Defect, code_with, sources_with


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_of_the_exercise_can_be_put_in_and_taken_out(bug: Defect) -> None:
    assert code_with(bug)
    for change in bug.changes:
        assert sources_with(bug)[change.module].count(change.then) == 1  # so that --undo finds it


def test_the_check_says_that_no_bug_is_there() -> None:
    assert main(["--check"]).count("not in the sources") == len(BUGS)


def test_the_exercise_without_a_number_explains_itself() -> None:
    assert "--undo" in main([])
