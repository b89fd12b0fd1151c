"""`ProducerBatch`: the records of one partition that travel together, from the first append to the last settlement.

Made by the PartitionQueue, one open per partition. It keeps its identity for its Deliveries: whatever happens to its
records (recalled, expired, split, refused by name) becomes a `Segment`, and a Delivery looks up its own (`outcomes`).
What the broker sees is another matter, kept by the ledger's entries, which refer to ranges of a batch.

Columns, not objects: a record is one cell in each list, and lists that nobody uses do not exist.

    append ... append -> seal -> encode -> release_columns (stamped) -> settle, settle, ...

Invariants: cells are appended and never moved; a record is settled once; charged bytes are released exactly once;
columns are dropped only when the encoded section that holds the same records is kept.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from aiokprod.errors import AiokprodError
from aiokprod.model import TimestampType
from aiokprod.pipeline.batch_owner import BatchOwner
from aiokprod.pipeline.delivery import Delivery, DeliveryState
from aiokprod.pipeline.kept_records import KeptRecords
from aiokprod.pipeline.outcomes import BatchOutcomes, Claim, Range, Segment
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records.batch import encode_records
from aiokprod.records.compression import decompress
from aiokprod.records.decoder import split_records
from aiokprod.records.headers import encode_headers

BATCH_OVERHEAD_BYTES: Final = 61  # header of a v2 batch
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME  # looked up once: it is named for each awaited record
CREATE_TIME: Final = TimestampType.CREATE_TIME
MARK_EVERY_S: Final = 0.01  # records appended within this time share one deadline: the earliest of theirs

__all__ = ["BATCH_OVERHEAD_BYTES", "MARK_EVERY_S", "Claim", "ProducerBatch", "Range", "Segment"]


def _first_cell(cell: bytes, index: int) -> list[bytes | None]:
    """A column that begins with this record: those before it have none."""
    column = list[bytes | None]([None] * index)
    column.append(cell)
    return column


class ProducerBatch(BatchOutcomes):
    """Columns of records, their Deliveries' outcomes, and the bytes charged for them."""

    __slots__ = (
        "_retained",
        "_retained_codec",
        "_retained_ranges",
        "_was_restored",
        "base_timestamp_ms",
        "delivery_timeout_s",
        "entry",
        "freed_bytes",
        "generation",
        "headers",
        "is_urgent",
        "keys",
        "marked_at",
        "marks",
        "max_timestamp_ms",
        "opened_at",
        "owner",
        "record_overhead_bytes",
        "size_bytes",
        "sizes",
        "timestamp_deltas",
        "values",
    )

    def __init__(
        self,
        owner: BatchOwner,
        opened_at: float,
        delivery_timeout_s: float,
        generation: int,
        record_overhead_bytes: int,
        base_timestamp_ms: int,
    ) -> None:
        super().__init__()
        self.owner = owner
        self.opened_at = opened_at  # monotonic seconds
        self.delivery_timeout_s = delivery_timeout_s
        self.generation = generation  # which flush() calls must wait for it
        self.record_overhead_bytes = record_overhead_bytes  # charged beside a record's bytes
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = base_timestamp_ms
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[bytes | None] | None = None  # encoded
        self.timestamp_deltas: list[int] = []
        self.sizes: list[int] = []  # upper bound of each record's encoded size
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.freed_bytes = 0  # of what was charged
        self.marks: list[tuple[int, float]] = [(0, opened_at)]  # (first index, time of its send)
        self.marked_at = opened_at
        self.entry: object | None = None  # the ledger's, while it is not split
        self.is_urgent = False
        self._retained: bytes | bytearray | None = None  # the encoded section, once the columns are gone
        self._retained_codec = "none"
        self._retained_ranges: list[Range] = []
        self._was_restored = False  # taken apart: several sections are made of it, none of which holds all

    # ------------------------------------------------------------------ filling
    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> int:
        """Add one record; its index. The hot path: no allocation but the cells."""
        index = self.count
        self.values.append(value)
        keys = self.keys
        if keys is not None:
            keys.append(key)
        elif key is not None:
            self.keys = _first_cell(key, index)
        pairs = self.headers
        if pairs is not None:
            pairs.append(headers)
        elif headers is not None:
            self.headers = _first_cell(headers, index)
        self.timestamp_deltas.append(timestamp_ms - self.base_timestamp_ms)
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.sizes.append(size_bytes)
        self.size_bytes += size_bytes
        if now - self.marked_at >= MARK_EVERY_S:
            self.marked_at = now
            self.marks.append((index, now))
        self.count = index + 1
        return index

    @property
    def charged_bytes(self) -> int:
        """What the gate has charged for it and has not got back."""
        return self.size_bytes - BATCH_OVERHEAD_BYTES + self.count * self.record_overhead_bytes - self.freed_bytes

    # ------------------------------------------------------------------ what the ledger asks
    def sealed_view(self) -> tuple[list[Range], int]:
        """The ranges of records that are still in the batch, and the newest record timestamp (ms)."""
        return self.live_ranges(), self.max_timestamp_ms

    def deadline_of(self, index: int) -> float:
        """When the delivery timeout of this record ends (monotonic seconds)."""
        return self.sent_at(index) + self.delivery_timeout_s

    def sent_at(self, index: int) -> float:
        """When `send` took the record, or up to `MARK_EVERY_S` earlier (monotonic seconds)."""
        at = bisect_right(self.marks, index, key=_first_of_mark) - 1
        return self.marks[at][1]

    def due(self, first_index: int, now: float) -> int:
        """How many records, from `first_index` on without a gap, are past their deadline."""
        index = first_index
        while index < self.count and self.deadline_of(index) <= now:
            at = bisect_right(self.marks, index, key=_first_of_mark)
            index = self.marks[at][0] if at < len(self.marks) else self.count
        return index - first_index

    # ------------------------------------------------------------------ encoding
    def encode(self, ranges: list[Range]) -> bytes | bytearray:
        """The record section (uncompressed) of these records, offsets from 0."""
        if self._retained is not None:
            self._restore()
        values, keys, headers, deltas = self.values, self.keys, self.headers, self.timestamp_deltas
        if ranges == [(0, self.count)]:
            return encode_records(values, keys, headers, deltas)
        return encode_records(
            [value for first, last in ranges for value in values[first:last]],
            None if keys is None else [key for first, last in ranges for key in keys[first:last]],
            None if headers is None else [item for first, last in ranges for item in headers[first:last]],
            [delta for first, last in ranges for delta in deltas[first:last]],
        )

    def release_columns(self, section: bytes | bytearray, codec: str, ranges: list[Range]) -> None:
        """The section, compressed by `codec`, holds these records from now on: drop values, keys and headers."""
        if self._retained is None and not self._was_restored:
            self._retained = section
            self._retained_codec = codec
            self._retained_ranges = list(ranges)
            self.values = []
            self.keys = None
            self.headers = None

    def _restore(self) -> None:
        """Columns again, from the retained section: a split, a record refused by name (both rare)."""
        section, ranges = self._retained, self._retained_ranges
        assert section is not None
        count = sum(last - first for first, last in ranges)
        plain = decompress(self._retained_codec, bytes(section), self.size_bytes)
        values, keys, pairs, _ = split_records(plain, count)
        headers = None if pairs is None else [None if each is None else encode_headers(each) for each in pairs]
        self.values = [None] * self.count
        self.keys = None if keys is None else list[bytes | None]([None] * self.count)
        self.headers = None if headers is None else list[bytes | None]([None] * self.count)
        at = 0
        for first, last in ranges:
            size = last - first
            self.values[first:last] = values[at : at + size]
            if keys is not None and self.keys is not None:
                self.keys[first:last] = keys[at : at + size]
            if headers is not None and self.headers is not None:
                self.headers[first:last] = headers[at : at + size]
            at += size
        self._retained = None
        self._was_restored = True

    def keep(self, indices: Sequence[int], segment: Segment) -> KeptRecords:
        """These records, which are about to fail. Ask before `settle`, which lets go of them.

        A batch that fails as a whole is decoded when its records are looked at. One that fails bit by bit is decoded now, once,
        and has its cells from then on, as if it had been split: each bit would decode all of it again.
        """
        kept = KeptRecords(self.owner.topic, self.owner.partition, self.base_timestamp_ms, indices)
        section = self._retained
        if section is not None and segment.last - segment.first < self.count:
            self._restore()
            section = None
        if section is None:
            kept.hold_cells(self.values, self.keys, self.headers, self.timestamp_deltas)
        else:
            kept.hold_section(section, self._retained_codec, self.count, self.size_bytes)
        return kept

    # ------------------------------------------------------------------ settling
    def settle(self, segment: Segment) -> int:
        """Give these records their outcome, wake who waits for them; the bytes that are free now.

        The caller gives the bytes back to the gate and reports failures nobody waited for.
        """
        self._keep(segment)
        if self.is_finished:
            freed = self.charged_bytes
            self.values = []
            self.keys = None
            self.headers = None
            self._retained = None
            self.owner = self.owner.place()
            self.entry = None  # it has the section, and refers to this batch: both would stay until the collector comes
        else:
            freed = sum(self.sizes[segment.first : segment.last])
            freed += self.record_overhead_bytes * (segment.last - segment.first)
        self.freed_bytes += freed
        self._wake(segment)
        return freed

    # ------------------------------------------------------------------ what a Delivery asks
    def metadata(self, index: int) -> RecordMetadata | None:
        segment = self.segment_of(index)
        if segment is None or segment.error is not None:
            return None
        offset = segment.base_offset + index - segment.first if segment.base_offset >= 0 else None
        if segment.timestamp_ms >= 0:
            timestamp, kind = segment.timestamp_ms, LOG_APPEND_TIME
        else:
            timestamp, kind = self.base_timestamp_ms + self.timestamp_deltas[index], CREATE_TIME
        return RecordMetadata(self.owner.topic, self.owner.partition, offset, timestamp, kind)

    def error(self, index: int) -> AiokprodError | None:
        segment = self.segment_of(index)
        return None if segment is None or segment.error is None else segment.error.clone()

    def attempts(self, index: int) -> int:
        segment = self.segment_of(index)
        return segment.attempts if segment is not None else 0

    def size_of(self, index: int) -> int:
        return self.sizes[index]

    def latency_s(self, index: int) -> float:
        segment = self.segment_of(index)
        return segment.settled_at - self.sent_at(index) if segment is not None else 0.0

    def watch(self, delivery: Delivery) -> None:
        self.watched.append(delivery)
        self.urge()

    def urge(self) -> None:
        """Somebody waits: one flag, no counting."""
        if not self.is_urgent:
            self.is_urgent = True
            self.owner.urge(self)

    def recall(self, index: int) -> bool:
        return self.owner.recall(self, index)

    def describe(self, index: int) -> DeliveryState:
        segment = self.segment_of(index)
        if segment is None:
            return self.owner.describe(self)
        if segment.error is None:
            return DeliveryState(
                "delivered",
                f"offset {segment.base_offset + index - segment.first}"
                if segment.base_offset >= 0
                else "offset unknown",
            )
        return DeliveryState("failed", type(segment.error).__name__)

    def event_loop(self) -> asyncio.AbstractEventLoop:
        return self.owner.loop

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.owner.topic}-{self.owner.partition} {self.count} records {self.size_bytes} bytes "
            f"{self.settled_count} settled>"
        )


# No lambdas: compiled, a method that has one makes an object for it whenever it is called.
def _first_of_mark(mark: tuple[int, float]) -> int:
    return mark[0]
