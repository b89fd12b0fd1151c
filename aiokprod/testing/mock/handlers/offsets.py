"""TxnOffsetCommit and OffsetCommit: in the name of a member of a group, or of a client that assigns partitions itself."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError, Topic
from aiokprod.testing.mock.groups.group import Committer
from aiokprod.testing.mock.handlers.api import Call, Items, Outcome
from aiokprod.testing.mock.handlers.transactional_writes import ask_coordinator, when_answered
from aiokprod.testing.mock.transactions.metadata import ProducerIdentity
from aiokprod.testing.mock.transactions.offsets import MAX_METADATA_BYTES, CommittedOffset, offsets_partition
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ADDS_TO_TRANSACTION: Final = 5
"""The TxnOffsetCommit version that needs no AddOffsetsToTxn (KIP-890). broker: 10.2"""

KNOWS_ABORTABLE: Final = 4
KNOWS_NO_GROUP: Final = 9
BY_TOPIC_ID: Final = 10
"""OffsetCommit and OffsetFetch name topics by id from here on."""


# ---------------------------------------------------------------------- TxnOffsetCommit


def txn_offset_commit_items(_call: Call, request: TxnOffsetCommitRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]


def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> Outcome:
    """Keep the offsets until the transaction ends."""
    who = ProducerIdentity(request.producer_id, request.producer_epoch)
    return when_answered(
        call,
        request.transactional_id,
        lambda: _asks_coordinator(call, request, who),
        lambda: _txn_offset_commit(call, request, who),
    )


def _txn_offset_commit(call: Call, request: TxnOffsetCommitRequest, who: ProducerIdentity) -> TxnOffsetCommitResponse:
    code = 0
    try:
        call.broker.transactions.groups.check(request.group_id, call.broker.node_id)
        who_commits = Committer(request.member_id, request.group_instance_id, request.generation_id)
        is_new = call.broker.groups.is_new
        no_group = ErrorCode.ILLEGAL_GENERATION if is_new else ErrorCode.UNKNOWN_MEMBER_ID
        _check_member(call, request.group_id, who_commits, no_group, in_transaction=True)
        _check_transaction(call, request, who)
    except RefusalError as refusal:
        code = int(refusal.code)
    response = TxnOffsetCommitResponse()
    for data in request.topics:
        topic = call.broker.state.topics.get(data.name)
        response.topics.append(
            TxnOffsetCommitResponseTopic(
                name=data.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=code or _keep(call, request, who, topic, data.name, one),
                    )
                    for one in data.partitions
                ],
            )
        )
    return response


def _asks_coordinator(call: Call, request: TxnOffsetCommitRequest, who: ProducerIdentity) -> bool:
    """Return whether to ask: once per transaction, as for other topics; an old epoch is refused without asking."""
    settings, offsets = call.broker.transactions.settings, call.broker.transactions.offsets
    if call.version < ADDS_TO_TRANSACTION and not settings.verifies:
        return False
    if settings.looks_at_epochs and offsets.is_fenced(request.group_id, who):
        return False
    return not offsets.has_transaction_of(request.group_id, who, in_any_epoch=not settings.looks_at_epochs)


def _check_transaction(call: Call, request: TxnOffsetCommitRequest, who: ProducerIdentity) -> None:
    if not _asks_coordinator(call, request, who):
        return
    adds = call.version >= ADDS_TO_TRANSACTION
    code = ask_coordinator(call, request.transactional_id, who, offsets_partition(request.group_id), adds=adds)
    if code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH  # it never says 90. broker: 9
    elif code == ErrorCode.TRANSACTION_ABORTABLE and call.version < KNOWS_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE  # broker: 10.2
    elif code == ErrorCode.NETWORK_EXCEPTION or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code != ErrorCode.NONE:
        raise RefusalError(code)


def _keep(
    call: Call,
    request: TxnOffsetCommitRequest,
    who: ProducerIdentity,
    topic: Topic | None,
    name: str,
    one: TxnOffsetCommitRequestPartition,
) -> int:
    try:
        call.refuse_by_script(name, one.partition_index)
        member = Committer(request.member_id, request.group_instance_id, request.generation_id)
        _check_commit_of(call, request.group_id, member, topic, one.partition_index, in_transaction=True)
        _check_partition(topic, one.partition_index)
        value = _offset(one.committed_offset, one.committed_leader_epoch, one.committed_metadata)
    except RefusalError as refusal:
        return int(refusal.code)
    offsets = call.broker.transactions.offsets
    return int(offsets.commit_in_transaction(request.group_id, who, (name, one.partition_index), value))


# ---------------------------------------------------------------------- OffsetCommit


def offset_commit_items(call: Call, request: OffsetCommitRequest) -> Items:
    """Return the (topic, partition) pairs of a request, for fault rules."""
    return [
        (_name(call, data.name, data.topic_id), one.partition_index)
        for data in request.topics
        for one in data.partitions
    ]


def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit the offsets of a group."""
    code = 0
    who = Committer(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    try:
        call.broker.transactions.groups.check(request.group_id, call.broker.node_id)
        knows = call.version >= KNOWS_NO_GROUP and call.broker.groups.is_new
        no_group = ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION
        _check_member(call, request.group_id, who, no_group, in_transaction=False)
    except RefusalError as refusal:
        code = int(refusal.code)
    response = OffsetCommitResponse()
    for data in request.topics:
        topic = find_topic(call, data.name, data.topic_id)
        name = topic.name if topic else data.name
        answers = OffsetCommitResponseTopic(name=data.name, topic_id=data.topic_id)
        for one in data.partitions:
            answer = OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            try:
                if not code:
                    call.refuse_by_script(name, one.partition_index)
                    _check_commit_of(call, request.group_id, who, topic, one.partition_index, in_transaction=False)
                    if topic is None and call.version >= BY_TOPIC_ID:
                        raise RefusalError(ErrorCode.UNKNOWN_TOPIC_ID)
                    _check_partition(topic, one.partition_index)
                    value = _offset(one.committed_offset, one.committed_leader_epoch, one.committed_metadata)
                    call.broker.transactions.offsets.commit(request.group_id, (name, one.partition_index), value)
            except RefusalError as refusal:
                answer.error_code = int(refusal.code)
            answers.partitions.append(answer)
        response.topics.append(answers)
    return response


# ---------------------------------------------------------------------- what both look at


def find_topic(call: Call, name: str, topic_id: bytes) -> Topic | None:
    """Return the topic of a request about offsets, by the name or the id its version carries."""
    state = call.broker.state
    return state.topics_by_id.get(topic_id) if call.version >= BY_TOPIC_ID else state.topics.get(name)


def _name(call: Call, name: str, topic_id: bytes) -> str:
    topic = find_topic(call, name, topic_id)
    return topic.name if topic else name


def _check_member(call: Call, group_id: str, who: Committer, no_group: ErrorCode, *, in_transaction: bool) -> None:
    groups = call.broker.groups
    group = groups.find(group_id)
    if group is None:
        if who.generation >= 0:
            raise RefusalError(no_group)
        groups.check_room(group_id)
        return
    group.check_commit(who, call.version, groups.now(), in_transaction=in_transaction)
    groups.changed(group_id)


def _check_commit_of(
    call: Call, group_id: str, who: Committer, topic: Topic | None, index: int, *, in_transaction: bool
) -> None:
    group = call.broker.groups.find(group_id)
    if group is not None:
        group.check_commit_of(who, topic.topic_id if topic else b"", index, in_transaction=in_transaction)


def _check_partition(topic: Topic | None, index: int) -> None:
    if topic is None or topic.partition(index) is None:
        raise RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _offset(offset: int, leader_epoch: int, metadata: str | None) -> CommittedOffset:
    text = metadata or ""
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise RefusalError(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    return CommittedOffset(offset, leader_epoch, text)
