"""`RecordMetadata`: what an awaited record gives. One per look at a delivered record; compiled, as all that is per record."""

from __future__ import annotations

from aiokprod.forms import mypyc_attr
from aiokprod.model import TimestampType


@mypyc_attr(acyclic=True)  # plain values: nothing for the garbage collector
class RecordMetadata:
    """Where an acknowledged record is.

    `offset` is None when nobody told it: acks=0, a duplicate the broker no longer remembers exactly, or proof by a
    later batch. `timestamp` is milliseconds since 1970.
    """

    __slots__ = ("offset", "partition", "timestamp", "timestamp_type", "topic")

    def __init__(
        self, topic: str, partition: int, offset: int | None, timestamp: int | None, timestamp_type: TimestampType
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordMetadata):
            return NotImplemented
        return (self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type) == (
            other.topic,
            other.partition,
            other.offset,
            other.timestamp,
            other.timestamp_type,
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self) -> tuple[object, ...]:  # compiled, it has no __dict__ to be pickled by
        return RecordMetadata, (self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type)

    def __repr__(self) -> str:
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, timestamp_type={self.timestamp_type.name})"
        )
