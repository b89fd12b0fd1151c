"""Rules that older Kafka has of its own, where the mock of that version does as Kafka 4.3."""

from __future__ import annotations

import struct

import pytest
from conformance_targets import Target
from group_asker import GroupAsker
from wire_batches import now_ms, plain, with_field

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import create_topics as creation
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_4_0_old_produce_is_served(older: Target, version: int) -> None:  # broker: 20.1
    broker = older.connect()
    broker.send_body(0, version, struct.pack(">hii", 1, 1000, 0), flexible=False)
    assert bytes(broker.answer_body(flexible=False))[:4] == bytes(4), "no topics"


def test_2_8_refuses_a_foreign_timestamp_type(kafka_alone_2_8: Target) -> None:  # broker: 20.2
    topic = kafka_alone_2_8.new_topic()
    broker = kafka_alone_2_8.connect_to_leader(topic)
    assert broker.produce(topic, with_field(plain(), attributes=0x08)) == (E.INVALID_TIMESTAMP, -1)
    kafka_alone_2_8.hang_up()


def test_2_8_has_other_words_for_missing_keys(kafka_alone_2_8: Target) -> None:  # broker: 20.3
    topic = kafka_alone_2_8.new_topic(cleanup_policy="compact")
    answer = kafka_alone_2_8.connect_to_leader(topic).produce_fully(topic, plain(b"a", b"b"))
    assert [each.batch_index for each in answer.record_errors] == [0, 1]
    assert answer.error_message == "One or more records have been rejected"
    kafka_alone_2_8.hang_up()


def test_2_8_answers_twice_for_a_topic_named_twice(kafka_alone_2_8: Target) -> None:  # broker: 20.4
    topics = [creation.CreatableTopic(name="twice", num_partitions=n, replication_factor=1) for n in (1, 2)]
    request = creation.CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    results = kafka_alone_2_8.connect().ask(request, creation.CreateTopicsResponse, 7).topics
    assert [(each.name, each.error_code) for each in results] == [("twice", E.INVALID_REQUEST)] * 2
    kafka_alone_2_8.hang_up()


def test_2_8_says_of_a_topic_it_has_just_created_that_it_has_no_leader(kafka_alone_2_8: Target) -> None:  # broker: 20.5
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"created-{now_ms()}")], allow_auto_topic_creation=True)
    (topic,) = kafka_alone_2_8.connect().ask(request, MetadataResponse, 9).topics
    assert topic.error_code == E.LEADER_NOT_AVAILABLE
    kafka_alone_2_8.hang_up()


def test_2_8_takes_an_unknown_instance(kafka_alone_2_8: Target) -> None:  # broker: 20.6
    group = GroupAsker(kafka_alone_2_8)
    broker = group.connect()
    one = group.alone(broker)
    assert group.beat(broker, one, 1, "i") == 0
    assert group.commit(broker, kafka_alone_2_8.new_topic(), one, 1, group_instance_id="i") == 0
    kafka_alone_2_8.hang_up()
