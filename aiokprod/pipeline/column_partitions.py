"""Which partitions the rows of a chunk go to: as `send` would choose, without a call for each row where that is possible.

Records without a key stay together for a batch: when a chunk has no others, each batch asks when it is there, else runs of
them are given their partition before, so that the order of the rows in each partition is that of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokprod.pipeline.partitioners import TopicPartitioner
from aiokprod.records.column_rows import ANY_PARTITION, ColumnTable, Rows


def choose_partitions(
    partitioner: TopicPartitioner, table: ColumnTable, rows: Rows, batch_bytes: int
) -> Sequence[int] | None:
    """A partition for each row; None: each batch asks for its own.

    Raises:
        PartitionerError: the user's partitioner raised, or named no partition.
    """
    first, last = rows.first, rows.first + rows.count
    sees_keys = table.keys is not None and partitioner.sees_keys
    if partitioner.is_sticky and not sees_keys and table.partitions is None:
        return None
    bounds = rows.bounds()
    given = [None] * rows.count if table.partitions is None else table.partitions.rows(first, last)
    keys: list[bytes | None] = [None] * rows.count
    if table.keys is not None:
        keys = table.keys.slices(first, last)
    chosen: list[int] = []
    keyless = 0
    for row, partition in enumerate(given):
        if partition is None:
            key = keys[row]
            if partitioner.is_sticky and (key is None or not sees_keys):
                partition = ANY_PARTITION
                keyless += 1
            else:
                partition = partitioner.choose(key, bounds[row])
        chosen.append(partition)
    if keyless == rows.count:
        return None
    if keyless:
        places = [row for row in range(rows.count) if chosen[row] == ANY_PARTITION]
        for begin, end, size in runs([bounds[row] for row in places], batch_bytes):
            partition = partitioner.choose(None, size)
            for place in places[begin:end]:
                chosen[place] = partition
    return chosen


def runs(sizes: Sequence[int], batch_bytes: int) -> list[tuple[int, int, int]]:
    """Records that stay together: the first, behind the last, and their bytes, `batch_bytes` of all but the last run."""
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
