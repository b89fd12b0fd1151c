"""`ParkedRecord`: an accepted record that is in no batch yet.

It waits for an awaitable serializer, for room at the gate, for the metadata of its topic, or for a partition that does not
exist yet, and stands in one queue all that time: the one of its topic (`TopicDispatcher.waiting`), in the order of the
`send` calls. One object per parked record, so only those that wait pay for it; its Delivery is re-pointed once, when a
batch takes the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokprod.errors import AiokprodError, RecordRecalledError
from aiokprod.model import Record
from aiokprod.pipeline.delivery.delivery import Delivery, RecordHolder
from aiokprod.pipeline.delivery.unasked import Unasked
from aiokprod.pipeline.partition.timeline import Waited, note, waits_told
from aiokprod.record_metadata import RecordMetadata
from aiokprod.waiting import EventKind, WaitsFor

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.explanation import Explanation


class ParkedRecord(RecordHolder):
    """A record on its way to a partition, with what `send` was given and until when it may wait."""

    __slots__ = (
        "admitted_at",
        "asked",
        "block_deadline",
        "charge_bytes",
        "delivery",
        "draft",
        "fail",
        "failure",
        "generation",
        "headers",
        "in_line",
        "is_charged",
        "is_over",
        "is_reserved",
        "is_waiting",
        "key",
        "loop",
        "partition",
        "reason",
        "sent_at",
        "serialized_at",
        "settled_at",
        "size_bytes",
        "timestamp_ms",
        "topic",
        "unasked",
        "value",
        "waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        topic: str,
        sent_at: float,
        block_deadline: float,
        generation: int,
        fail: Callable[[ParkedRecord, AiokprodError], None],
        reason: Callable[[ParkedRecord], str] | None = None,
    ) -> None:
        """Make an empty record; the caller fills it in, at once or when its serializer is done."""
        self.loop = loop
        self.topic = topic
        self.value: bytes | None = None
        self.key: bytes | None = None
        self.headers: bytes | None = None
        self.partition: int | None = None
        self.timestamp_ms = 0
        self.size_bytes = 0
        self.charge_bytes = 0  # what the gate charges; an estimate until the serializer is done
        self.sent_at = sent_at  # monotonic seconds: the delivery timeout runs from here
        self.block_deadline = block_deadline  # max.block.ms runs out, whatever it waits for
        self.settled_at = 0.0
        self.serialized_at = 0.0  # when its serializer was done; 0: it waited for none, or waits still
        self.admitted_at = 0.0  # when it was given room; 0: it waited for none, or waits still
        self.generation = generation
        self.fail = fail
        self.reason = reason  # says why it waits, in words; None once it has failed
        self.waits = WaitsFor.ROOM  # or SERIALIZER, METADATA, PARTITION
        self.asked = 0  # number of the Metadata request whose answer it waits for
        self.in_line = False  # at the gate
        self.is_waiting = False  # counted in the gate's waiting bytes
        self.is_reserved = False  # counted in the gate's reserved bytes
        self.is_charged = False  # its bytes are, until a batch takes it
        self.draft: Record | None = None  # what the serializers are at work on
        self.is_over = False  # failed, or in a batch: it is parked no more
        self.failure: AiokprodError | None = None
        self.unasked: Unasked | None = None  # of the failure, if nothing waited for it
        self.delivery: Delivery | None = Delivery(self, 0)  # until it fails here: then only its owner holds it

    def is_settled(self, index: int) -> bool:
        return self.failure is not None

    def metadata(self, index: int) -> RecordMetadata | None:
        return None

    def error(self, index: int) -> AiokprodError | None:
        failure = self.failure
        if failure is None:
            return None
        error = failure.clone()
        if not isinstance(failure, RecordRecalledError):
            error.add_note(self._story())  # when it is looked at: a million records may fail at once
        return error

    def ask(self, index: int) -> bool:
        return self.unasked is not None and self.unasked.ask(index)

    def attempts(self, index: int) -> int:
        return 0

    def size_of(self, index: int) -> int:
        return self.size_bytes

    def latency_s(self, index: int) -> float:
        return self.settled_at - self.sent_at

    def watch(self, delivery: Delivery) -> None:
        """Note nothing: the delivery is at hand when the record moves on or fails."""

    def recall(self, index: int) -> bool:
        return self.withdraw(index, RecordRecalledError("recalled"))

    def withdraw(self, index: int, error: AiokprodError) -> bool:
        if self.is_over:
            return False
        error.topic = self.topic
        self.fail(self, error)
        return True

    # ------------------------------------------------------------------ explaining
    def waits_since(self) -> float:
        """Return when it began to wait for what it waits for (loop time)."""
        return self.admitted_at or self.serialized_at or self.sent_at

    def waited(self, now: float) -> Waited:
        """Return what it has waited for until now."""
        return self.waits, self.serialized_at, self.admitted_at, now

    def _story(self) -> str:
        told = waits_told(self.sent_at, self.waited(self.settled_at))
        return note(f"topic {self.topic}", self.sent_at, told, self.settled_at, type(self.failure).__name__)

    def explain(self, index: int) -> Explanation:
        from aiokprod.explanation import Event, Explanation, Place

        now = self.loop.time()
        sent_at, failure = self.sent_at, self.failure
        events = [Event(at_s=0.0, kind=EventKind.ACCEPTED, text="accepted")]
        if failure is not None:
            settled_at = self.settled_at
            events += [each.event(sent_at) for each in waits_told(sent_at, self.waited(settled_at))]
            events.append(Event(at_s=settled_at - sent_at, kind=EventKind.FAILED, text=Place.FAILED.value))
            return Explanation(
                topic=self.topic,
                partition=self.partition,
                place=Place.FAILED,
                waits_for=None,
                why=f"{type(failure).__name__}: {failure.message}",
                age_s=settled_at - sent_at,
                since_s=0.0,
                events=tuple(events),
            )
        events += [each.event(sent_at) for each in waits_told(sent_at, self.waited(now), is_over=False)]
        return Explanation(
            topic=self.topic,
            partition=self.partition,
            place=Place.PARKED,
            waits_for=self.waits,
            why="" if self.reason is None else self.reason(self),
            age_s=now - sent_at,
            since_s=now - self.waits_since(),
            deadline_s=max(0.0, self.block_deadline - now),
            events=tuple(events),
        )

    def event_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop
