"""`Brokers`: which broker the batches of a partition go to, and when to look at it. One per pipeline.

    PartitionQueue -> Brokers (now, or when linger or backoff is over) -> BrokerAggregator -> BrokerFlusher

It makes the aggregator and the flusher of a broker when the first partition that this broker leads is ready, and keeps them
as long as the pipeline. Finding the broker of a partition is one look into a dict.
"""

from __future__ import annotations

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.errors import AiokprodError
from aiokprod.liveness import Stall
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.partition_queue import Destination, PartitionQueue, TransactionScope
from aiokprod.pipeline.partition.timeline import Happening
from aiokprod.pipeline.partition.waits import Wait
from aiokprod.pipeline.timer_queue import TimerQueue
from aiokprod.waiting import EventKind


class Brokers(Destination):
    """The flushers by broker, and the partitions that are looked at later."""

    def __init__(self, context: PipelineContext, client: ClusterClient, scope: TransactionScope | None = None) -> None:
        self.flushers: dict[int, BrokerFlusher] = {}
        self._scope = scope
        self._context = context
        self._loop = context.loop
        self._client = client
        self._wakes: TimerQueue[PartitionQueue] = TimerQueue(context.loop, self.ready)

    # ------------------------------------------------------------------ ready partitions
    def ready(self, queue: PartitionQueue) -> None:
        """Look at the partition on the next turn of the loop, or once its backoff is over."""
        # Backoff belongs to the partition, not to the broker: the other partitions of its leader go on meanwhile.
        not_before = queue.ledger.not_before
        if not_before > 0.0 and not_before > self._loop.time():
            # `ready` is called again then, and looks at the facts again: the leader may be another one by that time.
            self._wakes.set(not_before, queue)
            return
        flusher = self.flusher_of(queue)
        if flusher is not None:
            flusher.aggregator.ready(queue)

    def ready_at(self, queue: PartitionQueue, at: float) -> None:
        """Look at the partition when the linger of its batch is over (loop time)."""
        self._wakes.set(at, queue)

    def urged(self, queue: PartitionQueue) -> None:
        """Send the open batch of the partition as soon as nothing is in flight there: a task waits for it."""
        flusher = self.flusher_of(queue)
        if flusher is not None:
            flusher.aggregator.urged(queue)

    def flusher_of(self, queue: PartitionQueue) -> BrokerFlusher | None:
        """Return where the batches of the partition go; None if it has no leader now."""
        node = queue.node
        if node < 0:
            # It stays in no ready set. The leader that metadata names puts it back (`PartitionQueue._reroute`), and each
            # batch that becomes ready asks for metadata again (faults: T11).
            self._client.refresh(f"{queue.topic}-{queue.partition} has no leader")
            return None
        flusher = self.flushers.get(node)
        if flusher is None:
            # Kept until the end: a flusher that is retired while a chaser or a loss is on its way to it would lose them,
            # and the partition would drain for ever (faults: L26).
            flusher = self.flushers[node] = BrokerFlusher(node, self._context, self._client, self._scope)
        return flusher

    # ------------------------------------------------------------------ connections
    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        """Give a connection that is open to the flusher of its broker."""
        flusher = self.flushers.get(node_id)
        if flusher is not None:
            flusher.attach(connection)

    def dial_failed(self, node_id: int, error: Exception) -> None:
        """Note why the partitions of this broker wait, ask for metadata, and dial again if there is work."""
        flusher = self.flushers.get(node_id)
        if flusher is not None:
            # Those that are ready, not all partitions: thousands of brokers may fail one after the other. One that waits for
            # its backoff has noted the error that led to it.
            text = f"broker {node_id} cannot be reached: {error.message if isinstance(error, AiokprodError) else error}"
            now = self._loop.time()
            for queue in flusher.aggregator.waiting():
                if queue.ledger.entries:
                    queue.texts.note_cause(error)
                    queue.happened(Happening(now, EventKind.UNREACHABLE, text, node_id))
            # The leader may have moved, or the broker be back under another address (faults: B1, B12). The pool paces the
            # dials, so waking at once is no busy loop (faults: N16).
            self._client.refresh(f"broker {node_id} cannot be reached")
            flusher.wake(False)

    # ------------------------------------------------------------------ watched
    def is_due(self, queue: PartitionQueue) -> bool:
        flusher = self.flushers.get(queue.node)
        return flusher is not None and flusher.aggregator.is_due(queue)

    def stalls(self, now: float) -> list[Stall | None]:
        """Return what stands still here; None: something moves, or has nothing to do."""
        found = [self._wakes.stall("linger or backoff is over, and nothing looks at the partition", now)]
        for flusher in self.flushers.values():
            found.append(flusher.aggregator.stall())
            found.append(flusher.stall())
        return found

    # ------------------------------------------------------------------ asking
    def wait_at(self, node: int, now: float) -> Wait | None:
        flusher = self.flushers.get(node)
        return None if flusher is None else flusher.wait_here(now)

    def requests_in_flight(self) -> dict[int, int]:
        """Return how many requests to each broker have no answer yet. May be called from any thread."""
        found: dict[int, int] = {}
        for node, flusher in list(self.flushers.items()):
            connection = flusher.connection
            if connection is not None:
                found[node] = connection.in_flight
        return found

    def end(self) -> None:
        """Stop: the producer closes."""
        self._wakes.stop()
        for flusher in self.flushers.values():
            flusher.end()

    def __repr__(self) -> str:
        return f"<Brokers {sorted(self.flushers)}, {len(self._wakes)} wakes>"
