"""Decoding a large Metadata answer in slices, so that the loop runs between them (faults: T19)."""

from __future__ import annotations

from collections.abc import Generator

from aiokprod.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from aiokprod.wire.reader import Reader


def decode_metadata_slices(
    data: bytes | memoryview, version: int, partitions_per_slice: int
) -> Generator[None, None, MetadataResponse]:
    """Yields after each slice of about so many partitions; returns the whole answer.

    A topic is never cut: one topic with very many partitions is one slice.
    """
    flexible = version >= MetadataResponse.FLEXIBLE_FROM
    reader = Reader(data)
    answer = MetadataResponse()
    if version >= 3:
        answer.throttle_time_ms = reader.int32()
    answer.brokers = [MetadataResponseBroker.read(reader, version) for _ in range(reader.count(flexible))]
    if version >= 2:
        answer.cluster_id = reader.nullable_string(flexible)
    if version >= 1:
        answer.controller_id = reader.int32()
    in_slice = 0
    for _ in range(reader.count(flexible)):
        topic = MetadataResponseTopic.read(reader, version)
        answer.topics.append(topic)
        in_slice += len(topic.partitions) + 1
        if in_slice >= partitions_per_slice:
            in_slice = 0
            yield
    if 8 <= version <= 10:
        answer.cluster_authorized_operations = reader.int32()
    if version >= 13:
        answer.error_code = reader.int16()
    if flexible:
        reader.skip_tags()
    reader.finish()
    return answer
