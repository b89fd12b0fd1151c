"""`MemoryLog`: the topics and the records of a `MemoryProducer`. One per producer; outlives its closes and starts.

Only the loop of the producer writes to it, and a test gets copies, so another thread (a web framework's test client)
may read at any time.

Invariant: offsets of a partition have no gaps and never go back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiokprod.cluster.metadata.snapshot import BrokerNode, ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from aiokprod.errors import ConfigError

NODE = BrokerNode(id=0, host="memory", port=9092)
AUTO_CREATED_PARTITIONS = 1  # num.partitions, a broker's default


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A record as it is in the log, with its key and value as they were before the serializers."""

    topic: str
    """topic name"""
    partition: int
    """partition number"""
    offset: int
    """offset in the partition, from 0"""
    key: bytes | None
    """key after `key_serializer`"""
    value: bytes | None
    """value after `value_serializer`"""
    original_key: Any
    """key before `key_serializer`"""
    original_value: Any
    """value before `value_serializer`"""
    headers: tuple[tuple[str, bytes | None], ...]
    """(name, value) pairs"""
    timestamp_ms: int
    """milliseconds since 1970"""


class MemoryLog:
    """Topics with their partitions, and all records in the order in which they came in."""

    def __init__(self, topics: Mapping[str, int], *, auto_create: bool) -> None:
        self._topics: dict[str, TopicSnapshot] = {}
        self._records: list[MemoryRecord] = []
        self._uncommitted: list[MemoryRecord] = []  # of the transaction that is open
        self._ends: dict[tuple[str, int], int] = {}
        self._auto_create = auto_create
        for name, partitions in topics.items():
            if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
                raise ConfigError(f"topics: {name!r} must have a number of partitions above 0, not {partitions!r}")
            self._create(name, partitions)

    def _create(self, name: str, partitions: int) -> TopicSnapshot:
        topic = self._topics[name] = TopicSnapshot(
            name=name, partitions=tuple(PartitionSnapshot(number, NODE.id, 0) for number in range(partitions))
        )
        return topic

    def topic(self, name: str) -> TopicSnapshot | None:
        """Return the topic, created now if that is allowed; None if there is none."""
        known = self._topics.get(name)
        if known is None and self._auto_create:
            return self._create(name, AUTO_CREATED_PARTITIONS)
        return known

    def snapshot(self) -> ClusterSnapshot:
        """Return a snapshot of a cluster of one broker."""
        return ClusterSnapshot(version=1, cluster_id="memory", brokers={NODE.id: NODE}, topics=dict(self._topics))

    def append(
        self,
        topic: str,
        partition: int,
        value: tuple[bytes | None, Any],
        key: tuple[bytes | None, Any],
        headers: tuple[tuple[str, bytes | None], ...],
        timestamp_ms: int,
        *,
        in_transaction: bool = False,
    ) -> int:
        """Keep a record and return its offset; `value` and `key`: the bytes, and the object before the serializer."""
        offset = self._ends.get((topic, partition), 0)
        self._ends[topic, partition] = offset + 1
        records = self._uncommitted if in_transaction else self._records
        records.append(
            MemoryRecord(
                topic=topic,
                partition=partition,
                offset=offset,
                key=key[0],
                value=value[0],
                original_key=key[1],
                original_value=value[1],
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
        )
        return offset

    def end_transaction(self, *, commits: bool) -> None:
        """Show the records of the transaction, or forget them."""
        if commits:
            self._records += self._uncommitted
        self._uncommitted = []

    def clear(self) -> None:
        """Forget the records; offsets go on."""
        self._records = []
        self._uncommitted = []

    def __iter__(self) -> Iterator[MemoryRecord]:
        return iter(self._records.copy())

    def __len__(self) -> int:
        return len(self._records)
