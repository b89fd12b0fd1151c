"""`write_each_batch`: for `foreachBatch`, where an output mode is wanted that Spark refuses to Python sinks (`update`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiokprod.spark import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EachBatch:
    """Writes a micro-batch as a batch job; shows no option."""

    def __init__(self, options: Mapping[str, str], prepare: Callable[[DataFrame], DataFrame] | None) -> None:
        self._options = dict(options)
        self._prepare = prepare

    def __repr__(self) -> str:
        return f"EachBatch({len(self._options)} options)"

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What Spark calls."""
        activate(frame.sparkSession)  # `foreachBatch` may have handed the batch to a thread of its own
        rows = frame if self._prepare is None else self._prepare(frame)
        rows.write.format("aiokprod").options(**self._options).option("batchId", str(batch_id)).mode("append").save()


def write_each_batch(options: Mapping[str, str], prepare: Callable[[DataFrame], DataFrame] | None = None) -> EachBatch:
    """For `df.writeStream.outputMode("update").foreachBatch(write_each_batch({...}))`.

    Args:
        options: those of the format "aiokprod".
        prepare: from the batch to the columns to write; None: it has them.

    A batch may be written again after a failure, as every batch.
    """
    return EachBatch(options, prepare)
