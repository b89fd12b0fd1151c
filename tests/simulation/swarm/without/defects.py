"""All defects that worlds can show, by name; and those that no world can, with the reason."""

from __future__ import annotations

from . import defects_flow, defects_life, defects_process, defects_transactions, defects_waiting
from .patching import Defect

NOTHING = Defect("nothing", "the library as it is", (), ())
"""For a test: it is never found."""

DEFECTS: tuple[Defect, ...] = (
    *defects_flow.DEFECTS,
    *defects_waiting.DEFECTS,
    *defects_life.DEFECTS,
    *defects_transactions.DEFECTS,
    *defects_process.DEFECTS,
)

EVERY: dict[str, Defect] = {defect.name: defect for defect in (*DEFECTS, NOTHING)}

SHOWN_ELSEWHERE: dict[str, str] = {
    "records_that_leave_one_by_one_are_searched_for": (
        "a matter of cost alone: nothing is promised of it, and it takes thousands of records in one batch, more than a"
        " world sends (unit/pipeline/behaviour/test_costs.py counts the work)"
    ),
    "stuck_partitions_are_searched_for": (
        "a matter of cost alone, with thousands of partitions (unit/pipeline/behaviour/test_costs.py counts the work)"
    ),
    "errors_of_a_batch_are_told_in_one_callback": "a matter of time alone, which a world does not count",
    "outcomes_show_the_awaitable": (
        "what an interceptor sees in place of a value that is still being serialized is not promised; records are told"
        " apart by the object, not by the value"
    ),
    "non_idempotent_batch_answered_45": (
        "no broker gives OUT_OF_ORDER_SEQUENCE_NUMBER to a batch without numbers, so no world draws it"
    ),
    "reset_is_told_at_once_in_virtual_time": (
        "of the virtual network, not of the producer: it made worlds blind for `no_wait_for_the_loss`"
        " (unit/testing/virtual/test_virtual_endings.py)"
    ),
    "crash_believes_the_ledger": (
        "after a crash outcomes are settled by the states of entries: 300 worlds with faults of the process did not show it;"
        " it takes an exception between two given lines of an answer (unit/pipeline/behaviour/test_crash_points.py)"
    ),
    "timers_ring_early": (
        "of virtual time, not of the producer: it takes a rounding between the clock and a wait that looks at it"
        " (simulation/test_virtual.py)"
    ),
}
"""Defects without a world that shows them: why, and what shows them."""
