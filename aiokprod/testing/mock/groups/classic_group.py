"""`ClassicGroup`: one group of the classic protocol (JoinGroup, SyncGroup), as a state machine.

Called by `ClusterGroups` and the handlers. Pure: the time, in seconds, is an argument, and `next_deadline` says when to
call `tick`. A JoinGroup or SyncGroup is answered by its reply, once: at once, or in a later call.

Invariants: a member that waits for an answer has no deadline, unless it is new; in Stable nothing waits; the leader is a
member; a member id that was only handed out (`pending`) is no member.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
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
from aiokprod.testing.mock.groups.group import Committer, Group
from aiokprod.testing.mock.groups.protocols import CONSUMER, chosen_protocol, subscribed_topics
from aiokprod.testing.mock.groups.settings import MAX_GROUP_BYTES, GroupSettings
from aiokprod.wire.codes import ErrorCode

NEW_MEMBER_S: Final = 300.0
"""How long a new member may wait for its first generation; Kafka's constant."""


class GroupState(Enum):
    """The states of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class _Stored:
    """The state of the group in the log, which another coordinator reads."""

    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: tuple[ClassicMember, ...] = ()


class ClassicGroup(Group):
    """One group of the classic protocol."""

    kind: ClassVar[str] = "classic"

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.pending: dict[str, float] = {}
        """Ids that were handed out, with the time at which they are forgotten."""
        self._settings = settings
        self._instances: dict[str, str] = {}
        self._join_deadline: float | None = None
        self._sync_deadline: float | None = None
        self._unsynced: set[str] = set()
        self._is_first_rebalance = False
        self._has_newcomer = False
        self._delay_left_s = 0.0
        self._stored = _Stored()

    def __repr__(self) -> str:
        return f"<ClassicGroup {self.group_id!r} {self.state.value} generation={self.generation} members={len(self.members)}>"

    @property
    def state_name(self) -> str:
        """The state, by Kafka's name."""
        return self.state.value

    @property
    def type_name(self) -> str:
        """The protocol type of its members: consumer, connect."""
        return self.protocol_type

    @property
    def refuses_deletion_of_offsets(self) -> bool:
        """True if it has members that are no consumers: their topics are not known."""
        return bool(self.members) and not self.has_consumers

    @property
    def is_empty(self) -> bool:
        """True if it has no members and is about to have none."""
        return self.state is GroupState.EMPTY and not self.pending

    @property
    def has_consumers(self) -> bool:
        """True if its members are consumers, whose metadata name topics."""
        return bool(self.members) and self.protocol_type == CONSUMER

    def subscribes_to(self, topic: str) -> bool:
        """Return whether members subscribe to the topic, as far as their metadata says."""
        if not self.has_consumers:
            return False
        topics = [subscribed_topics(member.metadata(self.protocol)) for member in self.members.values()]
        return any(found is None or topic in found for found in topics)

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
        others = sum(_size(one.protocols) for one in self.members.values() if one.member_id != ask.member_id)
        if others + _size(ask.protocols) > MAX_GROUP_BYTES:
            raise RefusalError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _has_room(self, ask: JoinAsk) -> bool:
        if ask.instance_id is not None and ask.instance_id in self._instances:
            return True
        count = len(self.members) + len(self.pending) - (ask.member_id in self.pending)
        return count < self._settings.group_max_size

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

    def _joined(self, member: ClassicMember) -> Joined:
        """Return the answer about the generation at hand."""
        is_leader = member.member_id == self.leader
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=tuple(
                (one.member_id, one.instance_id, one.metadata(self.protocol)) for one in self.members.values()
            )
            if is_leader
            else (),
        )

    # ------------------------------------------------------------------ a rebalance

    def _rebalance_or_complete(self, now: float) -> None:
        if self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        if self.state is GroupState.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(member, Synced(code=ErrorCode.REBALANCE_IN_PROGRESS), now)
        self._sync_deadline = None
        self._is_first_rebalance = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        if not self._is_first_rebalance:
            self._join_deadline = now + self._rebalance_s
            self._complete_if_all_joined(now)
            return
        delay = self._settings.group_initial_rebalance_delay_ms / 1000
        self._has_newcomer = False
        self._delay_left_s = max(self._rebalance_s - delay, 0.0)
        self._join_deadline = now + delay
        if delay == 0:
            self._complete(now)

    @property
    def _rebalance_s(self) -> float:
        return max((member.rebalance_s for member in self.members.values()), default=0.0)

    def _complete_if_all_joined(self, now: float) -> None:
        if self.state is not GroupState.PREPARING or self._is_first_rebalance or self.pending:
            return
        if all(member.join_reply is not None for member in self.members.values()):
            self._complete(now)

    def _join_time_is_over(self, now: float) -> None:
        if self._is_first_rebalance and self._has_newcomer and self._delay_left_s > 0:
            delay = self._settings.group_initial_rebalance_delay_ms / 1000
            self._join_deadline = now + min(delay, self._delay_left_s)
            self._delay_left_s = max(self._delay_left_s - delay, 0.0)
            self._has_newcomer = False
        else:
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Begin the next generation with the members that have joined."""
        self._join_deadline = None
        self._is_first_rebalance = False
        for member in [one for one in self.members.values() if one.join_reply is None and one.instance_id is None]:
            self._forget(member)
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_reply is None:  # static, and not back yet
            awake = next((one for one in self.members.values() if one.join_reply is not None), None)
            if awake is None:
                self._join_deadline = now + self._rebalance_s
                return
            self.leader = awake.member_id
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            self._store()
            return
        self.protocol = chosen_protocol(self.members.values())
        self.state = GroupState.COMPLETING
        self._unsynced = set(self.members)
        self._sync_deadline = now + self._rebalance_s
        for member in list(self.members.values()):
            if member.join_reply is None:
                continue  # static: its session goes on
            member.answer_join(self._joined(member))
            self._touch(member, now)

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

    def _answer_sync(self, member: ClassicMember, synced: Synced, now: float) -> None:
        if member.sync_reply is not None:
            member.answer_sync(synced)
            self._touch(member, now)

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

    def _after_loss(self, of_members: bool, now: float) -> None:
        if self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now)
        elif of_members and self.state is not GroupState.EMPTY:
            self._prepare(now)

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

    # ------------------------------------------------------------------ the clock

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do; None: as things are, never."""
        times = [member.deadline for member in self.members.values()]
        times += [self._join_deadline, self._sync_deadline, *self.pending.values()]
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Carry out the work that is due."""
        forgotten = [name for name, time in self.pending.items() if time <= now]
        for name in forgotten:
            del self.pending[name]
        silent = [one for one in self.members.values() if one.deadline is not None and one.deadline <= now]
        for member in silent:
            self._forget(member)
        if forgotten or silent:
            self._after_loss(bool(silent), now)
        if self._join_deadline is not None and self._join_deadline <= now:
            self._join_time_is_over(now)
        if self._sync_deadline is not None and self._sync_deadline <= now:
            self._sync_deadline = None
            unsynced = [member for name, member in self.members.items() if name in self._unsynced]
            for member in unsynced:
                self._forget(member)
            if unsynced:
                self._prepare(now)

    # ------------------------------------------------------------------ coordinators and tests

    def reload(self, now: float) -> None:
        """Go back to what the log says, as a new coordinator reads it: what waits gets NOT_COORDINATOR (16)."""
        for member in self.members.values():
            member.refuse(ErrorCode.NOT_COORDINATOR)
        stored = self._stored
        self.generation, self.protocol_type = stored.generation, stored.protocol_type
        self.protocol, self.leader = stored.protocol, stored.leader
        self.members = {one.member_id: replace(one, deadline=now + one.session_s) for one in stored.members}
        self._instances = {one.instance_id: one.member_id for one in stored.members if one.instance_id is not None}
        self.pending.clear()
        self._unsynced.clear()
        self._join_deadline = self._sync_deadline = None
        self._is_first_rebalance = False
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY

    def die(self) -> None:
        """End the group: it was deleted."""
        self.state = GroupState.DEAD
        self.pending.clear()
        self._join_deadline = self._sync_deadline = None

    # ------------------------------------------------------------------ members

    def _member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is None:
                raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise RefusalError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.members[member_id]

    def _touch(self, member: ClassicMember, now: float) -> None:
        if member.join_reply is None and member.sync_reply is None:
            member.deadline = now + member.session_s

    def _forget(self, member: ClassicMember) -> None:
        member.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _store(self) -> None:
        members = tuple(replace(one, join_reply=None, sync_reply=None) for one in self.members.values())
        self._stored = _Stored(self.generation, self.protocol_type, self.protocol, self.leader, members)


def _size(protocols: tuple[tuple[str, bytes], ...]) -> int:
    return sum(len(name) + len(data) for name, data in protocols)
