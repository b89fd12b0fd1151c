"""One request of every API about transactions and offsets; part of `mock_requests`."""

from __future__ import annotations

from typing import Any

from aiokprod.testing import MockCluster
from aiokprod.wire.messages import describe_producers as producers
from aiokprod.wire.messages import write_txn_markers as markers
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokprod.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from aiokprod.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokprod.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aiokprod.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from aiokprod.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiokprod.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


def add_partitions(
    version: int, who: tuple[int, int], *partitions: tuple[str, int], transactional_id: str = "tx", verify: bool = False
) -> AddPartitionsToTxnRequest:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=list(topics.values()),
        )
    one = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=who[0],
        producer_epoch=who[1],
        verify_only=verify,
        topics=list(topics.values()),
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def txn_offset_commit(
    who: tuple[int, int], offset: int, *, topic: str = "t", partition: int = 0, **options: Any
) -> TxnOffsetCommitRequest:
    one = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=who[0],
        producer_epoch=who[1],
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[one])],
        **options,
    )


def offset_commit(
    version: int, cluster: MockCluster, offset: int, *, topic: str = "t", partition: int = 0, **options: Any
) -> OffsetCommitRequest:
    known: dict[str, Any] = {"topic_id": cluster.topic_id(topic)} if version >= 10 else {"name": topic}
    one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="m")
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(partitions=[one], **known)], **options)


def offset_fetch(version: int, cluster: MockCluster, *, stable: bool = False) -> OffsetFetchRequest:
    """Return a request about topic t, partition 0; of everything with an unknown topic (`None`) see the tests."""
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        return OffsetFetchRequest(group_id="g", topics=topics, require_stable=stable)
    known: dict[str, Any] = {"topic_id": cluster.topic_id("t")} if version >= 10 else {"name": "t"}
    group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(partition_indexes=[0], **known)])
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def transaction_requests_of(key: int, version: int, cluster: MockCluster) -> tuple[Any, Any]:
    match key:
        case 8:
            return offset_commit(version, cluster, 3), OffsetCommitResponse
        case 9:
            return offset_fetch(version, cluster), OffsetFetchResponse
        case 24:
            return add_partitions(version, (1, 0), ("t", 0)), AddPartitionsToTxnResponse
        case 25:
            return AddOffsetsToTxnRequest(transactional_id="tx", group_id="g"), AddOffsetsToTxnResponse
        case 26:
            return EndTxnRequest(transactional_id="tx"), EndTxnResponse
        case 28:
            return txn_offset_commit((1, 0), 3), TxnOffsetCommitResponse
        case 27:
            marker = markers.WritableTxnMarker(producer_id=1, topics=[markers.WritableTxnMarkerTopic("t", [0])])
            return markers.WriteTxnMarkersRequest(markers=[marker]), markers.WriteTxnMarkersResponse
        case 61:
            wanted = [producers.TopicRequest("t", [0])]
            return producers.DescribeProducersRequest(topics=wanted), producers.DescribeProducersResponse
        case 65:
            return DescribeTransactionsRequest(transactional_ids=["tx"]), DescribeTransactionsResponse
        case 71:
            return GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse
        case 72:
            return PushTelemetryRequest(client_instance_id=b"i" * 16), PushTelemetryResponse
        case _:
            return ListTransactionsRequest(), ListTransactionsResponse
