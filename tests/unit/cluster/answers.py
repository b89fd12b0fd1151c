"""Metadata answers, in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokprod.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID_A = b"A" * 16
ID_B = b"B" * 16
NO_ID = bytes(16)


def brokers(*ids: int, port: int = 9000) -> list[MetadataResponseBroker]:
    return [MetadataResponseBroker(node_id=id, host=f"host{id}", port=port + id) for id in ids]


def topic(
    name: str,
    leaders: Mapping[int, tuple[int, int]] | Sequence[tuple[int, int]] = ((1, 0),),
    *,
    topic_id: bytes = ID_A,
    error_code: int = 0,
) -> MetadataResponseTopic:
    """Return metadata of a topic. `leaders`: (leader, epoch) of partition 0, 1, ...; or by index."""
    pairs = leaders.items() if isinstance(leaders, Mapping) else enumerate(leaders)
    return MetadataResponseTopic(
        name=name,
        topic_id=NO_ID if error_code else topic_id,
        error_code=error_code,
        partitions=[
            MetadataResponsePartition(
                partition_index=index, leader_id=leader, leader_epoch=epoch, error_code=0 if leader >= 0 else 5
            )
            for index, (leader, epoch) in pairs
        ],
    )


def answer(
    *topics: MetadataResponseTopic,
    brokers: Sequence[MetadataResponseBroker] = brokers(1, 2, 3),
    cluster_id: str | None = "ours",
) -> MetadataResponse:
    return MetadataResponse(brokers=list(brokers), cluster_id=cluster_id, controller_id=1, topics=list(topics))
