"""`AiokafkaSource`: aiokafka's `AIOKafkaConsumer` as a `Source`.

aiokafka joins its group in the background, at any await. It shows neither the generation nor that an assignment is over, so
this reads its coordinator and its subscription. The generation is new from the answer to JoinGroup on, the partitions only
after SyncGroup; in between a commit with the new generation would be taken, for partitions that another member may have by
then. A member that was thrown out has no generation, and a commit without one is not checked. Neither is a `Place`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokprod.consuming.source import Place, Reading, Source
from aiokprod.errors import ConfigError, RecordTypeError, UsageError
from aiokprod.transactions.machine_actions import Partition
from aiokprod.transactions.offsets import GroupMetadata, Offset

NEEDED = ("_group_id", "_enable_auto_commit", "_isolation_level", "_subscription", "_coordinator")
"""What is read of the consumer beside its public methods."""


def is_aiokafka(consumer: object) -> bool:
    """Return whether this is a consumer of aiokafka's shape."""
    return all(
        callable(getattr(consumer, name, None)) for name in ("getmany", "seek_to_committed", "assignment", "seek")
    )


class AiokafkaSource(Source):
    """An `AIOKafkaConsumer`.

    Args:
        consumer: with a group; started before the loop begins.

    Raises:
        ConfigError: it commits by itself, or reads records that are not committed.
        UsageError: it has no group.
        RecordTypeError: this release of aiokafka is not known.
    """

    def __init__(self, consumer: Any) -> None:
        missing = [name for name in NEEDED if not hasattr(consumer, name)]
        if missing:
            raise RecordTypeError(
                f"this release of aiokafka is not known: its consumer has no {', '.join(missing)}; 0.12 to 0.14 are"
            )
        if not isinstance(consumer._group_id, str) or not consumer._group_id:
            raise UsageError("the consumer has no group: give it a group_id")
        if consumer._enable_auto_commit:
            raise ConfigError(
                "the consumer commits by itself, also what is aborted later: give it enable_auto_commit=False"
            )
        if consumer._isolation_level != "read_committed":
            raise ConfigError(
                f"the consumer has isolation_level={consumer._isolation_level!r} and reads records of aborted transactions:"
                ' give it isolation_level="read_committed"'
            )
        self.group_id: str = consumer._group_id
        self._consumer = consumer

    async def check(self) -> None:
        """Check that the consumer is started."""
        if self._consumer._coordinator is None:
            raise UsageError("the consumer is not started: await its start() first")
        if self._consumer._subscription.subscription is None:
            raise UsageError("the consumer reads no topics: give it topics, or call its subscribe()")

    async def place(self) -> Place | None:
        """Return the place, of this moment."""
        return self._place()

    def _place(self) -> Place | None:
        """Return the place; a plain call, so that it is of the moment in which records were returned."""
        subscription = self._consumer._subscription
        current = subscription.subscription
        assignment = None if current is None else current.assignment
        if assignment is None or not assignment.active or subscription.reassignment_in_progress or not assignment.tps:
            return None
        partitions = frozenset((tp.topic, tp.partition) for tp in assignment.tps)
        if not subscription.partitions_auto_assigned():  # by assign(): the group has no members
            return Place(GroupMetadata(self.group_id), partitions, assignment)
        member = GroupMetadata.of(self._consumer)
        if member.generation_id <= 0 or not member.member_id:
            return None
        return Place(member, partitions, assignment)

    async def read(self, max_records: int, timeout_s: float) -> Reading:
        """Wait for records; also for the end of a rebalance."""
        # Never 0: such a call comes back without a turn of the event loop, so that nothing would ever be fetched.
        timeout_ms = max(1, int(timeout_s * 1000))
        batches = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        records = [record for batch in batches.values() for record in batch]
        return Reading(records, self._place())

    async def seek(self, place: Place, positions: Mapping[Partition, int], *, fetched_only: bool = False) -> bool:
        """Read on from these offsets; nothing can happen in between."""
        if self._place() != place:
            return False
        for tp in self._consumer.assignment():
            offset = positions.get((tp.topic, tp.partition))
            if offset is not None:
                self._consumer.seek(tp, offset)
        return True

    def close(self) -> None:
        """Ignore the call: nothing is held."""

    def position_of(self, record: Any) -> tuple[Partition, Offset]:
        """Return the partition of a record, and the next offset."""
        return (record.topic, record.partition), Offset(record.offset + 1)
