"""`ColumnBatch`: a batch of `send_columns`, made from an encoded section of records instead of one object per record.

Each outcome is reported to the `BatchListener` at once, so the batch stores none. Sizes and timestamps of single records are
read out of the section only when they are needed: when the batch is split, when the broker names a record that it refuses,
or when a part of the batch settles before the rest.

Invariant: the bytes charged for the batch are fixed when it is made, and are freed part by part, each exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiokprod.pipeline.partition.batch import BATCH_OVERHEAD_BYTES, BatchOwner, ProducerBatch, Range, Segment
from aiokprod.pipeline.partition.kept_records import KeptRecords
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records.column_rows import Section
from aiokprod.records.compression import decompress
from aiokprod.records.decoder import record_sizes

COLUMN_BATCH_BYTES: Final = 2_000
"""charged for the batch itself: its objects, its entry, its place in the queues"""
ROW_NUMBER_BYTES: Final = 8
"""charged for each row if the rows of the batch are not contiguous in the columns"""


class BatchListener:
    """The receiver of the outcomes of a batch of columns."""

    __slots__ = ("taken", "unsettled", "unused_bytes")

    is_listening: bool
    """True while the caller awaits the report; otherwise failures go to `on_delivery_error`."""
    unused_bytes: int
    """charged for the chunk at hand, and not for a batch yet; a partition writes it where it takes a batch, and the next two"""
    taken: int
    """rows that are in batches, whatever became of them"""
    unsettled: int
    """rows that are in batches and have no outcome"""

    def settled(self, batch: ColumnBatch, segment: Segment, size_bytes: int) -> None:
        """Take in the outcome of these records, and their bytes."""
        raise AssertionError("abstract")


class ColumnBatch(ProducerBatch):
    """A batch that begins with its encoded section."""

    __slots__ = ("_charge_bytes", "_listener", "_plain_bytes", "rows")

    def __init__(
        self,
        owner: BatchOwner,
        opened_at: float,
        delivery_timeout_s: float,
        generation: int,
        section: Section,
        rows: Sequence[int],
        charge_bytes: int,
        listener: BatchListener,
    ) -> None:
        """Make a sealed batch; `rows`: the row of each record in the columns of the caller."""
        super().__init__(owner, opened_at, delivery_timeout_s, generation, 0, section.base_timestamp_ms)
        self.max_timestamp_ms = section.max_timestamp_ms
        self.count = len(rows)
        self.rows = rows
        self._plain_bytes = len(section.records)
        self.size_bytes = BATCH_OVERHEAD_BYTES + self._plain_bytes
        self._charge_bytes = charge_bytes
        self._listener = listener
        self._retained = section.records
        self._retained_ranges = [(0, self.count)]

    def has_shown_records(self) -> bool:
        return False

    @property
    def charged_bytes(self) -> int:
        return self._charge_bytes - self.freed_bytes

    def encode(self, ranges: list[Range]) -> bytes | bytearray:
        retained = self._retained
        if retained is not None and self._retained_codec == "none" and ranges == self._retained_ranges:
            return retained
        self._know_records()
        return super().encode(ranges)

    def release_columns(self, section: bytes | bytearray, codec: str, ranges: list[Range]) -> None:
        if self._retained is not None and codec != self._retained_codec:
            self._retained = section  # compressed, in the place of the plain one
            self._retained_codec = codec
        super().release_columns(section, codec, ranges)

    def _know_records(self) -> None:
        """Read the size and the timestamp of each record out of the section."""
        if self.sizes is not None or self._retained is None:
            return
        plain = decompress(self._retained_codec, bytes(self._retained), self.size_bytes)
        self.sizes, self.timestamp_deltas = record_sizes(plain, self.count)

    def bytes_of(self, ranges: list[Range]) -> int:
        if ranges == [(0, self.count)]:
            return self._plain_bytes
        self._know_records()
        return super().bytes_of(ranges)

    def fitting(self, ranges: list[Range], limit_bytes: int) -> int:
        self._know_records()
        return super().fitting(ranges, limit_bytes)

    def keep(self, indices: Sequence[int], segment: Segment) -> KeptRecords:
        if segment.last - segment.first < self.count:
            self._know_records()  # records are to be cut out of the section
        return super().keep(indices, segment)

    def settle(self, segment: Segment) -> int:
        if segment.last - segment.first < self.count:
            self._know_records()
        return super().settle(segment)

    def _wake(self, segment: Segment) -> None:
        size_bytes = self._plain_bytes
        if segment.last - segment.first < self.count:
            size_bytes = self.bytes_between(segment.first, segment.last)
        self._listener.settled(self, segment, size_bytes)

    def unwatched(self, segment: Segment) -> list[int]:
        return [] if self._listener.is_listening else list(range(segment.first, segment.last))

    def has_deliveries(self) -> bool:
        return False

    def metadata(self, index: int) -> RecordMetadata | None:
        self._know_records()
        found = super().metadata(index)
        if found is not None:  # of a section only the sizes of whole records are read
            found.serialized_key_size = found.serialized_value_size = None
        return found

    def size_of(self, index: int) -> int:
        self._know_records()
        return super().size_of(index)
