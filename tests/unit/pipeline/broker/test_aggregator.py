"""`BrokerAggregator`: what is ready, in turns, within the size of a request."""

from __future__ import annotations

import pytest
from stage_rig import StubQueue

from aiokprod.pipeline.broker.aggregator import BrokerAggregator

pytestmark = pytest.mark.pure("its neighbours subclass the stages")


def aggregator() -> tuple[BrokerAggregator, list[bool]]:
    wakes: list[bool] = []
    return BrokerAggregator(1, wakes.append), wakes


def names(taken: list[tuple[object, object]]) -> str:
    return "".join(queue.topic for queue, _ in taken)  # type: ignore[attr-defined]


def test_partitions_take_turns_so_that_a_hot_one_starves_no_other() -> None:
    house, _ = aggregator()
    queues = [StubQueue(name) for name in "abc"]
    for queue in queues:
        for _ in range(20):
            queue.offer(100)
        house.ready(queue)
    assert [names(house.collect(0, 0, False, 250)) for _ in range(6)] == ["ab", "ca", "bc", "ab", "ca", "bc"]


def test_a_request_holds_at_most_one_batch_of_a_partition() -> None:
    house, _ = aggregator()
    queue = StubQueue("a")
    first = queue.offer(100)
    queue.offer(100)
    house.ready(queue)
    house.ready(queue)  # twice is once
    assert house.collect(0, 0, False, 10_000) == [(queue, first)]
    assert len(house.collect(0, 0, False, 10_000)) == 1


def test_a_request_stays_within_its_limit_to_the_byte() -> None:
    for limit, expected in ((299, "ab"), (300, "abc"), (301, "abc")):
        house, _ = aggregator()
        for name in "abc":
            queue = StubQueue(name)
            queue.offer(100)
            house.ready(queue)
        assert names(house.collect(0, 0, False, limit)) == expected


def test_a_batch_larger_than_the_limit_travels_alone() -> None:
    house, _ = aggregator()
    small, large, other = StubQueue("s"), StubQueue("l"), StubQueue("o")
    for queue, size in ((small, 100), (large, 5_000), (other, 100)):
        queue.offer(size)
        house.ready(queue)
    assert [names(house.collect(0, 0, False, 1_000)) for _ in range(4)] == ["s", "l", "o", ""]


def test_a_partition_with_nothing_to_send_leaves_until_something_changes() -> None:
    house, wakes = aggregator()
    empty, full = StubQueue("e"), StubQueue("f")
    full.offer(100)
    house.ready(empty)
    house.ready(full)
    assert names(house.collect(0, 0, False, 1_000)) == "f"
    assert house.collect(0, 0, False, 1_000) == []
    assert not house.has_work()
    house.collect(0, 0, False, 1_000)
    assert len(empty.asked) == 1  # finding work costs what is ready, never what exists
    empty.offer(100)
    house.ready(empty)
    assert house.has_work()
    assert wakes == [False, False, False]
    assert names(house.collect(0, 0, False, 1_000)) == "e"


def test_a_batch_that_is_being_compressed_is_passed_over() -> None:
    house, _ = aggregator()
    busy, free = StubQueue("b"), StubQueue("f")
    busy.offer(100, is_encoded=False)
    free.offer(100)
    house.ready(busy)
    house.ready(free)
    assert names(house.collect(0, 0, False, 1_000)) == "f"
    assert len(busy.offers) == 1  # not stamped


def test_a_waiter_is_served_when_nothing_is_in_flight_and_not_before() -> None:
    house, wakes = aggregator()
    queue = StubQueue("a")
    queue.offer(100)
    house.urged(queue)
    assert wakes == [True]
    assert house.has_work()
    assert house.collect(0, 0, False, 1_000) == []
    assert queue.asked == []
    assert names(house.collect(0, 0, True, 1_000)) == "a"
    assert queue.asked == [True]
    house.collect(0, 0, True, 1_000)  # looked at once more, found empty, gone
    assert not house.has_work()


def test_an_urged_and_ready_partition_is_looked_at_once() -> None:
    house, _ = aggregator()
    queue = StubQueue("a")
    queue.offer(100)
    queue.offer(100)
    house.ready(queue)
    house.urged(queue)
    assert names(house.collect(0, 0, True, 1_000)) == "a"


def test_a_partition_that_moved_is_forgotten() -> None:
    house, _ = aggregator()
    moved, other = StubQueue("m"), StubQueue("o")
    for queue in (moved, other):
        queue.offer(100)
        house.ready(queue)
    house.urged(moved)
    house.remove(moved)
    house.remove(moved)
    assert names(house.collect(0, 0, True, 1_000)) == "o"
    assert moved.asked == []
