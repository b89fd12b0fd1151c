"""The partitions of the rows of a chunk: as `send` would choose, without a call for each row where that is possible.

Rows without a key share a partition for the length of a batch. In a chunk of such rows only, the partition is chosen when each
batch is made. In a chunk that also has rows with a key or a partition, it is chosen here, for runs of rows of the size of a
batch, so that each partition gets its rows in the order of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from aiokprod.pipeline.partition.batch import BATCH_OVERHEAD_BYTES
from aiokprod.pipeline.sending.partitioners import TopicPartitioner
from aiokprod.records.column_rows import ANY_PARTITION, ColumnTable, PlainRows, Rows


def choose_partitions(
    partitioner: TopicPartitioner, table: ColumnTable, rows: Rows, batch_bytes: int
) -> Sequence[int] | None:
    """Choose a partition for each row; None: each batch asks for its own.

    Raises:
        PartitionerError: the user's partitioner raised, or named no partition.
    """
    sees_keys = table.keys is not None and partitioner.sees_keys
    if partitioner.is_sticky and not sees_keys and table.partitions is None:
        return None
    if not isinstance(rows, PlainRows):
        # Not imported: numpy has no types where this is compiled, and an array is no Sequence where it has.
        vectorised: Any = import_module("aiokprod.pipeline.columns.vectorised_partitions")
        found: Any = vectorised.partitions_of(partitioner, table, rows)
        if found is not None:
            keyless = (found == ANY_PARTITION).nonzero()[0]
            if len(keyless) == rows.count:
                return None
            if len(keyless):
                _choose_runs(partitioner, found, keyless.tolist(), rows.bounds(), batch_bytes)
            return found  # type: ignore[no-any-return]
    chosen = _chosen(partitioner, table, rows, sees_keys)
    places = [row for row, partition in enumerate(chosen) if partition == ANY_PARTITION]
    if len(places) == rows.count:
        return None
    if places:
        _choose_runs(partitioner, chosen, places, rows.bounds(), batch_bytes)
    return chosen


def _chosen(partitioner: TopicPartitioner, table: ColumnTable, rows: Rows, sees_keys: bool) -> list[int]:
    """Choose row by row: the given partition, or the partitioner's; `ANY_PARTITION` for those that stay together."""
    first, last = rows.first, rows.first + rows.count
    bounds = rows.bounds()
    given = [None] * rows.count if table.partitions is None else table.partitions.rows(first, last)
    keys: list[bytes | None] = [None] * rows.count
    if table.keys is not None:
        keys = table.keys.slices(first, last)
    values: list[bytes | None] = []
    if partitioner.sees_values:
        values = table.values.slices(first, last)
    chosen: list[int] = []
    for row, partition in enumerate(given):
        if partition is not None:
            chosen.append(partition)
            continue
        key = keys[row]
        if partitioner.is_sticky and (key is None or not sees_keys):
            chosen.append(ANY_PARTITION)
        else:
            chosen.append(partitioner.choose_for(key, values[row] if values else None, bounds[row]))
    return chosen


def _choose_runs(
    partitioner: TopicPartitioner, chosen: Any, places: list[int], bounds: Sequence[int], batch_bytes: int
) -> None:
    """Choose for the rows without a key, at these places: a run as large as a batch goes to one partition."""
    for begin, end, size in runs([bounds[row] for row in places], batch_bytes):
        partition = partitioner.choose(None, size + BATCH_OVERHEAD_BYTES)  # a full batch: batch_size
        for place in places[begin:end]:
            chosen[place] = partition


def runs(sizes: Sequence[int], batch_bytes: int) -> list[tuple[int, int, int]]:
    """Return runs of records that share a partition: (first, last + 1, bytes); all but the last count as `batch_bytes`."""
    found: list[tuple[int, int, int]] = []
    first = total = 0
    for at, size in enumerate(sizes):
        if total and total + size > batch_bytes:
            found.append((first, at, batch_bytes))
            first, total = at, 0
        total += size
    if total:
        found.append((first, len(sizes), total))
    return found
