"""`Brokers`: which broker the batches of a partition go to, and when it is looked at."""

from __future__ import annotations

import pytest
from stage_rig import ManualLoop, StubClient, StubFlusher, StubQueue, context_of

from aiokprod.pipeline.broker.brokers import Brokers

CAUSE = ConnectionRefusedError("no")

pytestmark = pytest.mark.pure("its neighbours subclass the stages")


class Desk:
    """Brokers with flushers that note what they are told."""

    def __init__(self, *nodes: int) -> None:
        self.loop = ManualLoop()
        self.client = StubClient()
        self.brokers = Brokers(context_of(self.loop), self.client)
        self.flushers = {node: StubFlusher() for node in nodes}
        self.brokers.flushers.update(self.flushers)


def test_a_ready_partition_goes_to_the_flusher_of_its_leader() -> None:
    desk = Desk(1, 2)
    queue = StubQueue("a", node=2)
    desk.brokers.ready(queue)
    desk.brokers.urged(queue)
    assert desk.flushers[2].ready_set.were_ready == [queue]
    assert desk.flushers[2].ready_set.were_urged == [queue]
    assert desk.flushers[1].ready_set.were_ready == []


def test_a_partition_without_a_leader_asks_for_metadata_each_time() -> None:
    """faults: T11"""
    desk = Desk(1)
    queue = StubQueue("a", node=-1)
    desk.brokers.ready(queue)
    desk.brokers.urged(queue)
    assert desk.client.refreshes == ["a-0 has no leader"] * 2
    assert set(desk.brokers.flushers) == {1}


def test_the_first_partition_that_a_broker_leads_makes_its_flusher() -> None:
    desk = Desk()
    queue = StubQueue("a", node=5)
    first = desk.brokers.flusher_of(queue)
    assert desk.brokers.flusher_of(queue) is first
    assert list(desk.brokers.flushers) == [5]


def test_a_partition_that_backs_off_is_looked_at_when_that_is_over() -> None:
    desk = Desk(1)
    ready = desk.flushers[1].ready_set.were_ready
    queue = StubQueue("a")
    queue.ledger.not_before = desk.loop.time() + 1
    desk.brokers.ready(queue)
    assert ready == []
    desk.loop.advance(0.5)
    assert ready == []
    desk.loop.advance(0.5)
    assert ready == [queue]


def test_a_batch_that_lingers_is_looked_at_when_that_is_over() -> None:
    desk = Desk(1)
    ready = desk.flushers[1].ready_set.were_ready
    queue = StubQueue("a")
    desk.brokers.ready_at(queue, desk.loop.time() + 0.05)
    assert ready == []
    desk.loop.advance(0.05)
    assert ready == [queue]


def test_nothing_is_looked_at_after_the_end() -> None:
    desk = Desk(1)
    desk.brokers.ready_at(StubQueue("a"), desk.loop.time() + 0.05)
    desk.brokers.end()
    desk.loop.advance(1)
    assert desk.flushers[1].ready_set.were_ready == []


def test_a_failed_dial_is_the_cause_that_the_partitions_of_its_broker_give() -> None:
    """And no other partition is looked at: thousands of brokers may fail one after the other."""
    desk = Desk(1, 2)
    waits, empty, other = StubQueue("a"), StubQueue("b"), StubQueue("c")
    for queue in (waits, other):
        queue.ledger.entries.append(queue.offer(100))
    desk.flushers[1].ready_set.were_ready += [waits, empty]
    desk.flushers[2].ready_set.were_ready.append(other)
    desk.brokers.dial_failed(1, CAUSE)
    assert [queue.texts._cause for queue in (waits, empty, other)] == [CAUSE, None, None]


def test_a_failed_dial_asks_for_metadata_and_wakes_the_flusher_that_is_to_dial_again() -> None:
    desk = Desk(1)
    desk.brokers.dial_failed(1, CAUSE)
    desk.brokers.dial_failed(7, CAUSE)  # no partition of this broker was ever ready
    assert desk.client.refreshes == ["broker 1 cannot be reached"]
    assert desk.flushers[1].woken == [False]
