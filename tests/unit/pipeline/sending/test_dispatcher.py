"""`TopicDispatcher`: which records wait for partitions, in which order they leave, and which never get one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from stage_rig import ManualLoop, StubQueue, parked

from aiokprod.cluster.metadata.snapshot import PartitionSnapshot, TopicSnapshot
from aiokprod.errors import AiokprodError, PartitionerError, PartitionOutOfRangeError
from aiokprod.explanation import WaitsFor
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.sending.dispatcher import NEWEST, TopicDispatcher
from aiokprod.pipeline.sending.partitioners import make_partitioner

FILL = BatchFill(100, 100)
pytestmark = pytest.mark.pure("its neighbours subclass the stages")


class Desk:
    """A dispatcher whose queues keep what they get."""

    def __init__(self, partitioner: object = "round_robin") -> None:
        self.loop = ManualLoop()
        self.queues: dict[int, StubQueue] = {}
        self.passed: list[ParkedRecord] = []
        self.failed: list[tuple[ParkedRecord, AiokprodError]] = []
        chooser = make_partitioner(
            partitioner,  # type: ignore[arg-type]
            ignore_keys=False,
            adaptive=False,
            fill=FILL,
            random=Random(1),
        )
        self.dispatcher = TopicDispatcher("t", chooser, FILL, self._make, self.passed.append, self._fail)

    def _make(self, snapshot: TopicSnapshot, partition: int) -> StubQueue:
        assert partition < len(snapshot.partitions)
        queue = self.queues[partition] = StubQueue("t")
        return queue

    def _fail(self, record: ParkedRecord, error: AiokprodError) -> None:
        self.failed.append((record, error))
        record.failure = error
        self.dispatcher.forget(record)

    def make(self, value: bytes, partition: int | None = None, block_deadline: float = 1e9) -> ParkedRecord:
        return parked(self.loop, value, partition=partition, block_deadline=block_deadline)

    def park(self, value: bytes, partition: int | None = None, block_deadline: float = 1e9) -> ParkedRecord:
        record = self.make(value, partition, block_deadline)
        self.wants_metadata = self.dispatcher.accept(record)
        return record

    def learn(self, leaders: Sequence[int], answered: int = NEWEST) -> None:
        partitions = tuple(PartitionSnapshot(number, leader, 0) for number, leader in enumerate(leaders))
        self.dispatcher.learn(TopicSnapshot(name="t", partitions=partitions), 0.0, answered)

    def values(self, partition: int) -> list[bytes | None]:
        return self.queues[partition].values


def test_parked_records_leave_in_the_order_they_came_and_before_newer_ones() -> None:
    """faults: T1"""
    desk = Desk()
    for number in range(5):
        desk.park(b"%d" % number, partition=number % 2)
        assert desk.wants_metadata
    assert desk.queues == {}
    desk.learn([1, 1])
    desk.dispatcher.append(b"new", None, None, 0, 0, 10, 0.0)
    assert desk.values(0) == [b"0", b"2", b"4", b"new"]
    assert desk.values(1) == [b"1", b"3"]
    assert [record.value for record in desk.passed] == [b"%d" % number for number in range(5)]


def test_a_parked_record_says_what_it_waits_for() -> None:
    desk = Desk()
    record = desk.park(b"v")
    assert record.explain(0).waits_for is WaitsFor.METADATA
    desk.learn([1])
    record = desk.park(b"v", partition=3)
    assert (record.explain(0).waits_for, record.partition) == (WaitsFor.PARTITION, 3)


def test_a_partition_out_of_range_waits_for_one_refresh_and_keeps_its_order() -> None:
    """faults: T7"""
    desk = Desk()
    desk.learn([1])
    first, second = desk.park(b"first", partition=2), desk.park(b"second", partition=2)
    assert desk.wants_metadata
    desk.park(b"other", partition=0)
    assert not desk.wants_metadata
    assert desk.values(0) == [b"other"]  # nothing waits behind them
    desk.learn([1, 1, 1])
    assert desk.values(2) == [b"first", b"second"]
    assert desk.passed[-2:] == [first, second]
    assert desk.failed == []


def test_a_partition_still_out_of_range_fails_with_the_range() -> None:
    desk = Desk()
    desk.learn([1, 1, 1])
    record = desk.park(b"v", partition=3)
    desk.learn([1, 1, 1])
    ((failed, error),) = desk.failed
    assert failed is record
    assert isinstance(error, PartitionOutOfRangeError)
    assert "0 to 2" in str(error)
    assert (error.topic, error.partition) == ("t", 3)
    assert not desk.dispatcher.waiting


def test_a_record_parked_before_the_topic_was_known_is_refused_by_the_first_answer() -> None:
    desk = Desk()
    record = desk.park(b"v", partition=9)
    good = desk.park(b"good", partition=0)
    desk.learn([1])
    assert [failed for failed, _ in desk.failed] == [record]
    assert desk.passed == [good]


def test_a_topic_without_partitions_is_never_a_success() -> None:
    """faults: T9"""
    desk = Desk()
    record = desk.park(b"v")
    desk.learn([])
    assert not desk.dispatcher.is_known
    assert list(desk.dispatcher.waiting) == [record]
    assert desk.passed == [] and desk.failed == []
    desk.learn([1])
    assert desk.passed == [record]
    desk.learn([])  # and later: park again
    assert not desk.dispatcher.is_known
    desk.park(b"w")
    assert desk.wants_metadata
    desk.learn([1])
    assert desk.values(0) == [b"v", b"w"]


def test_a_topic_that_leaves_the_metadata_keeps_its_queues() -> None:
    """faults: I21"""
    desk = Desk()
    desk.learn([1])
    desk.park(b"1")
    before = desk.queues[0]
    desk.dispatcher.learn(None, 0.0)
    desk.park(b"2")
    desk.learn([1])
    assert desk.queues[0] is before
    assert desk.values(0) == [b"1", b"2"]


def test_records_without_a_partition_avoid_partitions_without_a_leader() -> None:
    """faults: T20"""
    desk = Desk("uniform_sticky")
    desk.learn([1, -1, 2])
    for number in range(200):
        desk.park(b"%d" % number)
    assert set(desk.queues) == {0, 2}


def test_when_no_partition_has_a_leader_records_are_spread_over_all() -> None:
    """faults: T11"""
    desk = Desk()
    desk.learn([-1, -1])
    for number in range(4):
        desk.park(b"%d" % number)
    assert set(desk.queues) == {0, 1}


def test_a_partitioner_that_raises_fails_its_record_alone() -> None:
    """faults: M12"""

    def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        if key == b"bad":
            raise RuntimeError("no")
        return 1

    desk = Desk(choose)
    records = []
    for key in (b"good", b"bad", b"fine"):
        record = parked(desk.loop, key)
        record.key = key
        desk.dispatcher.accept(record)
        records.append(record)
    desk.learn([1, 1])
    ((failed, error),) = desk.failed
    assert failed is records[1]
    assert isinstance(error, PartitionerError)
    assert error.topic == "t"
    assert desk.values(1) == [b"good", b"fine"]


def test_a_record_that_leaves_is_forgotten_once_and_wherever_it_stands() -> None:
    """faults: L1"""
    desk = Desk()
    first, second = desk.park(b"1"), desk.park(b"2")
    desk.dispatcher.forget(first)
    assert list(desk.dispatcher.waiting) == [second]
    desk.dispatcher.forget(first)
    assert list(desk.dispatcher.waiting) == [second]
    desk.learn([1])
    assert desk.passed == [second]
    out_of_range = desk.park(b"3", partition=5)
    assert list(desk.dispatcher.waiting) == [out_of_range]
    desk.dispatcher.forget(out_of_range)
    desk.dispatcher.forget(second)
    assert not desk.dispatcher.waiting


def test_those_that_waited_too_long_are_told_and_the_others_stay_in_order() -> None:
    """faults: T2"""
    desk = Desk()
    late, early = desk.park(b"late", block_deadline=5.0), desk.park(b"early", block_deadline=9.0)
    assert desk.dispatcher.oldest() is late
    assert desk.dispatcher.overdue(4.9) == []
    assert desk.dispatcher.overdue(5.0) == [late]
    desk.dispatcher.forget(late)
    assert desk.dispatcher.oldest() is early
    desk.learn([1])
    assert desk.passed == [early]
    assert desk.dispatcher.oldest() is None


@pytest.mark.parametrize("waits", [WaitsFor.SERIALIZER, WaitsFor.ROOM])
def test_a_record_is_overdue_whatever_it_waits_for(waits: WaitsFor) -> None:
    """faults: M1. A record that waits for its serializer, too."""
    desk = Desk()
    desk.learn([1])
    late, next_one = (desk.make(value, block_deadline=at) for value, at in ((b"late", 5.0), (b"next", 9.0)))
    desk.dispatcher.keep(late, waits)
    desk.dispatcher.keep(next_one, waits)
    assert desk.dispatcher.overdue(4.9) == []
    assert desk.dispatcher.overdue(5.0) == [late]
    assert desk.dispatcher.overdue(9.0) == [late, next_one]
    assert late.explain(0).waits_for is waits


def test_records_behind_others_that_wait_for_room_or_a_serializer_are_not_passed_on_by_metadata() -> None:
    desk = Desk()
    known = desk.park(b"known")
    for value, waits in ((b"room", WaitsFor.ROOM), (b"serializer", WaitsFor.SERIALIZER)):
        desk.dispatcher.keep(desk.make(value), waits)
    desk.learn([1])
    assert desk.passed == [known]
    assert [record.value for record in desk.dispatcher.waiting] == [b"room", b"serializer"]


def test_a_topic_that_records_wait_for_or_went_to_is_needed() -> None:
    """The dispatcher of a topic that never was is kept no longer than its records."""
    desk = Desk()
    assert not desk.dispatcher.is_needed
    record = desk.park(b"v")
    assert desk.dispatcher.is_needed
    desk.dispatcher.forget(record)
    assert not desk.dispatcher.is_needed
    desk.learn([1])
    assert desk.dispatcher.is_needed
    desk.park(b"w")
    desk.dispatcher.learn(None, 0.0)
    assert desk.dispatcher.is_needed  # its queue knows sequence numbers


def test_a_topic_that_is_there_stays_needed_while_its_last_record_is_refused() -> None:
    """A `send_columns` may have the dispatcher in hand, and a second one would make second queues."""
    desk = Desk()
    needed: list[bool] = []

    def refuse(record: ParkedRecord, error: AiokprodError) -> None:
        desk._fail(record, error)
        needed.append(desk.dispatcher.is_needed)

    desk.dispatcher._fail = refuse
    desk.park(b"v", partition=9)
    desk.learn([1])
    assert needed == [True]
    assert not desk.dispatcher.waiting and not desk.queues
