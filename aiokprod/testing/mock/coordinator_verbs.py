"""The verbs of a test about transactions and their coordinators.

A base class of `MockCluster`. Every verb may be called from any thread; what it changes is changed when it returns.
"""

from __future__ import annotations

from dataclasses import replace

from aiokprod.testing.mock.groups.cluster_groups import ClusterGroups
from aiokprod.testing.mock.transactions.cluster_transactions import ClusterTransactions
from aiokprod.testing.mock.transactions.metadata import TransactionMetadata
from aiokprod.testing.mock.transactions.offsets import CommittedOffset
from aiokprod.testing.own_thread import LoopHome


class CoordinatorVerbs:
    """Changes of coordinators, and questions about them."""

    _home: LoopHome
    _transactions: ClusterTransactions
    _groups: ClusterGroups

    def coordinator(self, transactional_id: str) -> int:
        """Return the node id of the coordinator of a transactional id.

        Args:
            transactional_id: `transactional.id` of the producer.

        Raises:
            RefusalError: COORDINATOR_NOT_AVAILABLE (15), as all brokers are down.
        """
        return self._home.call(lambda: self._transactions.transactional_ids.node_of(transactional_id))

    def move_coordinator(self, transactional_id: str, node: int) -> None:
        """Make another broker the coordinator of a transactional id; the former one answers NOT_COORDINATOR (16).

        One in 50 other ids moves with it, as they share a partition of the internal topic.

        Args:
            transactional_id: `transactional.id` of the producer.
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(lambda: self._transactions.move(transactional_id, node))

    def load_coordinator(self, transactional_id: str, is_loading: bool = True) -> None:
        """Make the coordinator of a transactional id answer COORDINATOR_LOAD_IN_PROGRESS (14).

        Args:
            transactional_id: `transactional.id` of the producer.
            is_loading: False ends the loading.
        """
        self._home.call(lambda: self._transactions.transactional_ids.set_loading(transactional_id, is_loading))

    def group_coordinator(self, group: str) -> int:
        """Return the node id of the broker that coordinates a group and keeps its offsets.

        Args:
            group: id of the consumer group.

        Raises:
            RefusalError: COORDINATOR_NOT_AVAILABLE (15), as all brokers are down.
        """
        return self._home.call(lambda: self._transactions.groups.node_of(group))

    def move_group_coordinator(self, group: str, node: int) -> None:
        """Make another broker the coordinator of a group; members that wait for a rebalance get NOT_COORDINATOR (16).

        Args:
            group: id of the consumer group.
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(lambda: self._groups.move(group, node))

    def load_group_coordinator(self, group: str, is_loading: bool = True) -> None:
        """Make the coordinator of a group answer COORDINATOR_LOAD_IN_PROGRESS (14).

        Args:
            group: id of the consumer group.
            is_loading: False ends the loading.
        """
        self._home.call(lambda: self._transactions.groups.set_loading(group, is_loading))

    def hold_markers(self) -> None:
        """Let transactions end without their markers.

        They stay PrepareCommit or PrepareAbort, and requests for them get CONCURRENT_TRANSACTIONS (51).
        """
        self._home.call(self._transactions.hold_markers)

    def release_markers(self) -> None:
        """Write the markers that `hold_markers` has held, and all later ones at once."""
        self._home.call(self._transactions.release_markers)

    def abort_timed_out_transactions(self) -> list[str]:
        """Run the periodic check of transaction timeouts (broker: 10.7).

        Returns:
            The transactional ids whose transactions are aborted.
        """
        return self._home.call(self._transactions.abort_timed_out)

    def lose_transaction(self, transactional_id: str) -> None:
        """Make the coordinator forget an id: a transaction that is open hangs in the logs, for nothing ends it (KIP-664).

        Args:
            transactional_id: `transactional.id` of the producer.

        Raises:
            KeyError: the coordinator does not know the id.
        """
        self._home.call(lambda: self._transactions.coordinator.ids.pop(transactional_id))

    def transaction(self, transactional_id: str) -> TransactionMetadata:
        """Return a copy of what the coordinator keeps of a transactional id: state, producer id, epoch, partitions.

        Args:
            transactional_id: `transactional.id` of the producer.

        Raises:
            KeyError: the coordinator does not know the id.
        """

        def copy() -> TransactionMetadata:
            found = self._transactions.coordinator.ids[transactional_id]
            return replace(found, partitions=set(found.partitions))

        return self._home.call(copy)

    def committed_offsets(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return the committed offsets of a group by (topic, partition), without those of open transactions.

        Args:
            group: id of the consumer group.
        """
        return self._home.call(lambda: self._transactions.offsets.offsets(group))
