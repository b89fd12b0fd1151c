"""The swarm finds what was wrong once: the mend of each is taken out, and the world that shows it is among the first seeds."""

from __future__ import annotations

import pytest
from swarm.without.defects import DEFECTS, EVERY, NOTHING, SHOWN_ELSEWHERE
from swarm.without.hunting import hunt
from swarm.without.patching import Change, Defect, StaleError, code_with

SOON = {
    "coroutines_of_serializers_are_left": 60,
    "flush_lingers": 90,
    "send_timeout_in_silence": 120,
    "serializers_have_no_deadline": 60,
    "try_send_waits": 30,
    "unanswered_requests_recurse": 120,
}
"""Defects of each kind, and within how many seeds they are found."""


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_mend_can_be_taken_out_of_the_library_as_it_is(defect: Defect) -> None:
    assert code_with(defect)
    assert defect.kinds


def test_names_are_given_once() -> None:
    assert len(EVERY) == len(DEFECTS) + 1
    assert not set(SHOWN_ELSEWHERE) & set(EVERY)


def test_text_that_is_no_longer_there_is_told() -> None:
    stale = Defect(
        "stale", "for this test", (Change("pipeline.flushes", "what stood here once", ""),), ("never settled",)
    )
    with pytest.raises(StaleError, match=r"stale: 0 times in pipeline\.flushes"):
        code_with(stale)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOON)
def test_a_defect_whose_mend_is_taken_out_is_found(name: str) -> None:
    found = hunt(EVERY[name], SOON[name], is_themed=True)
    assert found.seed is not None, f"{found.row()}: {found.others}"


@pytest.mark.slow
def test_nothing_is_found_while_nothing_is_taken_out() -> None:
    found = hunt(NOTHING, 60)
    assert found.worlds == 60
    assert found.seed is None
    assert not found.others
