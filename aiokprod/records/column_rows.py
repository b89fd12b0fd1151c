"""From columns to record sections in plain Python: slices and `encode_records`. `vectorised` makes the same bytes faster.

    rows = encoder.rows(table, first, chunk_bytes) a chunk: as many rows of the table as fit
    cuts = rows.cut(partitions, batch_bytes)       batches of it: each of one partition, in the order of the rows
    rows.encode(now_ms)                            one `Section` for each cut

Pure. A chunk is bounded in bytes and in rows; everything derived from a chunk is freed with it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, Protocol

from aiokprod.errors import InvalidColumnError
from aiokprod.records.batch import FIXED_BOUND, SMALL_FIXED_BOUND, SMALL_VALUE_BYTES, encode_records
from aiokprod.records.columns import BytesColumn, HeadersColumn, IntColumn

MOST_ROWS: Final = 65_536
"""rows per chunk, at most: offset deltas then fit the 3 bytes that SMALL_FIXED_BOUND assumes"""
PLAIN_CHUNK_BYTES: Final = 262_144
ANY_PARTITION: Final = -1


class ColumnTable:
    """The columns of one `send_columns`, of equal length."""

    def __init__(
        self,
        values: BytesColumn,
        keys: BytesColumn | None,
        headers: HeadersColumn | None,
        partitions: IntColumn | None,
        timestamps: IntColumn | None,
    ) -> None:
        self.values = values
        self.keys = keys
        self.headers = headers
        self.partitions = partitions
        self.timestamps = timestamps
        self.count = values.length
        lengths = [
            ("keys", None if keys is None else keys.length),
            ("headers", None if headers is None else headers.length),
            ("partitions", None if partitions is None else partitions.length),
            ("timestamps_ms", None if timestamps is None else timestamps.length),
        ]
        for name, length in lengths:
            if length is not None and length != values.length:
                raise InvalidColumnError(f"{values.length} values and {length} {name}")

    def bounds(self, first: int, last: int) -> list[int]:
        """Return an upper bound of the bytes of each of these records in a batch."""
        sizes = self.values.sizes(first, last)
        if self.keys is None and self.headers is None:
            return [size + SMALL_FIXED_BOUND if size < SMALL_VALUE_BYTES else size + FIXED_BOUND for size in sizes]
        bounds = [size + FIXED_BOUND for size in sizes]
        if self.keys is not None:
            for row, size in enumerate(self.keys.sizes(first, last)):
                bounds[row] += size
        if self.headers is not None:
            for row, size in enumerate(self.headers.bounds(first, last)):
                bounds[row] += size
        return bounds


def table_of(values: Any, keys: Any, headers: Any, partitions: Any, timestamps: Any) -> ColumnTable:
    """Make a table of the arguments of `send_columns`; raise InvalidColumnError for a wrong one."""
    for name, given, kind in (
        ("values", values, BytesColumn),
        ("keys", keys, BytesColumn),
        ("headers", headers, HeadersColumn),
    ):
        if not isinstance(given, kind) and (given is not None or name == "values"):
            raise InvalidColumnError(f"{name} must be a {kind.__name__}, not {type(given).__name__}")
    return ColumnTable(
        values,
        keys,
        headers,
        None if partitions is None else IntColumn.of(partitions, "partitions"),
        None if timestamps is None else IntColumn.of(timestamps, "timestamps_ms"),
    )


class Cut:
    """One batch: positions `first` to `last` (exclusive) of the chunk's order."""

    __slots__ = ("bound_bytes", "first", "last", "partition")

    def __init__(self, partition: int, first: int, last: int, bound_bytes: int) -> None:
        self.partition = partition  # ANY_PARTITION: the partitioner chooses once the batch is complete
        self.first = first
        self.last = last
        self.bound_bytes = bound_bytes  # an upper bound of its section


class Section:
    """The record section of an encoded batch."""

    __slots__ = ("base_timestamp_ms", "max_timestamp_ms", "records")

    def __init__(self, records: bytes, base_timestamp_ms: int, max_timestamp_ms: int) -> None:
        self.records = records
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms


class Rows(Protocol):
    """A chunk of a table, however it is encoded."""

    first: int
    count: int

    def bounds(self) -> Sequence[int]:
        """Return an upper bound of the bytes of each record."""
        ...

    def cut(self, partitions: Sequence[int] | None, batch_bytes: int) -> list[Cut]:
        """Divide the chunk into batches of one partition each, of at most `batch_bytes` unless a single record is larger."""
        ...

    def numbers(self, cut: Cut) -> Sequence[int]:
        """Return the row numbers (in the table) of a batch, in its order."""
        ...

    def encode(self, now_ms: int) -> list[Section]:
        """Encode the batches of the last `cut`. `now_ms` dates records that have no timestamp."""
        ...


class Encoder(Protocol):
    """A way to make chunks of a table and to check its rows."""

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk, such that encoding it does not block the loop for long."""
        ...

    def rows(self, table: ColumnTable, first: int, chunk_bytes: int) -> Rows:
        """Return a chunk from row `first` on, of at most `chunk_bytes` but of at least one row."""
        ...

    def first_larger(self, table: ColumnTable, first: int, last: int, limit_bytes: int) -> tuple[int, int] | None:
        """Return the first of these rows that may take more than `limit_bytes`, and its bound; None if there is none."""
        ...

    def first_outside(self, column: IntColumn, first: int, last: int, low: int, high: int) -> int | None:
        """Return the first of these rows whose number is not null and outside of `low` to `high`; None if there is none."""
        ...


class PlainEncoder:
    """The encoder in plain Python, without other packages."""

    @property
    def chunk_bytes(self) -> int:
        return PLAIN_CHUNK_BYTES

    def rows(self, table: ColumnTable, first: int, chunk_bytes: int) -> Rows:
        return PlainRows(table, first, chunk_bytes)

    def first_larger(self, table: ColumnTable, first: int, last: int, limit_bytes: int) -> tuple[int, int] | None:
        bounds = table.bounds(first, last)
        if max(bounds) > limit_bytes:
            for row, size in enumerate(bounds):
                if size > limit_bytes:
                    return first + row, size
        return None

    def first_outside(self, column: IntColumn, first: int, last: int, low: int, high: int) -> int | None:
        for row, number in enumerate(column.rows(first, last)):
            if number is not None and not low <= number <= high:
                return first + row
        return None


class PlainRows:
    """A chunk that is encoded row by row."""

    def __init__(self, table: ColumnTable, first: int, chunk_bytes: int) -> None:
        """Take the rows from `first` on, of at most `chunk_bytes` but at least one."""
        ends = table.values.offsets
        last = min(table.count, first + MOST_ROWS)
        start: int = ends[first]
        last = max(
            first + 1, bisect_right(ends, start + chunk_bytes, first, last + 1) - 1
        )  # a first bound, by the values alone
        bounds = table.bounds(first, last)
        total = count = 0
        for size in bounds:
            total += size
            if total > chunk_bytes and count:
                break
            count += 1
        self.table = table
        self.first = first
        self.count = count
        self._bounds = bounds[:count]
        self._order: list[int] | None = None
        self._cuts: list[Cut] = []

    def bounds(self) -> Sequence[int]:
        return self._bounds

    def cut(self, partitions: Sequence[int] | None, batch_bytes: int) -> list[Cut]:
        self._cuts = []
        self._order = None
        if partitions is None:
            self._cut_run(ANY_PARTITION, list(range(self.count)), 0, batch_bytes)
            return self._cuts
        places: dict[int, list[int]] = {}
        for row, partition in enumerate(partitions):
            places.setdefault(partition, []).append(row)
        order: list[int] = []
        for partition in sorted(places):
            self._cut_run(partition, places[partition], len(order), batch_bytes)
            order += places[partition]
        self._order = order
        return self._cuts

    def _cut_run(self, partition: int, rows: list[int], at: int, batch_bytes: int) -> None:
        bounds = self._bounds
        first = at
        total = 0
        for row in rows:
            size = bounds[row]
            if total and total + size > batch_bytes:
                self._cuts.append(Cut(partition, first, at, total))
                first = at
                total = 0
            total += size
            at += 1
        if at > first:
            self._cuts.append(Cut(partition, first, at, total))

    def numbers(self, cut: Cut) -> Sequence[int]:
        order = self._order
        if order is None:
            return range(self.first + cut.first, self.first + cut.last)
        return array("q", [self.first + row for row in order[cut.first : cut.last]])

    def encode(self, now_ms: int) -> list[Section]:
        table = self.table
        first, last = self.first, self.first + self.count
        values = table.values.slices(first, last)
        keys = None if table.keys is None else table.keys.slices(first, last)
        headers = None if table.headers is None else table.headers.encoded(first, last)
        times: list[int] | None = None
        if table.timestamps is not None:
            times = [now_ms if time is None else time for time in table.timestamps.rows(first, last)]
        order = self._order
        if order is not None:
            values = [values[row] for row in order]
            keys = None if keys is None else [keys[row] for row in order]
            headers = None if headers is None else [headers[row] for row in order]
            times = None if times is None else [times[row] for row in order]
        sections: list[Section] = []
        for cut in self._cuts:
            begin, end = cut.first, cut.last
            deltas: list[int] | None = None
            if times is None:
                base_ms = newest_ms = now_ms
            else:
                base_ms = times[begin]
                newest_ms = max(times[begin:end])
                deltas = [time - base_ms for time in times[begin:end]]
            records = encode_records(
                values[begin:end],
                None if keys is None else keys[begin:end],
                None if headers is None else headers[begin:end],
                deltas,
            )
            sections.append(Section(records, base_ms, newest_ms))
        return sections
