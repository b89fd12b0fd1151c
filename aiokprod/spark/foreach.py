"""`write_each_batch`: for `foreachBatch`, with an output mode that Spark refuses to Python sinks (`update`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiokprod.spark import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EachBatch:
    """A function that writes a micro-batch as a batch job; its repr shows no option."""

    def __init__(self, options: Mapping[str, str], prepare: Callable[[DataFrame], DataFrame] | None) -> None:
        self._options = dict(options)
        self._prepare = prepare

    def __repr__(self) -> str:
        return f"EachBatch({len(self._options)} options)"

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; called by Spark."""
        activate(frame.sparkSession)  # `foreachBatch` may have handed the batch to a thread of its own
        rows = frame if self._prepare is None else self._prepare(frame)
        rows.write.format("aiokprod").options(**self._options).option("batchId", str(batch_id)).mode("append").save()


def write_each_batch(options: Mapping[str, str], prepare: Callable[[DataFrame], DataFrame] | None = None) -> EachBatch:
    """Make a function for `df.writeStream.outputMode("update").foreachBatch(write_each_batch({...}))`.

    Args:
        options: the options of the format "aiokprod".
        prepare: turns the batch into the columns to write; None if it has them.

    Returns:
        The function for `foreachBatch`. Like any batch, a batch may be written again after a failure.
    """
    return EachBatch(options, prepare)
