"""From columns to record sections with numpy and pyarrow, without a Python object per row. The same bytes as `column_rows`.

The bytes before, between and after the values of a record are made as columns too: lengths, deltas and counts become varints
in a matrix with a row per record, of which only the used cells are taken. Arrow then joins the columns, record by record, and
the data of the joined column are the records one after the other:

    prefix               key    middle     value    behind
    length 0 delta n len bytes  length     bytes    headers

With partitions, records are joined in the order of the rows and then taken in the order of the partitions: one copy, not one
per column. Imported only where both packages are installed (`pip install "aiokprod[columns]"`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aiokprod.records.batch import FIXED_BOUND, SMALL_FIXED_BOUND, SMALL_VALUE_BYTES, encode_records
from aiokprod.records.column_rows import ANY_PARTITION, MOST_ROWS, ColumnTable, Cut, PlainRows, Rows, Section
from aiokprod.records.columns import BytesColumn, HeadersColumn, IntColumn

CHUNK_BYTES: Final = 1_048_576
FEW_ROWS: Final = 150 if isinstance(encode_records, FunctionType) else 600
"""fewer rows are encoded faster by `PlainRows`: arrays have a fixed cost, and the compiled loop stays cheaper for longer"""
Numbers = np.ndarray[Any, np.dtype[Any]]
NOTHING: Final = pa.scalar(b"", pa.binary())
NO_HEADERS: Final = pa.scalar(b"\0", pa.binary())
NULL_LENGTH: Final = 1
"""the length -1 as a zigzag number"""


class VectorEncoder:
    """The encoder that needs numpy and pyarrow."""

    @property
    def chunk_bytes(self) -> int:
        return CHUNK_BYTES

    def rows(self, table: ColumnTable, first: int, chunk_bytes: int) -> Rows:
        if table.count - first < FEW_ROWS:
            return PlainRows(table, first, chunk_bytes)
        return VectorRows(table, first, chunk_bytes)

    def first_larger(self, table: ColumnTable, first: int, last: int, limit_bytes: int) -> tuple[int, int] | None:
        bounds = bounds_of(table, first, last)
        row = int(bounds.argmax())
        if bounds[row] <= limit_bytes:
            return None
        row = int(np.flatnonzero(bounds > limit_bytes)[0])
        return first + row, int(bounds[row])

    def first_outside(self, column: IntColumn, first: int, last: int, low: int, high: int) -> int | None:
        numbers = numbers_of(column.numbers)[first:last]
        outside = (numbers < low) | (numbers > high)
        valid = valid_rows(column, first, last)
        if valid is not None:
            outside &= valid
        return first + int(outside.argmax()) if outside.any() else None


class VectorRows:
    """A chunk that is encoded column by column."""

    def __init__(self, table: ColumnTable, first: int, chunk_bytes: int) -> None:
        """Take the rows from `first` on, of at most `chunk_bytes` but at least one."""
        ends = numbers_of(table.values.offsets)
        near = ends[first : first + MOST_ROWS + 1]
        last = first + max(
            1, int(near.searchsorted(int(near[0]) + chunk_bytes, "right")) - 1
        )  # a first bound, by the values alone
        bounds = bounds_of(table, first, min(table.count, last))
        self.table = table
        self.first = first
        self.count = max(1, int(bounds.cumsum().searchsorted(chunk_bytes, "right")))
        self.sizes = bounds[: self.count]
        self._order: Numbers | None = None
        self._cuts: list[Cut] = []

    def bounds(self) -> Sequence[int]:
        sizes: list[int] = self.sizes.tolist()
        return sizes

    # ------------------------------------------------------------------ cutting
    def cut(self, partitions: Sequence[int] | None, batch_bytes: int) -> list[Cut]:
        self._cuts = []
        if partitions is None:
            self._order = None
            self._cut_run(ANY_PARTITION, 0, self.count, self.sizes.cumsum(), batch_bytes)
            return self._cuts
        chosen = np.asarray(partitions)
        if int(chosen.max()) < 2**15:
            chosen = chosen.astype(np.int16)  # numpy sorts 16 bits by counting (radix sort), not by comparing
        order = self._order = chosen.argsort(kind="stable")
        chosen = chosen[order]
        ends = self.sizes[order].cumsum()
        edges = [0, *(np.flatnonzero(chosen[1:] != chosen[:-1]) + 1).tolist(), self.count]
        for at in range(len(edges) - 1):
            self._cut_run(int(chosen[edges[at]]), edges[at], edges[at + 1], ends, batch_bytes)
        return self._cuts

    def _cut_run(self, partition: int, first: int, last: int, ends: Numbers, batch_bytes: int) -> None:
        """Cut the positions of one partition into batches; `ends` are the bytes up to the end of each position."""
        before = int(ends[first - 1]) if first else 0
        end = int(ends[last - 1])
        while end - before > batch_bytes and last - first > 1:
            stop = min(last - 1, max(first + 1, int(ends.searchsorted(before + batch_bytes, "right"))))
            total = int(ends[stop - 1])
            self._cuts.append(Cut(partition, first, stop, total - before))
            first, before = stop, total
        self._cuts.append(Cut(partition, first, last, end - before))

    def numbers(self, cut: Cut) -> Sequence[int]:
        if self._order is None:
            return range(self.first + cut.first, self.first + cut.last)
        return array("q", (self._order[cut.first : cut.last] + self.first).astype(np.int64).tobytes())

    # ------------------------------------------------------------------ encoding
    def encode(self, now_ms: int) -> list[Section]:
        table, first, last = self.table, self.first, self.first + self.count
        starts = np.array([cut.first for cut in self._cuts])
        counts = np.array([cut.last - cut.first for cut in self._cuts])
        offset_deltas = self._in_place(np.arange(self.count, dtype=np.int64) - starts.repeat(counts))
        oldest: list[int] = [now_ms] * len(starts)
        newest = oldest
        time_deltas: Numbers | None = None
        if table.timestamps is not None:
            times = numbers_of(table.timestamps.numbers)[first:last].astype(np.int64)
            valid = valid_rows(table.timestamps, first, last)
            if valid is not None:
                times[~valid] = now_ms
            if self._order is not None:
                times = times[self._order]
            oldest, newest = times[starts].tolist(), np.maximum.reduceat(times, starts).tolist()
            time_deltas = self._in_place(times - times[starts].repeat(counts))
        records = joined(table, first, last, offset_deltas << 1, time_deltas)
        if self._order is not None:
            records = records.take(pa.array(self._order))
        _, ends_buffer, data_buffer = records.buffers()
        ends = np.frombuffer(ends_buffer, dtype=np.int32)[records.offset :]
        data = memoryview(data_buffer)
        edges: list[int] = ends[np.append(starts, self.count)].tolist()
        return [
            Section(bytes(data[edges[at] : edges[at + 1]]), oldest[at], newest[at]) for at in range(len(self._cuts))
        ]

    def _in_place(self, ordered: Numbers) -> Numbers:
        """Bring numbers in the order of the partitions into the order of the rows."""
        if self._order is None:
            return ordered
        placed = np.empty_like(ordered)
        placed[self._order] = ordered
        return placed


# ---------------------------------------------------------------------- columns
def numbers_of(buffer: memoryview) -> Numbers:
    """View a buffer of int32 or int64 as an array."""
    return np.frombuffer(buffer, dtype=np.int32 if buffer.itemsize == 4 else np.int64)


def valid_rows(column: BytesColumn | IntColumn | HeadersColumn, first: int, last: int) -> Numbers | None:
    """Return which rows are not null; None if all are."""
    if column.validity is None:
        return None
    begin = column.bit_offset + first
    packed = np.frombuffer(column.validity, dtype=np.uint8)[begin >> 3 : (column.bit_offset + last + 7) >> 3]
    valid = np.unpackbits(packed, bitorder="little")[begin & 7 :][: last - first].view(np.bool_)
    return None if valid.all() else valid


def bounds_of(table: ColumnTable, first: int, last: int) -> Numbers:
    """Return the same bounds as `ColumnTable.bounds`."""
    sizes = np.diff(numbers_of(table.values.offsets)[first : last + 1]).astype(np.int64)
    if table.keys is None and table.headers is None:
        return sizes + np.where(sizes < SMALL_VALUE_BYTES, SMALL_FIXED_BOUND, FIXED_BOUND)
    sizes += FIXED_BOUND
    if table.keys is not None:
        sizes += np.diff(numbers_of(table.keys.offsets)[first : last + 1])
    if table.headers is not None and table.headers.names.length:
        ends = numbers_of(table.headers.offsets)[first : last + 1]
        counts = np.diff(ends)
        pairs = np.diff(numbers_of(table.headers.names.offsets)[ends].astype(np.int64))
        pairs += np.diff(numbers_of(table.headers.values.offsets)[ends])
        sizes += np.where(counts > 0, 5 + 10 * counts.astype(np.int64) + pairs, 0)
    return sizes


def arrow_of(column: BytesColumn, first: int, last: int) -> tuple[pa.Array, Numbers, Numbers | None]:
    """Return the rows as an Arrow array without a copy of the data, their sizes (0 for a null), and which are not null."""
    ends = numbers_of(column.offsets)[first : last + 1]
    start = int(ends[0])
    near = (ends - start).astype(np.int32)
    valid = valid_rows(column, first, last)
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    data = pa.py_buffer(column.data[start : int(ends[-1])])
    sizes = np.diff(near).astype(np.int64)
    if valid is not None:
        sizes[~valid] = 0
    return pa.Array.from_buffers(pa.binary(), last - first, [nulls, pa.py_buffer(near), data]), sizes, valid


def lengths_of(sizes: Numbers, valid: Numbers | None) -> Numbers:
    """Return the sizes as zigzag numbers, -1 for a null."""
    lengths = sizes << 1
    if valid is not None:
        lengths[~valid] = NULL_LENGTH
    return lengths


# ---------------------------------------------------------------------- records
def joined(table: ColumnTable, first: int, last: int, offset_deltas: Numbers, time_deltas: Numbers | None) -> pa.Array:
    """Return the records as an Arrow array, in the order of the rows; `offset_deltas` are zigzag numbers already."""
    values, value_sizes, value_valid = arrow_of(table.values, first, last)
    value_lengths = lengths_of(value_sizes, value_valid)
    body = 1 + value_sizes + width_of(value_lengths) + width_of(offset_deltas)
    times: Numbers | int = 0
    if time_deltas is not None:
        times = ((time_deltas << 1) ^ (time_deltas >> 63)).view(np.uint64)
        body += width_of(times)
    else:
        body += 1
    behind: list[Any] = [NO_HEADERS]
    if table.headers is not None:
        behind, header_sizes = headers_of(table.headers, first, last)
        body += header_sizes
    else:
        body += 1
    if table.keys is None:
        body += 1
        prefix = varints([body << 1, 0, times, offset_deltas, NULL_LENGTH, value_lengths])
        columns = [prefix, values]
    else:
        keys, key_sizes, key_valid = arrow_of(table.keys, first, last)
        key_lengths = lengths_of(key_sizes, key_valid)
        body += key_sizes + width_of(key_lengths)
        columns = [varints([body << 1, 0, times, offset_deltas, key_lengths]), keys, varints([value_lengths]), values]
    return join([*columns, *behind])


def headers_of(column: HeadersColumn, first: int, last: int) -> tuple[list[Any], Numbers]:
    """Return the bytes after the values as Arrow columns, and their size in each record."""
    ends = numbers_of(column.offsets)[first : last + 1].astype(np.int64)
    start, end = int(ends[0]), int(ends[-1])
    if start == end:
        return [NO_HEADERS], np.ones(last - first, dtype=np.int64)
    names, name_sizes, _ = arrow_of(column.names, start, end)
    values, value_sizes, valid = arrow_of(column.values, start, end)
    pairs = join([varints([name_sizes << 1]), names, varints([lengths_of(value_sizes, valid)]), values])
    pair_ends = np.frombuffer(pairs.buffers()[1], dtype=np.int32)[pairs.offset :]
    near = pair_ends[ends - start]
    counts, sizes = np.diff(ends), np.diff(near).astype(np.int64)
    listed = valid_rows(column, first, last)
    nulls = None
    if listed is not None:
        counts[~listed] = 0
        sizes[~listed] = 0
        nulls = pa.py_buffer(np.packbits(listed, bitorder="little"))
    lists = pa.Array.from_buffers(pa.binary(), last - first, [nulls, pa.py_buffer(near), pairs.buffers()[2]])
    return [varints([counts << 1]), lists], sizes + width_of(counts << 1)


def join(columns: list[Any]) -> pa.Array:
    """Join columns element by element; a null adds nothing."""
    options = pc.JoinOptions(null_handling="replace", null_replacement="")
    return pc.call_function("binary_join_element_wise", [*columns, NOTHING], options)


def width_of(numbers: Numbers) -> Numbers:
    """Return how many bytes these unsigned numbers take as varints."""
    widths = np.ones(len(numbers), dtype=np.int64)
    most = int(numbers.max())
    shift = 7
    while most >> shift:
        widths += numbers >= 1 << shift
        shift += 7
    return widths


def varints(fields: Sequence[Numbers | int]) -> pa.Array:
    """Encode unsigned numbers as varints, side by side, into an Arrow array with an element per row.

    An int in place of an array is one byte, the same for all rows.
    """
    count = next(len(field) for field in fields if not isinstance(field, int))
    spans = [(1, 1) if isinstance(field, int) else _span(field) for field in fields]
    total = sum(most for _, most in spans)
    cells = np.empty((count, total), dtype=np.uint8)
    used = None if all(least == most for least, most in spans) else np.ones((count, total), dtype=np.bool_)
    sizes = np.full(count, sum(least for least, _ in spans), dtype=np.int32)
    at = 0
    for field, (least, most) in zip(fields, spans, strict=True):
        if isinstance(field, int):
            cells[:, at] = field
            at += 1
            continue
        for byte in range(most):
            part = field >> (7 * byte) if byte else field
            if used is not None and byte >= least:
                is_used = part != 0
                used[:, at] = is_used
                sizes += is_used
            if byte + 1 < least:
                cells[:, at] = part & 0x7F | 0x80
            elif byte + 1 < most:
                cells[:, at] = part & 0x7F | (part > 0x7F).astype(part.dtype) << 7
            else:
                cells[:, at] = part
            at += 1
    ends = np.zeros(count + 1, dtype=np.int32)
    sizes.cumsum(out=ends[1:])
    taken = cells.reshape(-1) if used is None else cells[used]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(taken)])


def _span(numbers: Numbers) -> tuple[int, int]:
    """Return the fewest and the most bytes that one of these numbers takes."""
    least, most = int(numbers.min()), int(numbers.max())
    return max(1, (least.bit_length() + 6) // 7), max(1, (most.bit_length() + 6) // 7)
