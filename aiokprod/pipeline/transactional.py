"""`TransactionalPartitions`: the partitions of a transactional producer and its `Transactor`, which do not know each other.

    PartitionQueue.candidate ──> enter ──> Transactor ──> the coordinator knows the partition ──> release ──> ready
    a record fails ──> failed ──> Transactor ──> fail_queued ──> PartitionQueue.abandon ──> landed ──> Transactor.drained

Events for the transactor are effects of state changes, never within one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from aiokprod.errors import AiokprodError
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.partition_queue import PartitionQueue, TransactionScope
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.transactions.machine_actions import Entrance, Mode, Partition, Refusal
from aiokprod.transactions.prepared import PreparedPartition
from aiokprod.transactions.transactor import Transactor
from aiokprod.wire.messages.produce import ProduceRequest

FIRST_VERSION = (ProduceRequest.MIN_VERSION, 11)
SECOND_VERSION = (12, ProduceRequest.MAX_VERSION)  # adds the partition to the transaction by itself (KIP-890)
ASKS_S = 30.0
"""So long a broker that adds a partition waits for the coordinator, whatever timeout the request has (broker: 10.12)."""
ENTRY_S = 35.0
"""So long, at least, it then may take to answer."""


class TransactionalPartitions(TransactionScope):
    """Lets partitions into transactions, and fails their records when one is aborted."""

    def __init__(
        self, context: PipelineContext, parking: Parking, partitions: list[PartitionQueue], transactor: Transactor
    ) -> None:
        """Make it; `partitions`: every one that ever got a record, a list that grows."""
        self.transactional_id = transactor.transactional_id
        self.number = 0
        self.produce_versions = FIRST_VERSION
        self._effects = context.effects
        self._parking = parking
        self._partitions = partitions
        self._transactor = transactor
        self._mode = Mode.VERSION_1
        self._identity = (-1, -1)
        self._is_renewing = True  # nothing is stamped until the next `take_identity`
        self._waiting: dict[Partition, PartitionQueue] = {}  # for the coordinator to know them
        self._is_draining = False  # the transactor waits for `drained`
        context.reports.on_failure = partial(transactor.failed_later, later=context.effects.after)

    def state_text(self) -> str:
        trouble = self._transactor.trouble
        return f"{self._transactor.state}; last: {trouble}" if trouble else self._transactor.state

    # ------------------------------------------------------------------ told by partitions
    def opened(self, queue: PartitionQueue) -> None:
        if self._mode is Mode.VERSION_1:
            self.enter(queue)

    def enter(self, queue: PartitionQueue) -> bool:
        partition = (queue.topic, queue.partition)
        if partition in self._waiting:
            return False
        if self._mode is Mode.VERSION_2:
            # The coordinator is not asked: the first Produce adds the partition. So a record that is taken back before it is
            # written leaves the transaction empty, and a commit of an empty one is refused (broker: 10.5).
            answer: Entrance | Refusal = Entrance.WAIT if self._is_renewing else Entrance.GO
        else:
            answer = self._transactor.enter(partition)
        if answer is Entrance.GO:
            queue.entered(self.number, self._identity)
            return True
        if answer is Entrance.WAIT:
            self._waiting[partition] = queue
        return False  # a refusal: no transaction is open, or it is over, and its records fail

    def stamped(self, queue: PartitionQueue) -> None:
        if self._mode is Mode.VERSION_2:
            self._transactor.enter((queue.topic, queue.partition))

    def answer_timeout_s(self, queues: Iterable[PartitionQueue], usual_s: float) -> float:
        # A coordinator that stands still is not the fault of this broker, whose answer is due just behind the usual 30 s: the
        # connection would be torn down for nothing, and the next one would wait as long. A shorter timeout is kept: a leader
        # that stands still looks the same, and first batches are in each transaction; and what is sent again asks the
        # coordinator of that moment, while the broker goes on waiting for the old one (4.3.1: 11 s with 5 s, 30 s with 30 s).
        if not ASKS_S <= usual_s < ENTRY_S or self._mode is Mode.VERSION_1:
            return usual_s
        return usual_s if all(queue.is_written() for queue in queues) else ENTRY_S

    def lost(self) -> None:
        self._transactor.produce_lost()

    def failed(self, error: AiokprodError) -> None:
        self._transactor.failed(error)

    def landed(self) -> None:
        if self._is_draining and not any(queue.has_abandoned() for queue in self._partitions):
            self._is_draining = False
            self._transactor.drained()

    # ------------------------------------------------------------------ told by the transactor
    def take_records(self, is_open: bool, refusal: Callable[[], AiokprodError]) -> None:
        """Let records in from now on, or refuse them."""
        self._parking.take_records(is_open, refusal)

    def began(self, number: int, mode: Mode) -> None:
        """Take in that a transaction has begun."""
        self.number = number
        self._mode = mode
        self.produce_versions = SECOND_VERSION if mode is Mode.VERSION_2 else FIRST_VERSION
        if number == 1:
            for queue in self._partitions:  # records that came before the id was taken
                queue.ready()

    def take_identity(self, identity: tuple[int, int]) -> None:
        """Stamp with this producer id and epoch: each partition takes it when it next enters a transaction."""
        self._identity = identity
        self._is_renewing = False
        if self._mode is Mode.VERSION_2:
            self.release(tuple(self._waiting))

    def take_id(self, transactional_id: str) -> None:
        """Write under this transactional id from now on; nothing is in flight."""
        self.transactional_id = transactional_id

    def renew_identity(self) -> None:
        """Stamp nothing until `take_identity`."""
        self._is_renewing = True

    def release(self, partitions: tuple[Partition, ...]) -> None:
        """Let the batches of these partitions go."""
        for partition in partitions:
            queue = self._waiting.pop(partition, None)
            if queue is not None:
                queue.entered(self.number, self._identity)
                queue.ready()

    def fail_partition(self, partition: Partition, error: AiokprodError) -> None:
        """Fail the records that wait for this partition."""
        queue = self._waiting.pop(partition, None)
        if queue is not None:
            queue.abandon(error)

    def fail_queued(self, error: AiokprodError, mode: Mode) -> bool:
        """Fail what has no outcome yet. True: answers to some of it are due, and `Transactor.drained` follows."""
        self._waiting.clear()
        self._effects.begin()
        try:
            for queue in self._partitions:
                queue.abandon(error)
            self._parking.fail_all(lambda record: error.clone())
        finally:
            self._effects.end()
        # In the second version the answers are not waited for: what comes late has an old epoch (broker: 10.4d). In the first
        # one a batch that comes late could fall into the next transaction, which begins when nothing is in flight.
        self._is_draining = mode is Mode.VERSION_1 and any(queue.has_abandoned() for queue in self._partitions)
        return self._is_draining

    def written(self) -> tuple[PreparedPartition, ...]:
        """Return what was written in the transaction at hand, by partition."""
        found = ((queue, queue.written(self.number)) for queue in self._partitions)
        return tuple(PreparedPartition(queue.topic, queue.partition, *each) for queue, each in found if each[2])

    def __repr__(self) -> str:
        return f"<TransactionalPartitions of {self.number}, {len(self._waiting)} waiting>"
