"""The members of a group of the consumer protocol (KIP-848): epochs, and the way from one assignment to the next. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from aiokprod.testing.mock.groups.assignors import TopicPartition

LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""The member epochs by which a member leaves; a static one may keep its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAsk:
    """One ConsumerGroupHeartbeat request. None: not said, so as it was."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int
    rebalance_s: float | None
    topics: frozenset[str] | None
    regex: str | None
    assignor: str | None
    owned: frozenset[TopicPartition] | None

    @property
    def says_all(self) -> bool:
        """True if it says everything, as a member does that joins or is not sure: its answer has the assignment."""
        return (
            self.rebalance_s is not None
            and (self.topics is not None or self.regex is not None)
            and (self.owned is not None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTold:
    """The answer to a heartbeat. `assignment` is None if it is as it was."""

    member_id: str
    epoch: int
    assignment: frozenset[TopicPartition] | None = None


class MemberState(Enum):
    """The place of a member on the way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    """It is to give partitions back, and has not said that it did."""
    UNRELEASED = "unreleased"
    """It is to get partitions that others have not given back."""


@dataclass(slots=True)
class ConsumerMember:
    """One member. Partitions are by topic id, with the epoch in which they were assigned."""

    member_id: str
    instance_id: str | None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_s: float = 0.0
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    revoking: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    session_deadline: float = 0.0
    rebalance_deadline: float | None = None

    def update(self, ask: HeartbeatAsk) -> bool:
        """Take over what a heartbeat says; return whether the subscription is another one."""
        before = (self.topics, self.regex)
        self.client_id, self.client_host = ask.client_id, ask.client_host
        if ask.rack_id is not None:
            self.rack_id = ask.rack_id
        if ask.rebalance_s is not None:
            self.rebalance_s = ask.rebalance_s
        if ask.topics is not None:
            self.topics = ask.topics
        if ask.regex is not None:
            self.regex = ask.regex
        if ask.assignor is not None:
            self.assignor = ask.assignor
        return before != (self.topics, self.regex)

    def reconcile(
        self,
        target: Collection[TopicPartition],
        target_epoch: int,
        owned: Collection[TopicPartition] | None,
        owners: Mapping[TopicPartition, str],
    ) -> None:
        """Go as far towards the target as the partitions allow that are still in use.

        Args:
            target: the partitions the member is to have, of topics to which it subscribes.
            owned: what the member says it has; None: it does not say.
            owners: the member that has a partition or is giving it back, by partition.
        """
        if self.state is MemberState.STABLE and self.epoch == target_epoch:
            return
        if self.state is MemberState.UNREVOKED and _holds(owned, self.revoking):
            return
        kept = {where: epoch for where, epoch in self.assigned.items() if where in target}
        revoking = {where: epoch for where, epoch in self.assigned.items() if where not in target}
        if revoking and _holds(owned, revoking):
            self._become(MemberState.UNREVOKED, self.epoch, kept, revoking)
            return
        coming = [where for where in target if where not in kept]
        free = [where for where in coming if owners.get(where, self.member_id) == self.member_id]
        state = MemberState.STABLE if len(free) == len(coming) else MemberState.UNRELEASED
        self._become(state, target_epoch, {**kept, **dict.fromkeys(free, target_epoch)}, {})

    def _become(
        self,
        state: MemberState,
        epoch: int,
        assigned: Mapping[TopicPartition, int],
        revoking: Mapping[TopicPartition, int],
    ) -> None:
        self.state = state
        self.previous_epoch, self.epoch = self.epoch, epoch
        self.assigned, self.revoking = dict(assigned), dict(revoking)


def _holds(owned: Collection[TopicPartition] | None, partitions: Mapping[TopicPartition, int]) -> bool:
    return owned is None or any(where in partitions for where in owned)
