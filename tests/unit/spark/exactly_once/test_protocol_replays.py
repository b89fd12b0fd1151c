"""Replays of a partly committed batch: its markers, one decision after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokprod.spark.exactly_once import procedures
from aiokprod.spark.exactly_once.errors import FactsMissingError, refusal_error
from aiokprod.spark.exactly_once.procedures import (
    CommitAll,
    Facts,
    ListLeftovers,
    ReadMarkers,
    ReadState,
    State,
    TakeToken,
)
from aiokprod.spark.exactly_once.protocol import (
    MARKERS_LAST_S,
    PROTOCOL,
    Attempt,
    BatchName,
    Decision,
    Fate,
    Marker,
    Opening,
    Order,
    Refusal,
    Report,
    Token,
)

BATCH = BatchName("q", 3)
TOKEN = Token(1, 5)
NOW_S = 1_000_000_000.5
"""The time of each decision."""


def marker(*rows: int) -> Marker:
    return Marker(BATCH, len(rows), sum(hash(("row", each)) for each in rows) % 2**64)


def attempt(partition: int) -> Attempt:
    return Attempt(TOKEN.generation, partition, 0, 100 + partition, 0)


def opened(decision: Decision, fates: dict[int, Fate], markers: dict[int, Marker], later_s: float = 0) -> Opening:
    ends = {each: fates.get(each.partition, Fate.COMMITTED) for each in decision.attempts}
    found = {key: each for key, each in markers.items() if key < decision.tasks}
    return PROTOCOL.opening(TOKEN, decision, ends, found, NOW_S + later_s)


def order(opening: Opening, partition: int) -> Order | Refusal:
    return PROTOCOL.order(opening, BATCH, partition, is_stream=True)


def decided(opening: Opening, reports: list[Report], *, may_duplicate: bool = False) -> Decision:
    decision = PROTOCOL.decide(opening, BATCH, 1, reports, now_s=NOW_S, may_duplicate=may_duplicate)
    assert isinstance(decision, Decision)
    return decision


def first() -> Decision:
    """Return the decision about three partitions, of which the last one is not committed."""
    before = Opening(TOKEN, BatchName("q", 2))
    return decided(before, [Report(Order.WRITE, attempt(number), 1) for number in range(3)])


def test_a_committed_partition_whose_marker_has_expired_is_refused() -> None:
    again = opened(first(), {2: Fate.ABORTED}, {0: marker(0), 1: marker(1)})
    assert [order(again, number) for number in range(3)] == [Order.COMPARE, Order.COMPARE, Order.WRITE]
    reports = [Report(Order.COMPARE, None, 1), Report(Order.COMPARE, None, 1), Report(Order.WRITE, attempt(2), 1)]
    second = decided(again, reports)
    assert (second.marked, second.tasks) == ((0, 1), 3)
    later = opened(second, {2: Fate.ABORTED}, {1: marker(1)})
    assert [order(later, number) for number in range(3)] == [Refusal.NO_FACTS, Order.COMPARE, Order.WRITE]
    error = refusal_error(Refusal.NO_FACTS, later, BATCH, "task 0")
    assert isinstance(error, FactsMissingError)
    assert "batch 3 is partly committed, and the record of the rows that are committed here has expired" in str(error)


def test_a_replay_without_the_task_of_an_expired_marker_is_refused() -> None:
    again = opened(first(), {1: Fate.ABORTED}, {0: marker(0)})
    assert again.unmarked == {2}
    reports = [Report(Order.COMPARE, None, 1), Report(Order.WRITE, attempt(1), 2)]
    assert PROTOCOL.decide(again, BATCH, 1, reports, now_s=NOW_S) is Refusal.OTHER_ROWS


def test_what_is_finished_needs_no_markers() -> None:
    again = opened(first(), {}, {})
    assert again.is_finished and again.unmarked == frozenset()
    assert order(again, 0) is Order.SKIP


def test_the_marker_of_an_earlier_decision_does_not_vouch_for_other_rows() -> None:
    again = opened(first(), {1: Fate.GONE, 2: Fate.ABORTED}, {0: marker(0), 1: marker(1)})
    assert set(again.markers) == {0, 1}, "below version 2 the marker tells how a transaction ended"
    moved = decided(again, [Report(Order.COMPARE, attempt(number), 1) for number in range(3)], may_duplicate=True)
    later = opened(moved, {0: Fate.GONE}, {0: marker(0), 1: marker(2), 2: marker(1)})
    assert not later.is_finished
    assert order(later, 0) is Order.COMPARE, "if it is committed all the same, its rows are the same"


def test_markers_of_tasks_that_a_run_with_duplicates_did_not_have_are_still_compared() -> None:
    again = opened(first(), {1: Fate.ABORTED}, {0: marker(0), 2: marker(2)})
    fewer = decided(again, [Report(Order.COMPARE, attempt(number), 1) for number in range(2)], may_duplicate=True)
    assert fewer.tasks == 3, "the markers of three are read"
    later = opened(fewer, {1: Fate.ABORTED}, {0: marker(1), 2: marker(2)})
    assert [order(later, number) for number in range(3)] == [Order.COMPARE, Order.WRITE, Order.COMPARE]
    reports = [Report(Order.COMPARE, None, 1), Report(Order.WRITE, attempt(1), 2)]
    assert PROTOCOL.decide(later, BATCH, 1, reports, now_s=NOW_S) is Refusal.OTHER_ROWS


@pytest.mark.parametrize("later_s", [MARKERS_LAST_S, 10 * MARKERS_LAST_S, -MARKERS_LAST_S - 1])
def test_where_nothing_tells_whether_a_part_is_committed_it_is_refused_when_markers_may_have_expired(
    later_s: float,
) -> None:
    older = Marker(BatchName("q", 2), 5, 5)
    fates = {0: Fate.GONE, 1: Fate.GONE, 2: Fate.GONE}
    again = opened(first(), fates, {0: marker(0), 1: older}, later_s)
    assert again.unknown == {2}
    assert [order(again, number) for number in range(3)] == [Order.COMPARE, Order.WRITE, Refusal.NO_FACTS]
    behind = PROTOCOL.order(again, BatchName("q", 4), 0, is_stream=True)
    assert behind is Refusal.NO_FACTS, "the batch may be finished, and only its records have expired"
    error = refusal_error(Refusal.NO_FACTS, again, BATCH, "task 2")
    assert isinstance(error, FactsMissingError)
    assert "batch 3 was decided days ago, and the records of its parts may have expired" in str(error)
    fewer = [Report(Order.COMPARE, None, 1), Report(Order.WRITE, attempt(1), 2)]
    assert PROTOCOL.decide(again, BATCH, 1, fewer, now_s=NOW_S) is Refusal.OTHER_ROWS


@pytest.mark.parametrize("later_s", [0, MARKERS_LAST_S - 1, -MARKERS_LAST_S + 1])
def test_a_part_without_a_marker_was_aborted_as_long_as_no_marker_expires(later_s: float) -> None:
    again = opened(first(), {2: Fate.GONE}, {0: marker(0), 1: marker(1)}, later_s)
    assert [order(again, number) for number in range(3)] == [Order.COMPARE, Order.COMPARE, Order.WRITE]
    assert PROTOCOL.order(again, BatchName("q", 4), 0, is_stream=True) is Refusal.UNFINISHED


def test_a_part_that_timed_out_is_written_however_late() -> None:
    again = opened(first(), {2: Fate.ABORTED}, {0: marker(0), 1: marker(1)}, 100 * MARKERS_LAST_S)
    assert order(again, 2) is Order.WRITE


def test_a_decision_without_a_time_is_an_old_one() -> None:
    again = opened(replace(first(), decided_s=None), {2: Fate.GONE}, {0: marker(0), 1: marker(1)})
    assert order(again, 2) is Refusal.NO_FACTS


def test_the_clock_is_read_behind_the_facts() -> None:
    """A driver whose machine sleeps for a week between its start and its first answer judges with the time after it."""
    now_s = NOW_S
    steps = procedures.opening(lambda: now_s)
    answers = {
        TakeToken: TOKEN,
        ReadState: State(Facts(first(), None), ()),
        CommitAll: dict.fromkeys(first().attempts, Fate.GONE),
        ListLeftovers: (),
        ReadMarkers: {},
    }
    request, asked = next(steps), [TakeToken]
    with pytest.raises(StopIteration) as ended:
        while True:
            request = steps.send(answers[type(request)])
            asked.append(type(request))
            now_s = NOW_S + MARKERS_LAST_S
    assert asked == list(answers)
    assert ended.value.value.unknown == {0, 1, 2}
