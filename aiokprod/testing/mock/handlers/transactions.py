"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: what a transaction reaches, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call, Items
from aiokprod.testing.mock.transactions.metadata import ProducerIdentity, TopicIndex
from aiokprod.testing.mock.transactions.offsets import offsets_partition
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokprod.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from aiokprod.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

BATCHED: Final = 4
"""From AddPartitionsToTxn v4 on one request speaks of several transactions, in the second version (KIP-890)."""

BUMPS: Final = 5
"""From EndTxn v5 on every end bumps the epoch and tells it."""

KNOWS_FENCED: Final = 2
"""The version of all three from which 90 is told; before, it is 47. broker: 9, the table of the fenced"""


def fenced_as(code: int, knows_fenced: bool) -> int:
    """Return the code for a client: INVALID_PRODUCER_EPOCH (47) if it does not know PRODUCER_FENCED (90)."""
    if code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)


# ---------------------------------------------------------------------- AddPartitionsToTxn


def add_partitions_items(call: Call, request: AddPartitionsToTxnRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    if call.version < BATCHED:
        return _named(request.v3_and_below_topics)
    return [where for one in request.transactions for where in _named(one.topics)]


def add_partitions_to_txn(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Answer every partition of every transaction."""
    if call.version < BATCHED:
        who = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        topics = request.v3_and_below_topics
        codes = _add(call, request.v3_and_below_transactional_id, who, topics, verifies=False)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))
    response = AddPartitionsToTxnResponse()
    for one in request.transactions:
        who = ProducerIdentity(one.producer_id, one.producer_epoch)
        codes = _add(call, one.transactional_id, who, one.topics, verifies=one.verify_only)
        if ErrorCode.UNSUPPORTED_VERSION in codes.values():  # it cannot be written down. broker: 10.3a
            return AddPartitionsToTxnResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=_results(one.topics, codes))
        )
    return response


def _add(
    call: Call, transactional_id: str, who: ProducerIdentity, topics: list[AddPartitionsToTxnTopic], *, verifies: bool
) -> dict[TopicIndex, int]:
    """Return the code of each partition: all are added, or none."""
    named = _named(topics)
    transactions = call.broker.transactions
    try:
        for topic, index in named:
            call.refuse_by_script(topic, index)
        if transactional_id:
            transactions.transactional_ids.check(transactional_id, call.broker.node_id)
    except RefusalError as refusal:
        return dict.fromkeys(named, fenced_as(refusal.code, call.version >= KNOWS_FENCED))
    if verifies:
        return {where: int(transactions.coordinator.verify(transactional_id, who, where)) for where in named}
    unknown = {where for where in named if not _exists(call, where)}
    if unknown:  # broker: 10.9
        return {
            where: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if where in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED)
            for where in named
        }
    code = transactions.coordinator.add_partitions(
        transactional_id, who, named, call.broker.now_ms(), in_second_version=call.version >= BATCHED
    )
    transactions.follow(transactional_id)
    return dict.fromkeys(named, fenced_as(code, call.version >= KNOWS_FENCED))


def _exists(call: Call, where: TopicIndex) -> bool:
    name, index = where
    topic = call.broker.state.topics.get(name)
    return topic is not None and topic.partition(index) is not None


def _named(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicIndex]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: dict[TopicIndex, int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


# ---------------------------------------------------------------------- AddOffsetsToTxn, EndTxn


def add_offsets_to_txn(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Note that the transaction will commit offsets of this group."""
    transactional_id, who = request.transactional_id, ProducerIdentity(request.producer_id, request.producer_epoch)
    transactions = call.broker.transactions
    try:
        call.refuse_by_script()
        if transactional_id:
            transactions.transactional_ids.check(transactional_id, call.broker.node_id)
        code: int = transactions.coordinator.add_partitions(
            transactional_id,
            who,
            [offsets_partition(request.group_id)],
            call.broker.now_ms(),
            in_second_version=False,
        )
    except RefusalError as refusal:
        code = refusal.code
    transactions.follow(transactional_id)
    return AddOffsetsToTxnResponse(error_code=fenced_as(code, call.version >= KNOWS_FENCED))


def end_txn(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Write the verdict down; the markers follow (broker: 12.3)."""
    transactional_id, who = request.transactional_id, ProducerIdentity(request.producer_id, request.producer_epoch)
    transactions = call.broker.transactions
    coordinator = transactions.coordinator
    try:
        call.refuse_by_script()
        if transactional_id:
            transactions.transactional_ids.check(transactional_id, call.broker.node_id)
        end = coordinator.end_and_bump if call.version >= BUMPS else coordinator.end
        answer = end(transactional_id, who, commits=request.committed, now_ms=call.broker.now_ms())
        if isinstance(answer, ErrorCode):
            raise RefusalError(answer)
    except RefusalError as refusal:
        return EndTxnResponse(error_code=fenced_as(refusal.code, call.version >= KNOWS_FENCED))
    transactions.follow(transactional_id)
    if call.version < BUMPS:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.epoch)
