"""`Records`: the seam between a `Transactor` and the pipeline whose records are in its transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiokprod.errors import AiokprodError
from aiokprod.transactions.machine_actions import Mode, Partition
from aiokprod.transactions.prepared import PreparedPartition


class Records(Protocol):
    """The records of the pipeline, as their transaction sees them."""

    def take_records(self, is_open: bool, refusal: Callable[[], AiokprodError]) -> None:
        """Let records in from now on, or refuse them with this error."""
        ...

    def began(self, number: int, mode: Mode) -> None:
        """Take in that a transaction has begun."""
        ...

    def take_identity(self, identity: tuple[int, int]) -> None:
        """Stamp with this producer id and epoch from now on."""
        ...

    def take_id(self, transactional_id: str) -> None:
        """Write under this transactional id from now on; nothing is in flight."""
        ...

    def renew_identity(self) -> None:
        """Stamp nothing until `take_identity`: another one has been asked for."""
        ...

    def release(self, partitions: tuple[Partition, ...]) -> None:
        """Let the batches of these partitions go."""
        ...

    def fail_partition(self, partition: Partition, error: AiokprodError) -> None:
        """Fail what waits for this partition to become part of the transaction."""
        ...

    def fail_queued(self, error: AiokprodError, mode: Mode) -> bool:
        """Fail what has no outcome yet. True: answers to some of it are due; `Transactor.drained` follows."""
        ...

    def written(self) -> tuple[PreparedPartition, ...]:
        """Return what was written in the transaction at hand, by partition."""
        ...
