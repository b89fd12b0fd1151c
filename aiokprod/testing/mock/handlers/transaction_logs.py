"""DescribeProducers and WriteTxnMarkers: transactions that are open in the logs, and markers that end them (KIP-664)."""

from __future__ import annotations

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call, Items
from aiokprod.testing.mock.handlers.fetch import check_leader
from aiokprod.testing.mock.partition import Partition
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import describe_producers as described
from aiokprod.wire.messages import write_txn_markers as marked


def describe_producers_items(_call: Call, request: described.DescribeProducersRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


def describe_producers(call: Call, request: described.DescribeProducersRequest) -> described.DescribeProducersResponse:
    """Return the producers that the leader of each partition remembers."""
    return described.DescribeProducersResponse(
        topics=[
            described.TopicResponse(name, [_describe(call, name, index) for index in indexes])
            for name, indexes in _once(request).items()
        ]
    )


def _once(request: described.DescribeProducersRequest) -> dict[str, dict[int, None]]:
    """Return the partitions of a request by topic, each once: an answer is no larger than what there is."""
    topics: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return topics


def _describe(call: Call, topic: str, index: int) -> described.PartitionResponse:
    try:
        partition = _led(call, topic, index)
    except RefusalError as refusal:
        return described.PartitionResponse(index, int(refusal.code))
    return described.PartitionResponse(
        partition_index=index,
        active_producers=[
            described.ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=partition.transactions.open.get(producer_id, -1),
            )
            for producer_id, entry in partition.replicas[partition.leader].states
        ],
    )


def write_txn_markers_items(_call: Call, request: marked.WriteTxnMarkersRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [
        (topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def write_txn_markers(call: Call, request: marked.WriteTxnMarkersRequest) -> marked.WriteTxnMarkersResponse:
    """Write each marker where this broker leads, whatever the coordinator of the transaction says."""
    return marked.WriteTxnMarkersResponse(
        markers=[
            marked.WritableTxnMarkerResult(
                marker.producer_id,
                [
                    marked.WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            marked.WritableTxnMarkerPartitionResult(index, _write(call, marker, topic.name, index))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _write(call: Call, marker: marked.WritableTxnMarker, topic: str, index: int) -> int:
    try:
        partition = _led(call, topic, index)
    except RefusalError as refusal:
        return int(refusal.code)
    entry = partition.replicas[partition.leader].states.entry(marker.producer_id)
    if entry is not None and marker.producer_epoch < entry.epoch:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        return int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    partition.append_marker(
        marker.producer_id, marker.producer_epoch, commits=marker.transaction_result, now_ms=call.broker.now_ms()
    )
    return 0


def _led(call: Call, topic: str, index: int) -> Partition:
    """Return a partition that this broker leads. Raises RefusalError."""
    call.refuse_by_script(topic, index)
    found = call.broker.state.topics.get(topic)
    partition = found.partition(index) if found else None
    if partition is None:
        raise RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    check_leader(call, partition, -1)
    return partition
