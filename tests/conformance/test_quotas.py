"""A client over its quota: answered at once, then muted. broker: 14"""

from __future__ import annotations

import time

import pytest
from conformance_targets import Target
from wire_batches import of_size

from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse

RATE = 20_000


@pytest.fixture
def client_id(three: Target) -> str:
    """Return a client id that may send 20 kB a second to each broker."""
    name = f"limited-{time.monotonic_ns()}"
    three.set_quota(name, RATE)
    return name


def seconds_since(began: float) -> float:
    return time.monotonic() - began


def test_the_quota_of_ten_seconds_passes_then_each_answer_names_a_throttle_that_mutes(
    three: Target, client_id: str
) -> None:  # broker: 14.1, 14.2
    topic = three.new_topic()
    broker = three.connect_to_leader(topic, client_id=client_id)
    other = three.connect_to_leader(topic)
    throttles = []
    for _ in range(10):
        broker.send_produce(topic, of_size(RATE - 200))
        throttles.append(broker.produce_answer().throttle_time_ms)
    assert throttles == [0] * 10
    began = time.monotonic()
    broker.send_produce(topic, of_size(2 * RATE))
    answer = broker.produce_answer()
    partition = answer.responses[0].partition_responses[0]
    assert (partition.error_code, partition.base_offset) == (0, 10), "nothing is refused"
    assert 500 <= answer.throttle_time_ms <= 2100
    assert seconds_since(began) < answer.throttle_time_ms / 1000, "it is answered at once"
    broker.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
    assert seconds_since(began) >= answer.throttle_time_ms / 1000
    assert other.produce(topic, of_size(RATE)) == (0, 11), "other clients go on"


def test_a_second_connection_of_the_client_is_served_and_muted_by_itself(
    three: Target, client_id: str
) -> None:  # broker: 14.3, 14.5
    topic = three.new_topic()
    first = three.connect_to_leader(topic, client_id=client_id)
    second = three.connect_to_leader(topic, client_id=client_id)
    began = time.monotonic()
    first.send_produce(topic, of_size(11 * RATE))
    throttle_ms = first.produce_answer().throttle_time_ms
    assert 900 <= throttle_ms <= 1100
    first.send(MetadataRequest(topics=[]), 9)
    second.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
    assert seconds_since(began) < throttle_ms / 1000
    second.send_produce(topic, of_size(RATE // 2))
    assert second.produce_answer().throttle_time_ms >= throttle_ms // 2, "what all connections sent counts"
    first.answer(MetadataResponse, MetadataRequest, 9)
    assert seconds_since(began) >= throttle_ms / 1000


def test_with_acks_0_the_client_is_muted_without_a_word(three: Target, client_id: str) -> None:  # broker: 14.4
    topic = three.new_topic()
    broker = three.connect_to_leader(topic, client_id=client_id)
    began = time.monotonic()
    broker.send_produce(topic, of_size(10 * RATE + RATE // 2), acks=0)
    broker.expects_no_answer()
    broker.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
    assert 0.4 <= seconds_since(began) < 5.0
