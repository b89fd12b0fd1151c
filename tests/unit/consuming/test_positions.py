"""Positions of a consumer: what goes on, what has jumped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokprod.consuming.positions import UNSETTLED_S, Jump, Positions
from aiokprod.transactions.machine_actions import Partition
from aiokprod.transactions.offsets import Offset

A: Partition = ("t", 0)
B: Partition = ("t", 1)


def read(partition: Partition, *offsets: int) -> list[tuple[Partition, Offset]]:
    return [(partition, Offset(offset + 1)) for offset in offsets]


def begun(*not_committed: Partition, **at: int) -> Positions:
    positions = Positions()
    positions.begin({("t", int(name[1:])): offset for name, offset in at.items()}, not_committed, now=0.0)
    return positions


def test_records_that_follow_their_position_are_taken() -> None:
    positions = begun(p0=5)
    assert positions.take(read(A, 5, 6), 1.0) == {A: Offset(7)}
    assert positions.take([*read(B, 3), *read(A, 7), *read(B, 4)], 1.0) == {A: Offset(8), B: Offset(5)}
    assert positions.take([], 1.0) == {}
    assert positions.take(read(B, 5), 1.0) == {B: Offset(6)}


def test_an_offset_below_the_position_is_a_jump_and_changes_nothing() -> None:
    positions = begun(p0=5)
    assert positions.take([*read(B, 1), *read(A, 4)], 1.0) == Jump(A, 5, 4)
    assert positions.take([*read(A, 5, 6), *read(A, 5)], 1.0) == Jump(A, 7, 5)
    assert positions.take([*read(B, 1), *read(B, 1)], 1e9) == Jump(B, 2, 1)
    assert positions.take([*read(B, 0), *read(A, 5)], 1.0) == {A: Offset(6), B: Offset(1)}


def test_offsets_that_are_left_out_are_no_jump() -> None:
    positions = begun(p0=5)
    assert positions.take(read(A, 9, 12), 0.0) == {A: Offset(13)}


def test_a_first_record_is_no_jump_wherever_it_is() -> None:
    positions = begun(A)
    assert positions.take(read(A, 9), 0.0) == {A: Offset(10)}


def test_without_a_committed_offset_the_gaps_of_a_reading_are_looked_at_twice() -> None:
    positions = begun(A, p0=5)
    assert positions.take(read(A, 5, 9, 12), 1.0) == Jump(A, 6, 9)
    positions.begin({A: 5}, [A], now=2.0)
    assert positions.take(read(A, 5, 9), 2.5) == {A: Offset(10)}
    assert positions.take(read(A, 12), 3.0) == Jump(A, 10, 12), "was forgotten, as the position has moved"
    positions.begin({A: 10}, [], now=3.0)  # committed since then: as unsettled as before
    assert positions.take(read(A, 14), 3.0) == Jump(A, 10, 14)
    positions.begin({A: 10}, [], now=4.0)
    assert positions.take(read(A, 12), 4.0) == {A: Offset(13)}


def test_the_first_reading_after_that_time_is_looked_at_too() -> None:
    """The consumer may have moved long before the next record came."""
    positions = begun(A, p0=5)
    assert positions.take(read(B, 1), 1e9) == {B: Offset(2)}
    assert positions.take(read(A, 9), 1e9) == Jump(A, 5, 9)
    assert positions.take(read(A, 5, 6), 1e9) == {A: Offset(7)}
    assert positions.take(read(A, 9), 1e9) == {A: Offset(10)}


def test_a_partition_that_comes_later_is_unsettled_from_then_on() -> None:
    positions = begun(A, p0=1)
    positions.begin({A: 1, B: 1}, [B], now=4.0)
    assert positions.take(read(A, 1), UNSETTLED_S + 0.1) == {A: Offset(2)}
    assert positions.take(read(A, 3), UNSETTLED_S + 0.1) == {A: Offset(4)}
    assert positions.take(read(B, 3), UNSETTLED_S + 0.1) == Jump(B, 1, 3)


def test_a_step_back_is_told_before_a_gap() -> None:
    positions = begun(A, p0=5)
    assert positions.take([*read(A, 9), *read(B, 3), *read(B, 2)], 1.0) == Jump(B, 4, 2)
    assert not Jump(A, 5, 9).is_back and Jump(B, 4, 2).is_back


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 6)), max_size=30), st.booleans())
def test_what_is_taken_never_goes_back(reads: list[tuple[Partition, int]], is_unsettled: bool) -> None:
    positions = Positions()
    positions.begin({}, [A, B] if is_unsettled else [], now=0.0)
    handed_over: dict[Partition, list[int]] = {A: [], B: []}
    for partition, offset in reads:
        if not isinstance(positions.take(read(partition, offset), 1.0), Jump):
            handed_over[partition].append(offset)
    for offsets in handed_over.values():
        assert offsets == sorted(set(offsets))
