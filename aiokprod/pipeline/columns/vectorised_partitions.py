"""The partitions of the rows of a chunk, with numpy: Java's murmur2 on a column of keys, given partitions, runs without a key.

The same numbers as `hashes`, the same choice as `column_partitions`; partitioners that must be asked are asked there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from aiokprod.pipeline.sending.hashes import murmur2
from aiokprod.pipeline.sending.partitioners import TopicPartitioner
from aiokprod.records.column_rows import ANY_PARTITION, ColumnTable, Rows
from aiokprod.records.columns import BytesColumn
from aiokprod.records.vectorised import Numbers, numbers_of, valid_rows

LONG_KEY_BYTES: Final = 256
"""longer ones are hashed one by one: a column is gone through once for each four bytes of the longest"""
M: Final = np.uint32(0x5BD1E995)


def partitions_of(partitioner: TopicPartitioner, table: ColumnTable, rows: Rows) -> Numbers | None:
    """Return a partition for each row, `ANY_PARTITION` for those that stay together; None: the partitioner must be asked."""
    first, last = rows.first, rows.first + rows.count
    chosen = np.full(rows.count, ANY_PARTITION, dtype=np.int32)
    unasked = partitioner.is_sticky
    if table.keys is not None and partitioner.by_murmur2:
        valid = valid_rows(table.keys, first, last)
        unasked = unasked or valid is None
        if not unasked:
            return None
        hashes = murmur2_column(table.keys, first, last)
        chosen = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitioner.count)).astype(np.int32)
        if valid is not None:
            chosen[~valid] = ANY_PARTITION
    elif table.keys is not None and partitioner.sees_keys:
        unasked = False
    if table.partitions is None:
        return chosen if unasked else None
    given = numbers_of(table.partitions.numbers)[first:last].astype(np.int32)
    valid = valid_rows(table.partitions, first, last)
    if valid is None:
        return given
    return np.where(valid, given, chosen) if unasked else None


def murmur2_column(column: BytesColumn, first: int, last: int) -> Numbers:
    """Return the hash of each row, unsigned; of a null it means nothing."""
    ends = numbers_of(column.offsets)[first : last + 1].astype(np.int64)
    start = int(ends[0])
    ends -= start
    size = int(ends[-1])
    data = np.zeros(size + 4, dtype=np.uint8)  # padded: the last word of the last key is read as four bytes
    data[:size] = np.frombuffer(column.data, dtype=np.uint8)[start : start + size]
    words = np.ndarray((size + 1,), dtype="<u4", buffer=data, strides=(1,))
    at, sizes = ends[:-1], np.diff(ends)
    longest = int(sizes.max())
    if longest > LONG_KEY_BYTES:
        return _with_long(data, at, sizes, words)
    return _hashed(words, at, sizes)


def _with_long(data: Numbers, at: Numbers, sizes: Numbers, words: Numbers) -> Numbers:
    hashes = np.empty(len(at), dtype=np.uint32)
    short = sizes <= LONG_KEY_BYTES
    if short.any():
        hashes[short] = _hashed(words, at[short], sizes[short])
    for row in np.flatnonzero(~short).tolist():
        begin = int(at[row])
        hashes[row] = murmur2(data[begin : begin + int(sizes[row])].tobytes())
    return hashes


def _hashed(words: Numbers, at: Numbers, sizes: Numbers) -> Numbers:
    hashes = np.uint32(0x9747B28C) ^ sizes.astype(np.uint32)
    whole = sizes >> 2
    least, most = int(whole.min()), int(whole.max())
    for number in range(most):
        rows: Any = slice(None) if number < least else np.flatnonzero(whole > number)
        k = words[at[rows] + 4 * number] * M
        k ^= k >> np.uint32(24)
        k *= M
        hashes[rows] = hashes[rows] * M ^ k
    rest = sizes & 3
    tails = words[at + (whole << 2)] & ((np.uint32(1) << (rest << 3).astype(np.uint32)) - np.uint32(1))
    hashes = np.where(rest > 0, (hashes ^ tails) * M, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= M
    hashes ^= hashes >> np.uint32(15)
    return hashes
