"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the members of groups of the classic protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.classic_group import ClassicGroup
from aiokprod.testing.mock.groups.classic_members import JoinAsk, Joined, Synced
from aiokprod.testing.mock.handlers.api import Call, Message, Outcome, Waits
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokprod.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from aiokprod.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from aiokprod.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NEEDS_KNOWN_ID: Final = 4
"""From JoinGroup v4 on a new member is given an id first (KIP-394)."""

NULL_PROTOCOL: Final = 7
"""From JoinGroup v7 on no protocol is null; before, it is an empty text."""

SKIPS_ASSIGNMENT: Final = 9
NAMES_PROTOCOL: Final = 5
"""From SyncGroup v5 on the protocol must be named."""

SEVERAL_LEAVE: Final = 3
"""From LeaveGroup v3 on members have a code each."""

CLIENT_HOST: Final = "/127.0.0.1"
"""A mock broker listens on this machine only."""


def check_group(call: Call, group_id: str) -> None:
    """Raise RefusalError if this broker may not answer for the group, or the fault script refuses."""
    call.refuse_by_script()
    if not group_id:
        raise RefusalError(ErrorCode.INVALID_GROUP_ID)
    call.broker.groups.directory.check(group_id, call.broker.node_id)


def _when_answered(serve: Callable[[Callable[[Message], None]], None]) -> Outcome:
    """Return the answer if `serve` gives it at once, otherwise a wait for it."""
    answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def give(message: Message) -> None:
        if not answered.done():  # the connection may be gone
            answered.set_result(message)

    serve(give)
    if answered.done():
        return answered.result()

    async def wait() -> Message:
        return await answered

    return Waits(wait)


# ---------------------------------------------------------------------- JoinGroup


def join_group(call: Call, request: JoinGroupRequest) -> Outcome:
    """Let a member join; the answer comes when the generation is complete."""

    def serve(give: Callable[[Message], None]) -> None:
        groups, now = call.broker.groups, call.broker.groups.now()
        try:
            check_group(call, request.group_id)
            shortest, longest = (
                groups.settings.group_min_session_timeout_ms,
                groups.settings.group_max_session_timeout_ms,
            )
            if not shortest <= request.session_timeout_ms <= longest:
                raise RefusalError(ErrorCode.INVALID_SESSION_TIMEOUT)
            if request.member_id and groups.find(request.group_id) is None:
                raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = groups.find_or_make_classic(request.group_id)
        except RefusalError as refusal:
            give(_join_answer(call, Joined(code=refusal.code, member_id=request.member_id)))
            return
        group.join(_join_ask(call, request), now, lambda joined: give(_join_answer(call, joined)))
        groups.changed(request.group_id)

    return _when_answered(serve)


def _join_ask(call: Call, request: JoinGroupRequest) -> JoinAsk:
    rebalance_ms = request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
    client_id = call.client_id or ""
    return JoinAsk(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=CLIENT_HOST,
        session_s=request.session_timeout_ms / 1000,
        rebalance_s=max(rebalance_ms, 0) / 1000,
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, one.metadata) for one in request.protocols),
        new_member_id=f"{request.group_instance_id or client_id}-{call.broker.state.new_uuid()}",
        needs_known_id=call.version >= NEEDS_KNOWN_ID,
        skips_assignment=call.version >= SKIPS_ASSIGNMENT,
    )


def _join_answer(call: Call, joined: Joined) -> JoinGroupResponse:
    none = None if call.version >= NULL_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=int(joined.code),
        generation_id=joined.generation,
        protocol_type=joined.protocol_type if call.version >= NULL_PROTOCOL else None,
        protocol_name=none if joined.protocol is None else joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skips_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id if call.version >= 5 else None, metadata=metadata
            )
            for member_id, instance_id, metadata in joined.members
        ],
    )


# ---------------------------------------------------------------------- SyncGroup


def sync_group(call: Call, request: SyncGroupRequest) -> Outcome:
    """Give a member its assignment, once the leader has sent it."""

    def serve(give: Callable[[Message], None]) -> None:
        groups, now = call.broker.groups, call.broker.groups.now()
        try:
            if call.version >= NAMES_PROTOCOL and None in (request.protocol_type, request.protocol_name):
                raise RefusalError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            group = _group_of_member(call, request.group_id)
        except RefusalError as refusal:
            give(_sync_answer(call, Synced(code=refusal.code)))
            return
        group.sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            (request.protocol_type, request.protocol_name),
            {one.member_id: one.assignment for one in request.assignments},
            now,
            lambda synced: give(_sync_answer(call, synced)),
        )
        groups.changed(request.group_id)

    return _when_answered(serve)


def _sync_answer(call: Call, synced: Synced) -> SyncGroupResponse:
    names = call.version >= NAMES_PROTOCOL
    return SyncGroupResponse(
        error_code=int(synced.code),
        protocol_type=synced.protocol_type if names else None,
        protocol_name=synced.protocol if names else None,
        assignment=synced.assignment,
    )


def _group_of_member(call: Call, group_id: str) -> ClassicGroup:
    check_group(call, group_id)
    group = call.broker.groups.find(group_id)
    if not isinstance(group, ClassicGroup):
        raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group


# ---------------------------------------------------------------------- Heartbeat, LeaveGroup


def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep a member's session alive, and tell it of a rebalance."""
    groups = call.broker.groups
    try:
        group = _group_of_member(call, request.group_id)
    except RefusalError as refusal:
        return HeartbeatResponse(error_code=int(refusal.code))
    code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, groups.now())
    groups.changed(request.group_id)
    return HeartbeatResponse(error_code=int(code))


def leave_group(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Take members out of their group."""
    groups = call.broker.groups
    several = call.version >= SEVERAL_LEAVE
    asked = (
        [(one.member_id, one.group_instance_id) for one in request.members] if several else [(request.member_id, None)]
    )
    try:
        check_group(call, request.group_id)
    except RefusalError as refusal:
        return LeaveGroupResponse(error_code=int(refusal.code))
    group = groups.find(request.group_id)
    if not isinstance(group, ClassicGroup):
        codes: list[int] = [ErrorCode.UNKNOWN_MEMBER_ID] * len(asked)
    else:
        codes = group.leave(asked, groups.now())
        groups.changed(request.group_id)
    if not several:
        return LeaveGroupResponse(error_code=int(codes[0]))
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=int(code))
            for (member_id, instance_id), code in zip(asked, codes, strict=True)
        ]
    )
