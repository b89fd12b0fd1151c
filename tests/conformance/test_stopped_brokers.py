"""Effects of a stopped, frozen or killed broker: the in-sync set, the leader, what is remembered. broker: 2, 4, 5, 6"""

from __future__ import annotations

import contextlib

from asker import Written
from conformance_targets import Target
from wire_batches import plain, sequenced

from aiokprod.wire.codes import ErrorCode as E

OUT_OF_ORDER = Written(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
NOT_ENOUGH = Written(E.NOT_ENOUGH_REPLICAS, -1)


def test_while_a_follower_is_stopped(three_slowly: Target) -> None:
    """One stop of a broker, and everything that is to be seen of it."""
    three = three_slowly
    strict = three.new_topic(replicas=2, min_insync_replicas="2")
    lenient = three.new_topic(replicas=3, min_insync_replicas="2")
    leader = three.state(strict).leader
    stopped = next(node for node in three.state(strict).replicas if node != leader)
    three.move_leader(lenient, leader)
    alone = three.new_topic(partitions=6, replicas=1)
    index = next(index for index in range(6) if three.state(alone, index).leader == stopped)
    broker = three.connect(leader)
    pid = broker.new_producer_id()
    remembered = three.connect(stopped)
    for number in range(6):
        assert remembered.produce(alone, sequenced(pid, number), partition=index) == (0, number)
    for number in range(3):
        assert broker.produce(strict, sequenced(pid, number)) == (0, number)
    epoch = three.state(alone, index).leader_epoch
    with three.stopped(stopped):
        assert three.state(strict).in_sync == (leader,)
        # The leader alone is not enough: refused before anything is looked at, a duplicate too. broker: 4.4, 2.11
        refused = broker.produce_fully(strict, sequenced(pid, 3))
        assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (E.NOT_ENOUGH_REPLICAS, -1, 0)
        assert (refused.record_errors, refused.error_message) == ([], None)
        assert broker.produce(strict, sequenced(pid, 2)) == NOT_ENOUGH
        assert broker.produce(strict, sequenced(pid, 9)) == NOT_ENOUGH
        # acks=1 is taken, and no reader sees it. broker: 5.7
        assert broker.produce(strict, sequenced(pid, 3), acks=1) == (0, 3)
        assert three.end_offset(strict) == 3
        # Two of three are enough.
        assert broker.produce(lenient, plain()) == (0, 0)
        # A partition whose only replica is stopped has no leader. broker: 7.8, 8.1b
        state = three.state(alone, index)
        assert (state.leader, state.in_sync) == (-1, ())
        broker.send_produce(alone, plain(), partition=index, version=12)
        answer = broker.produce_answer(12)
        (said,) = answer.responses[0].partition_responses
        assert (said.error_code, said.base_offset) == (E.NOT_LEADER_OR_FOLLOWER, -1)
        assert (said.current_leader.leader_id, said.current_leader.leader_epoch) == (-1, epoch + 1)
        assert answer.node_endpoints == []
    three.admin.wait_all_in_sync(strict)
    assert broker.produce_once_in_sync(strict, sequenced(pid, 4)) == (0, 4)
    assert three.end_offset(strict) == 5
    # The restarted one remembers the last batch of a producer, no more. broker: 2.6
    three.admin.wait_all_in_sync(alone)
    back = three.connect(stopped)
    again = [back.produce(alone, sequenced(pid, number), partition=index) for number in range(6)]
    assert again == [OUT_OF_ORDER] * 5 + [(0, 5)]
    assert back.produce(alone, sequenced(pid, 6), partition=index) == (0, 6)


def test_an_in_sync_set_that_falls_below_the_minimum_while_a_batch_waits(three_slowly: Target) -> None:
    # broker: 6.3, 6.3b
    three = three_slowly
    topic = three.new_topic(replicas=2, min_insync_replicas="2")
    broker = three.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0)) == (0, 0)
    with three.frozen(topic):
        broker.send_produce(topic, sequenced(pid, 1), timeout_ms=three.isr_patience_ms)
        three.fall_out(topic)
        assert broker.next_written() == (E.REQUEST_TIMED_OUT, 1), "never 20"
        assert broker.produce(topic, sequenced(pid, 1)) == NOT_ENOUGH
        assert three.end_offset(topic) == 1
    three.admin.wait_all_in_sync(topic)
    assert broker.produce_once_in_sync(topic, sequenced(pid, 1)) == (0, 1)
    assert broker.produce(topic, sequenced(pid, 2)) == (0, 2)


def test_before_kip_966_too_small_a_set_is_told_after_the_append(three_of_2_8: Target) -> None:  # broker: 6.3c
    three = three_of_2_8
    topic = three.new_topic(replicas=2, min_insync_replicas="2")
    broker = three.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0)) == (0, 0)
    with three.frozen(topic):
        broker.send_produce(topic, sequenced(pid, 1), timeout_ms=30_000)
        three.fall_out(topic)
        answer = broker.one_partition()
        assert (answer.error_code, answer.base_offset) == (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 1)
        assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0)
        assert broker.produce(topic, sequenced(pid, 1)) == NOT_ENOUGH
        assert three.end_offset(topic) == 2, "readers see it"
    three.admin.wait_all_in_sync(topic)
    assert broker.produce_once_in_sync(topic, sequenced(pid, 1)) == (0, 1)


def test_what_a_leader_alone_acknowledged_is_lost_with_it(three_slowly: Target) -> None:  # broker: 5.4, 5.6
    three = three_slowly
    topic = three.new_topic(replicas=2, min_insync_replicas="1")
    leader, follower = three.state(topic).leader, three.follower(topic)
    broker = three.connect(leader)
    known, lost = broker.new_producer_id(), broker.new_producer_id()
    for number in range(5):
        assert broker.produce(topic, sequenced(known, number)) == (0, number)
    with contextlib.ExitStack() as broken:
        with three.frozen(topic):
            for number in range(5, 8):
                assert broker.produce(topic, sequenced(known, number), acks=1) == (0, number)
            for number in range(3):
                assert broker.produce(topic, sequenced(lost, number), acks=1) == (0, 8 + number)
            broken.enter_context(three.killed(leader))
        three.until_led_by(topic, follower)
        new = three.connect(follower)
        assert new.produce(topic, sequenced(known, 8)) == OUT_OF_ORDER
        assert new.produce(topic, sequenced(known, 7)) == OUT_OF_ORDER
        assert new.produce(topic, sequenced(known, 4)) == (0, 4)
        assert new.produce(topic, sequenced(known, 5)) == (0, 5)
        assert new.produce(topic, sequenced(lost, 3)) == (0, 6), "a hole that is not noticed"
    three.admin.wait_all_in_sync(topic)
    assert three.end_offset(topic) == 7
