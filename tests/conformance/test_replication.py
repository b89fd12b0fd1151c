"""Answers that leave the fate of a batch open, and what becomes of producers when the leader moves. broker: 2, 5, 6"""

from __future__ import annotations

import time

import pytest
from asker import Written
from conformance_targets import Target
from wire_batches import plain, sequenced

from aiokprod.wire.codes import ErrorCode as E

OUT_OF_ORDER = Written(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_timeout_names_the_offset_and_the_resend_finds_the_batch(three: Target) -> None:  # broker: 6.1, 6.1b, 6.1c
    topic = three.new_topic(replicas=2)
    broker = three.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0, 2)) == (0, 0)
    with three.frozen(topic):
        began = time.monotonic()
        assert broker.produce(topic, sequenced(pid, 2), timeout_ms=300) == (E.REQUEST_TIMED_OUT, 2)
        assert 0.3 <= time.monotonic() - began < 5.0
        assert broker.produce(topic, sequenced(pid, 2), timeout_ms=100) == (E.REQUEST_TIMED_OUT, 2)
        assert broker.produce(topic, sequenced(pid, 3), timeout_ms=100) == (E.REQUEST_TIMED_OUT, 3)
        assert three.end_offset(topic) == 2, "readers see nothing yet"
    assert broker.produce(topic, sequenced(pid, 2)) == (0, 2)
    assert broker.produce(topic, sequenced(pid, 4)) == (0, 4)
    assert three.end_offset(topic) == 5


def test_a_timeout_says_the_log_start_and_no_time(three: Target) -> None:  # broker: 6.1
    topic = three.new_topic(replicas=2)
    broker = three.connect_to_leader(topic)
    assert broker.produce(topic, plain()) == (0, 0)
    with three.frozen(topic):
        answer = broker.produce_fully(topic, plain(), timeout_ms=100)
    assert (answer.error_code, answer.base_offset) == (E.REQUEST_TIMED_OUT, 1)
    assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0)
    assert (answer.record_errors, answer.error_message) == ([], None)


def test_a_plain_batch_after_a_timeout_is_written_twice(three: Target) -> None:  # broker: 6.2
    topic = three.new_topic(replicas=2)
    broker = three.connect_to_leader(topic)
    assert broker.produce(topic, plain()) == (0, 0)
    batch = plain(b"twice")
    with three.frozen(topic):
        assert broker.produce(topic, batch, timeout_ms=100) == (E.REQUEST_TIMED_OUT, 1)
    assert broker.produce(topic, batch) == (0, 2)


def test_acks_1_does_not_wait_for_followers(three: Target) -> None:  # broker: 5.7
    topic = three.new_topic(replicas=2)
    broker = three.connect_to_leader(topic)
    assert broker.produce(topic, plain()) == (0, 0)
    with three.frozen(topic):
        assert broker.produce(topic, plain(), acks=1) == (0, 1)
        assert three.end_offset(topic) == 1


def test_a_leader_that_moves_answers_what_waits_with_its_offset(three: Target) -> None:  # broker: 6.4
    topic = three.new_topic(replicas=3)
    state = three.state(topic)
    followers = [node for node in state.replicas if node != state.leader]
    controller = three.controller()
    to, slow = sorted(followers, key=lambda node: node != controller)  # a frozen controller decides nothing
    old = three.connect_to_leader(topic)
    pid = old.new_producer_id()
    assert old.produce(topic, sequenced(pid, 0)) == (0, 0)
    with three.frozen(topic, slow):
        for number in (1, 2, 3):
            old.send_produce(topic, sequenced(pid, number), timeout_ms=10_000)
        assert old.says_nothing_for(0.3)
        three.move_leader(topic, to)
        answers = [old.one_partition() for _ in range(3)]
    assert [(each.error_code, each.base_offset) for each in answers] == [
        (E.NOT_LEADER_OR_FOLLOWER, 1),  # it is in the log
        (E.NOT_LEADER_OR_FOLLOWER, -1),
        (E.NOT_LEADER_OR_FOLLOWER, -1),
    ]
    for each in answers:
        assert each.current_leader.leader_id == to
        assert (each.log_append_time_ms, each.record_errors, each.error_message) == (-1, [], None)
    new = three.connect(to)  # what was frozen may still name another
    again = [new.produce(topic, sequenced(pid, number)) for number in (1, 2, 3)]
    assert again == [(0, 1), (0, 2), (0, 3)]


def test_a_former_leader_hints_at_the_new_one(three: Target) -> None:  # broker: 2.10, 7.7
    topic = three.new_topic(replicas=2)
    former, to = three.state(topic).leader, three.follower(topic)
    three.move_leader(topic, to)
    state = three.state(topic)
    old = three.connect(former)
    for version in range(10, 13):
        old.send_produce(topic, plain(), version=version)
        answer = old.produce_answer(version)
        hint = answer.responses[0].partition_responses[0].current_leader
        assert (hint.leader_id, hint.leader_epoch) == (to, state.leader_epoch)
        assert [(e.node_id, (e.host, e.port)) for e in answer.node_endpoints] == [(to, three.address(to))]


@pytest.mark.parametrize("version", [3, 7, 9])
def test_before_version_10_a_former_leader_gives_no_hint(three: Target, version: int) -> None:  # broker: 7.7
    topic = three.new_topic(replicas=2)
    other = three.connect(three.follower(topic))
    answer = other.produce_fully(topic, plain(), version=version)
    assert (answer.error_code, answer.base_offset) == (E.NOT_LEADER_OR_FOLLOWER, -1)
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, -1)


def test_a_broker_without_replica_hints_too(three: Target) -> None:  # broker: 7.7
    topic = three.new_topic(replicas=1)
    leader = three.state(topic).leader
    other = three.connect(next(node for node in (1, 2, 3) if node != leader))
    other.send_produce(topic, plain(), version=12)
    answer = other.produce_answer(12)
    said = answer.responses[0].partition_responses[0]
    assert (said.error_code, said.current_leader.leader_id) == (E.NOT_LEADER_OR_FOLLOWER, leader)
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [leader]


def test_hints_of_several_partitions_share_the_endpoints(three: Target) -> None:  # broker: 7.7
    from asker import produce_request

    topic = three.new_topic(partitions=6, replicas=1)
    leaders = {index: three.state(topic, index).leader for index in range(6)}
    asked = next(node for node in (1, 2, 3) if set(leaders.values()) - {node})
    broker = three.connect(asked)
    broker.send(produce_request({(topic, index): plain() for index in range(6)}), 12)
    answer = broker.produce_answer(12)
    (said,) = answer.responses
    hints = {each.index: each.current_leader.leader_id for each in said.partition_responses}
    assert hints == {index: -1 if leader == asked else leader for index, leader in leaders.items()}
    named = [endpoint.node_id for endpoint in answer.node_endpoints]
    assert sorted(named) == sorted(set(leaders.values()) - {asked})


def test_a_new_leader_that_was_not_restarted_remembers_five_batches(three: Target) -> None:  # broker: 2.7b
    topic = three.new_topic(replicas=2)
    old = three.connect_to_leader(topic)
    pid = old.new_producer_id()
    for number in range(7):
        assert old.produce(topic, sequenced(pid, number)) == (0, number)
    three.move_leader(topic, three.follower(topic))
    new = three.connect_to_leader(topic)
    again = [new.produce(topic, sequenced(pid, number)) for number in range(7)]
    assert again == [OUT_OF_ORDER] * 2 + [(0, number) for number in range(2, 7)]
    assert new.produce(topic, sequenced(pid, 7)) == (0, 7)
