"""`GroupOffsets`: the offsets that groups committed, and those that wait for the end of a transaction.

One per cluster; pure. Here a group is a name under which offsets were committed; its members are in `groups`.

Invariants: an offset of a transaction is visible after its commit, never before; the offset that was written last wins,
not the one whose transaction ended last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from aiokprod.testing.mock.transactions.directory import partition_of
from aiokprod.testing.mock.transactions.metadata import ProducerIdentity, TopicIndex
from aiokprod.wire.codes import ErrorCode

OFFSETS_TOPIC: Final = "__consumer_offsets"

MAX_METADATA_BYTES: Final = 4096
"""offset.metadata.max.bytes."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset at which a group goes on reading."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class _Written:
    """An offset with its place in the order of writes."""

    order: int
    value: CommittedOffset


_Offsets: TypeAlias = dict[TopicIndex, _Written]


class GroupOffsets:
    """The committed and pending offsets of all groups."""

    def __init__(self) -> None:
        self._committed: dict[str, _Offsets] = {}
        self._pending: dict[tuple[str, int], _Offsets] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._writes = 0

    def __repr__(self) -> str:
        return f"<GroupOffsets groups={len(self._committed)} pending={len(self._pending)}>"

    def knows(self, group: str) -> bool:
        """Return whether anything was ever committed under this name."""
        return group in self._committed

    def groups(self) -> list[str]:
        """Return all names under which anything was committed."""
        return list(self._committed)

    def forget(self, group: str) -> None:
        """Drop all offsets of a group that is deleted, pending ones too."""
        self._committed.pop(group, None)
        for key in [key for key in self._pending if key[0] == group]:
            del self._pending[key]

    def delete(self, group: str, where: TopicIndex) -> None:
        """Drop one offset, if there is one."""
        self._committed.get(group, {}).pop(where, None)

    def forget_topic(self, topic: str) -> None:
        """Drop the offsets of a topic that is deleted, pending ones too; groups stay that have no others (broker: 21.18)."""
        for offsets in (*self._committed.values(), *self._pending.values()):
            for where in [where for where in offsets if where[0] == topic]:
                del offsets[where]

    def offsets(self, group: str) -> dict[TopicIndex, CommittedOffset]:
        """Return the committed offsets of the group."""
        return {where: written.value for where, written in self._committed.get(group, {}).items()}

    def unstable(self, group: str) -> set[TopicIndex]:
        """Return the partitions of which a transaction that is not decided yet holds an offset."""
        return {where for (name, _), offsets in self._pending.items() if name == group for where in offsets}

    def has_transaction_of(self, group: str, who: ProducerIdentity, *, in_any_epoch: bool = False) -> bool:
        """Return whether this producer has written offsets, to the log this group is in, in a transaction that is open."""
        log = partition_of(group)
        if not in_any_epoch and self._epochs.get((who.producer_id, log)) != who.epoch:
            return False
        return any(partition_of(name) == log for name, producer_id in self._pending if producer_id == who.producer_id)

    def is_fenced(self, group: str, who: ProducerIdentity) -> bool:
        """Return whether the log of this group knows a newer epoch of the producer."""
        return who.epoch < self._epochs.get((who.producer_id, partition_of(group)), -1)

    def commit(self, group: str, where: TopicIndex, value: CommittedOffset) -> None:
        """Store an offset of OffsetCommit."""
        self._put(self._committed.setdefault(group, {}), where, value)

    def commit_in_transaction(
        self, group: str, who: ProducerIdentity, where: TopicIndex, value: CommittedOffset
    ) -> ErrorCode:
        """Store an offset of TxnOffsetCommit until the transaction ends; refuses an old epoch with 47."""
        if self.is_fenced(group, who):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self._epochs[who.producer_id, partition_of(group)] = who.epoch
        self._committed.setdefault(group, {})
        self._put(self._pending.setdefault((group, who.producer_id), {}), where, value)
        return ErrorCode.NONE

    def end(self, log: int, who: ProducerIdentity, *, commits: bool) -> None:
        """Apply a marker to one partition of the offsets topic: its groups' pending offsets count, or are dropped."""
        self._epochs[who.producer_id, log] = who.epoch
        ended = [key for key in self._pending if key[1] == who.producer_id and partition_of(key[0]) == log]
        for group, producer_id in ended:
            offsets = self._pending.pop((group, producer_id))
            committed = self._committed[group]
            for where, written in offsets.items():
                before = committed.get(where)
                if commits and (before is None or before.order < written.order):
                    committed[where] = written

    def _put(self, offsets: _Offsets, where: TopicIndex, value: CommittedOffset) -> None:
        self._writes += 1
        offsets[where] = _Written(self._writes, value)


def offsets_partition(group: str) -> TopicIndex:
    """Return the partition of the offsets topic that a transaction reaches with this group."""
    return OFFSETS_TOPIC, partition_of(group)
