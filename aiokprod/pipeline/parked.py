"""`ParkedRecord`: an accepted record that has no partition yet.

It waits for room at the gate, for the metadata of its topic, for a partition that does not exist yet, or for an
awaitable serializer. One object per parked record, so only those who wait pay for it; its Delivery is re-pointed once,
when a batch takes the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokprod.errors import AiokprodError
from aiokprod.model import RecordMetadata
from aiokprod.pipeline.delivery import Delivery, DeliveryState, RecordHolder


class ParkedRecord(RecordHolder):
    """A record on its way to a partition, with what `send` was given and until when it may wait."""

    __slots__ = (
        "block_deadline",
        "charge_bytes",
        "delivery",
        "failure",
        "generation",
        "headers",
        "in_line",
        "is_charged",
        "key",
        "loop",
        "on_recall",
        "partition",
        "place",
        "sent_at",
        "settled_at",
        "size_bytes",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        topic: str,
        sent_at: float,
        block_deadline: float,
        generation: int,
        on_recall: Callable[[ParkedRecord], None],
    ) -> None:
        """What the record holds is filled in by the caller, at once or when its serializer is done."""
        self.loop = loop
        self.topic = topic
        self.value: bytes | None = None
        self.key: bytes | None = None
        self.headers: bytes | None = None
        self.partition: int | None = None
        self.timestamp_ms = 0
        self.size_bytes = 0
        self.charge_bytes = 0  # what the gate charges; nothing is charged while it waits for room
        self.sent_at = sent_at  # monotonic seconds: the delivery timeout runs from here
        self.block_deadline = block_deadline  # max.block.ms runs out
        self.settled_at = 0.0
        self.generation = generation
        self.on_recall = on_recall
        self.in_line = False  # at the gate
        self.is_charged = False  # its bytes are, until a batch takes it
        self.place = "waiting for room"
        self.failure: AiokprodError | None = None
        self.delivery: Delivery | None = Delivery(self, 0)  # until it fails here: then only who holds it holds us

    def is_settled(self, index: int) -> bool:
        return self.failure is not None

    def metadata(self, index: int) -> RecordMetadata | None:
        return None

    def error(self, index: int) -> AiokprodError | None:
        return None if self.failure is None else self.failure.clone()

    def attempts(self, index: int) -> int:
        return 0

    def size_of(self, index: int) -> int:
        return self.size_bytes

    def latency_s(self, index: int) -> float:
        return self.settled_at - self.sent_at

    def watch(self, delivery: Delivery) -> None:
        """Nothing to note: the delivery is at hand when the record moves on or fails."""

    def recall(self, index: int) -> bool:
        if self.failure is not None:
            return False
        self.on_recall(self)
        return True

    def describe(self, index: int) -> DeliveryState:
        if self.failure is not None:
            return DeliveryState("failed", type(self.failure).__name__)
        return DeliveryState("parked", f"{self.place}, topic {self.topic}")

    def event_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop
