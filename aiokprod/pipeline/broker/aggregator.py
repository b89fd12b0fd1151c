"""`BrokerAggregator`: stage 3. One per broker: which of its partitions may have a batch to send.

A queue is put in when something changed (a batch filled up, linger ended, an answer came, a leader moved) and taken out
when it turns out to have nothing to send, so finding work costs what is ready, never what exists. `collect` goes round:
a partition that gave a batch goes to the end, so a hot one cannot starve the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiokprod.liveness import Stall
from aiokprod.pipeline.partition.ledger import Entry
from aiokprod.pipeline.partition.partition_queue import PartitionQueue

Taken = tuple[PartitionQueue, Entry]


class BrokerAggregator:
    """The ready set of one broker."""

    def __init__(self, node_id: int, wake: Callable[[bool], None]) -> None:
        self.node_id = node_id
        self._wake = wake  # the flusher: looks here on the next turn of the loop (True: a task waits)
        self._ready: deque[PartitionQueue] = deque()
        self._members: set[PartitionQueue] = set()  # what is in _ready
        self._urged: dict[PartitionQueue, None] = {}  # an open batch with a waiter, while something is in flight

    def ready(self, queue: PartitionQueue) -> None:
        """Put the partition into the ready set: something changed there."""
        self._wake(False)  # first: a set with a member that is never looked at would take the member for one that is
        if queue not in self._members:
            self._members.add(queue)
            self._ready.append(queue)

    def urged(self, queue: PartitionQueue) -> None:
        """Note that a task waits for its open batch: it goes when nothing is in flight, or with the next answer."""
        self._urged[queue] = None
        self._wake(True)

    def remove(self, queue: PartitionQueue) -> None:
        """Forget the partition: it moved to another leader."""
        self._urged.pop(queue, None)
        if queue in self._members:
            self._members.discard(queue)
            self._ready.remove(queue)

    def has_work(self) -> bool:
        """Return whether there is anything to look at."""
        return bool(self._ready) or bool(self._urged)

    def is_due(self, queue: PartitionQueue) -> bool:
        """Return whether the partition will be looked at."""
        return queue in self._members or queue in self._urged

    def stall(self) -> Stall | None:
        """Return a stall if a partition counts as ready, and is not in the line of those that are looked at."""
        if len(self._ready) == len(self._members):
            return None
        return Stall("a partition counts as ready, and is not looked at", self, None, self._line_up)

    def _line_up(self) -> None:
        self._ready = deque(dict.fromkeys([*self._ready, *self._members]))
        self._members = set(self._ready)
        self._wake(False)

    def waiting(self) -> list[PartitionQueue]:
        """Return the partitions to look at."""
        return [*self._ready, *self._urged]

    def collect(self, now: float, now_ms: int, urgent: bool, limit_bytes: int) -> list[Taken]:
        """Return stamped batches for one request, at most one per partition, at most `limit_bytes` together.

        The caller writes them in the same synchronous step. A batch larger than the limit travels alone.
        """
        if urgent and self._urged:
            for queue in self._urged:
                if queue not in self._members:
                    self._members.add(queue)
                    self._ready.append(queue)
            self._urged = {}
        taken: list[Taken] = []
        size_bytes = 0
        ready = self._ready
        for _ in range(len(ready)):
            queue = ready[0]
            entry = queue.candidate(now, now_ms, urgent)
            encoded = None if entry is None else queue.prepare(entry)
            if entry is None or encoded is None:
                ready.popleft()
                self._members.discard(queue)
                continue
            if taken and size_bytes + encoded.size_bytes > limit_bytes:
                break
            stamped = queue.take(now, now_ms)
            assert stamped is entry, "what was prepared is what is stamped"
            taken.append((queue, entry))
            size_bytes += encoded.size_bytes
            ready.rotate(-1)
        return taken

    def __repr__(self) -> str:
        return f"<BrokerAggregator {self.node_id}: {len(self._ready)} ready, {len(self._urged)} urged>"
