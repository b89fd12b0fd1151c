"""`ClassicRoster`: the members of one group of the classic protocol, its generation, and what the log keeps of them.

Invariants: the leader is a member; a member id that was only handed out (`pending`) is no member.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Set
from dataclasses import dataclass, replace
from enum import Enum

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.classic_members import ClassicMember, JoinAsk
from aiokprod.testing.mock.groups.group import Group
from aiokprod.testing.mock.groups.protocols import CONSUMER, subscribed_topics
from aiokprod.testing.mock.groups.settings import GroupSettings
from aiokprod.wire.codes import ErrorCode


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


class ClassicRoster(Group, ABC):
    """The members and the generation of a classic group; `ClassicRebalance` and `ClassicGroup` decide about them."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation: int = 0
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

    def subscribed(self) -> Set[str] | None:
        """Return the topics to which members subscribe, by their metadata; None: some cannot be read."""
        topics: set[str] = set()
        for member in self.members.values() if self.has_consumers else ():
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return topics

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

    def _has_room(self, ask: JoinAsk) -> bool:
        if ask.instance_id is not None and ask.instance_id in self._instances:
            return True
        count = len(self.members) + len(self.pending) - (ask.member_id in self.pending)
        return count < self._settings.group_max_size

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
