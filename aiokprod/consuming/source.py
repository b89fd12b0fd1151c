"""`Source`: a consumer as `ExactlyOnce` sees it. One small class for each client, in a file of its own.

The classes know their client by its methods and import nothing of it. Each answer of `read` comes with the consumer's `Place`,
taken in the same moment: it says in which generation of the group the records were read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokprod.transactions.machine_actions import Partition
from aiokprod.transactions.offsets import GroupMetadata, Offset


@dataclass(frozen=True, slots=True)
class Place:
    """The part that a consumer has in its group at one moment. Two that are equal have no rebalance between them."""

    member: GroupMetadata
    """with the generation, which the group's coordinator compares when offsets are sent"""
    partitions: frozenset[Partition]
    """the partitions that it reads"""
    assignment: object = None
    """the client's own object of this assignment, if it has one: another one is another assignment"""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one poll."""

    records: list[Any]
    """records as the client has them, those of a partition in their order"""
    place: Place | None
    """the place of the consumer when they were read; None: it has none at the moment"""


class Source(ABC):
    """A consumer that is a member of a group, or has fixed partitions."""

    group_id: str
    """id of its group"""

    @abstractmethod
    async def check(self) -> None:
        """Check what can be seen only once the consumer is started.

        Raises:
            UsageError: it is not started, or not a member of a group.
            ConfigError: its options lose or double records.
        """

    @abstractmethod
    async def place(self) -> Place | None:
        """Return the consumer's place in its group; None: a rebalance is under way, or it has no partitions yet."""

    @abstractmethod
    async def read(self, max_records: int, timeout_s: float) -> Reading:
        """Wait for records, and take part in rebalances meanwhile.

        Args:
            max_records: the most records to return.
            timeout_s: how long to wait for the first one.

        Cancellation: records may have been read that are not returned: `seek` before the next `read`.
        """

    @abstractmethod
    async def seek(self, place: Place, positions: Mapping[Partition, int], *, fetched_only: bool = False) -> bool:
        """Read on from these offsets.

        Args:
            place: the offsets are right for.
            positions: offset of the record that is read next, for some of the partitions.
            fetched_only: True leaves a partition that is not fetched yet as it is: nothing was read of it.

        Returns:
            False: the place has changed, or a partition is not fetched yet, and perhaps not all are at their offsets.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go what calls needed; the consumer is the user's, and stays as it is."""

    @abstractmethod
    def position_of(self, record: Any) -> tuple[Partition, Offset]:
        """Return the partition of a record and the place of a group that has read it: its offset plus 1."""
