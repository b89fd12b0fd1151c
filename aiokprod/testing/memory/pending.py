"""`PendingRecord`: a record of a `MemoryProducer` that its partition has taken; its Delivery points at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokprod.errors import AiokprodError, RecordRecalledError
from aiokprod.explanation import Event, EventKind, Explanation, Place, WaitsFor
from aiokprod.pipeline.delivery.delivery import Delivery, RecordHolder, fire
from aiokprod.pipeline.delivery.unasked import Unasked
from aiokprod.record_metadata import RecordMetadata


class PendingRecord(RecordHolder):
    """A record that was sent, with the delay and error that the script gives it, and then its outcome."""

    __slots__ = (
        "attempt_count",
        "deadline",
        "delivery",
        "due_at",
        "generation",
        "headers",
        "is_held",
        "key",
        "loop",
        "number",
        "outcome",
        "place",
        "scripted",
        "sent_at",
        "settled_at",
        "size_bytes",
        "take_back",
        "timestamp_ms",
        "unasked",
        "value",
        "waits_for",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        value: bytes | None,
        key: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        timestamp_ms: int,
        size_bytes: int,
        sent_at: float,
        generation: int,
        take_back: Callable[[PendingRecord, AiokprodError], bool],
        place: tuple[str, int],
        is_held: Callable[[], bool],
    ) -> None:
        self.loop = loop
        self.value: tuple[bytes | None, Any] = (value, value)  # and what it was before its serializer
        self.key: tuple[bytes | None, Any] = (key, key)
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.size_bytes = size_bytes
        self.sent_at = sent_at  # loop time, seconds
        self.generation = generation
        self.place = place  # topic and partition
        self.is_held = is_held
        self.take_back = take_back  # fails it with the error; False: it has its outcome
        self.scripted: AiokprodError | None = None  # it will fail of this
        self.due_at = sent_at
        self.deadline = sent_at  # of its delivery timeout
        self.number = 0  # in the order of the sends, over all partitions
        self.waits_for = "its turn"
        self.outcome: RecordMetadata | AiokprodError | None = None
        self.attempt_count = 0
        self.settled_at = sent_at
        self.unasked: Unasked | None = None  # of a failure that nothing waited for
        self.delivery: Delivery | None = None  # until it is settled

    @property
    def next_at(self) -> float:
        """When to look at it: its outcome is due, or its time is over."""
        return min(self.due_at, self.deadline)

    def was_made_from(self, value: Any, key: Any) -> None:
        """Note the value and key from which the serializers made the record."""
        self.value = (self.value[0], value)
        self.key = (self.key[0], key)

    def settle(self, outcome: RecordMetadata | AiokprodError, attempts: int, now: float) -> None:
        """Set the outcome and settle the Delivery, which wakes waiting tasks."""
        self.outcome, self.attempt_count, self.settled_at = outcome, attempts, now
        delivery, self.delivery = self.delivery, None
        assert delivery is not None
        fire(delivery)

    # ------------------------------------------------------------------ what a Delivery asks
    def is_settled(self, index: int) -> bool:
        return self.outcome is not None

    def metadata(self, index: int) -> RecordMetadata | None:
        return self.outcome if isinstance(self.outcome, RecordMetadata) else None

    def error(self, index: int) -> AiokprodError | None:
        return self.outcome.clone() if isinstance(self.outcome, AiokprodError) else None

    def ask(self, index: int) -> bool:
        return self.unasked is not None and self.unasked.ask(index)

    def attempts(self, index: int) -> int:
        return self.attempt_count

    def size_of(self, index: int) -> int:
        return self.size_bytes

    def latency_s(self, index: int) -> float:
        return self.settled_at - self.sent_at

    def watch(self, delivery: Delivery) -> None:
        """Ignore the callback: the record has its Delivery when it settles."""

    def recall(self, index: int) -> bool:
        return self.take_back(self, RecordRecalledError("recalled"))

    def withdraw(self, index: int, error: AiokprodError) -> bool:
        return self.take_back(self, error)

    def explain(self, index: int) -> Explanation:
        now = self.loop.time() if self.outcome is None else self.settled_at
        age_s = max(0.0, now - self.sent_at)
        events = [Event(at_s=0.0, kind=EventKind.ACCEPTED, text="accepted")]
        waits_for: WaitsFor | None = None
        left_s: float | None = None
        deadline_s: float | None = None
        if self.outcome is None:
            place, why = Place.QUEUED, ""
            deadline_s = max(0.0, self.deadline - now)
            if self.is_held():
                waits_for, why = WaitsFor.RELEASE, "the MemoryProducer is held"
            else:
                waits_for, left_s, why = WaitsFor.TURN, max(0.0, self.due_at - now), f"waits for {self.waits_for}"
        elif isinstance(self.outcome, AiokprodError):
            place, why = Place.FAILED, f"{type(self.outcome).__name__}: {self.outcome.message}"
            events.append(Event(at_s=age_s, kind=EventKind.FAILED, text=place.value))
        else:
            offset = self.outcome.offset
            place, why = Place.DELIVERED, "offset unknown" if offset is None else f"offset {offset}"
            events.append(Event(at_s=age_s, kind=EventKind.DELIVERED, text=place.value))
        topic, partition = self.place
        return Explanation(
            topic=topic,
            partition=partition,
            place=place,
            waits_for=waits_for,
            why=why,
            age_s=age_s,
            since_s=age_s if self.outcome is None else 0.0,
            left_s=left_s,
            deadline_s=deadline_s,
            attempts=self.attempt_count,
            events=tuple(events),
        )

    def event_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop
