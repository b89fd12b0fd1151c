"""ListOffsets: earliest, latest, newest timestamp, first record at or after a time."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call, Items
from aiokprod.testing.mock.handlers.fetch import READ_COMMITTED, check_leader
from aiokprod.testing.mock.log import StoredBatch
from aiokprod.testing.mock.partition import Partition
from aiokprod.testing.mock.stored_records import BatchTrouble, decode_records
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

CONSUMER: Final = -1
"""The replica id in the request of a consumer."""
LATEST: Final = -1
EARLIEST: Final = -2
NEWEST_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

WITH_LEADER_EPOCH: Final = 4


def list_offsets_items(_call: Call, request: ListOffsetsRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]


def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer every partition."""
    response = ListOffsetsResponse()
    # The isolation level is a consumer's: a request with the id of a replica is told the end of the log.
    is_stable = request.isolation_level == READ_COMMITTED and request.replica_id == CONSUMER
    for data in request.topics:
        topic = call.broker.state.topics.get(data.name)
        answers = ListOffsetsTopicResponse(name=data.name)
        for asked in data.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, timestamp=-1, offset=-1)
            try:
                call.refuse_by_script(data.name, asked.partition_index)
                partition = topic.partition(asked.partition_index) if topic else None
                if partition is None:
                    raise RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                check_leader(call, partition, asked.current_leader_epoch)
                answer.offset, answer.timestamp = _look_up(partition, asked, is_stable)
                if call.version >= WITH_LEADER_EPOCH and answer.offset >= 0:
                    answer.leader_epoch = partition.leader_epoch
            except RefusalError as refusal:
                answer.error_code = int(refusal.code)
            answers.partitions.append(answer)
        response.topics.append(answers)
    return response


def _look_up(partition: Partition, asked: ListOffsetsPartition, is_stable: bool) -> tuple[int, int]:
    log = partition.log
    up_to = partition.last_stable_offset if is_stable else partition.high_watermark
    if asked.timestamp == LATEST:
        return up_to, -1  # broker: 12.1
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1
    if asked.timestamp == LATEST_TIERED:
        return -1, -1
    if asked.timestamp == NEWEST_TIMESTAMP:
        batch = log.newest(up_to)
        return (-1, -1) if batch is None else _first_at(batch, batch.max_timestamp_ms)
    batch = log.first_since_time(asked.timestamp, up_to)
    return (-1, -1) if batch is None else _first_at(batch, asked.timestamp)


def _first_at(batch: StoredBatch, timestamp_ms: int) -> tuple[int, int]:
    decoded = decode_records(batch.data)
    if not isinstance(decoded, BatchTrouble):
        for index, record in enumerate(decoded):
            if record.timestamp_ms >= timestamp_ms:
                return batch.base_offset + index, record.timestamp_ms
    return batch.base_offset, batch.max_timestamp_ms
