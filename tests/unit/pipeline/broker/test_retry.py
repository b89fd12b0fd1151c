"""`RetryHandler`: chasers, identities, new leaders."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from stage_rig import ManualLoop, StubClient, StubFlusher, StubQueue, StubTasks, context_of

from aiokprod.pipeline.broker.retry import RetryHandler
from aiokprod.transactions.identity import ProducerIdKeeper

pytestmark = pytest.mark.pure("its neighbours subclass the stages")


class Desk:
    """A handler and everything it asked for."""

    def __init__(self, **routes: StubFlusher) -> None:
        self.routes = {int(name[1:]): route for name, route in routes.items()}
        self.client = StubClient()
        self.context = context_of(ManualLoop())
        keeper = ProducerIdKeeper(self.client, self.context.config)
        self.retry = RetryHandler(self.context, self.routes, self.client, keeper)

    @property
    def asked_for_identity(self) -> int:
        assert isinstance(self.context.tasks, StubTasks)
        return len(self.context.tasks.names)

    @property
    def chasers(self) -> int:
        return self.context.metrics.chaser_rounds.value

    @property
    def metadata(self) -> list[str]:
        return self.client.refreshes


def identities(queues: Sequence[StubQueue]) -> list[list[tuple[int, int]]]:
    return [queue.identities for queue in queues]


def test_a_chaser_travels_behind_what_is_in_flight() -> None:
    desk = Desk(n1=StubFlusher(is_flying=True))
    queue = StubQueue("a")
    desk.retry.chase(queue, 1)
    assert desk.routes[1].chased == [queue]
    assert queue.returns == 0
    assert desk.chasers == 1


def test_a_chaser_is_back_at_once_if_nothing_is_in_flight_or_no_flusher_is_there() -> None:
    desk = Desk(n1=StubFlusher())
    queue = StubQueue("a")
    desk.retry.chase(queue, 1)
    assert queue.returns == 1
    desk.retry.chase(queue, 7)
    desk.retry.chase(queue, -1)
    assert queue.returns == 3
    assert set(desk.routes) == {1}  # no connection is opened for it


def test_a_bump_is_the_next_epoch_at_once_and_asks_no_broker() -> None:
    """faults: I5"""
    desk = Desk()
    queue, other = StubQueue("a"), StubQueue("b")
    desk.retry.identity_came((7, 0))
    desk.retry.need_identity(queue, (7, 3), False)
    assert identities([queue, other]) == [[(7, 4)], []]
    assert desk.asked_for_identity == 0
    assert desk.retry.identity == (7, 0)  # partitions to come are not touched


def test_partitions_that_come_before_the_first_identity_all_get_it() -> None:
    """faults: I22"""
    desk = Desk()
    queues = [StubQueue("a"), StubQueue("b")]
    for queue in queues:
        desk.retry.need_identity(queue, None, False)
    assert identities(queues) == [[], []]
    desk.retry.identity_came((7, 0))
    assert identities(queues) == [[(7, 0)], [(7, 0)]]
    late = StubQueue("c")
    desk.retry.need_identity(late, None, False)
    assert late.identities == [(7, 0)]


def test_a_used_up_producer_id_is_replaced_by_a_fresh_one_for_everyone_after() -> None:
    """faults: I13, I18"""
    desk = Desk()
    desk.retry.identity_came((7, 0))
    queue, later = StubQueue("a"), StubQueue("b")
    desk.retry.need_identity(queue, (7, 32_767), True)
    assert queue.identities == []
    assert desk.asked_for_identity == 1
    desk.retry.need_identity(later, None, False)
    assert later.identities == []  # the old one is used up
    desk.retry.identity_came((8, 0))
    assert identities([queue, later]) == [[(8, 0)], [(8, 0)]]


def test_a_partition_with_an_older_producer_id_gets_the_present_one_without_asking() -> None:
    desk = Desk()
    desk.retry.identity_came((8, 0))
    queue = StubQueue("a")
    desk.retry.need_identity(queue, (7, 5), True)
    assert queue.identities == [(8, 0)]
    assert desk.asked_for_identity == 0


def test_a_partition_that_moved_leaves_its_old_broker_and_finds_its_new_one() -> None:
    desk = Desk(n1=StubFlusher(), n2=StubFlusher())
    queue = StubQueue("a", node=1)
    queue.ledger.leadership.node = 2
    desk.retry.rerouted(queue)
    assert desk.routes[1].ready_set.removed == [queue]
    assert queue.node == 2
    assert desk.metadata == []


def test_a_partition_that_lost_its_leader_asks_for_metadata() -> None:
    """faults: T11"""
    desk = Desk(n1=StubFlusher())
    queue = StubQueue("a", node=1)
    queue.ledger.leadership.node = -1
    desk.retry.rerouted(queue)
    assert desk.metadata == ["a-0 has no leader"]
    assert queue.node == -1
    queue.ledger.leadership.node = 1
    desk.retry.rerouted(queue)
    assert queue.node == 1
    assert desk.metadata == ["a-0 has no leader"]
