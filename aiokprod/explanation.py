"""`Explanation`: where a record is, what it waits for, and what happened to it. `ProducerExplanation`: why deliveries are slow.

Values that `Delivery.explain()` and `Producer.explain()` return, made when they are asked for. Times are seconds relative to a
moment that a reader knows (the `send`, or the call), as loop time means nothing outside the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiokprod.model import ProducerState
from aiokprod.values import FrozenValue
from aiokprod.waiting import EventKind, WaitsFor, readable

__all__ = [
    "Event",
    "EventKind",
    "Explanation",
    "Obstacle",
    "ObstacleKind",
    "Place",
    "ProducerExplanation",
    "WaitsFor",
]

LINES_SHOWN: Final = 8
"""Events in the text of an explanation; of more, the first and the last ones are shown."""


class Place(Enum):
    """The stage of a record."""

    PARKED = "in no batch yet"
    """accepted by `send`, before a partition has taken it"""
    OPEN_BATCH = "in an open batch"
    """in the batch that its partition still fills"""
    QUEUED = "in a full batch"
    """in a batch that takes no more records, and was never sent"""
    IN_FLIGHT = "in flight"
    """sent; neither an answer nor the end of the connection has come"""
    RETRYING = "between two attempts"
    """sent at least once, and to be sent again"""
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Event(FrozenValue):
    """Something that happened to a record."""

    at_s: float
    """seconds after `send`"""
    kind: EventKind
    """what kind of event it was"""
    text: str
    """what happened, in words; no content of records, no secrets"""
    broker: int | None = None
    """id of the broker that it was about; None: of none"""

    def __str__(self) -> str:
        return f"+{self.at_s:.3f} s {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Explanation(FrozenValue):
    """Where a record is, what it waits for, since when, and what happened to it. `str()` says it in a few lines."""

    topic: str
    """topic name"""
    partition: int | None
    """partition number; None while it is not chosen"""
    place: Place
    """the stage of the record"""
    waits_for: WaitsFor | None
    """what it waits for; None once its outcome is known"""
    why: str
    """the reason in words, with the last failure, if there was one"""
    age_s: float
    """seconds since `send`; once the outcome is known, seconds from `send` to the outcome"""
    since_s: float
    """seconds for which it has waited for this"""
    left_s: float | None = None
    """seconds until what it waits for ends by itself (linger, backoff, throttle, request timeout); None: unknown"""
    deadline_s: float | None = None
    """seconds until the record fails if nothing changes; None once the outcome is known"""
    broker: int | None = None
    """id of the broker it was sent to, or goes to; None: not known"""
    attempts: int = 0
    """how often it was written to a broker"""
    handle: str = ""
    """"detached" or "timed out", if the Delivery has an outcome of its own while the record goes on; else empty"""
    events: tuple[Event, ...] = ()
    """what happened so far, oldest first; of a long story the first and the last events"""

    @property
    def is_settled(self) -> bool:
        """True if the outcome of the record is known."""
        return self.place is Place.DELIVERED or self.place is Place.FAILED

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        parts = [f"{where}: {self.place.value}"]
        if self.waits_for is not None:
            left = "" if self.left_s is None else f", {self.left_s:.3f} s more"
            parts.append(f", waits for {self.waits_for.value} ({self.since_s:.3f} s so far{left})")
        parts.append(f": {self.why}" if self.why else "")
        facts = [f"after {self.age_s:.3f} s" if self.is_settled else f"sent {self.age_s:.3f} s ago"]
        if self.attempts:
            facts.append("1 attempt" if self.attempts == 1 else f"{self.attempts} attempts")
        if self.deadline_s is not None:
            facts.append(f"fails in {self.deadline_s:.3f} s unless it is delivered")
        if self.handle:
            facts.append(f"its Delivery is {self.handle}")
        return "\n".join([f"{''.join(parts)} ({', '.join(facts)})", *shown(self.events)])


def shown(events: tuple[Event, ...]) -> list[str]:
    """Return the events as lines: all, or the first and the last ones."""
    lines = [f"  {event}" for event in events]
    if len(lines) <= LINES_SHOWN:
        return lines
    first = LINES_SHOWN // 2
    return [*lines[:first], f"  ... {len(lines) - LINES_SHOWN} more ...", *lines[first - LINES_SHOWN :]]


class ObstacleKind(Enum):
    """The kinds of reasons why deliveries are slow or stuck, the most severe first."""

    FORKED = "forked"
    FENCED = "fenced"
    FAILED = "failed"
    NOT_STARTED = "not started"
    CLOSED = "closed"
    STARTING = "starting"
    CLOSING = "closing"
    UNREACHABLE = "no broker can be reached"
    BROKER_DOWN = "a broker cannot be reached"
    NO_LEADER = "no leader"
    UNKNOWN_TOPIC = "unknown topic"
    REFUSED = "refused"
    TRANSACTION = "transaction"
    PRODUCER_ID = "no producer id"
    BUFFER_FULL = "buffer full"
    THROTTLED = "throttled"
    RETRYING = "retrying"
    DRAINING = "draining"
    SLOW_BROKER = "slow broker"
    SERIALIZER = "serializer"
    LATE = "records are late"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Obstacle(FrozenValue):
    """One reason why deliveries are slow or stuck."""

    kind: ObstacleKind
    """the kind of reason"""
    text: str
    """the reason in words, with its numbers"""
    topic: str | None = None
    """the topic that it is about; None: more than one, or none"""
    broker: int | None = None
    """id of the broker that it is about; None: of none"""
    count: int = 0
    """number of records (BUFFER_FULL, UNKNOWN_TOPIC, SERIALIZER) or partitions that it holds up, or 0 if all, or unknown"""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ProducerExplanation(FrozenValue):
    """Why the deliveries of a producer are slow or stuck, with numbers. `str()` says it in a few lines."""

    state: ProducerState
    """the state of the producer, as `health()` tells it"""
    obstacles: tuple[Obstacle, ...] = ()
    """the reasons, the most severe first; empty: nothing holds deliveries up"""
    brokers_connected: int = 0
    """number of brokers with an open connection, for any purpose"""
    buffered_bytes: int = 0
    """bytes of `buffer_memory` in use"""
    buffer_limit_bytes: int = 0
    """`buffer_memory`"""
    waiting_records: int = 0
    """number of records that wait for room"""
    waiting_tasks: int = 0
    """number of tasks that wait for room: in `ready`, `send_many` and `send_columns`"""
    parked_records: int = 0
    """number of records in no batch yet, whatever they wait for"""
    requests_in_flight: int = 0
    """number of Produce requests without an answer"""
    transaction: str | None = None
    """the state of the `transactional_id`; None without one, and before the start"""
    oldest: Explanation | None = None
    """the oldest record without an outcome; None: there is none"""

    @property
    def is_fine(self) -> bool:
        """True if nothing holds deliveries up."""
        return not self.obstacles

    def __str__(self) -> str:
        numbers = [
            f"brokers connected: {self.brokers_connected}",
            f"requests in flight: {self.requests_in_flight}",
            f"buffer: {readable(self.buffered_bytes)} of {readable(self.buffer_limit_bytes)}",
        ]
        if self.parked_records:
            numbers.append(f"records in no batch yet: {self.parked_records}")
        if self.transaction is not None:
            numbers.append(f"transactional id: {self.transaction}")
        head = "nothing holds deliveries up" if self.is_fine else self.obstacles[0].text
        lines = [f"{self.state.value}: {head} ({', '.join(numbers)})"]
        lines += [f"also: {obstacle.text}" for obstacle in self.obstacles[1:]]
        if self.oldest is not None:
            lines.append(f"the oldest record: {self.oldest}")
        return "\n".join(lines)
