"""`RetryHandler`: stage 5. One per producer: what happens between a failed attempt and the next one.

    PartitionQueue.apply -> chase         -> a chaser behind what is in flight  -> PartitionQueue.returned
                         -> need_identity -> the next epoch, or a producer id   -> PartitionQueue.granted
                         -> rerouted      -> another leader, or none
                         -> want_metadata -> the cluster is asked again

It is called by the effects of a ledger's actions, never from within them. Nothing waits in it but partitions without an
identity: a partition in backoff carries its not-before time itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokprod.cluster.client import ClusterClient
from aiokprod.liveness import Stall
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.partition_queue import PartitionQueue, Retries
from aiokprod.transactions.identity import ProducerIdKeeper


class RetryHandler(Retries):
    """The handler of chasers, identities and new leaders."""

    def __init__(
        self,
        context: PipelineContext,
        flushers: Mapping[int, BrokerFlusher],
        client: ClusterClient,
        keeper: ProducerIdKeeper,
    ) -> None:
        self._flushers = flushers
        self._client = client
        self._keeper = keeper
        self._effects = context.effects
        self._tasks = context.tasks
        self._chaser_rounds = context.metrics.chaser_rounds
        # A producer id at epoch 0, for partitions to come. One partition's bump leaves it as it is: epochs count for each
        # partition alone (broker: 1.3, faults: I4, I5). None: not there yet, or its epochs are used up somewhere.
        self.identity: tuple[int, int] | None = None
        self._without_identity: list[PartitionQueue] = []  # they send nothing until `identity_came`
        # Requests for a producer id are not counted: whatever number of partitions ask, one id serves them all.
        self._asking: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ chasers
    def chase(self, queue: PartitionQueue, node: int) -> None:
        """Put a chaser behind what is in flight at the old leader; it is back at once if nothing is."""
        # The node of the round, not `queue.node`: the partition may have been given another leader, and what is in flight
        # is at the old one, which answers late (faults: I7, B5).
        self._chaser_rounds.add(1)
        flusher = self._flushers.get(node)
        if flusher is None or not flusher.chase(queue):
            # No connection is opened for a chaser: with none, nothing of the partition can be owed there. On one that is
            # closing batches may still be owed; `returned` sees that, and waits for their loss.
            queue.returned()

    # ------------------------------------------------------------------ identities (ledger: R2)
    def need_identity(self, queue: PartitionQueue, used: tuple[int, int] | None, fresh: bool) -> None:
        """Grant the next epoch, which is a matter of this partition alone, until the epochs are used up."""
        if used is not None and not fresh:
            # At once, as no broker needs to know: the first batch of the next epoch fences the one before (broker: 1.3).
            # InitProducerId would give another id, and could be out of reach for long (broker: 9.1, faults: I22).
            queue.granted((used[0], used[1] + 1))
            return
        # Epochs end at 32767 (broker: 1.11, faults: I18), and after 47, 49 and 59 this id helps no longer (faults: I13 to
        # I15). Only if it is the present one: another partition may have had it replaced before, and a second partition
        # with the same trouble would throw away the fresh id and ask once more.
        if used is not None and self.identity is not None and self.identity[0] == used[0]:
            self.identity = None
        if self.identity is not None:
            queue.granted(self.identity)
            return
        self._without_identity.append(queue)
        self.ask_identity()

    def ask_identity(self) -> None:
        """Ask the cluster for a fresh producer id, unless that is under way."""
        if not self.is_asking:
            self._asking = self._tasks.spawn(self._fetch_identity(), "aiokprod-identity")

    @property
    def is_asking(self) -> bool:
        """True while a request for a producer id is under way."""
        return self._asking is not None and not self._asking.done()

    async def _fetch_identity(self) -> None:
        identity = await self._keeper.fresh()
        self._asking = None  # a grant may lead to another request
        self.identity_came(identity)

    def identity_came(self, identity: tuple[int, int]) -> None:
        """Grant a fresh producer id, which is good for every partition, to those that wait for one."""
        self.identity = identity
        # Emptied first: a partition whose grant leads to another request belongs to the next list.
        waiting, self._without_identity = self._without_identity, []
        self._effects.begin()
        try:
            for queue in waiting:
                queue.granted(identity)
        finally:
            self._effects.end()

    def stall(self) -> Stall | None:
        """Return a stall if partitions wait for a producer id, and none is asked for."""
        if not self._without_identity or self.is_asking:
            return None
        what = "partitions wait for a producer id, and none is asked for"
        return Stall(what, self, None, self.ask_identity)

    # ------------------------------------------------------------------ leaders
    def rerouted(self, queue: PartitionQueue) -> None:
        """Register the partition with the leader that its ledger adopted."""
        # Out of the old ready set before the new node is noted: in both sets, two flushers would collect from one ledger,
        # and its batches would go to two brokers.
        old = self._flushers.get(queue.node)
        if old is not None:
            old.aggregator.remove(queue)
        queue.node = queue.ledger.node
        if queue.node < 0:
            # An election is under way (faults: T11, broker: 8.1b). Without a leader the partition sends nothing, so no
            # answer to it will ask for metadata.
            self._client.refresh(f"{queue.topic}-{queue.partition} has no leader")

    def want_metadata(self, why: str) -> None:
        """Refresh what is known of the cluster."""
        self._client.refresh(why)
