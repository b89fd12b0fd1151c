"""The verbs of a test about transactions and their coordinators.

A base class of `MockCluster`. Every verb may be called from any thread; what it changes is changed when it returns.
"""

from __future__ import annotations

from dataclasses import replace

from ..own_thread import LoopHome
from .transactions.cluster_transactions import ClusterTransactions
from .transactions.metadata import TransactionMetadata
from .transactions.offsets import CommittedOffset


class CoordinatorVerbs:
    """What can be done to coordinators, and what can be read of them."""

    _home: LoopHome
    _transactions: ClusterTransactions

    def coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates this id. Raises RefusalError 15 if all are down."""
        return self._home.call(lambda: self._transactions.transactional_ids.node_of(transactional_id))

    def move_coordinator(self, transactional_id: str, node: int) -> None:
        """Let another broker coordinate this id (one in 50 others moves with it); the former one answers 16."""
        self._home.call(lambda: self._transactions.move(transactional_id, node))

    def load_coordinator(self, transactional_id: str, is_loading: bool = True) -> None:
        """Let the coordinator of this id read its log: it answers 14 until told that it has done so."""
        self._home.call(lambda: self._transactions.transactional_ids.set_loading(transactional_id, is_loading))

    def group_coordinator(self, group: str) -> int:
        """The broker that keeps the offsets of this group. Raises RefusalError 15 if all are down."""
        return self._home.call(lambda: self._transactions.groups.node_of(group))

    def move_group_coordinator(self, group: str, node: int) -> None:
        """Let another broker keep the offsets of this group."""
        self._home.call(lambda: self._transactions.groups.move(group, node))

    def load_group_coordinator(self, group: str, is_loading: bool = True) -> None:
        """Let the coordinator of this group read its log: it answers 14 until told that it has done so."""
        self._home.call(lambda: self._transactions.groups.set_loading(group, is_loading))

    def hold_markers(self) -> None:
        """Let transactions end without their markers: they stay PrepareCommit or PrepareAbort, and 51 is answered."""
        self._home.call(self._transactions.hold_markers)

    def release_markers(self) -> None:
        """Write the markers that were held, and from now on at once."""
        self._home.call(self._transactions.release_markers)

    def abort_timed_out_transactions(self) -> list[str]:
        """Make the periodic check of transaction timeouts now; returns the ids that are aborted (broker: 10.7)."""
        return self._home.call(self._transactions.abort_timed_out)

    def transaction(self, transactional_id: str) -> TransactionMetadata:
        """What the coordinator keeps of this id: its state, producer id, epoch, partitions. KeyError if it has none."""

        def copy() -> TransactionMetadata:
            found = self._transactions.coordinator.ids[transactional_id]
            return replace(found, partitions=set(found.partitions))

        return self._home.call(copy)

    def committed_offsets(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        """The offsets of a group by (topic, partition), those of open transactions not among them."""
        return self._home.call(lambda: self._transactions.offsets.offsets(group))
