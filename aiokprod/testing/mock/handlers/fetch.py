"""Fetch: whole batches below the high watermark, or the last stable offset, with a long poll.

There are no fetch sessions: the session id is always 0, so clients send full requests. Readers of committed records are
told which transactions were aborted, and filter by themselves (broker: 12.2).
"""

from __future__ import annotations

from typing import Final

from aiokprod.testing.faults import Fail, Omit
from aiokprod.testing.mock.cluster_state import RefusalError, Topic
from aiokprod.testing.mock.handlers.api import Call, Items, Outcome, Waits
from aiokprod.testing.mock.partition import Partition
from aiokprod.testing.mock.waiting import until
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

BY_TOPIC_ID: Final = 13
READ_COMMITTED: Final = 1


def fetch_items(call: Call, request: FetchRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [(_name(call, topic), p.partition) for topic in request.topics for p in topic.partitions]


def fetch(call: Call, request: FetchRequest) -> Outcome:
    """Read now, or when something comes in."""
    response, size, refused = _read(call, request)
    if refused or size >= request.min_bytes or request.max_wait_ms <= 0:
        return response
    return Waits(lambda: _long_poll(call, request))


async def _long_poll(call: Call, request: FetchRequest) -> FetchResponse:
    watched = [
        partition
        for data in request.topics
        if (topic := _find(call, data)) is not None
        for asked in data.partitions
        if (partition := topic.partition(asked.partition)) is not None
    ]

    def has_enough() -> bool:
        _, size, refused = _read(call, request, by_script=False)
        return refused or size >= request.min_bytes

    await until(watched, has_enough, request.max_wait_ms / 1000)
    return _read(call, request, by_script=False)[0]


def _read(call: Call, request: FetchRequest, *, by_script: bool = True) -> tuple[FetchResponse, int, bool]:
    response = FetchResponse()
    room, refused = request.max_bytes, False
    size = 0
    for data in request.topics:
        topic = _find(call, data)
        answers = FetchableTopicResponse(topic=data.topic, topic_id=data.topic_id)
        for asked in data.partitions:
            answer = PartitionData(partition_index=asked.partition, high_watermark=-1, records=b"")
            try:
                action = call.item_action(_name(call, data), asked.partition) if by_script else None
                if isinstance(action, Omit):
                    continue
                if isinstance(action, Fail):
                    raise RefusalError(action.code, action.message)
                partition = _readable(call, topic, asked)
                stable = partition.last_stable_offset
                up_to = stable if request.isolation_level == READ_COMMITTED else partition.high_watermark
                records = (
                    partition.log.read(asked.fetch_offset, up_to, min(asked.partition_max_bytes, room))
                    if room > 0
                    else b""
                )
                answer.high_watermark, answer.last_stable_offset = partition.high_watermark, stable
                answer.log_start_offset = partition.log.start_offset
                answer.aborted_transactions = (
                    _aborted(partition, asked.fetch_offset, up_to)
                    if request.isolation_level == READ_COMMITTED
                    else None
                )
                answer.records = records
                size += len(records)
                room -= len(records)
            except RefusalError as refusal:
                answer.error_code = int(refusal.code)
                refused = True
            answers.partitions.append(answer)
        response.responses.append(answers)
    return response, size, refused


def _aborted(partition: Partition, from_offset: int, up_to: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in partition.transactions.aborted_within(from_offset, up_to)
    ]


def _readable(call: Call, topic: Topic | None, asked: FetchPartition) -> Partition:
    partition = topic.partition(asked.partition) if topic else None
    if topic is None and call.version >= BY_TOPIC_ID:
        raise RefusalError(ErrorCode.UNKNOWN_TOPIC_ID)
    if partition is None:
        raise RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    check_leader(call, partition, asked.current_leader_epoch)
    if not partition.log.start_offset <= asked.fetch_offset <= partition.log.end_offset:
        raise RefusalError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return partition


def check_leader(call: Call, partition: Partition, epoch: int) -> None:
    """Refuse with 6, 74 or 75 unless this broker leads in this epoch (-1: any epoch)."""
    if partition.leader != call.broker.node_id:
        raise RefusalError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if 0 <= epoch < partition.leader_epoch:
        raise RefusalError(ErrorCode.FENCED_LEADER_EPOCH)
    if epoch > partition.leader_epoch:
        raise RefusalError(ErrorCode.UNKNOWN_LEADER_EPOCH)


def _find(call: Call, data: FetchTopic) -> Topic | None:
    state = call.broker.state
    return state.topics_by_id.get(data.topic_id) if call.version >= BY_TOPIC_ID else state.topics.get(data.topic)


def _name(call: Call, data: FetchTopic) -> str:
    topic = _find(call, data)
    return topic.name if topic else data.topic
