"""Metadata in slices: the same answer as in one piece, and pauses where they were asked for."""

from __future__ import annotations

from random import Random

import pytest
from kio_twins import MODES, kio_twin, twins

from aiokprod.errors import ProtocolError
from aiokprod.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.metadata_slices import decode_metadata_slices

VERSIONS = range(14)


def in_slices(data: bytes, version: int, partitions_per_slice: int) -> tuple[MetadataResponse, int]:
    """The answer and how often the decoder paused."""
    pauses = 0
    slices = decode_metadata_slices(data, version, partitions_per_slice)
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
@pytest.mark.parametrize("partitions_per_slice", [1, 2, 1000])
def test_slices_give_the_whole_answer(version: int, partitions_per_slice: int) -> None:
    kio = kio_twin(MetadataResponse, version)
    for seed, mode in enumerate(MODES):
        response, _ = twins(MetadataResponse, kio, mode, Random(f"{version} {seed}"))
        data = response.encode(version)
        assert in_slices(data, version, partitions_per_slice)[0] == response == MetadataResponse.decode(data, version)


@pytest.mark.parametrize(("per_slice", "pauses"), [(1, 100), (11, 100), (12, 50), (22, 50), (23, 33), (10_000, 0)])
def test_it_pauses_after_so_many_partitions(per_slice: int, pauses: int) -> None:  # faults: T19
    assert in_slices(many_topics(100, 10).encode(12), 12, per_slice)[1] == pauses


def test_topics_without_partitions_count_too() -> None:
    assert in_slices(many_topics(1000, 0).encode(12), 12, 100)[1] == 10


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_or_longer_answer_is_refused(version: int) -> None:
    data = many_topics(3, 2).encode(version)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            in_slices(data[:size], version, 1)
    with pytest.raises(ProtocolError, match="1 bytes after the end"):
        in_slices(data + b"\0", version, 1)
