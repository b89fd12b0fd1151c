"""`ClusterGroups`: the groups of a cluster, and the timer of their sessions and rebalances.

One per `MockCluster`. Handlers ask it for a group, call the group, and then `changed`. It owns one timer for each group
that waits for something; all of it runs on the cluster's loop, so in virtual time too.

Invariants: a group has a timer no later than its next deadline; the number of groups is limited; after `close` no timer
is left.
"""

from __future__ import annotations

import asyncio

from aiokprod.testing.mock.cluster_state import ClusterState, RefusalError
from aiokprod.testing.mock.groups.classic_group import ClassicGroup
from aiokprod.testing.mock.groups.consumer_group import ConsumerGroup
from aiokprod.testing.mock.groups.group import Group
from aiokprod.testing.mock.groups.settings import MAX_GROUPS, MAX_ID_BYTES, GroupSettings
from aiokprod.testing.mock.transactions.directory import CoordinatorDirectory, partition_of
from aiokprod.testing.mock.transactions.offsets import GroupOffsets
from aiokprod.wire.codes import ErrorCode


class ClusterGroups:
    """All groups of a cluster.

    Args:
        directory: which broker coordinates which group.
        offsets: the committed offsets; a group may be nothing but these.
        is_new: follow the coordinator of Kafka 4.0 and later.
    """

    def __init__(
        self,
        state: ClusterState,
        settings: GroupSettings,
        directory: CoordinatorDirectory,
        offsets: GroupOffsets,
        *,
        is_new: bool = True,
    ) -> None:
        self.state = state
        self.settings = settings
        self.directory = directory
        self.offsets = offsets
        self.is_new = is_new
        self._groups: dict[str, Group] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __repr__(self) -> str:
        return f"<ClusterGroups groups={len(self._groups)} timers={len(self._timers)}>"

    @staticmethod
    def now() -> float:
        """Return the time of the groups' clock, in seconds: the loop's."""
        return asyncio.get_running_loop().time()

    def topics(self) -> dict[str, tuple[bytes, int]]:
        """Return id and number of partitions of every topic, by name."""
        return {name: (topic.topic_id, len(topic.partitions)) for name, topic in self.state.topics.items()}

    # ------------------------------------------------------------------ groups

    def names(self) -> list[str]:
        """Return the ids of all groups, with those that are nothing but offsets."""
        return list(dict.fromkeys([*self._groups, *self.offsets.groups()]))

    def find(self, group_id: str) -> Group | None:
        """Return the group, or None if there is none of this id; one that is nothing but offsets is classic."""
        found = self._groups.get(group_id)
        if found is None and self.offsets.knows(group_id):
            found = self._groups[group_id] = ClassicGroup(group_id, self.settings)
        return found

    def find_or_make_classic(self, group_id: str) -> ClassicGroup:
        """Return the group, for a member of the classic protocol; a new one if there is none, or none with members.

        Raises RefusalError 44 if there are too many, 23 if its members use the other protocol.
        """
        found = self.find(group_id)
        if isinstance(found, ClassicGroup):
            return found
        if found is not None and not found.is_empty:
            raise RefusalError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        made = ClassicGroup(group_id, self.settings)
        self._put(made)
        return made

    def find_or_make_consumer(self, group_id: str) -> ConsumerGroup:
        """Return the group, for a member of the consumer protocol; a new one if there is none, or none with members.

        Raises RefusalError 44 if there are too many, 69 if its members use the other protocol.
        """
        found = self.find(group_id)
        if isinstance(found, ConsumerGroup):
            return found
        if found is not None and not found.is_empty:
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        made = ConsumerGroup(group_id, self.settings)
        self._put(made)
        return made

    def _put(self, group: Group) -> None:
        self.check_room(group.group_id)
        before = self._groups.get(group.group_id)
        if before is not None:
            before.die()
        self._groups[group.group_id] = group

    def forget_unused(self, group_id: str) -> None:
        """Forget a group of the consumer protocol that was made for a member that was refused."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty and not group.epoch:
            del self._groups[group_id]

    def check_room(self, group_id: str) -> None:
        """Raise RefusalError unless there may be a group of this id."""
        if len(group_id.encode()) > MAX_ID_BYTES:
            raise RefusalError(ErrorCode.INVALID_GROUP_ID)
        if len(self.names()) < MAX_GROUPS or group_id in self._groups or self.offsets.knows(group_id):
            return
        for name in [name for name, group in self._groups.items() if group.is_empty and not self.offsets.knows(name)]:
            del self._groups[name]
        if len(self.names()) >= MAX_GROUPS:
            raise RefusalError(ErrorCode.POLICY_VIOLATION, f"the mock keeps {MAX_GROUPS} groups at most")

    def delete(self, group_id: str) -> None:
        """Forget an empty group and its offsets. Raises RefusalError 69 or 68."""
        group = self.find(group_id)
        if group is None:
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            raise RefusalError(ErrorCode.NON_EMPTY_GROUP)
        group.die()
        del self._groups[group_id]
        self.offsets.forget(group_id)
        self._disarm(group_id)

    # ------------------------------------------------------------------ the clock

    def changed(self, group_id: str) -> None:
        """Set the timer of a group after a call."""
        group = self._groups.get(group_id)
        deadline = group.next_deadline() if group is not None else None
        timer = self._timers.get(group_id)
        if deadline is None:
            self._disarm(group_id)
        elif timer is None or timer.when() > deadline:
            self._disarm(group_id)
            # An earlier timer is kept: it only looks, and sets the next one.
            self._timers[group_id] = asyncio.get_running_loop().call_at(deadline, self._tick, group_id)

    def _tick(self, group_id: str) -> None:
        self._timers.pop(group_id, None)
        group = self._groups.get(group_id)
        if group is not None:
            group.tick(self.now())
            self.changed(group_id)

    def _disarm(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    # ------------------------------------------------------------------ coordinators

    def move(self, group_id: str, node: int) -> None:
        """Let another broker coordinate this group and those that share its partition; it reads the log."""
        self.directory.move(group_id, node)
        self._reload([name for name in self._groups if partition_of(name) == partition_of(group_id)])

    def node_stops(self, node: int) -> None:
        """Drop what only the memory of a stopping broker holds."""
        self._reload([name for name in self._groups if self.directory.is_led_by(name, node)])

    def _reload(self, names: list[str]) -> None:
        for name in names:
            self._groups[name].reload(self.now())
            self.changed(name)

    def close(self) -> None:
        """Stop every timer."""
        for group_id in list(self._timers):
            self._disarm(group_id)
