"""Offsets and groups, as this library and other clients have them."""

from __future__ import annotations

import sys
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from aiokprod.errors import RecordTypeError
from aiokprod.transactions.offsets import GroupMetadata, Offset, offset_topics, offsets_of

NO_OBJECT_OF_OURS = SimpleNamespace()
"""An object without anything that is asked for; its repr, the name of a test, is the same in each process."""
TopicPartition = namedtuple("TopicPartition", ["topic", "partition"])
OffsetAndMetadata = namedtuple("OffsetAndMetadata", ["offset", "metadata"])


def of_confluent(topic: str, partition: int, offset: int) -> Any:
    return SimpleNamespace(
        topic=topic, partition=partition, offset=offset, metadata=None, leader_epoch=None, error=None
    )


@pytest.mark.parametrize(
    "offsets",
    [
        {("t", 1): 7},
        {TopicPartition("t", 1): 7},
        {TopicPartition("t", 1): OffsetAndMetadata(7, "")},
        {("t", 1): SimpleNamespace(offset=7)},
        [of_confluent("t", 1, 7)],
        [of_confluent("t", 1, 7), of_confluent("t", 2, -1001)],
    ],
    ids=str,
)
def test_offsets_of_each_client_are_one(offsets: object) -> None:
    assert offsets_of(offsets) == {("t", 1): Offset(7)}


def test_metadata_and_leader_epoch_are_kept() -> None:
    place = SimpleNamespace(offset=7, metadata="here", leader_epoch=3)
    assert offsets_of({("t", 1): place}) == {("t", 1): Offset(7, "here", 3)}
    assert offsets_of({("t", 1): OffsetAndMetadata(7, "here")}) == {("t", 1): Offset(7, "here", -1)}


@pytest.mark.parametrize(
    "offsets",
    [None, 5, "t", b"t", {"t": 1}, {("t",): 1}, {("t", "1"): 1}, {("t", -1): 1}, {("t", True): 1}, {("", 1): 1},
     {("t", 1): None}, {("t", 1): "7"}, {("t", 1): True}, {("t", 1): -1}, {("t", 1): 2**63}, [NO_OBJECT_OF_OURS], [("t", 1)],
     {("t", 2**31): 1}, {("no topic", 1): 1}, {("..", 1): 1}, {("t" * 250, 1): 1}, {("\ud800", 1): 1},
     {("t", 1): OffsetAndMetadata(1, "\ud800")}, {("t", 1): OffsetAndMetadata(1, "m" * 2**15)}],
    ids=lambda offsets: ascii(offsets)[:40],
)  # fmt: skip
def test_what_is_no_offset_is_refused(offsets: object) -> None:
    with pytest.raises(RecordTypeError):
        offsets_of(offsets)


def test_a_leader_epoch_that_no_request_can_carry_is_left_out() -> None:
    assert offsets_of({("t", 1): SimpleNamespace(offset=7, leader_epoch=2**31)}) == {("t", 1): Offset(7)}


def test_a_request_has_them_by_topic() -> None:
    topics = offset_topics({("t", 1): Offset(7), ("u", 0): Offset(1, "m", 2), ("t", 3): Offset(8)})
    found = [
        (topic.name, [(p.partition_index, p.committed_offset, p.committed_leader_epoch) for p in topic.partitions])
        for topic in topics
    ]
    assert found == [("t", [(1, 7, -1), (3, 8, -1)]), ("u", [(0, 1, 2)])]


def test_a_group_id_is_enough() -> None:
    assert GroupMetadata.of("g") == GroupMetadata("g", -1, "", None)


def test_metadata_stay_as_they_are() -> None:
    metadata = GroupMetadata("g", 3, "m", "i")
    assert GroupMetadata.of(metadata) is metadata


@pytest.mark.parametrize("options", [{}, {"group.instance.id": "inst"}])
def test_the_metadata_of_confluent_kafka_are_read(options: dict[str, str]) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "grp", "log_level": 0, **options}
    )
    try:
        expected = GroupMetadata("grp", -1, "", options.get("group.instance.id"))
        assert GroupMetadata.of(consumer) == expected
        assert GroupMetadata.of(consumer.consumer_group_metadata()) == expected
    finally:
        consumer.close()


def test_a_member_in_the_bytes_of_librdkafka_is_read() -> None:
    packed = b"CGMDv2:" + (5).to_bytes(4, sys.byteorder) + b"grp\0member-1\0\0inst\0"
    assert GroupMetadata.of(packed) == GroupMetadata("grp", 5, "member-1", "inst")


def test_the_group_of_an_aiokafka_consumer_is_read() -> None:
    aiokafka = pytest.importorskip("aiokafka")
    group_coordinator = pytest.importorskip("aiokafka.consumer.group_coordinator")
    coordinator = object.__new__(group_coordinator.GroupCoordinator)
    coordinator.__dict__.update(group_id="grp", generation=4, member_id="member-2", _group_instance_id=None)
    consumer = object.__new__(aiokafka.AIOKafkaConsumer)
    consumer.__dict__.update(_coordinator=coordinator, _closed=True, _client=None)
    assert GroupMetadata.of(consumer) == GroupMetadata("grp", 4, "member-2", None)


def test_the_group_of_a_kafka_python_consumer_is_read() -> None:
    generation = SimpleNamespace(generation_id=4, member_id="member-3")
    coordinator = SimpleNamespace(group_id="grp", _generation=generation, group_instance_id="inst")
    assert GroupMetadata.of(SimpleNamespace(_coordinator=coordinator)) == GroupMetadata("grp", 4, "member-3", "inst")
    of_its_own = SimpleNamespace(group_id="grp", generation_id=4, member_id="member-3", group_instance_id=None)
    assert GroupMetadata.of(of_its_own) == GroupMetadata("grp", 4, "member-3", None)


@pytest.mark.parametrize(
    "group", [None, "", 7, b"", b"CGMDv2:", b"CGMDv2:\0\0\0\0g\0", NO_OBJECT_OF_OURS, {}], ids=repr
)
def test_what_is_no_group_is_refused(group: object) -> None:
    with pytest.raises(RecordTypeError, match="group is"):
        GroupMetadata.of(group)


@pytest.mark.parametrize(
    "field",
    [{"group_id": None}, {"group_id": b"g"}, {"group_id": ""}, {"group_id": "\ud800"}, {"group_id": "g" * 2**15},
     {"group_id": "\u00e9" * 2**14}, {"generation_id": 2**31}, {"generation_id": -2}, {"generation_id": True},
     {"generation_id": "5"}, {"member_id": None}, {"member_id": 5}, {"member_id": "\ud800"}, {"group_instance_id": 5},
     {"group_instance_id": "\ud800"}],
    ids=lambda field: ascii(field)[:40],
)  # fmt: skip
def test_metadata_that_no_request_can_carry_are_refused_by_name(field: dict[str, Any]) -> None:
    [name] = field
    with pytest.raises(RecordTypeError, match=name):
        GroupMetadata(**{"group_id": "g", **field})
    with pytest.raises(RecordTypeError):
        GroupMetadata.of(b"CGMDv2:\0\0\0\0\xff\xff\0m\0\1")
