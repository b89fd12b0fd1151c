"""`FilledBatch`: the records of a batch that the program fills, until its partition takes them as one batch.

    RecordBatch.append -> add ... add -> Parking.place (its room) -> PartitionQueue.append_batch

Invariant: its bytes, with what is charged beside them, fit into one request and into `buffer_memory`.
"""

from __future__ import annotations

from aiokprod.pipeline.partition.batch import BATCH_OVERHEAD_BYTES
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES


class FilledBatch:
    """Columns of records that wait to be one batch."""

    __slots__ = (
        "_buffer_bytes",
        "_limit_bytes",
        "headers",
        "is_given",
        "is_taken",
        "keys",
        "size_bytes",
        "sizes",
        "times_ms",
        "values",
    )

    def __init__(self, limit_bytes: int, buffer_bytes: int) -> None:
        """Make an empty one.

        Args:
            limit_bytes: of the batch, at most; a record that is larger may be in it alone.
            buffer_bytes: buffer_memory.
        """
        self._limit_bytes = limit_bytes
        self._buffer_bytes = buffer_bytes
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.headers: list[bytes | None] = []  # encoded
        self.times_ms: list[int] = []
        self.sizes: list[int] = []  # upper bounds, as everywhere
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.is_given = False  # a call of `send_batch` has it
        self.is_taken = False  # a partition has it; that writes it where it takes the batch

    @property
    def charge_bytes(self) -> int:
        """The bytes to charge for it."""
        return self.size_bytes - BATCH_OVERHEAD_BYTES + len(self.values) * RECORD_OVERHEAD_BYTES

    def add(
        self, value: bytes | None, key: bytes | None, headers: bytes | None, timestamp_ms: int, size_bytes: int
    ) -> bool:
        """Add a record; False if there is no room. The first one always has, as it could be sent alone."""
        if self.values and (
            self.size_bytes + size_bytes > self._limit_bytes
            or self.charge_bytes + size_bytes + RECORD_OVERHEAD_BYTES > self._buffer_bytes
        ):
            return False
        self.values.append(value)
        self.keys.append(key)
        self.headers.append(headers)
        self.times_ms.append(timestamp_ms)
        self.sizes.append(size_bytes)
        self.size_bytes += size_bytes
        return True

    def __repr__(self) -> str:
        return f"<FilledBatch {len(self.values)} records {self.size_bytes} bytes>"
