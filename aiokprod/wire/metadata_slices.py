"""Decoding of a large Metadata answer in slices, so that the loop runs between them (faults: T19, H25).

Written by hand, and reads less than the generated codec: it skips the lists of replicas, which the producer does not need
and which are half of the bytes, topics that were not asked for, and a second answer about the same topic.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from struct import Struct
from typing import Final

from aiokprod.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.reader import UNLIMITED, ZERO_UUID, Budget, Reader

_PARTITION: Final = Struct(">hii")  # error code, partition, leader
_PARTITION_V7: Final = Struct(">hiii")  # and leader epoch
_NO_NODES: Final[list[int]] = []  # shared by all partitions, as their replicas are skipped


def decode_metadata_slices(
    data: bytes | memoryview,
    version: int,
    bytes_per_slice: int,
    *,
    asked: Collection[str] | None = None,
    max_brokers: int = UNLIMITED,
    max_partitions: int = UNLIMITED,
) -> Generator[None, None, MetadataResponse]:
    """Yield after each slice of about `bytes_per_slice` bytes; return the answer.

    Args:
        data: the body of the answer.
        version: of the request.
        bytes_per_slice: 32 KiB take about 5 ms.
        asked: names of the topics to keep; None keeps all.
        max_brokers: a longer list is refused before it is read.
        max_partitions: of all topics together; more are refused before they are read.

    Raises:
        ProtocolError: anything but a whole valid answer within these limits.
    """
    flexible = version >= MetadataResponse.FLEXIBLE_FROM
    reader = Reader(data)
    answer = MetadataResponse()
    if version >= 3:
        answer.throttle_time_ms = reader.int32()
    next_pause = reader.left - bytes_per_slice
    brokers = reader.count(flexible)
    Budget(max_brokers).take(brokers)
    for _ in range(brokers):
        answer.brokers.append(MetadataResponseBroker.read(reader, version))
        if reader.left <= next_pause:
            next_pause = reader.left - bytes_per_slice
            yield
    if version >= 2:
        answer.cluster_id = reader.nullable_string(flexible)
    if version >= 1:
        answer.controller_id = reader.int32()
    partitions = Budget(max_partitions)
    seen: set[str] = set()
    for _ in range(reader.count(flexible)):
        topic = MetadataResponseTopic()
        topic.error_code = reader.int16()
        topic.name = reader.nullable_string(flexible) if version >= 12 else reader.string(flexible)
        topic.topic_id = reader.uuid() if version >= 10 else ZERO_UUID
        topic.is_internal = version >= 1 and reader.boolean()
        is_kept = asked is None or (topic.name is not None and topic.name in asked and topic.name not in seen)
        count = reader.count(flexible)
        partitions.take(count)
        for _ in range(count):
            partition = _partition(reader, version, flexible)
            if is_kept:
                topic.partitions.append(partition)
            if reader.left <= next_pause:
                next_pause = reader.left - bytes_per_slice
                yield
        if version >= 8:
            topic.topic_authorized_operations = reader.int32()
        if flexible:
            reader.skip_tags()
        if is_kept:
            answer.topics.append(topic)
            if asked is not None and topic.name is not None:
                seen.add(topic.name)
        if reader.left <= next_pause:
            next_pause = reader.left - bytes_per_slice
            yield
    if 8 <= version <= 10:
        answer.cluster_authorized_operations = reader.int32()
    if version >= 13:
        answer.error_code = reader.int16()
    if flexible:
        reader.skip_tags()
    reader.finish()
    return answer


def _partition(reader: Reader, version: int, flexible: bool) -> MetadataResponsePartition:
    leader_epoch = -1
    if version >= 7:
        error_code, index, leader_id, leader_epoch = reader.unpack(_PARTITION_V7)
    else:
        error_code, index, leader_id = reader.unpack(_PARTITION)
    for _ in range(3 if version >= 5 else 2):  # replicas, in-sync replicas, offline replicas
        reader.skip(4 * reader.count(flexible))
    if flexible:
        reader.skip_tags()
    return MetadataResponsePartition(error_code, index, leader_id, leader_epoch, _NO_NODES, _NO_NODES, _NO_NODES)
