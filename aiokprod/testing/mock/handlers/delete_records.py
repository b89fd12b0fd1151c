"""DeleteRecords: the log start moves up; producers are remembered (broker: 1.8)."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError, Topic
from aiokprod.testing.mock.handlers.api import Call, Items
from aiokprod.testing.mock.handlers.fetch import check_leader
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UP_TO_HIGH_WATERMARK: Final = -1


def delete_records_items(_call: Call, request: DeleteRecordsRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [(topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions]


def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete before each offset, never beyond the high watermark."""
    response = DeleteRecordsResponse()
    for data in request.topics:
        topic = call.broker.state.topics.get(data.name)
        results = DeleteRecordsTopicResult(name=data.name)
        for asked in data.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            try:
                call.refuse_by_script(data.name, asked.partition_index)
                result.low_watermark = _delete(call, topic, asked)
            except RefusalError as refusal:
                result.error_code = int(refusal.code)
            results.partitions.append(result)
        response.topics.append(results)
    return response


def _delete(call: Call, topic: Topic | None, asked: DeleteRecordsPartition) -> int:
    partition = topic.partition(asked.partition_index) if topic else None
    if partition is None:
        raise RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic is not None and topic.settings.is_only_compacted:
        raise RefusalError(ErrorCode.POLICY_VIOLATION)
    check_leader(call, partition, -1)
    before = partition.high_watermark if asked.offset == UP_TO_HIGH_WATERMARK else asked.offset
    if not 0 <= before <= partition.high_watermark:
        raise RefusalError(ErrorCode.OFFSET_OUT_OF_RANGE)
    partition.log.delete_before(before)
    return partition.log.start_offset
