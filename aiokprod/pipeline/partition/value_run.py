"""`ValueRun`: values of a `send_many` that go into one batch together. One per call of `SendPath.take_list`.

A value in a list is there before anything asks for it, so no code of the user runs between two of them. What `take` looks up
for each value (room, partition, open batch) is then looked up once for a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokprod.records.batch import record_size_bound


class ValueRun:
    """A window on a list, and the limits of what may be taken.

    Args:
        values: a list or a tuple.
        at: the number of the next value.
        end: the number behind the last value that may be taken.
        overhead_bytes: charged for each record beside its size.
        largest_bytes: the largest size of a record.
    """

    __slots__ = (
        "_largest_bytes",
        "at",
        "cells",
        "end",
        "overhead_bytes",
        "room_bytes",
        "sizes",
        "total_bytes",
        "values",
    )

    def __init__(self, values: Sequence[Any], at: int, end: int, overhead_bytes: int, largest_bytes: int) -> None:
        self.values = values
        self.at = at
        self.end = end
        self.overhead_bytes = overhead_bytes
        self.room_bytes = 0  # of the gate, for sizes and overheads
        self.cells: list[bytes | None] = []  # what `cut` took
        self.sizes: list[int] = []
        self.total_bytes = 0  # of `sizes`
        self._largest_bytes = largest_bytes

    def first_bytes(self) -> int:
        """Return the size of the next record; 0 if it cannot be part of a run."""
        value = self.values[self.at]
        if type(value) is not bytes:
            return 0
        size_bytes = record_size_bound(-1, len(value), 0)
        if size_bytes > self._largest_bytes or size_bytes + self.overhead_bytes > self.room_bytes:
            return 0
        return size_bytes

    def cut(self, batch_left_bytes: int, stay_bytes: int) -> None:
        """Take the next value, for which `first_bytes` was not 0, and those behind it that may go with it.

        Args:
            batch_left_bytes: room in the batch.
            stay_bytes: bytes after which the partitioner is to be asked again, counted behind the first.
        """
        cells = self.cells = []
        sizes = self.sizes = []
        overhead_bytes = self.overhead_bytes
        length = -1
        size_bytes = self.first_bytes()
        total_bytes = 0
        left_bytes = self.room_bytes
        stay_bytes += size_bytes
        # A run of shorter values ends early, and another one follows. Without a bound each run of one value would copy all.
        most = 1 + max(0, min(batch_left_bytes, stay_bytes)) // size_bytes
        for value in self.values[self.at : min(self.end, self.at + most)]:
            if type(value) is not bytes:
                break
            if len(value) != length:  # mostly they are all alike
                length = len(value)
                size_bytes = record_size_bound(-1, length, 0)
            # No other look at the largest size: behind the first value the batch has less room than that.
            if cells and (total_bytes >= stay_bytes or total_bytes + size_bytes > batch_left_bytes):
                break
            left_bytes -= size_bytes + overhead_bytes
            if left_bytes < 0:
                break
            cells.append(value)
            sizes.append(size_bytes)
            total_bytes += size_bytes
        self.total_bytes = total_bytes
        self.at += len(cells)

    @property
    def charge_bytes(self) -> int:
        """The charge of the gate for the values that `cut` took."""
        return self.total_bytes + len(self.cells) * self.overhead_bytes
