"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete: what tools see of groups, and take away."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.classic_group import ClassicGroup
from aiokprod.testing.mock.groups.classic_roster import GroupState
from aiokprod.testing.mock.groups.group import Group
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.testing.mock.handlers.group_members import check_group
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import delete_groups as deleted
from aiokprod.wire.messages import describe_groups as described
from aiokprod.wire.messages import list_groups as listed
from aiokprod.wire.messages import offset_delete as without

TELLS_NO_GROUP: Final = 6
"""From DescribeGroups v6 on a group that does not exist is an error (KIP-1043); before, it is a dead group."""

READ_DELETE_DESCRIBE: Final = 1 << 3 | 1 << 6 | 1 << 8
DESCRIBE_AND_ALTER_CONFIGS: Final = 1 << 10 | 1 << 11
"""What a client without limits may do with a group; a group has options (KIP-848) from 4.0 on."""

NOT_ASKED: Final = -(2**31)


def describe_groups(call: Call, request: described.DescribeGroupsRequest) -> described.DescribeGroupsResponse:
    """Return one answer for each group."""
    asks = request.include_authorized_operations
    return described.DescribeGroupsResponse(
        groups=[_describe(call, name, asks) for name in dict.fromkeys(request.groups)]
    )


def _describe(call: Call, group_id: str, asks_operations: bool) -> described.DescribedGroup:
    try:
        call.refuse_by_script()
        call.broker.groups.directory.check(group_id, call.broker.node_id)
    except RefusalError as refusal:
        return described.DescribedGroup(error_code=int(refusal.code), group_id=group_id)
    operations = operations_told(call, asks_operations)
    group = call.broker.groups.find(group_id)
    if not isinstance(group, ClassicGroup):
        is_error = call.version >= TELLS_NO_GROUP
        why = "not found" if group is None else "is not a classic group"
        return described.DescribedGroup(
            error_code=int(ErrorCode.GROUP_ID_NOT_FOUND) if is_error else 0,
            error_message=f"Group {group_id} {why}." if is_error else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            authorized_operations=operations,
        )
    is_stable = group.state is GroupState.STABLE
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            described.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id if call.version >= 4 else None,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable or call.broker.groups.is_new else b"",
            )
            for member in group.members.values()
        ],
        authorized_operations=operations,
    )


def operations_told(call: Call, asks: bool) -> int:
    """Return the bits of the operations on a group that are allowed: all, if the request asks."""
    configs = DESCRIBE_AND_ALTER_CONFIGS if call.broker.groups.is_new else 0
    return READ_DELETE_DESCRIBE | configs if asks else NOT_ASKED


def list_groups(call: Call, request: listed.ListGroupsRequest) -> listed.ListGroupsResponse:
    """Return the groups that this broker coordinates and that pass the filters."""
    try:
        call.refuse_by_script()
    except RefusalError as refusal:
        return listed.ListGroupsResponse(error_code=int(refusal.code))
    groups = call.broker.groups
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    found: list[Group] = []
    for name in groups.names():
        group = groups.find(name) if groups.directory.is_led_by(name, call.broker.node_id) else None
        if group is None or (states and group.state_name.lower() not in states) or (types and group.kind not in types):
            continue
        found.append(group)
    return listed.ListGroupsResponse(
        groups=[
            listed.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.type_name,
                group_state=group.state_name if call.version >= 4 else "",
                group_type=group.kind if call.version >= 5 else "",
            )
            for group in found
        ]
    )


def delete_groups(call: Call, request: deleted.DeleteGroupsRequest) -> deleted.DeleteGroupsResponse:
    """Delete each group that has no members, with its offsets."""

    def delete(group_id: str) -> int:
        try:
            check_group(call, group_id)
            call.broker.groups.delete(group_id)
        except RefusalError as refusal:
            return int(refusal.code)
        return 0

    return deleted.DeleteGroupsResponse(
        results=[deleted.DeletableGroupResult(group_id=name, error_code=delete(name)) for name in request.groups_names]
    )


def offset_delete(call: Call, request: without.OffsetDeleteRequest) -> without.OffsetDeleteResponse:
    """Delete committed offsets of topics to which the group does not subscribe."""
    groups = call.broker.groups
    try:
        check_group(call, request.group_id)
        group = groups.find(request.group_id)
        if group is None:
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.refuses_deletion_of_offsets:
            raise RefusalError(ErrorCode.NON_EMPTY_GROUP)
    except RefusalError as refusal:
        return without.OffsetDeleteResponse(error_code=int(refusal.code))
    response = without.OffsetDeleteResponse()
    subscribed = group.subscribed()
    for asked in request.topics:
        topic = call.broker.state.topics.get(asked.name)
        answer = without.OffsetDeleteResponseTopic(name=asked.name)
        is_subscribed = subscribed is None or asked.name in subscribed
        for one in asked.partitions:
            code = ErrorCode.NONE
            if topic is None or topic.partition(one.partition_index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                groups.offsets.delete(request.group_id, (asked.name, one.partition_index))
            answer.partitions.append(
                without.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=int(code))
            )
        response.topics.append(answer)
    return response
