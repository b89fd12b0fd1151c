"""Produce, versions 3 to 13: every partition's records go to its log, in the broker's order of judgement.

One function, called for each request. Everything is appended before it returns; with acks=all the answer then waits
for the high watermark, for a new leader, or for the request's own timeout (broker: 6.1, 6.4). Answers list topics by
hash and partitions backwards (broker: 4.9), so that a client has to look them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from aiokprod.testing.faults import Fail, Omit
from aiokprod.testing.mock.batch_header import BadBatch, first_look
from aiokprod.testing.mock.cluster_state import Topic
from aiokprod.testing.mock.handlers.api import Call, HangUpError, Items, Outcome, SilenceError, Waits
from aiokprod.testing.mock.handlers.transactional_writes import concerns_coordinator, refuse_produce, when_answered
from aiokprod.testing.mock.partition import Appended, AppendOutcome, Partition, Refused
from aiokprod.testing.mock.waiting import until
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

BY_TOPIC_ID: Final = 13
WITH_LEADER_HINT: Final = 10
"""KIP-951: CurrentLeader and NodeEndpoints. broker: 7.7"""

RECORD_ERRORS: Final = 8

_ACKS: Final = (-1, 0, 1)


@dataclass(slots=True)
class _Pending:
    """An appended batch and the answer that waits for its replication."""

    partition: Partition
    leader_epoch: int
    next_offset: int
    answer: PartitionProduceResponse

    @property
    def has_moved(self) -> bool:
        return self.partition.leader_epoch != self.leader_epoch

    @property
    def is_decided(self) -> bool:
        return self.has_moved or self.partition.high_watermark >= self.next_offset


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request while its partitions are gone through."""

    call: Call
    request: ProduceRequest
    pending: list[_Pending]
    refused: Refused | None
    """Nothing of the request is taken."""


def produce_items(call: Call, request: ProduceRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [
        (_topic_name(call, data), partition.index) for data in request.topic_data for partition in data.partition_data
    ]


def produce(call: Call, request: ProduceRequest) -> Outcome:
    """Append, then answer, wait or close."""
    if request.transactional_id is None:
        return _produce(call, request)
    return when_answered(
        call, request.transactional_id, lambda: _asks_coordinator(call, request), lambda: _produce(call, request)
    )


def _asks_coordinator(call: Call, request: ProduceRequest) -> bool:
    return any(
        concerns_coordinator(call, partition, asked.records or b"") is not None
        for data in request.topic_data
        if (topic := _find(call, data)) is not None
        for asked in data.partition_data
        if (partition := topic.partition(asked.index)) is not None
    )


def _produce(call: Call, request: ProduceRequest) -> Outcome:
    response = ProduceResponse()
    pending: list[_Pending] = []
    turn = _Turn(call, request, pending, _refused_whole(request))
    failed = False
    for data in sorted(request.topic_data, key=_hash_order):
        topic = _find(call, data)
        answers = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
        for partition_data in reversed(data.partition_data):
            answer = _one_partition(turn, topic, data, partition_data)
            if answer is not None:
                failed = failed or answer.error_code != 0
                answers.partition_responses.append(answer)
        response.responses.append(answers)
    if request.acks == 0:
        if failed:
            raise HangUpError("a batch sent with acks=0 was refused")  # broker: 5.1
        return None
    _name_endpoints(call, response)
    if request.acks == -1 and not all(item.is_decided for item in pending):
        return Waits(lambda: _when_replicated(call, response, pending, request.timeout_ms))
    return response


def _one_partition(
    turn: _Turn, topic: Topic | None, data: TopicProduceData, partition_data: PartitionProduceData
) -> PartitionProduceResponse | None:
    """Answer one partition; None if the script leaves it out."""
    call, request, index = turn.call, turn.request, partition_data.index
    name = topic.name if topic else data.name
    partition = topic.partition(index) if topic else None
    action = call.item_action(name, index)
    if isinstance(action, Fail | Omit) and not action.after_append:
        return _scripted(call, index, partition, action, None)
    outcome: AppendOutcome
    if turn.refused is not None:
        outcome = turn.refused
    elif topic is None and call.version >= BY_TOPIC_ID:
        outcome = Refused(code=ErrorCode.UNKNOWN_TOPIC_ID)  # broker: 7.1
    elif partition is None:
        outcome = Refused(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # broker: 7.2, 7.3, 8.5
    elif request.acks not in _ACKS:
        outcome = Refused(code=ErrorCode.INVALID_REQUIRED_ACKS)  # broker: 5.3
    else:
        outcome = _append(call, request, partition, partition_data.records or b"")
    if action is not None and isinstance(outcome, Appended):
        return _scripted(call, index, partition, action, outcome)
    answer = _answer(call, index, outcome)
    if partition is not None and isinstance(outcome, Appended):
        turn.pending.append(_Pending(partition, partition.leader_epoch, outcome.next_offset, answer))
    elif partition is not None and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        _hint(call, answer, partition)
    return answer


def _append(call: Call, request: ProduceRequest, partition: Partition, records: bytes) -> AppendOutcome:
    outcome = refuse_produce(call, request.transactional_id, partition, records) or partition.append(
        call.broker.node_id, records, acks=request.acks, version=call.version, now_ms=call.broker.now_ms()
    )
    call.broker.counters.appended(outcome, len(records))
    return outcome


def _answer(call: Call, index: int, outcome: AppendOutcome) -> PartitionProduceResponse:
    if isinstance(outcome, Appended):
        return PartitionProduceResponse(
            index=index,
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.timestamp_ms,
            log_start_offset=outcome.log_start_offset,
        )
    answer = PartitionProduceResponse(
        index=index, error_code=int(outcome.code), base_offset=-1, log_start_offset=outcome.log_start_offset
    )
    if call.version >= RECORD_ERRORS:  # broker: 4.10
        answer.error_message = outcome.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=bad, batch_index_error_message=text)
            for bad, text in outcome.record_errors
        ]
    return answer


def _scripted(
    call: Call, index: int, partition: Partition | None, action: Fail | Omit, appended: Appended | None
) -> PartitionProduceResponse | None:
    if isinstance(action, Omit):
        return None
    answer = PartitionProduceResponse(
        index=index, error_code=action.code, base_offset=-1 if appended is None else appended.base_offset
    )
    if call.version >= RECORD_ERRORS:
        answer.error_message = action.message
    if action.with_hint and partition is not None:
        _hint(call, answer, partition)
    return answer


def _hint(call: Call, answer: PartitionProduceResponse, partition: Partition) -> None:
    if call.version >= WITH_LEADER_HINT:
        answer.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def _name_endpoints(call: Call, response: ProduceResponse) -> None:
    """Name one endpoint per leader in a hint (broker: 7.7)."""
    hinted = {p.current_leader.leader_id for topic in response.responses for p in topic.partition_responses}
    response.node_endpoints = [
        NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in call.broker.state.live_nodes
        if node.node_id in hinted
    ]


async def _when_replicated(
    call: Call, response: ProduceResponse, pending: list[_Pending], timeout_ms: int
) -> ProduceResponse:
    partitions = {id(item.partition): item.partition for item in pending}.values()
    await until(partitions, lambda: all(item.is_decided for item in pending), max(0, timeout_ms) / 1000)
    for item in pending:
        if item.has_moved:
            item.answer.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # with its base offset. broker: 6.4
            _hint(call, item.answer, item.partition)
        elif not item.is_decided:
            item.answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)  # with its base offset too. broker: 6.1, 6.3
        elif not item.partition.has_enough_in_sync:
            item.answer.error_code = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)  # broker: 6.3c
    _name_endpoints(call, response)
    return response


def _refused_whole(request: ProduceRequest) -> Refused | None:
    """Return the error of a whole request: a broker looks for batches of transactions before it looks at partitions.

    Raises SilenceError at null records (broker: 13.5b).
    """
    for data in request.topic_data:
        for partition in data.partition_data:
            if partition.records is None:
                raise SilenceError
            looked = first_look(partition.records)
            if isinstance(looked, BadBatch):
                return Refused(code=looked.code, message=looked.message)
            if looked:  # it looks no further
                without_id = request.transactional_id is None
                return Refused(code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) if without_id else None
    return None


def _find(call: Call, data: TopicProduceData) -> Topic | None:
    state = call.broker.state
    return state.topics_by_id.get(data.topic_id) if call.version >= BY_TOPIC_ID else state.topics.get(data.name)


def _topic_name(call: Call, data: TopicProduceData) -> str:
    topic = _find(call, data)
    return topic.name if topic else data.name


def _hash_order(data: TopicProduceData) -> int:
    return crc32(data.name.encode() + data.topic_id)
