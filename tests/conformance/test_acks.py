"""acks 0 and 1. broker: 5"""

from __future__ import annotations

import pytest
from conformance_targets import Target
from wire_batches import now_ms, of_size, plain, sequenced, with_wrong_crc

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse

REFUSED = {
    "too large": of_size(5000),
    "wrong crc": with_wrong_crc(plain()),
    "from the future": plain(timestamp_ms=now_ms() + 7_200_000),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_batch_refused_with_acks_0_closes_the_connection(target: Target, kind: str) -> None:  # broker: 5.1
    topic = target.new_topic(max_message_bytes="2000", **target.an_hour_ahead)
    broker = target.connect_to_leader(topic)
    for batch in (plain(), REFUSED[kind], plain()):
        broker.send_produce(topic, batch, acks=0)
    assert broker.is_closed()
    assert target.end_offset(topic) == 1


def test_an_unknown_topic_with_acks_0_closes_the_connection(target: Target) -> None:  # broker: 5.1
    broker = target.connect()
    broker.send_produce("conform-no-such-topic", plain(), acks=0)
    assert broker.is_closed()


def test_a_gap_with_acks_0_closes_the_connection(target: Target) -> None:  # broker: 5.1
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    broker.send_produce(topic, sequenced(pid, 0), acks=0)
    broker.send_produce(topic, sequenced(pid, 5), acks=0)
    assert broker.is_closed()


def test_a_follower_asked_with_acks_0_closes_the_connection(three: Target) -> None:  # broker: 5.1
    topic = three.new_topic()
    follower = next(node for node in (1, 2, 3) if node != three.state(topic).leader)
    broker = three.connect(follower)
    broker.send_produce(topic, plain(), acks=0)
    assert broker.is_closed()


def test_with_acks_0_nothing_is_answered_not_even_to_a_duplicate(target: Target) -> None:  # broker: 5.2
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    for _ in range(2):
        broker.send_produce(topic, sequenced(pid, 0), acks=0)
        broker.expects_no_answer()
    assert broker.says_nothing_for(0.1)
    broker.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
    assert target.end_offset(topic) == 1


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(target: Target, acks: int) -> None:  # broker: 5.3
    topic = target.new_topic()
    answer = target.connect_to_leader(topic).produce_fully(topic, plain(), acks=acks)
    assert (answer.error_code, answer.base_offset) == (E.INVALID_REQUIRED_ACKS, -1)
    assert target.end_offset(topic) == 0


def test_idempotent_batches_may_come_with_acks_1(target: Target) -> None:  # broker: 5.2
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0), acks=1) == (0, 0)
    assert broker.produce(topic, sequenced(pid, 0), acks=1) == (0, 0)
