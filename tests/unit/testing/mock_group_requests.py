"""Requests of the APIs about groups; part of `mock_requests`."""

from __future__ import annotations

from typing import Any

from aiokprod.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from aiokprod.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokprod.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from aiokprod.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from aiokprod.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokprod.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from aiokprod.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from aiokprod.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokprod.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from aiokprod.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata, version 0, for these topics."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def join(version: int, member_id: str = "", **options: Any) -> JoinGroupRequest:
    options.setdefault("protocols", [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))])
    if version >= 1:
        options.setdefault("rebalance_timeout_ms", 30_000)
    given: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 10_000, "protocol_type": "consumer"}
    return JoinGroupRequest(member_id=member_id, **{**given, **options})


def sync(version: int, member_id: str, generation: int, **assignments: bytes) -> SyncGroupRequest:
    names: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    given = [SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in assignments.items()]
    return SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id, assignments=given, **names)


def leave(version: int, member_id: str, **options: Any) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id="g", member_id=member_id)
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id, **options)])


def offset_delete(*topics: str, partition: int = 0) -> OffsetDeleteRequest:
    wanted = [OffsetDeleteRequestPartition(partition_index=partition)]
    return OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=wanted) for topic in topics]
    )


UNKNOWN_GROUP = {11: dict.fromkeys(range(4, 10), 79), 12: 25, 13: dict.fromkeys(range(3), 25), 14: 25, 47: 69}
"""The code of each request below, by version where it matters: the cluster knows no group yet."""


def group_requests_of(key: int, version: int) -> tuple[Any, Any]:
    match key:
        case 11:
            return join(version), JoinGroupResponse
        case 12:
            return HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse
        case 13:
            return leave(version, "m"), LeaveGroupResponse
        case 14:
            return sync(version, "m", 1), SyncGroupResponse
        case 15:
            return DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse
        case 16:
            return ListGroupsRequest(), ListGroupsResponse
        case 42:
            return DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse
        case 68:
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", rebalance_timeout_ms=10_000)
            request.subscribed_topic_names, request.topic_partitions = ["t"], []
            return request, ConsumerGroupHeartbeatResponse
        case 69:
            return ConsumerGroupDescribeRequest(group_ids=["g"]), ConsumerGroupDescribeResponse
        case _:
            return offset_delete("t"), OffsetDeleteResponse
