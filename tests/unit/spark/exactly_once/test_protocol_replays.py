"""Replays of a partly committed batch: its markers, one decision after the other."""

from __future__ import annotations

from aiokprod.spark.exactly_once.errors import FactsMissingError, refusal_error
from aiokprod.spark.exactly_once.protocol import (
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


def marker(*rows: int) -> Marker:
    return Marker(BATCH, len(rows), sum(hash(("row", each)) for each in rows) % 2**64)


def attempt(partition: int) -> Attempt:
    return Attempt(TOKEN.generation, partition, 0, 100 + partition, 0)


def opened(decision: Decision, fates: dict[int, Fate], markers: dict[int, Marker]) -> Opening:
    ends = {each: fates.get(each.partition, Fate.COMMITTED) for each in decision.attempts}
    return PROTOCOL.opening(TOKEN, decision, ends, {key: each for key, each in markers.items() if key < decision.tasks})


def order(opening: Opening, partition: int) -> Order | Refusal:
    return PROTOCOL.order(opening, BATCH, partition, is_stream=True)


def decided(opening: Opening, reports: list[Report], *, may_duplicate: bool = False) -> Decision:
    decision = PROTOCOL.decide(opening, BATCH, 1, reports, may_duplicate=may_duplicate)
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
    assert PROTOCOL.decide(again, BATCH, 1, reports) is Refusal.OTHER_ROWS


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
    assert PROTOCOL.decide(later, BATCH, 1, reports) is Refusal.OTHER_ROWS
