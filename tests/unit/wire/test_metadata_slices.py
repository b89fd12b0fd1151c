"""Metadata in slices: the same answer as in one piece, and pauses where they were asked for."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hostile_decoders import without_replicas
from kio_twins import MODES, kio_twin, twins

from aiokprod.errors import ProtocolError
from aiokprod.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.metadata_slices import decode_metadata_slices
from aiokprod.wire.writer import Writer

VERSIONS = range(14)


def in_slices(data: bytes, version: int, bytes_per_slice: int, **limits: Any) -> tuple[MetadataResponse, int]:
    """Return the answer, and how often the decoder paused."""
    pauses = 0
    slices = decode_metadata_slices(data, version, bytes_per_slice, **limits)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


def many_topics(count: int, partitions: int) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            name=f"t{at}", partitions=[MetadataResponsePartition(partition_index=p) for p in range(partitions)]
        )
        for at in range(count)
    ]
    return MetadataResponse(brokers=[MetadataResponseBroker(1, "a", 9092, "r")], topics=topics, controller_id=1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("bytes_per_slice", [1, 100, 100_000])
def test_slices_give_the_whole_answer_but_for_the_replicas(version: int, bytes_per_slice: int) -> None:
    kio = kio_twin(MetadataResponse, version)
    for seed, mode in enumerate(MODES):
        response, _ = twins(MetadataResponse, kio, mode, Random(f"{version} {seed}"))
        data = response.encode(version)
        assert response == MetadataResponse.decode(data, version)
        assert in_slices(data, version, bytes_per_slice)[0] == without_replicas(response)


def large(*, brokers: int = 1, topics: int = 1, partitions: int = 1, tags: int = 0) -> bytes:
    answer = many_topics(topics, partitions)
    answer.brokers = [MetadataResponseBroker(number, "a", 9092, "r") for number in range(brokers)]
    data = answer.encode(12)
    if tags:
        writer = Writer()
        writer.unsigned_varint(tags)
        data = data[:-1] + bytes(writer.out) + b"\x07\x00" * tags
    return data


@pytest.mark.parametrize("size", [{"brokers": 2_000}, {"topics": 2_000, "partitions": 0}, {"partitions": 2_000}])
def test_it_pauses_after_so_many_bytes_wherever_they_are(size: dict[str, int]) -> None:  # faults: T19, H25
    data = large(**size)
    assert len(data) // 1_000 - 2 <= in_slices(data, 12, 1_000)[1] <= len(data) // 1_000
    assert in_slices(data, 12, len(data))[1] == 0


@pytest.mark.parametrize(
    ("size", "limits"),
    [
        ({"brokers": 101}, {"max_brokers": 100}),
        ({"partitions": 101}, {"max_partitions": 100}),
        ({"topics": 101}, {"max_partitions": 100}),
        ({"tags": 1_001}, {}),
    ],
)
def test_a_count_beyond_what_was_asked_is_refused_before_its_elements(
    size: dict[str, int], limits: dict[str, int]
) -> None:  # faults: H25
    whole = large(**size)
    with pytest.raises(ProtocolError, match="; at most"):
        in_slices(whole, 12, 1_000, **limits)
    allowed = {name: count - 1 for name, count in size.items()}
    in_slices(large(**allowed), 12, 1_000, **limits)


def test_what_was_not_asked_for_is_passed_over() -> None:  # faults: H11, H25
    answer = many_topics(5, 3)
    answer.topics.append(MetadataResponseTopic(name="t1", partitions=[MetadataResponsePartition(partition_index=9)]))
    found, _ = in_slices(answer.encode(12), 12, 1_000, asked={"t1", "t3", "another"})
    assert [topic.name for topic in found.topics] == ["t1", "t3"]
    assert [len(topic.partitions) for topic in found.topics] == [3, 3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_or_longer_answer_is_refused(version: int) -> None:
    data = many_topics(3, 2).encode(version)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            in_slices(data[:size], version, 1)
    with pytest.raises(ProtocolError, match="1 bytes after the end"):
        in_slices(data + b"\0", version, 1)
