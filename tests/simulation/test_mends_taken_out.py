"""The swarm finds what was wrong once: the mend of each is taken out, and the world that shows it is among the first seeds."""

from __future__ import annotations

import pytest
from swarm.without.defects import DEFECTS, EVERY, NOTHING, SHOWN_ELSEWHERE
from swarm.without.hunting import hunt
from swarm.without.patching import Change, Defect, StaleError, code_with

pytestmark = pytest.mark.usefixtures("heals")  # the watch may meet what they leave standing

SOON = (
    "bound_of_the_second_close",
    "cancelled_many_is_silent",
    "close_aborts_what_is_prepared",
    "columns_stay_torn",
    "coroutines_of_serializers_are_left",
    "crash_says_not_persisted",
    "expired_batch_stays_open",
    "log_lines_raise",
    "mark_before_the_call",
    "mark_before_the_call_is_healed",
    "no_wait_for_the_loss",
    "remade_topic_is_not_recognised",
    "send_timeout_in_silence",
    "silence_is_success",
    "serializers_have_no_deadline",
    "try_send_waits",
    "unanswered_requests_recurse",
    "urgency_stays_with_the_old_leader",
    "waking_ends_with_an_interrupt",
    "younger_overtakes_parked",
)
"""Some of each kind, each found among the first worlds of its theme when this was written."""
MOST_SEEDS = 3_800  # those of one theme are played, about sixty; of transactions, and of faults of the process, 190


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_mend_can_be_taken_out_of_the_library_as_it_is(defect: Defect) -> None:
    assert code_with(defect)
    assert defect.kinds


def test_names_are_given_once() -> None:
    assert len(EVERY) == len(DEFECTS) + 1
    assert not set(SHOWN_ELSEWHERE) & set(EVERY)


def test_text_that_is_no_longer_there_is_told() -> None:
    stale = Defect(
        "stale",
        "for this test",
        (Change("pipeline.partition.flushes", "what stood here once", ""),),
        ("never settled",),
    )
    with pytest.raises(StaleError, match=r"stale: 0 times in pipeline\.partition\.flushes"):
        code_with(stale)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOON)
def test_a_defect_whose_mend_is_taken_out_is_found(name: str) -> None:
    found = hunt(EVERY[name], MOST_SEEDS, is_themed=True)
    assert found.seed is not None, f"{found.row()}: {found.others}"


@pytest.mark.slow
def test_nothing_is_found_while_nothing_is_taken_out() -> None:
    found = hunt(NOTHING, 60)
    assert found.worlds == 60
    assert found.seed is None
    assert not found.others
