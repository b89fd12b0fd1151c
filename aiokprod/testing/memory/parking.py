"""`MemoryParking`: the Parking of a real pipeline, for records whose partitions are in memory.

It remembers what the serializers were given, and waits for no topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.metadata.snapshot import TopicSnapshot
from aiokprod.errors import AiokprodError
from aiokprod.model import Record
from aiokprod.pipeline.delivery.delivery import Delivery, position_of
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.testing.memory.pending import PendingRecord


class MemoryParking(Parking):
    """Where records come in."""

    def __init__(
        self,
        context: PipelineContext,
        client: ClusterClient,
        make_queue: Callable[[Callable[[int], None], BatchFill, TopicSnapshot, int], RecordQueue],
        room_is_short: Callable[[], None],
    ) -> None:
        super().__init__(context, client, make_queue, room_is_short)
        self._topics_of = client
        self._originals: dict[ParkedRecord, tuple[Any, Any]] = {}  # value and key of those that are parked

    async def partitions_for(self, topic: str, timeout_s: float | None) -> list[int]:
        """Return the partitions at once: there is no wait for a topic that does not exist."""
        snapshot = self._topics_of.topic(topic)
        if snapshot is None:
            raise self.unknown_topic(topic, 0.0)
        return [partition.partition for partition in snapshot.partitions]

    def accept_dressed(self, checks: RecordChecks, record: Record) -> Delivery:
        value, key = record.value, record.key
        delivery = super().accept_dressed(checks, record)
        holder, _ = position_of(delivery)
        if isinstance(holder, PendingRecord):
            holder.was_made_from(value, key)
        elif isinstance(holder, ParkedRecord) and holder.failure is None:
            self._originals[holder] = (value, key)
        return delivery

    def passed_on(self, record: ParkedRecord) -> None:
        original = self._originals.pop(record, None)
        assert record.delivery is not None
        holder, _ = position_of(record.delivery)
        if original is not None and isinstance(holder, PendingRecord):
            holder.was_made_from(*original)
        super().passed_on(record)

    def fail_parked(self, record: ParkedRecord, error: AiokprodError) -> None:
        self._originals.pop(record, None)
        super().fail_parked(record, error)
