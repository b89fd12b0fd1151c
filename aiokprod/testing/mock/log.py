"""The log of one partition and the topic it belongs to: batches as bytes, offsets, settings.

One `PartitionLog` per partition, shared by its replicas (how far each of them has copied it is the business of
`partition.py`); one `TopicSettings` per topic. Pure: time is an argument.

Invariants: batches are contiguous, `start_offset` <= offset of the first record kept <= `end_offset`, and a batch is
stored whole, as the bytes a Fetch answers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from aiokprod.testing.mock.batch_header import CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchHeader
from aiokprod.testing.mock.producer_state import Sequenced

MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default of max.message.bytes, header included. broker: 13.1"""

_NUMBERS: Final[Mapping[str, tuple[str, int]]] = {
    "compression.gzip.level": ("INT", -1),
    "compression.lz4.level": ("INT", 1),
    "compression.zstd.level": ("INT", -131_072),
    "delete.retention.ms": ("LONG", 0),
    "file.delete.delay.ms": ("LONG", 0),
    "flush.messages": ("LONG", 1),
    "flush.ms": ("LONG", 0),
    "index.interval.bytes": ("INT", 0),
    "local.retention.bytes": ("LONG", -2),
    "local.retention.ms": ("LONG", -2),
    "max.compaction.lag.ms": ("LONG", 1),
    "max.message.bytes": ("INT", 0),
    "message.timestamp.after.max.ms": ("LONG", 0),
    "message.timestamp.before.max.ms": ("LONG", 0),
    "message.timestamp.difference.max.ms": ("LONG", 0),
    "min.compaction.lag.ms": ("LONG", 0),
    "min.insync.replicas": ("INT", 1),
    "retention.bytes": ("LONG", -(2**63)),
    "retention.ms": ("LONG", -1),
    "segment.bytes": ("INT", 14),
    "segment.index.bytes": ("INT", 4),
    "segment.jitter.ms": ("LONG", 0),
    "segment.ms": ("LONG", 1),
}
"""Type and least value. Kafka 4 wants segments of a megabyte; those of older releases may be smaller."""
_MOST: Final[Mapping[str, int]] = {"INT": 2**31 - 1, "LONG": 2**63 - 1}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    **dict.fromkeys(
        (
            "message.downconversion.enable",
            "preallocate",
            "remote.log.copy.disable",
            "remote.log.delete.on.disable",
            "remote.storage.enable",
            "unclean.leader.election.enable",
        ),
        ("true", "false"),
    ),
}
_POLICIES: Final = ("compact", "delete")
_BOTH_DIRECTIONS: Final = "message.timestamp.difference.max.ms"
"""Kafka before 3.6 had one option for the future and the past (KIP-937)."""

KNOWN_OPTIONS: Final = frozenset(
    [
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ]
)
"""Topic options of Kafka 2.1 to 4.3; any other name is refused with 40."""

_BASE_OFFSET: Final = attrgetter("base_offset")

_MARKER_TYPE: Final = slice(68, 70)
"""Where a control batch, always of one small uncompressed record, says how the transaction ended: 0 aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """One batch of a log. `data` is what a reader fetches."""

    base_offset: int
    count: int
    attributes: int
    leader_epoch: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    data: bytes = field(repr=False)

    @property
    def next_offset(self) -> int:
        """The offset behind the last record."""
        return self.base_offset + self.count

    @property
    def is_transactional(self) -> bool:
        """Return whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Return whether it is a marker, which ends a transaction and holds no record of a client."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_abort_marker(self) -> bool:
        """Return whether it is the marker of an abort."""
        return self.is_control and self.data[_MARKER_TYPE] == b"\0\0"

    @property
    def sequenced(self) -> Sequenced:
        """The producer's half, for `ProducerStates`."""
        return Sequenced(
            producer_id=self.producer_id,
            epoch=self.producer_epoch,
            first_sequence=self.base_sequence,
            count=self.count,
            max_timestamp_ms=self.max_timestamp_ms,
            base_offset=self.base_offset,
        )

    @classmethod
    def of(
        cls, header: BatchHeader, data: bytes, base_offset: int, leader_epoch: int, append_time_ms: int | None
    ) -> StoredBatch:
        """Return the batch as stored; a LogAppendTime topic gives every record the append time."""
        attributes = header.attributes & ~LOG_APPEND_TIME_BIT & 0xFFFF
        return cls(
            base_offset=base_offset,
            count=header.count,
            attributes=attributes if append_time_ms is None else attributes | LOG_APPEND_TIME_BIT,
            leader_epoch=leader_epoch,
            base_timestamp_ms=header.base_timestamp_ms,
            max_timestamp_ms=header.max_timestamp_ms if append_time_ms is None else append_time_ms,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            data=data,
        )


class PartitionLog:
    """Batches of one partition in offset order."""

    __slots__ = ("_batches", "end_offset", "size_bytes", "start_offset")

    def __init__(self) -> None:
        self._batches: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<PartitionLog {self.start_offset}..{self.end_offset} batches={len(self._batches)}>"

    @property
    def batches(self) -> tuple[StoredBatch, ...]:
        """Every batch kept, in offset order."""
        return tuple(self._batches)

    def append(self, batch: StoredBatch) -> None:
        """Put a batch at the end; its base offset must be the end offset."""
        assert batch.base_offset == self.end_offset, f"{batch.base_offset} is not the end of {self!r}"
        self._batches.append(batch)
        self.end_offset = batch.next_offset
        self.size_bytes += len(batch.data)

    def truncate(self, end_offset: int) -> None:
        """Drop every batch that reaches beyond `end_offset`: what a new leader did not have (broker: 6.4b, 6.4c)."""
        while self._batches and self._batches[-1].next_offset > end_offset:
            self.size_bytes -= len(self._batches.pop().data)
        self.end_offset = self._batches[-1].next_offset if self._batches else self.start_offset

    def delete_before(self, offset: int) -> None:
        """Move the start offset, as DeleteRecords does: batches before it go, producer states stay (broker: 1.8)."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        gone = 0
        for batch in self._batches:
            if batch.next_offset > self.start_offset:
                break
            gone += 1
            self.size_bytes -= len(batch.data)
        del self._batches[:gone]

    def retain(self, retention_bytes: int, up_to: int) -> None:
        """Apply retention.bytes: drop the oldest batches that end at or before `up_to` while the log is larger."""
        gone = 0
        for batch in self._batches:
            if self.size_bytes <= retention_bytes or batch.next_offset > up_to:
                break
            gone += 1
            self.size_bytes -= len(batch.data)
            self.start_offset = max(self.start_offset, batch.next_offset)
        del self._batches[:gone]

    def read(self, offset: int, up_to: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that holds `offset`, below `up_to`; at least one if there is any.

        Returns:
            The bytes, empty when nothing is there. A reader skips records before `offset` by itself.
        """
        parts: list[bytes] = []
        size = 0
        for batch in self._from(offset):
            if batch.next_offset > up_to or (parts and size + len(batch.data) > max_bytes):
                break
            parts.append(batch.data)
            size += len(batch.data)
        return b"".join(parts)

    def since(self, offset: int) -> Iterable[StoredBatch]:
        """Return batches that hold records at or behind `offset`."""
        return self._from(offset)

    def first_since_time(self, timestamp_ms: int, up_to: int) -> StoredBatch | None:
        """Return the first batch whose newest record is at or after the time, or None."""
        for batch in self._batches:
            if batch.next_offset <= up_to and batch.max_timestamp_ms >= timestamp_ms:
                return batch
        return None

    def newest(self, up_to: int) -> StoredBatch | None:
        """Return the batch with the greatest timestamp, or None."""
        visible = [batch for batch in self._batches if batch.next_offset <= up_to]
        return max(visible, key=attrgetter("max_timestamp_ms"), default=None)

    def _from(self, offset: int) -> Iterable[StoredBatch]:
        index = max(0, bisect_right(self._batches, offset, key=_BASE_OFFSET) - 1)
        for position in range(index, len(self._batches)):
            batch = self._batches[position]
            if batch.next_offset > offset:
                yield batch


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The topic configuration the mock obeys; every other option is kept and shown, and does nothing."""

    options: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the brokers say where the topic says nothing."""

    @classmethod
    def of(cls, options: Mapping[str, object], defaults: Mapping[str, str] | None = None) -> TopicSettings:
        """Take options by Kafka's names, also in snake case (`max_message_bytes`)."""
        return cls({name.replace("_", "."): _as_text(value) for name, value in options.items()}, defaults or {})

    def _text(self, name: str, default: str) -> str:
        return self.options.get(name, self.defaults.get(name, default))

    def _number(self, name: str, default: int) -> int:
        return int(self._text(name, str(default)))

    @property
    def max_message_bytes(self) -> int:
        """Largest batch, header included."""
        return self._number("max.message.bytes", MAX_MESSAGE_BYTES)

    @property
    def is_log_append_time(self) -> bool:
        """message.timestamp.type=LogAppendTime."""
        return self._text("message.timestamp.type", "CreateTime") == "LogAppendTime"

    @property
    def is_compacted(self) -> bool:
        """cleanup.policy contains compact: records without key are refused with 87."""
        return "compact" in self._text("cleanup.policy", "delete").split(",")

    @property
    def is_only_compacted(self) -> bool:
        """cleanup.policy has no delete: records are not deleted on request either."""
        return "delete" not in self._text("cleanup.policy", "delete").split(",")

    @property
    def min_insync_replicas(self) -> int:
        """min.insync.replicas, for acks=all."""
        return self._number("min.insync.replicas", 1)

    @property
    def retention_bytes(self) -> int:
        """retention.bytes of each partition; -1 keeps everything."""
        return self._number("retention.bytes", -1)

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far in the future a record may be (broker: 13.7)."""
        return self._number("message.timestamp.after.max.ms", self._number(_BOTH_DIRECTIONS, 3_600_000))

    @property
    def timestamp_before_max_ms(self) -> int:
        """How far in the past a record may be; unlimited unless set."""
        return self._number("message.timestamp.before.max.ms", self._number(_BOTH_DIRECTIONS, 2**63 - 1))

    def check(self) -> None:
        """Raise ValueError if an option is unknown, or has a value that Kafka refuses."""
        for name, value in self.options.items():
            if name not in KNOWN_OPTIONS:
                raise ValueError(f"Unknown topic config name: {name}")
            wrong = _why_not(name, value)
            if wrong is not None:
                raise ValueError(f"Invalid value {value} for configuration {name}: {wrong}")

    def altered(self, options: Mapping[str, object]) -> TopicSettings:
        """Return a copy with some options changed."""
        return TopicSettings({**self.options, **TopicSettings.of(options).options}, self.defaults)


def _why_not(name: str, value: str) -> str | None:
    """Return what is wrong with the value of an option, in Kafka's words."""
    if name in _NUMBERS:
        return _why_no_number(value.strip(), *_NUMBERS[name])
    if name in _CHOICES:
        choices = _CHOICES[name]
        is_flag = choices == ("true", "false")
        if (value.strip().lower() if is_flag else value) in choices:
            return None
        return (
            "Expected value to be either true or false" if is_flag else f"String must be one of: {', '.join(choices)}"
        )
    if name == "cleanup.policy" and any(one.strip() not in ("", *_POLICIES) for one in value.split(",")):
        return f"String must be one of: {', '.join(_POLICIES)}"
    return None


def _why_no_number(text: str, kind: str, least: int) -> str | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not -_MOST[kind] - 1 <= int(text) <= _MOST[kind]:
        return f"Not a number of type {kind}"
    return f"Value must be at least {least}" if int(text) < least else None


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
