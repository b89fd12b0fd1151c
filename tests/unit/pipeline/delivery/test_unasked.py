"""`Unasked`: what is asked for is not reported, and the rest is, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokprod import Record
from aiokprod.errors import DeliveryTimeoutError, InvalidRecordError
from aiokprod.pipeline.delivery.unasked import Tally, Unasked


def unasked(indices: tuple[int, ...], tally: Tally, *, size_bytes: int = 0, named: bool = False) -> Unasked:
    kept = [Record(value=b"%d" % index) for index in indices] if size_bytes else None
    errors = iter([InvalidRecordError(f"number {index}") for index in indices]) if named else None
    return Unasked(DeliveryTimeoutError("late"), indices, kept, errors, size_bytes, tally)


def test_what_nothing_asked_for_is_handed_out_once_with_all_that_belongs_to_it() -> None:
    tally = Tally()
    failures = unasked((2, 5, 7), tally, size_bytes=100, named=True)
    assert (tally.records, tally.size_bytes, failures.left) == (3, 100, 3)
    report = failures.take()
    assert report is not None
    error, count, kept, errors = report
    assert (str(error), count) == ("late", 3)
    assert kept is not None and [record.value for record in kept] == [b"2", b"5", b"7"]
    assert errors is not None and [each.message for each in errors] == ["number 2", "number 5", "number 7"]
    assert failures.take() is None
    assert (tally.records, tally.size_bytes, failures.left) == (0, 0, 0)
    assert "reported" in repr(failures)


def test_what_was_asked_for_is_left_out() -> None:
    tally = Tally()
    failures = unasked((2, 5, 7), tally, size_bytes=100, named=True)
    assert not failures.ask(5) and not failures.ask(5)
    assert (tally.records, failures.left) == (2, 2)
    report = failures.take()
    assert report is not None
    _, count, kept, errors = report
    assert count == 2
    assert kept is not None and [record.value for record in kept] == [b"2", b"7"]
    assert errors is not None and [each.message for each in errors] == ["number 2", "number 7"]
    assert [failures.ask(index) for index in (2, 5, 7)] == [True, False, True]


def test_records_that_were_waited_for_when_they_failed_are_none_of_these() -> None:
    tally = Tally()
    failures = unasked((2, 5), tally)
    assert not any(failures.ask(index) for index in (0, 3, 6))
    assert (tally.records, failures.left) == (2, 2)
    assert failures.take() is not None
    assert not any(failures.ask(index) for index in (0, 3, 6))


def test_all_that_a_report_needs_is_let_go_with_the_last_question() -> None:
    tally = Tally()
    failures = unasked((0, 1), tally, size_bytes=100)
    failures.ask(0)
    assert tally.size_bytes == 100
    failures.ask(1)
    assert (tally.records, tally.size_bytes) == (0, 0)
    assert failures.take() is None and not failures.is_reported


@given(st.sets(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_each_is_asked_for_in_time_or_reported(indices: set[int], before: list[int], behind: list[int]) -> None:
    tally = Tally()
    failures = unasked(tuple(sorted(indices)), tally, size_bytes=1)
    for index in before:
        assert not failures.ask(index)
    report = failures.take()
    reported = set() if report is None or report[2] is None else {int(record.value or b"") for record in report[2]}
    assert reported == indices - set(before)
    for index in behind:
        assert failures.ask(index) == (index in reported)
    assert (tally.records, tally.size_bytes) == (0, 0)
