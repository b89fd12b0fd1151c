"""`MemoryEntrance`: the Entrance of a real pipeline, for records whose partitions are in memory.

It remembers what the serializers were given, and lets the timeout of a send reach a `PendingRecord`.
"""

from __future__ import annotations

from typing import Any

from aiokprod.errors import AiokprodError, SendTimeoutError
from aiokprod.model import Persistence, Record
from aiokprod.pipeline.delivery import Delivery
from aiokprod.pipeline.entrance import Entrance
from aiokprod.pipeline.intake import Intake
from aiokprod.pipeline.parked import ParkedRecord
from aiokprod.testing.memory.pending import PendingRecord


class MemoryEntrance(Entrance):
    """Where records come in."""

    originals: dict[ParkedRecord, tuple[Any, Any]]
    """Value and key of those that are parked; set by who makes it."""

    def accept_dressed(self, intake: Intake, record: Record) -> Delivery:
        value, key = record.value, record.key
        delivery = super().accept_dressed(intake, record)
        holder, _ = delivery.place()
        if isinstance(holder, PendingRecord):
            holder.was_made_from(value, key)
        elif isinstance(holder, ParkedRecord) and holder.failure is None:
            self.originals[holder] = (value, key)
        return delivery

    def passed_on(self, record: ParkedRecord) -> None:
        original = self.originals.pop(record, None)
        assert record.delivery is not None
        holder, _ = record.delivery.place()
        if original is not None and isinstance(holder, PendingRecord):
            holder.was_made_from(*original)
        super().passed_on(record)

    def fail_parked(self, record: ParkedRecord, error: AiokprodError) -> None:
        self.originals.pop(record, None)
        super().fail_parked(record, error)

    def _send_timed_out(self, delivery: Delivery) -> None:
        holder, _ = delivery.place()
        if isinstance(holder, PendingRecord):
            error = SendTimeoutError("the timeout of this send is over", persistence=Persistence.NOT_PERSISTED)
            holder.take_back(holder, error)
        else:
            super()._send_timed_out(delivery)
