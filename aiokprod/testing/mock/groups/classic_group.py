"""`ClassicGroup`: one group of the classic protocol (JoinGroup, SyncGroup), as a state machine.

    ClassicRoster     the members, the generation, what the log keeps
    ClassicRebalance  from one generation to the next, and the timers
    ClassicGroup      what members ask

Called by `ClusterGroups` and the handlers. Pure: the time, in seconds, is an argument, and `next_deadline` says when to
call `tick`. A JoinGroup or SyncGroup is answered by its reply, once: at once, or in a later call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.classic_members import (
    ClassicMember,
    JoinAsk,
    Joined,
    JoinReply,
    Synced,
    SyncReply,
)
from aiokprod.testing.mock.groups.classic_rebalance import ClassicRebalance
from aiokprod.testing.mock.groups.classic_roster import GroupState
from aiokprod.testing.mock.groups.group import Committer
from aiokprod.testing.mock.groups.protocols import chosen_protocol
from aiokprod.testing.mock.groups.settings import ITEM_BYTES, MAX_GROUP_BYTES
from aiokprod.wire.codes import ErrorCode

NEW_MEMBER_S: Final = 300.0
"""How long a new member may wait for its first generation; Kafka's constant."""


class ClassicGroup(ClassicRebalance):
    """One group of the classic protocol."""

    kind: ClassVar[str] = "classic"

    # ------------------------------------------------------------------ JoinGroup

    def join(self, ask: JoinAsk, now: float, reply: JoinReply) -> None:
        """Take a JoinGroup; the reply may come in a later call."""
        try:
            self._check_join(ask)
            if ask.member_id:
                self._join_as(ask, now, reply)
            else:
                self._join_first(ask, now, reply)
        except RefusalError as refusal:
            member_id = "" if refusal.code == ErrorCode.GROUP_MAX_SIZE_REACHED else ask.member_id
            reply(Joined(code=refusal.code, member_id=member_id))

    def _check_join(self, ask: JoinAsk) -> None:
        if self.state is GroupState.DEAD:
            raise RefusalError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if ask.member_id not in self.members and not self._has_room(ask):
            raise RefusalError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        is_alike = bool(ask.protocol_type and ask.protocols)
        if self.members:
            shared = {name for name, _ in ask.protocols}
            for one in self.members.values():
                shared.intersection_update(name for name, _ in one.protocols)
            is_alike = is_alike and self.protocol_type == ask.protocol_type and bool(shared)
        if not is_alike:
            raise RefusalError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        others = sum(_size(one) for one in self.members.values() if one.member_id != ask.member_id)
        if others + _size(ask) + len(ask.protocol_type) > MAX_GROUP_BYTES:
            raise RefusalError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _join_first(self, ask: JoinAsk, now: float, reply: JoinReply) -> None:
        if ask.instance_id is not None and ask.instance_id in self._instances:
            self._replace(self.members[self._instances[ask.instance_id]], ask, now, reply)
        elif ask.instance_id is None and ask.needs_known_id:
            self.pending[ask.new_member_id] = now + ask.session_s
            reply(Joined(code=ErrorCode.MEMBER_ID_REQUIRED, member_id=ask.new_member_id))
        else:
            self._add(ask.new_member_id, ask, now, reply)

    def _join_as(self, ask: JoinAsk, now: float, reply: JoinReply) -> None:
        if ask.member_id in self.pending:
            del self.pending[ask.member_id]
            self._add(ask.member_id, ask, now, reply)
            return
        member = self._member(ask.member_id, ask.instance_id)
        is_as_it_was = member.protocols == ask.protocols and (
            self.state is GroupState.COMPLETING
            or (self.state is GroupState.STABLE and member.member_id != self.leader)  # a leader asks for a rebalance
        )
        if is_as_it_was:
            reply(self._joined(member))
            return
        member.update(ask)
        self._wait_for_join(member, now, reply)
        self._rebalance_or_complete(now)

    def _add(self, member_id: str, ask: JoinAsk, now: float, reply: JoinReply) -> None:
        member = ClassicMember(
            member_id,
            ask.instance_id,
            ask.client_id,
            ask.client_host,
            ask.session_s,
            ask.rebalance_s,
            ask.protocols,
        )
        if not self.members:
            self.protocol_type = ask.protocol_type
        self.members[member_id] = member
        if ask.instance_id is not None:
            self._instances[ask.instance_id] = member_id
        self.leader = self.leader or member_id
        self._has_newcomer = True
        self._wait_for_join(member, now, reply)
        member.deadline = now + NEW_MEMBER_S
        self._rebalance_or_complete(now)

    def _replace(self, old: ClassicMember, ask: JoinAsk, now: float, reply: JoinReply) -> None:
        """Let a static member that has come back take the place of the one it was."""
        old.refuse(ErrorCode.FENCED_INSTANCE_ID)
        before = self.leader
        member = replace(old, member_id=ask.new_member_id, join_reply=None, sync_reply=None)
        self.members = {
            (member.member_id if one is old else one_id): (member if one is old else one)
            for one_id, one in self.members.items()
        }
        self._instances[ask.instance_id or ""] = member.member_id
        if self.leader == old.member_id:
            self.leader = member.member_id
        if old.member_id in self._unsynced:
            self._unsynced.discard(old.member_id)
            self._unsynced.add(member.member_id)
        member.update(ask)
        if self.state is not GroupState.STABLE or chosen_protocol(self.members.values()) != self.protocol:
            self._wait_for_join(member, now, reply)
            self._rebalance_or_complete(now)
            return
        self._touch(member, now)
        self._store()
        joined = self._joined(member)
        if not ask.skips_assignment:  # it must not take itself for the leader: an assignment would not be taken
            joined = replace(joined, members=(), leader=before or "")
        else:
            joined = replace(joined, skips_assignment=self.leader == member.member_id)
        reply(joined)

    def _wait_for_join(self, member: ClassicMember, now: float, reply: JoinReply) -> None:
        member.answer_join(Joined(code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id))
        member.join_reply, member.deadline = reply, None

    # ------------------------------------------------------------------ SyncGroup

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        now: float,
        reply: SyncReply,
    ) -> None:
        """Take a SyncGroup; the reply may come in a later call.

        Args:
            protocol: the type and the name of the protocol, as far as the request says them.
            assignments: by member id; only the leader's count.
        """
        try:
            self._check_sync(member_id, instance_id, generation, protocol)
        except RefusalError as refusal:
            reply(Synced(code=refusal.code))
            return
        member = self.members[member_id]
        self._unsynced.discard(member_id)
        if self.state is GroupState.STABLE:
            self._touch(member, now)
            reply(self._synced(member))
            return
        member.answer_sync(Synced(code=ErrorCode.UNKNOWN_MEMBER_ID))
        member.sync_reply, member.deadline = reply, None
        if member_id != self.leader:
            return
        size = sum(len(data) for name, data in assignments.items() if name in self.members)
        if size + sum(len(one.metadata(self.protocol)) for one in self.members.values()) > MAX_GROUP_BYTES:
            for one in self.members.values():
                self._answer_sync(one, Synced(code=ErrorCode.UNKNOWN_SERVER_ERROR), now)
            self._prepare(now)
            return
        for one in self.members.values():
            one.assignment = assignments.get(one.member_id, b"")
        self.state = GroupState.STABLE
        self._store()
        for one in self.members.values():
            self._answer_sync(one, self._synced(one), now)

    def _check_sync(
        self, member_id: str, instance_id: str | None, generation: int, protocol: tuple[str | None, str | None]
    ) -> None:
        if self.state is GroupState.DEAD:
            raise RefusalError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._member(member_id, instance_id)
        if generation != self.generation:
            raise RefusalError(ErrorCode.ILLEGAL_GENERATION)
        ours = (self.protocol_type, self.protocol)
        if any(None not in pair and pair[0] != pair[1] for pair in zip(protocol, ours, strict=True)):
            raise RefusalError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is GroupState.PREPARING:
            raise RefusalError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _synced(self, member: ClassicMember) -> Synced:
        return Synced(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    # ------------------------------------------------------------------ Heartbeat, LeaveGroup, OffsetCommit

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> int:
        """Return the code of a heartbeat, and let the session go on."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            member = self._member(member_id, instance_id)
        except RefusalError as refusal:
            return refusal.code
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._touch(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, leaving: Iterable[tuple[str, str | None]], now: float) -> list[int]:
        """Take out members, by (member id, instance id); rebalance without them. Returns a code for each."""
        before = len(self.members)
        codes = [self._leave(member_id, instance_id) for member_id, instance_id in leaving]
        self._after_loss(before != len(self.members), now)
        return codes

    def _leave(self, member_id: str, instance_id: str | None) -> int:
        if member_id in self.pending:
            del self.pending[member_id]
            return ErrorCode.NONE
        if not member_id and instance_id is not None:  # as an administrator takes out a static member
            member_id = self._instances.get(instance_id, "")
        try:
            self._forget(self._member(member_id, instance_id))
        except RefusalError as refusal:
            return refusal.code
        return ErrorCode.NONE

    def check_commit(self, who: Committer, version: int, now: float, *, in_transaction: bool) -> None:
        """Raise RefusalError unless this member may commit offsets now. A commit is as good as a heartbeat."""
        member_id, instance_id, generation = who.member_id, who.instance_id, who.generation
        if self.state is GroupState.DEAD:
            raise RefusalError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            member = self._member(member_id, instance_id)
            if generation != self.generation:
                raise RefusalError(ErrorCode.ILLEGAL_GENERATION)
        elif in_transaction:
            return
        else:
            raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not in_transaction:
            if self.state is GroupState.COMPLETING:
                raise RefusalError(ErrorCode.REBALANCE_IN_PROGRESS)
            self._touch(member, now)

    def check_commit_of(self, who: Committer, topic_id: bytes, index: int, *, in_transaction: bool) -> None:
        """Return: a member may commit the offset of any partition."""


def _size(member: JoinAsk | ClassicMember) -> int:
    kept = sum(len(name) + len(data) + ITEM_BYTES for name, data in member.protocols)
    return kept + len(member.instance_id or "")
