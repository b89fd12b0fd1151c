"""`Ending`: a transaction whose verdict is written, until every partition of it has its marker.

One for each, made by `ClusterTransactions`, called by the partitions it waits for. A partition has its marker when that
is replicated: one without a leader, or with too few in-sync replicas, keeps the transaction completing, and a marker
that a new leader lacks is written again. A partition that was deleted needs none.

Invariant: when the ending is over, or was stopped, no partition calls it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiokprod.testing.mock.cluster_state import ClusterState
from aiokprod.testing.mock.partition import NO_LEADER, Partition
from aiokprod.testing.mock.transactions.metadata import TransactionMetadata, TransactionState
from aiokprod.testing.mock.transactions.offsets import OFFSETS_TOPIC, GroupOffsets


@dataclass(slots=True)
class _Waiting:
    """A partition whose marker is not replicated yet; `marker_end` is -1 while there is none."""

    topic_name: str
    partition: Partition
    marker_end: int = -1


class Ending:
    """The markers of one transaction."""

    __slots__ = (
        "_commits",
        "_done",
        "_has_begun",
        "_is_done",
        "_is_looking",
        "_now_ms",
        "_offset_logs",
        "_state",
        "_waiting",
        "_who",
    )

    def __init__(
        self,
        metadata: TransactionMetadata,
        state: ClusterState,
        now_ms: Callable[[], int],
        done: Callable[[], None],
    ) -> None:
        self._who = metadata.identity
        self._commits = metadata.state is TransactionState.PREPARE_COMMIT
        self._state = state
        self._now_ms = now_ms
        self._done = done
        self._has_begun = False
        self._is_done = False
        self._is_looking = False
        self._offset_logs = [index for topic, index in sorted(metadata.partitions) if topic == OFFSETS_TOPIC]
        self._waiting = [
            _Waiting(name, partition)
            for name, index in sorted(metadata.partitions)
            if name in state.topics and (partition := state.topics[name].partition(index)) is not None
        ]

    def __repr__(self) -> str:
        verdict = "commit" if self._commits else "abort"
        return f"<Ending {verdict} of {self._who} waiting={[one.partition for one in self._waiting]}>"

    def begin(self, offsets: GroupOffsets) -> None:
        """Write what can be written now, and wait for the rest. The second call does nothing."""
        if self._has_begun:
            return
        self._has_begun = True
        for log in self._offset_logs:
            offsets.end(log, self._who, commits=self._commits)
        for one in self._waiting:
            one.partition.watchers.add(self._look)
        self._look()

    def stop(self) -> None:
        """Wait no more; the rest is not written."""
        for one in self._waiting:
            one.partition.watchers.discard(self._look)
        self._waiting.clear()

    def _look(self) -> None:
        # Our own marker has changed a partition; or the marker of another transaction has, and we have looked within that.
        if self._is_looking or self._is_done:
            return
        self._is_looking = True
        for one in self._waiting:
            self._write(one)
        self._is_looking = False
        for one in [one for one in self._waiting if self._is_over(one)]:
            one.partition.watchers.discard(self._look)
            self._waiting.remove(one)
        if not self._waiting:
            self._is_done = True
            self._done()

    def _write(self, one: _Waiting) -> None:
        partition = one.partition
        if one.marker_end > partition.log.end_offset:
            one.marker_end = -1  # the new leader does not have it
        if one.marker_end < 0 and partition.leader != NO_LEADER and len(partition.isr) >= partition.min_insync:
            one.marker_end = partition.append_marker(
                self._who.producer_id, self._who.epoch, commits=self._commits, now_ms=self._now_ms()
            )

    def _is_over(self, one: _Waiting) -> bool:
        topic = self._state.topics.get(one.topic_name)
        if topic is None or topic.partition(one.partition.index) is not one.partition:
            return True
        return 0 <= one.marker_end <= one.partition.high_watermark
