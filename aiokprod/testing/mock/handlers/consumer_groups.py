"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups that the broker assigns (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.assignors import ASSIGNORS, TopicPartition
from aiokprod.testing.mock.groups.consumer_group import ConsumerGroup
from aiokprod.testing.mock.groups.consumer_members import LEAVES, LEAVES_FOR_A_WHILE, ConsumerMember, HeartbeatAsk
from aiokprod.testing.mock.groups.settings import MAX_ID_BYTES
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.testing.mock.handlers.group_admin import operations_told
from aiokprod.testing.mock.handlers.group_members import CLIENT_HOST
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import consumer_group_describe as described
from aiokprod.wire.messages import consumer_group_heartbeat as beating

CLIENT_MAKES_ID: Final = 1
"""From version 1 on a member chooses its own id (KIP-1082)."""

CONSUMER_MEMBER: Final = 1


def consumer_group_heartbeat(
    call: Call, request: beating.ConsumerGroupHeartbeatRequest
) -> beating.ConsumerGroupHeartbeatResponse:
    """Let a member join, stay or leave, and tell it its partitions when they change."""
    groups = call.broker.groups
    try:
        call.refuse_by_script()
        _check(call, request)
        groups.directory.check(request.group_id, call.broker.node_id)
        if request.member_epoch in (LEAVES, LEAVES_FOR_A_WHILE):
            _group(call, request.group_id).leave(request.member_id, request.instance_id, request.member_epoch)
            response = beating.ConsumerGroupHeartbeatResponse(
                member_id=request.member_id, member_epoch=request.member_epoch
            )
        else:
            joins = request.member_epoch == 0
            if not joins and groups.find(request.group_id) is None:
                raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
            group = groups.find_or_make_consumer(request.group_id) if joins else _group(call, request.group_id)
            told = group.heartbeat(_ask(call, request), groups.topics(), groups.now())
            response = beating.ConsumerGroupHeartbeatResponse(
                member_id=told.member_id,
                member_epoch=told.epoch,
                heartbeat_interval_ms=groups.settings.group_consumer_heartbeat_interval_ms,
                assignment=None if told.assignment is None else _assignment(told.assignment),
            )
    except RefusalError as refusal:
        groups.forget_unused(request.group_id)
        return beating.ConsumerGroupHeartbeatResponse(error_code=int(refusal.code), error_message=refusal.message)
    groups.changed(request.group_id)
    return response


def _check(call: Call, request: beating.ConsumerGroupHeartbeatRequest) -> None:
    """Raise RefusalError for a request that makes no sense, with the text of a broker."""
    epoch = request.member_epoch
    wrong = None
    if not request.member_id and (call.version >= CLIENT_MAKES_ID or epoch != 0):
        wrong = "MemberId can't be empty."
    elif not request.group_id:
        wrong = "GroupId can't be empty."
    elif request.instance_id == "":
        wrong = "InstanceId can't be empty."
    elif request.rack_id == "":
        wrong = "RackId can't be empty."
    elif epoch == 0 and request.rebalance_timeout_ms == -1:
        wrong = "RebalanceTimeoutMs must be provided in first request."
    elif epoch == 0 and request.topic_partitions != []:
        wrong = "TopicPartitions must be empty when (re-)joining."
    elif epoch == 0 and request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        wrong = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        wrong = "InstanceId can't be null."
    elif epoch < LEAVES_FOR_A_WHILE:
        wrong = "MemberEpoch is invalid."
    elif any(
        len((text or "").encode()) > MAX_ID_BYTES for text in (request.member_id, request.instance_id, request.rack_id)
    ):
        wrong = f"An id has more than {MAX_ID_BYTES} bytes."
    if wrong is not None:
        raise RefusalError(ErrorCode.INVALID_REQUEST, wrong)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise RefusalError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _group(call: Call, group_id: str) -> ConsumerGroup:
    group = call.broker.groups.find(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    why = "not found" if group is None else "is not a consumer group"
    raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")


def _ask(call: Call, request: beating.ConsumerGroupHeartbeatRequest) -> HeartbeatAsk:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return HeartbeatAsk(
        member_id=request.member_id or call.broker.state.new_uuid(),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=call.client_id or "",
        client_host=CLIENT_HOST,
        epoch=request.member_epoch,
        rebalance_s=None if request.rebalance_timeout_ms == -1 else max(request.rebalance_timeout_ms, 0) / 1000,
        topics=None if names is None else frozenset(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else frozenset((one.topic_id, index) for one in owned for index in one.partitions),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found


def _assignment(partitions: Iterable[TopicPartition]) -> beating.Assignment:
    return beating.Assignment(
        topic_partitions=[
            beating.ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in _by_topic(partitions).items()
        ]
    )


# ---------------------------------------------------------------------- ConsumerGroupDescribe


def consumer_group_describe(
    call: Call, request: described.ConsumerGroupDescribeRequest
) -> described.ConsumerGroupDescribeResponse:
    """Return one answer for each group."""
    asks = request.include_authorized_operations
    return described.ConsumerGroupDescribeResponse(
        groups=[_describe(call, name, asks) for name in dict.fromkeys(request.group_ids)]
    )


def _describe(call: Call, group_id: str, asks_operations: bool) -> described.DescribedGroup:
    try:
        call.refuse_by_script()
        call.broker.groups.directory.check(group_id, call.broker.node_id)
        group = _group(call, group_id)
    except RefusalError as refusal:
        return described.DescribedGroup(group_id=group_id, error_code=int(refusal.code), error_message=refusal.message)
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(call, group, one) for one in group.members.values()],
        authorized_operations=operations_told(call, asks_operations),
    )


def _member(call: Call, group: ConsumerGroup, member: ConsumerMember) -> described.Member:
    def named(partitions: Iterable[TopicPartition]) -> described.Assignment:
        topics = call.broker.state.topics_by_id
        return described.Assignment(
            topic_partitions=[
                described.TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=indexes)
                for topic_id, indexes in _by_topic(partitions).items()
                if topic_id in topics  # the topic may be deleted
            ]
        )

    return described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=named(member.assigned),
        target_assignment=named(group.target.get(member.member_id, ())),
        member_type=CONSUMER_MEMBER if call.version >= 1 else -1,
    )
