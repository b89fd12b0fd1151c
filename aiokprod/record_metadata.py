"""`RecordMetadata`: the result of awaiting a record. One per look at a delivered record; compiled, as it is made per record."""

from __future__ import annotations

from aiokprod.forms import mypyc_attr
from aiokprod.model import TimestampType


# Plain values: the garbage collector need not track it. Most are dropped before the next one is made, which takes its memory.
@mypyc_attr(acyclic=True, free_list_len=1)
class RecordMetadata:
    """The place of an acknowledged record in the log.

    `offset` is None if no broker reported it: acks=0, a duplicate that the broker no longer remembers exactly, or a record
    proved to be in the log by a later batch. `timestamp` is in milliseconds since 1970.

    `serialized_key_size` and `serialized_value_size` are in bytes, uncompressed; -1 for a key or value None, and None if it is
    not known. `duplicate` is True if the record was in the log already when its batch was sent again, as far as the broker's
    answer, or a later batch, shows that: it is there once. Two are equal if place and timestamp are.
    """

    __slots__ = (
        "duplicate",
        "offset",
        "partition",
        "serialized_key_size",
        "serialized_value_size",
        "timestamp",
        "timestamp_type",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int | None,
        timestamp: int | None,
        timestamp_type: TimestampType,
        serialized_key_size: int | None = None,
        serialized_value_size: int | None = None,
        duplicate: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size
        self.duplicate = duplicate

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

    def __reduce__(self) -> tuple[object, ...]:  # in the compiled form there is no __dict__ to pickle
        return RecordMetadata, (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.serialized_key_size,
            self.serialized_value_size,
            self.duplicate,
        )

    def __repr__(self) -> str:
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, timestamp_type={self.timestamp_type.name}"
            f"{', duplicate=True' if self.duplicate else ''})"
        )
