"""Every measured rule about producers, as rows: broker_facts sections 1 to 3."""

from __future__ import annotations

import pytest

from aiokprod.testing.mock.producer_state import (
    SEQUENCE_WRAP,
    Duplicate,
    InOrder,
    OutOfOrder,
    ProducerStates,
    Sequenced,
)

LAST = SEQUENCE_WRAP - 1
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


class Replica:
    """A leader that appends what it may, and answers as Produce does: code and base offset."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def produce(
        self, first: int, count: int = 1, *, epoch: int = 0, pid: int = 7, timestamp_ms: int = 0
    ) -> tuple[int, int]:
        batch = Sequenced(
            producer_id=pid,
            epoch=epoch,
            first_sequence=first,
            count=count,
            max_timestamp_ms=timestamp_ms,
            base_offset=self.end,
        )
        verdict = self.states.check(batch)
        if isinstance(verdict, Duplicate):
            return 0, verdict.stored.base_offset
        if isinstance(verdict, OutOfOrder):
            return int(verdict.code), -1
        assert isinstance(verdict, InOrder)
        self.states.record(batch)
        self.end += count
        return 0, batch.base_offset

    def codes(self, *firsts: int, epoch: int = 0) -> list[int]:
        return [self.produce(first, epoch=epoch)[0] for first in firsts]


@pytest.mark.parametrize("first", [0, 1, 7, 1000, LAST])  # broker: 1.1
def test_without_state_any_first_sequence_is_taken_and_the_next_follows_it(first: int) -> None:
    replica = Replica()
    assert replica.produce(first) == (0, 0)
    assert replica.produce((first + 1) % SEQUENCE_WRAP) == (0, 1)


@pytest.mark.parametrize("first", [0, 7])  # broker: 1.1
def test_records_of_others_do_not_count_as_state(first: int) -> None:
    replica = Replica()
    replica.produce(0, 3, pid=1)
    assert replica.produce(first, pid=2) == (0, 3)


@pytest.mark.parametrize("epoch", [3, 5, 32766, 32767])  # broker: 1.2, 1.11
def test_an_epoch_never_handed_out_is_taken(epoch: int) -> None:
    replica = Replica()
    assert replica.produce(0, epoch=epoch)[0] == 0
    assert replica.produce(1, epoch=epoch)[0] == 0


@pytest.mark.parametrize("epoch", [1, 2])  # broker: 1.3
def test_a_bump_starts_at_sequence_zero_may_skip_and_fences_the_old_epoch(epoch: int) -> None:
    replica = Replica()
    assert replica.codes(0, 1, 2, 3, 4) == [0] * 5
    assert replica.produce(0, epoch=epoch) == (0, 5)
    assert replica.produce(5)[0] == 47
    assert replica.produce(0, epoch=epoch) == (0, 5)  # the resend at the new epoch is recognised


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("first", [1, 5, 6])  # broker: 1.4
def test_a_refused_first_batch_of_an_epoch_does_not_fence(epoch: int, first: int) -> None:
    replica = Replica()
    replica.codes(0, 1, 2, 3, 4)
    assert replica.produce(first, epoch=epoch) == (45, -1)
    entry = replica.states.entry(7)
    assert entry is not None and entry.epoch == 0
    assert replica.produce(5) == (0, 5)


def test_an_exact_copy_of_an_old_epoch_is_fenced() -> None:  # broker: 1.5
    replica = Replica()
    replica.produce(0)
    replica.produce(0, epoch=1)
    assert replica.produce(0) == (47, -1)


def test_after_its_state_expired_the_next_sequence_a_gap_and_an_exact_resend_are_all_taken() -> None:  # broker: 1.6
    for first in (5, 100, 4):
        replica = Replica()
        replica.codes(0, 1, 2, 3, 4)
        assert replica.states.expire(1500, 1500) == 1
        assert replica.produce(first) == (0, 5)


def test_expired_state_takes_a_newer_epoch_anywhere_and_an_older_one_at_zero() -> None:  # broker: 1.6
    replica = Replica()
    replica.produce(0)
    replica.states.expire(1500, 1500)
    assert replica.produce(3, epoch=1)[0] == 0
    replica.states.expire(3000, 1500)
    assert replica.produce(0, epoch=0)[0] == 0


@pytest.mark.parametrize(("age_ms", "forgotten"), [(25 * HOUR_MS, 1), (DAY_MS, 1), (23 * HOUR_MS, 0)])  # broker: 1.12
def test_state_ages_by_the_timestamps_of_records(age_ms: int, forgotten: int) -> None:
    replica = Replica()
    now_ms = 1_700_000_000_000
    replica.produce(0, timestamp_ms=now_ms - age_ms)
    assert replica.states.expire(now_ms, DAY_MS) == forgotten
    assert replica.produce(0)[1] == (1 if forgotten else 0)  # the exact resend, written twice or recognised


def test_records_without_timestamp_age_at_once() -> None:  # broker: 1.12
    replica = Replica()
    replica.produce(0, timestamp_ms=-1)
    assert replica.states.expire(1_700_000_000_000, DAY_MS) == 1


def test_the_newest_batch_decides_the_age() -> None:  # broker: 1.12
    replica = Replica()
    now_ms = 1_700_000_000_000
    replica.produce(0, timestamp_ms=now_ms - 25 * HOUR_MS)
    replica.produce(1, timestamp_ms=now_ms)
    assert replica.states.expire(now_ms, DAY_MS) == 0


def test_the_last_five_batches_are_recognised_with_their_offsets() -> None:  # broker: 2.1
    replica = Replica()
    assert replica.codes(*range(8)) == [0] * 8
    assert [replica.produce(first) for first in (3, 4, 5, 6, 7)] == [(0, n) for n in (3, 4, 5, 6, 7)]
    assert replica.end == 8


def test_a_duplicate_names_the_stored_timestamp() -> None:  # broker: 2.2, 2.4
    replica = Replica()
    replica.produce(0, timestamp_ms=1234)
    again = Sequenced(producer_id=7, epoch=0, first_sequence=0, count=1, max_timestamp_ms=9999)
    verdict = replica.states.check(again)
    assert isinstance(verdict, Duplicate) and verdict.stored.max_timestamp_ms == 1234


def test_older_than_five_is_out_of_order_never_a_duplicate_code() -> None:  # broker: 2.3
    replica = Replica()
    replica.codes(*range(8))
    assert replica.codes(2, 1, 0) == [45, 45, 45]


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 1), (1, 2), (0, 4), (0, 6), (3, 2), (2, 1), (1, 4)],
    ids=["part", "tail", "merged", "merged and new", "half old half new", "split child", "across"],
)  # broker: 2.5
def test_only_whole_batches_are_recognised(first: int, count: int) -> None:
    replica = Replica()
    replica.produce(0, 2)
    replica.produce(2, 2)
    assert replica.produce(first, count) == (45, -1)
    assert replica.produce(4) == (0, 4)


def test_a_restart_leaves_one_batch_of_the_window() -> None:  # broker: 2.6
    replica = Replica()
    replica.codes(*range(6))
    assert replica.codes(0, 1, 2, 3, 4, 5) == [45, 0, 0, 0, 0, 0]
    replica.states.restart()
    assert replica.codes(0, 1, 2, 3, 4, 5) == [45, 45, 45, 45, 45, 0]
    assert replica.produce(6) == (0, 6)


def test_five_in_flight_resent_after_a_restart() -> None:  # broker: 2.8
    replica = Replica()
    replica.codes(0, 1, 2, 3, 4)
    replica.states.restart()
    assert replica.codes(0, 1, 2, 3, 4) == [45, 45, 45, 45, 0]
    assert replica.end == 5


def test_three_of_five_appended_then_a_restart_heals_itself() -> None:  # broker: 2.8b
    replica = Replica()
    replica.codes(0, 1, 2)
    replica.states.restart()
    assert [replica.produce(first) for first in range(5)] == [(45, -1), (45, -1), (0, 2), (0, 3), (0, 4)]
    assert replica.end == 5


def test_a_batch_across_the_wrap_is_recognised_and_goes_on_behind_it() -> None:  # broker: 2.9
    replica = Replica()
    assert replica.produce(SEQUENCE_WRAP - 2, 4) == (0, 0)
    assert replica.produce(SEQUENCE_WRAP - 2, 4) == (0, 0)
    assert replica.produce(2) == (0, 4)


@pytest.mark.parametrize("gap", [1, 1000])  # broker: 3.1
def test_a_gap_is_refused_and_changes_nothing(gap: int) -> None:
    replica = Replica()
    replica.codes(0, 1, 2)
    assert replica.produce(3 + gap) == (45, -1)
    assert replica.produce(3) == (0, 3)
    assert [replica.produce(first)[1] for first in (0, 1, 2, 3)] == [0, 1, 2, 3]


def test_refused_sequences_of_a_known_producer_may_be_used_again() -> None:  # broker: 4.1, 4.3
    replica = Replica()
    replica.produce(0)
    assert replica.codes(2, 3, 4, 5) == [45] * 4  # sequence 1 was refused for its content and never checked
    assert replica.codes(1, 2, 3, 4, 5) == [0] * 5


def test_an_unknown_producer_loses_its_refused_head_for_ever() -> None:  # broker: 4.1
    replica = Replica()
    assert replica.codes(1, 2, 3, 4) == [0] * 4
    assert replica.produce(0) == (45, -1)


def test_a_follower_that_never_saw_the_producer_takes_the_hole() -> None:  # broker: 5.6
    leader, follower = Replica(), Replica()
    leader.codes(0, 1, 2)
    assert follower.produce(3)[0] == 0


def test_producers_do_not_know_each_other() -> None:
    replica = Replica()
    replica.produce(0, pid=1)
    replica.produce(0, pid=2)
    replica.states.forget(1)
    assert replica.states.entry(1) is None
    assert replica.produce(0, pid=2) == (0, 1)
    replica.states.forget()
    assert len(replica.states) == 0
