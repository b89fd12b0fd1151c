"""`ConsumerGroup`: one group of the consumer protocol (KIP-848), which is assigned by the broker, as a state machine.

Called by `ClusterGroups` and the handlers. Pure: the time, in seconds, and the topics are arguments, and `next_deadline`
says when to call `tick`.

Invariants: a partition has one owner at most, a member that has it or is giving it back; a member gets a partition only
after the one before has given it back; the epoch of a member is never above that of the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import ClassVar, Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.assignors import ASSIGNORS, Assignment, Share, TopicPartition
from aiokprod.testing.mock.groups.consumer_members import (
    LEAVES_FOR_A_WHILE,
    ConsumerMember,
    HeartbeatAsk,
    HeartbeatTold,
    MemberState,
)
from aiokprod.testing.mock.groups.group import Committer, Group
from aiokprod.testing.mock.groups.patterns import GroupPatterns
from aiokprod.testing.mock.groups.settings import ITEM_BYTES, MAX_GROUP_BYTES, GroupSettings
from aiokprod.wire.codes import ErrorCode

COMMITS_BY_EPOCH: Final = 9
"""From OffsetCommit v9 on a generation can be a member epoch."""

Topics = Mapping[str, tuple[bytes, int]]
"""Id and number of partitions of each topic, by name."""


class ConsumerGroup(Group):
    """One group of the consumer protocol."""

    kind: ClassVar[str] = "consumer"

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.target: Assignment = {}
        self.members: dict[str, ConsumerMember] = {}
        self._settings = settings
        self._instances: dict[str, str] = {}
        self._patterns = GroupPatterns()
        self._subscribed: dict[str, tuple[bytes, int]] = {}
        """The topics of the last target: a change of them makes the next one."""

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id!r} {self.state_name} epoch={self.epoch} members={len(self.members)}>"

    @property
    def state_name(self) -> str:
        """The state, by Kafka's name."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        there = all(one.state is MemberState.STABLE and one.epoch == self.target_epoch for one in self.members.values())
        return "Stable" if there else "Reconciling"

    @property
    def type_name(self) -> str:
        """The protocol type."""
        return "consumer"

    @property
    def is_empty(self) -> bool:
        """True if it has no members."""
        return not self.members

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for, of those that ask for one."""
        votes = Counter(one.assignor for one in self.members.values() if one.assignor is not None)
        return max(votes, key=lambda name: votes[name], default=next(iter(ASSIGNORS)))

    @property
    def refuses_deletion_of_offsets(self) -> bool:
        """False: the topics of all members are known."""
        return False

    def subscribed(self) -> Set[str]:
        """Return the topics to which members subscribe."""
        return frozenset[str]().union(*{self._wanted_by(member) for member in self.members.values()})

    # ------------------------------------------------------------------ heartbeats

    def heartbeat(self, ask: HeartbeatAsk, topics: Topics, now: float) -> HeartbeatTold:
        """Take a heartbeat of a member that stays. Raises RefusalError with a code and a text."""
        self._check_subscription(ask)
        is_known = ask.member_id in self.members
        if not is_known and ask.epoch == 0 and len(self.members) >= self._settings.group_consumer_max_size:
            raise RefusalError(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")
        member = self._member_of(ask)
        is_new = not member.session_deadline
        before = set(member.assigned)
        has_changed = member.update(ask) or is_new
        subscribed = self._subscribed_of(topics)
        if has_changed or subscribed != self._subscribed:
            self.epoch += 1
        if self.target_epoch < self.epoch:
            self._assign(subscribed)
        state = (member.state, member.epoch, member.revoking)
        target = self.target.get(member.member_id, set())
        member.reconcile(target, self.target_epoch, ask.owned, self._owners())
        if member.state is not MemberState.UNREVOKED:
            member.rebalance_deadline = None
        elif state != (member.state, member.epoch, member.revoking):
            member.rebalance_deadline = now + member.rebalance_s
        member.session_deadline = now + self._settings.group_consumer_session_timeout_ms / 1000
        tells = ask.epoch == 0 or ask.says_all or before != set(member.assigned)
        return HeartbeatTold(
            member_id=member.member_id,
            epoch=member.epoch,
            assignment=frozenset(member.assigned) if tells else None,
        )

    def _check_subscription(self, ask: HeartbeatAsk) -> None:
        if ask.regex:
            try:
                self._patterns.check(ask.regex)
            except ValueError as bad:
                text = f"SubscribedTopicRegex `{ask.regex[:100]}` is not valid: {bad}."
                raise RefusalError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
        others = [one.topics for name, one in self.members.items() if name != ask.member_id]
        if (
            ask.topics
            and sum(len(topic) + ITEM_BYTES for topics in (*others, ask.topics) for topic in topics) > MAX_GROUP_BYTES
        ):
            raise RefusalError(ErrorCode.UNKNOWN_SERVER_ERROR, f"subscriptions of more than {MAX_GROUP_BYTES} bytes")

    def _member_of(self, ask: HeartbeatAsk) -> ConsumerMember:
        """Return the member that a heartbeat is from, a new one if it joins."""
        if ask.instance_id is not None:
            return self._static_member_of(ask)
        member = self.members.get(ask.member_id)
        if member is None:
            if ask.epoch > 0:
                raise _unknown(ask.member_id)
            member = self.members[ask.member_id] = ConsumerMember(ask.member_id, None)
        elif ask.epoch > 0:
            _check_epoch(member, ask)
        return member

    def _static_member_of(self, ask: HeartbeatAsk) -> ConsumerMember:
        instance_id = ask.instance_id or ""
        known = self._instances.get(instance_id)
        if ask.epoch > 0:
            member = self._static_member(ask.member_id, instance_id)
            _check_epoch(member, ask)
            return member
        if known is None:
            member = ConsumerMember(ask.member_id, instance_id)
        else:
            old = self.members[known]
            if old.epoch != LEAVES_FOR_A_WHILE:
                raise RefusalError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {ask.member_id} with instance id {instance_id} was refused by the group because the "
                    f"instance id is in use by member {known}.",
                )
            member = replace(old, member_id=ask.member_id, epoch=0)
            del self.members[known]
            if known in self.target:
                self.target[ask.member_id] = self.target.pop(known)
        self.members[ask.member_id] = member
        self._instances[instance_id] = ask.member_id
        return member

    def _static_member(self, member_id: str, instance_id: str) -> ConsumerMember:
        known = self._instances.get(instance_id)
        if known is None:
            raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known != member_id:
            raise RefusalError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {known}.",
            )
        return self.members[member_id]

    def leave(self, member_id: str, instance_id: str | None, epoch: int) -> None:
        """Take out a member; a static one that leaves for a while keeps its place until its session ends.

        Raises RefusalError with a code and a text.
        """
        if instance_id is not None:
            member = self._static_member(member_id, instance_id)
            if epoch == LEAVES_FOR_A_WHILE:
                member.epoch, member.revoking, member.rebalance_deadline = LEAVES_FOR_A_WHILE, {}, None
                return
        elif member_id not in self.members:
            raise _unknown(member_id)
        self._fence(self.members[member_id])

    # ------------------------------------------------------------------ assignments

    def _assign(self, subscribed: dict[str, tuple[bytes, int]]) -> None:
        shares = {
            name: Share(
                member.instance_id or name,
                frozenset(subscribed[topic][0] for topic in self._wanted_by(member) & subscribed.keys()),
                frozenset(self.target.get(name, ())),
            )
            for name, member in self.members.items()
        }
        self.target = ASSIGNORS[self.assignor](shares, dict(subscribed.values()))
        self.target_epoch = self.epoch
        self._subscribed = subscribed

    def _wanted_by(self, member: ConsumerMember) -> frozenset[str]:
        return member.topics | self._patterns.found(member.regex) if member.regex else member.topics

    def _owners(self) -> dict[TopicPartition, str]:
        """Return the member of each partition that has it or is giving it back."""
        return {where: name for name, one in self.members.items() for where in (*one.assigned, *one.revoking)}

    def _subscribed_of(self, topics: Topics) -> dict[str, tuple[bytes, int]]:
        self._patterns.look({one.regex for one in self.members.values() if one.regex}, topics.keys())
        names = self.subscribed()
        return {name: known for name, known in topics.items() if name in names}

    # ------------------------------------------------------------------ commits

    def check_commit(self, who: Committer, version: int, now: float, *, in_transaction: bool) -> None:
        """Raise RefusalError unless this member may commit offsets now."""
        if self._is_stranger(who, in_transaction):
            return
        if who.member_id not in self.members:
            raise _unknown(who.member_id)
        if not in_transaction and version < COMMITS_BY_EPOCH:
            raise RefusalError(ErrorCode.UNSUPPORTED_VERSION)

    def check_commit_of(self, who: Committer, topic_id: bytes, index: int, *, in_transaction: bool) -> None:
        """Raise RefusalError unless the member has the epoch it says, or has had the partition since then."""
        if self._is_stranger(who, in_transaction):
            return
        member = self.members[who.member_id]
        since = member.assigned.get((topic_id, index))
        if who.generation == member.epoch or (since is not None and since <= who.generation <= member.epoch):
            return
        raise RefusalError(ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.STALE_MEMBER_EPOCH)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise RefusalError unless this member may fetch committed offsets with its epoch."""
        if member_id is None and epoch < 0:
            return
        member = self.members.get(member_id or "")
        if member is None:
            raise _unknown(member_id or "")
        if epoch != member.epoch:
            raise RefusalError(ErrorCode.STALE_MEMBER_EPOCH)

    def _is_stranger(self, who: Committer, in_transaction: bool) -> bool:
        """Return whether the commit is in no member's name, and may be."""
        if who.generation >= 0:
            return False
        return not self.members or (in_transaction and not who.member_id and who.instance_id is None)

    # ------------------------------------------------------------------ the clock

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do; None: as things are, never."""
        times = [one.session_deadline for one in self.members.values()]
        times += [one.rebalance_deadline for one in self.members.values() if one.rebalance_deadline is not None]
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Take out members that were silent for too long, or have not given back partitions in time."""
        for member in list(self.members.values()):
            rebalance = member.rebalance_deadline
            if member.session_deadline <= now or (rebalance is not None and rebalance <= now):
                self._fence(member)

    def _fence(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        self.epoch += 1

    def reload(self, now: float) -> None:
        """Go on as another coordinator: all of it is in the log, and sessions begin again."""
        for member in self.members.values():
            member.session_deadline = now + self._settings.group_consumer_session_timeout_ms / 1000
            if member.rebalance_deadline is not None:
                member.rebalance_deadline = now + member.rebalance_s

    def die(self) -> None:
        """End the group."""
        self.members.clear()


def _check_epoch(member: ConsumerMember, ask: HeartbeatAsk) -> None:
    """Raise RefusalError 110 unless the epoch is the member's, or the one before, whose answer it may have missed."""
    if ask.epoch == member.epoch:
        return
    missed = ask.epoch == member.previous_epoch and ask.owned is not None and ask.owned <= set(member.assigned)
    if ask.epoch > member.epoch:
        text = "The consumer group member has a greater member epoch"
    elif not missed:
        text = "The consumer group member has a smaller member epoch"
    else:
        return
    raise RefusalError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"{text} ({ask.epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _unknown(member_id: str) -> RefusalError:
    return RefusalError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group.")
