"""Topics: names, ids, creation, deletion, growth, and what metadata says of them. broker: 7, 8"""

from __future__ import annotations

import time
import uuid

import pytest
from asker import Asker, produce_request
from conformance_targets import Target
from wire_batches import plain

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import create_partitions as growth
from aiokprod.wire.messages import create_topics as creation
from aiokprod.wire.messages import delete_topics as deletion
from aiokprod.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

ZERO_ID = bytes(16)
BY_ID = 13
MISSING = "conform-no-such-topic"
ILLEGAL = ["a/b", "", ".", "..", "x" * 250, "ü", "a b", "a:b"]


def fresh_name() -> str:
    return f"conform-{uuid.uuid4().hex[:12]}"


def metadata_version(target: Target) -> int:
    return target.by_version({(2, 8): 11, (3, 9): 12})


def describe(
    target: Target, name: str | None, topic_id: bytes = ZERO_ID, create: bool = False
) -> MetadataResponseTopic:
    asked = MetadataRequestTopic(name=name, topic_id=topic_id)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=create)
    (topic,) = target.connect().ask(request, MetadataResponse, metadata_version(target)).topics
    return topic


def topic_id(target: Target, name: str) -> bytes:
    return describe(target, name).topic_id


def create(broker: Asker, name: str, *, validate_only: bool = False, **fields: object) -> creation.CreatableTopicResult:
    options = {"num_partitions": 1, "replication_factor": 1, **fields}
    topic = creation.CreatableTopic(name=name, **options)  # type: ignore[arg-type]
    request = creation.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)
    (result,) = broker.ask(request, creation.CreateTopicsResponse, 7).topics
    return result


# ---------------------------------------------------------------------- produce by id and by name


@pytest.mark.parametrize("wrong", [uuid.uuid4().bytes, ZERO_ID, b"\0" * 15 + b"\1"], ids=["random", "zero", "one"])
def test_produce_by_an_unknown_id(three: Target, wrong: bytes) -> None:  # broker: 7.1
    broker = three.connect()
    broker.send_produce(wrong, plain(), version=BY_ID)
    (topic,) = broker.produce_answer(BY_ID).responses
    (answer,) = topic.partition_responses
    assert topic.topic_id == wrong
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (E.UNKNOWN_TOPIC_ID, -1, -1)
    assert (answer.log_append_time_ms, answer.error_message, answer.record_errors) == (-1, None, [])


def test_produce_by_id(three: Target) -> None:  # broker: 7.2
    topic = three.new_topic()
    identity = topic_id(three, topic)
    broker = three.connect_to_leader(topic)
    broker.send_produce(identity, plain(), version=BY_ID)
    (said,) = broker.produce_answer(BY_ID).responses
    assert (said.topic_id, said.name, said.partition_responses[0].error_code) == (identity, "", 0)
    broker.send_produce(identity, plain(), partition=9, version=BY_ID)
    (said,) = broker.produce_answer(BY_ID).responses
    assert said.partition_responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", [MISSING, *ILLEGAL])
def test_produce_to_an_unknown_name(target: Target, name: str) -> None:  # broker: 7.3
    answer = target.connect().produce_fully(name, plain())
    assert (answer.error_code, answer.base_offset) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert (answer.log_start_offset, answer.error_message) == (-1, None)


@pytest.mark.parametrize("index", [-1, 1])
def test_produce_to_an_unknown_partition(target: Target, index: int) -> None:  # broker: 7.2
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert broker.produce(topic, plain(), partition=index) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_topic_made_again_has_another_id_and_the_old_one_is_dead(three: Target) -> None:  # broker: 7.4, 7.5
    topic = three.new_topic()
    old = topic_id(three, topic)
    three.delete(topic)
    for node in (1, 2, 3):
        broker = three.connect(node)
        assert broker.produce(topic, plain()) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
        broker.send_produce(old, plain(), version=BY_ID)
        assert broker.one_partition(BY_ID).error_code == E.UNKNOWN_TOPIC_ID
    three.create(topic, 1, 1, {})
    broker = three.connect_to_leader(topic)
    broker.send_produce(old, plain(), version=BY_ID)
    assert broker.one_partition(BY_ID).error_code == E.UNKNOWN_TOPIC_ID
    assert topic_id(three, topic) != old
    assert broker.produce(topic, plain()) == (0, 0)


def test_a_produce_by_id_to_another_broker_is_hinted(three: Target) -> None:  # broker: 7.7
    topic = three.new_topic()
    leader = three.state(topic).leader
    broker = three.connect(next(node for node in (1, 2, 3) if node != leader))
    broker.send(produce_request({(topic_id(three, topic), 0): plain()}), BY_ID)
    answer = broker.produce_answer(BY_ID)
    said = answer.responses[0].partition_responses[0]
    assert (said.error_code, said.current_leader.leader_id) == (E.NOT_LEADER_OR_FOLLOWER, leader)
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [leader]


# ---------------------------------------------------------------------- metadata


def test_what_metadata_says_of_a_topic(target: Target) -> None:  # broker: 8.7
    topic = target.new_topic(partitions=3)
    said = describe(target, topic)
    assert (said.error_code, said.name, said.is_internal) == (0, topic, False)
    assert said.topic_id != ZERO_ID
    assert sorted(each.partition_index for each in said.partitions) == [0, 1, 2]
    for each in said.partitions:
        assert (each.error_code, each.leader_epoch, each.offline_replicas) == (0, 0, [])
        assert [each.leader_id] == each.replica_nodes == each.isr_nodes


def test_metadata_of_a_missing_topic(target: Target) -> None:  # broker: 8.4, 8.7
    said = describe(target, MISSING)
    assert (said.error_code, said.name) == (E.UNKNOWN_TOPIC_OR_PARTITION, MISSING)
    assert (said.topic_id, said.partitions) == (ZERO_ID, [])
    assert describe(target, MISSING).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize("auto", [False, True])
def test_metadata_of_an_illegal_name(target: Target, name: str, auto: bool) -> None:  # broker: 8.6
    said = describe(target, name, create=auto)
    assert (said.error_code, said.name) == (E.INVALID_TOPIC_EXCEPTION, name)


def test_metadata_by_id(three: Target) -> None:  # broker: 7.6
    topic = three.new_topic()
    identity = topic_id(three, topic)
    found = describe(three, None, identity)
    assert (found.error_code, found.name, found.topic_id) == (0, topic, identity)
    missing = describe(three, None, b"\7" * 16)
    assert (missing.error_code, missing.name, missing.topic_id) == (E.UNKNOWN_TOPIC_ID, None, b"\7" * 16)


def test_metadata_of_the_same_name_twice_is_one_entry(target: Target) -> None:  # broker: 8.7
    topic = target.new_topic()
    asked = [MetadataRequestTopic(name=topic), MetadataRequestTopic(name=topic)]
    answer = target.connect().ask(MetadataRequest(topics=asked), MetadataResponse, 9)
    assert [each.name for each in answer.topics] == [topic]


@pytest.mark.parametrize(
    ("version", "topics", "expected"), [(0, [], True), (1, [], False), (1, None, True), (9, None, True)]
)
def test_all_topics_or_none(
    target: Target, version: int, topics: list[MetadataRequestTopic] | None, expected: bool
) -> None:  # broker: 17.7
    if target.version >= (4, 0) or version > 0:
        topic = target.new_topic()
        answer = target.connect().ask(MetadataRequest(topics=topics), MetadataResponse, version)
        assert (topic in {each.name for each in answer.topics}) is expected
        assert sorted(broker.node_id for broker in answer.brokers) == sorted(
            broker.node_id for broker in target.connect().ask(MetadataRequest(topics=[]), MetadataResponse, 9).brokers
        )


def test_metadata_names_brokers_and_cluster(three: Target) -> None:  # broker: 17.7
    answers = [three.connect(node).ask(MetadataRequest(topics=[]), MetadataResponse, 9) for node in (1, 2, 3)]
    for answer in answers:
        assert {b.node_id: (b.host, b.port) for b in answer.brokers} == {n: three.address(n) for n in (1, 2, 3)}
        assert answer.cluster_id == answers[0].cluster_id is not None
        assert answer.controller_id in (1, 2, 3)
        assert answer.throttle_time_ms == 0


# ---------------------------------------------------------------------- creation, growth, deletion


def test_creation_tells_what_was_made(target: Target) -> None:  # broker: 17.1
    name = fresh_name()
    result = create(target.connect(), name, num_partitions=3)
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_id not in (ZERO_ID, b"")


def test_creation_can_be_tried_without_effect(target: Target) -> None:  # broker: 17.1
    name = fresh_name()
    result = create(target.connect(), name, num_partitions=2, validate_only=True)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)
    assert describe(target, name).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_creation_refusals(target: Target) -> None:  # broker: 8.6, 17.2
    broker = target.connect()
    name = target.new_topic()
    config = [creation.CreatableTopicConfig(name="max.message.bytes", value="many")]
    assignment = [creation.CreatableReplicaAssignment(partition_index=0, broker_ids=[77])]
    got = {
        "exists": create(broker, name).error_code,
        "illegal": create(broker, "a/b").error_code,
        "empty": create(broker, "").error_code,
        "too long": create(broker, "x" * 250).error_code,
        "no partitions": create(broker, fresh_name(), num_partitions=0).error_code,
        "minus two": create(broker, fresh_name(), num_partitions=-2).error_code,
        "no replicas": create(broker, fresh_name(), replication_factor=0).error_code,
        "too many replicas": create(broker, fresh_name(), replication_factor=9).error_code,
        "bad config": create(broker, fresh_name(), configs=config).error_code,
        "unknown config": create(
            broker, fresh_name(), configs=[creation.CreatableTopicConfig(name="no.such.option", value="1")]
        ).error_code,
        "both": create(broker, fresh_name(), assignments=assignment).error_code,
    }
    assert got == {
        "exists": E.TOPIC_ALREADY_EXISTS,
        "illegal": E.INVALID_TOPIC_EXCEPTION,
        "empty": E.INVALID_TOPIC_EXCEPTION,
        "too long": E.INVALID_TOPIC_EXCEPTION,
        "no partitions": E.INVALID_PARTITIONS,
        "minus two": E.INVALID_PARTITIONS,
        "no replicas": E.INVALID_REPLICATION_FACTOR,
        "too many replicas": E.INVALID_REPLICATION_FACTOR,
        "bad config": E.INVALID_CONFIG,
        "unknown config": E.INVALID_CONFIG,
        "both": E.INVALID_REQUEST,
    }


WRONG_OPTIONS = {
    "retention.ms": "abc",
    "retention.bytes": "1.5",
    "cleanup.policy": "weird",
    "compression.type": "zip",
    "min.insync.replicas": "0",
    "max.message.bytes": "3000000000",
    "preallocate": "maybe",
    "segment.ms": "0",
    "message.timestamp.type": "createtime",
}


def test_creation_with_values_that_options_do_not_have(target: Target) -> None:  # broker: 17.2
    broker = target.connect()
    got = {}
    for option, value in WRONG_OPTIONS.items():
        configs = [creation.CreatableTopicConfig(name=option, value=value)]
        got[option] = create(broker, fresh_name(), configs=configs, validate_only=True).error_code
    assert got == dict.fromkeys(WRONG_OPTIONS, E.INVALID_CONFIG)


def test_creation_with_far_too_many_partitions(three: Target) -> None:  # broker: 17.2
    result = create(three.connect(), fresh_name(), num_partitions=99_999_999)
    assert result.error_code == E.POLICY_VIOLATION


def test_creation_on_brokers_that_are_not_there(since_3_9: Target) -> None:  # broker: 17.2
    assignment = [creation.CreatableReplicaAssignment(partition_index=0, broker_ids=[77])]
    result = create(since_3_9.connect(), fresh_name(), num_partitions=-1, replication_factor=-1, assignments=assignment)
    assert result.error_code == E.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_named_twice_in_one_request(since_3_9: Target) -> None:  # broker: 17.3
    name = fresh_name()
    one = creation.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    two = creation.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    request = creation.CreateTopicsRequest(topics=[one, two], timeout_ms=10_000)
    results = since_3_9.connect().ask(request, creation.CreateTopicsResponse, 7).topics
    assert [(each.name, each.error_code) for each in results] == [(name, E.INVALID_REQUEST)]


def test_names_that_metrics_would_confuse(target: Target) -> None:  # broker: 17.4
    name = fresh_name().replace("-", "_")
    broker = target.connect()
    assert create(broker, name).error_code == 0
    assert create(broker, name.replace("_", ".")).error_code == E.INVALID_TOPIC_EXCEPTION


def test_deletion(target: Target) -> None:  # broker: 7.4
    topic = target.new_topic()
    broker = target.connect()
    request = deletion.DeleteTopicsRequest(topic_names=[topic, MISSING], timeout_ms=10_000)
    results = broker.ask(request, deletion.DeleteTopicsResponse, 5).responses
    assert {each.name: each.error_code for each in results} == {topic: 0, MISSING: E.UNKNOWN_TOPIC_OR_PARTITION}
    deadline = time.monotonic() + 5
    while describe(target, topic).error_code != E.UNKNOWN_TOPIC_OR_PARTITION and time.monotonic() < deadline:
        time.sleep(0.02)
    assert describe(target, topic).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.produce(topic, plain()).code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_deletion_by_id(three: Target) -> None:  # broker: 17.5
    topic = three.new_topic()
    identity = topic_id(three, topic)
    topics = [
        deletion.DeleteTopicState(name=None, topic_id=identity),
        deletion.DeleteTopicState(name=None, topic_id=b"\7" * 16),
    ]
    request = deletion.DeleteTopicsRequest(topics=topics, timeout_ms=10_000)
    results = three.connect().ask(request, deletion.DeleteTopicsResponse, 6).responses
    said = {each.topic_id: (each.name, each.error_code) for each in results}
    assert said == {identity: (topic, 0), b"\7" * 16: (None, E.UNKNOWN_TOPIC_ID)}


def grow(broker: Asker, name: str, count: int, validate_only: bool = False) -> int:
    topic = growth.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = growth.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)
    (result,) = broker.ask(request, growth.CreatePartitionsResponse, 3).results
    assert result.name == name
    return result.error_code


def test_growth(target: Target) -> None:  # broker: 17.6
    topic = target.new_topic(partitions=2)
    broker = target.connect()
    assert broker.produce(topic, plain(), partition=2).code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(broker, topic, 4, validate_only=True) == 0
    assert grow(broker, topic, 4) == 0
    target.admin.end_offsets(topic)
    deadline = time.monotonic() + 5
    while len(describe(target, topic).partitions) != 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert target.admin.end_offsets(topic) == [0, 0, 0, 0]
    assert target.connect_to_leader(topic, 3).produce(topic, plain(), partition=3) == (0, 0)
    codes = [grow(broker, topic, count) for count in (4, 3, 0, -1)]
    assert codes == [E.INVALID_PARTITIONS] * 4
    assert grow(broker, MISSING, 3) == E.UNKNOWN_TOPIC_OR_PARTITION
