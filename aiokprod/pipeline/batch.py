"""`ProducerBatch`: the records of one partition that travel together, from the first append to the last settlement.

Made by the PartitionQueue, one open per partition. It keeps its identity for its Deliveries: whatever happens to its
records (recalled, expired, split, refused by name) becomes a `Segment`, and a Delivery looks up its own. What the
broker sees is another matter, kept by the ledger's entries, which refer to ranges of a batch.

Columns, not objects: a record is one cell in each list, and lists that nobody uses do not exist.

    append ... append -> seal -> encode -> release_columns (stamped) -> settle, settle, ...

Invariants: cells are appended and never moved; a record is settled once; charged bytes are released exactly once;
columns are dropped only when the encoded section that holds the same records is kept.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Final

from aiokprod.errors import AiokprodError
from aiokprod.model import TimestampType
from aiokprod.pipeline.batch_owner import BatchOwner
from aiokprod.pipeline.delivery import Delivery, DeliveryState, RecordHolder
from aiokprod.pipeline.waiter import Wakeable, wake
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records.batch import encode_records
from aiokprod.records.compression import decompress
from aiokprod.records.decoder import split_records
from aiokprod.records.headers import encode_headers

BATCH_OVERHEAD_BYTES: Final = 61  # header of a v2 batch
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME  # looked up once: it is named for each awaited record
CREATE_TIME: Final = TimestampType.CREATE_TIME
MARK_EVERY_S: Final = 0.01  # records appended within this time share one deadline: the earliest of theirs

Range = tuple[int, int]


class Segment:
    """Records `first` to `last` (exclusive) of a batch with one outcome."""

    __slots__ = ("attempts", "base_offset", "error", "first", "last", "settled_at", "timestamp_ms")

    def __init__(
        self,
        first: int,
        last: int,
        base_offset: int,
        timestamp_ms: int,
        error: AiokprodError | None,
        attempts: int,
        settled_at: float,
    ) -> None:
        self.first = first
        self.last = last
        self.base_offset = base_offset  # of the first record; -1: unknown
        self.timestamp_ms = timestamp_ms  # the broker's append time; -1: the records keep their own
        self.error = error  # None: delivered; else the pattern of which each delivery gets a copy
        self.attempts = attempts
        self.settled_at = settled_at


class Claim:
    """Records `first` to `last` (exclusive) that a `send_many` waits for, without a Delivery for each."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last


def _first_cell(cell: bytes, index: int) -> list[bytes | None]:
    """A column that begins with this record: those before it have none."""
    column = list[bytes | None]([None] * index)
    column.append(cell)
    return column


class ProducerBatch(RecordHolder):
    """Columns of records, their Deliveries' outcomes, and the bytes charged for them."""

    __slots__ = (
        "_retained",
        "_retained_codec",
        "_retained_ranges",
        "_was_restored",
        "base_timestamp_ms",
        "claims",
        "count",
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
        "segments",
        "settled_count",
        "size_bytes",
        "sizes",
        "timestamp_deltas",
        "told",
        "values",
        "watched",
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
        self.count = 0  # cells, recalled ones included
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.freed_bytes = 0  # of what was charged
        self.marks: list[tuple[int, float]] = [(0, opened_at)]  # (first index, time of its send)
        self.marked_at = opened_at
        self.segments: list[Segment] = []  # ascending
        self.settled_count = 0
        self.watched: list[Delivery] = []
        self.claims: list[Claim] = []
        self.told: set[int] | None = None  # records whose per-send timeout ended once they were stamped
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

    def live_ranges(self) -> list[Range]:
        """Ranges of records that have no outcome yet (a recalled one has)."""
        ranges: list[Range] = []
        at = 0
        for segment in self.segments:
            if segment.first > at:
                ranges.append((at, segment.first))
            at = segment.last
        if at < self.count:
            ranges.append((at, self.count))
        return ranges

    @property
    def unsettled_count(self) -> int:
        """Records without an outcome."""
        return self.count - self.settled_count

    def first_unsettled(self) -> int:
        """The oldest record without an outcome."""
        ranges = self.live_ranges()
        return ranges[0][0] if ranges else self.count

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

    # ------------------------------------------------------------------ settling
    def settle(self, segment: Segment) -> int:
        """Give these records their outcome, wake who waits for them; the bytes that are free now.

        The caller gives the bytes back to the gate and reports failures nobody waited for.
        """
        segments = self.segments
        if not segments or segments[-1].last <= segment.first:
            segments.append(segment)
        else:
            segments.insert(bisect_right(segments, segment.first, key=_first_of), segment)
        self.settled_count += segment.last - segment.first
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

    @property
    def is_finished(self) -> bool:
        """Has every record an outcome?"""
        return self.settled_count == self.count

    def _wake(self, segment: Segment) -> None:
        watched = self.watched
        if not watched:
            return
        woken: list[Wakeable] = []
        if segment.first == 0 and segment.last == self.count:
            self.watched = []
            for delivery in watched:
                delivery.fire(woken)
        else:
            self.watched = [d for d in watched if not segment.first <= d.index < segment.last]
            for delivery in watched:
                if segment.first <= delivery.index < segment.last:
                    delivery.fire(woken)
        if woken:
            self.owner.loop.call_soon(wake, woken)

    def unwatched(self, segment: Segment) -> list[int]:
        """Indices of the segment nobody waits for. Ask before `settle`."""
        if len(self.claims) == 1 and self.claims[0].first <= segment.first and segment.last <= self.claims[0].last:
            return []
        waited = {d.index for d in self.watched if d.is_watched}
        for claim in self.claims:
            waited.update(range(claim.first, claim.last))
        if self.told is not None:
            waited |= self.told
        return [index for index in range(segment.first, segment.last) if index not in waited]

    # ------------------------------------------------------------------ what a Delivery asks
    def segment_of(self, index: int) -> Segment | None:
        """The outcome of this record; None: not known yet."""
        segments = self.segments
        if not segments:
            return None
        if len(segments) == 1:
            only = segments[0]
            return only if only.first <= index < only.last else None
        at = bisect_right(segments, index, key=_first_of) - 1
        return segments[at] if at >= 0 and index < segments[at].last else None

    def is_settled(self, index: int) -> bool:
        return self.segment_of(index) is not None

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

    def claim(self, index: int) -> Claim:
        """Somebody waits for this record and some after it, without a Delivery for each."""
        claim = Claim(index, index + 1)
        self.claims.append(claim)
        return claim

    def disclaim(self, claim: Claim) -> None:
        """The `send_many` has ended early: nothing waits for these records any more."""
        self.claims.remove(claim)

    def is_heard(self, index: int) -> bool:
        """Does a `send_many` wait for this record?"""
        return any(claim.first <= index < claim.last for claim in self.claims)

    def note_told(self, index: int) -> None:
        """The failure of this record has been told before its outcome is known: it is not told twice."""
        if self.told is None:
            self.told = set()
        self.told.add(index)

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
def _first_of(segment: Segment) -> int:
    return segment.first


def _first_of_mark(mark: tuple[int, float]) -> int:
    return mark[0]
