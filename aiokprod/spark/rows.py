"""From Arrow record batches to the arguments of `send_columns`: one topic, bounded bytes, columns of the right types.

Nothing is copied if a batch has one topic; rows of several topics are separated, each topic in the order of its rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from aiokprod.spark.errors import RowError
from aiokprod.spark.fingerprint import row_hashes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiokprod.spark.schema import ColumnPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one topic, as Arrow arrays.

    Args:
        first: the position in the task of the first row.
        places: the position of each row in its batch; None if they follow each other, without rows of other topics.
        timestamps: int64, milliseconds.
    """

    topic: str
    first: int
    places: NDArray[np.int64] | None
    values: Any
    keys: Any
    headers: Any
    partitions: Any
    timestamps: Any

    def __len__(self) -> int:
        return len(self.values)

    @property
    def bytes(self) -> int:
        """The size of keys, values and headers."""
        return sum(column.nbytes for column in (self.values, self.keys, self.headers) if column is not None)

    def position(self, row: int) -> int:
        """Return the position of a row in the task, counted from 0."""
        return self.first + (row if self.places is None else int(self.places[row]))

    def fingerprints(self) -> NDArray[np.uint64]:
        """Return the fingerprint of each row."""
        return row_hashes(self.values, self.keys, self.headers)


def pieces(batch: Any, plan: ColumnPlan, topic: str | None, first: int, most_bytes: int) -> Iterator[Rows]:
    """Split a record batch into pieces of one topic and about `most_bytes`; a larger row is a piece of its own.

    Args:
        topic: of all rows; None takes it from the column.
        first: the number of earlier rows of the task.

    Raises:
        RowError: a row has no topic; no row of its batch was sent.
    """
    if topic is None and batch.column(plan.topic).null_count:
        row = first + int(np.argmax(batch.column(plan.topic).is_null().to_numpy(zero_copy_only=False)))
        raise RowError(f"the topic of row {row} of this task is null: name one, or set the option 'topic'", row=row)
    parts = min(batch.num_rows, -(-batch.nbytes // most_bytes)) or 1
    step = -(-batch.num_rows // parts) or 1
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)
        if topic is not None:
            yield _rows(part, plan, topic, first + start, None)
        else:
            yield from _by_topic(part, plan, first + start)


def _by_topic(batch: Any, plan: ColumnPlan, first: int) -> Iterator[Rows]:
    names = batch.column(plan.topic).dictionary_encode()
    topics = names.dictionary.to_pylist()
    if len(topics) == 1:
        yield _rows(batch, plan, topics[0], first, None)
        return
    codes = names.indices.to_numpy()
    places = np.argsort(codes, kind="stable")
    for topic, rows in zip(topics, np.split(places, np.cumsum(np.bincount(codes))[:-1]), strict=True):
        yield _rows(batch.take(pa.array(rows)), plan, topic, first, rows)


def _rows(batch: Any, plan: ColumnPlan, topic: str, first: int, places: NDArray[np.int64] | None) -> Rows:
    def column(place: int | None) -> Any:
        return None if place is None else batch.column(place)

    return Rows(
        topic=topic,
        first=first,
        places=places,
        values=column(plan.value),
        keys=_if_any(column(plan.key)),
        headers=_if_any(column(plan.headers)),
        partitions=_if_any(column(plan.partition)),
        timestamps=_milliseconds(_if_any(column(plan.timestamp))),
    )


def _if_any(column: Any) -> Any:
    """Return None for a column without a single value."""
    return None if column is None or column.null_count == len(column) else column


def _milliseconds(column: Any) -> Any:
    """Convert Spark's microseconds to Kafka's milliseconds; a row without a time gets the current one."""
    if column is None:
        return None
    now = int(time.time() * 1000)
    return pa.array(column.cast(pa.int64()).fill_null(now * 1000).to_numpy() // 1000)
