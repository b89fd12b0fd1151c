"""The order pass: within each key of each partition, are the records of a stream in the order in which they were sent?

    log -> shuffle by (run, stream, topic, partition, key) -> sort by offset -> running maximum of seq -> the late ones

A record is late if a record that was sent after it precedes it in the log; its depth is the running maximum minus its seq (at
most `DEEPEST`). A key is represented by 64 bits of its hash. Of several copies of a record the first one counts: a repeat is
not an error of order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokprod.audit.sides import OFFSET_BITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEEPEST: Final = 2**63 - 1
_LINE = ("bucket", "run", "stream", "topic", "partition", "line")


def late_records(log: DataFrame, partitions: int, *, has_repeats: bool) -> DataFrame:
    """Return the late rows of the log (in the narrow shape): run, stream, seq, topic, place, depth."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    rows = (
        log.where(sf.col("run").isNotNull())
        .select(
            "run", "stream", "seq", "topic", "place", "line",
            sf.shiftright("place", OFFSET_BITS).cast("int").alias("partition"),
        )
        .withColumn(
            "bucket",
            sf.pmod(sf.xxhash64("run", "stream", "topic", "partition", "line"), sf.lit(partitions)).cast("int"),
        )
        .repartitionById(partitions, "bucket")
    )  # fmt: skip
    if has_repeats:
        rows = rows.groupBy(*_LINE, "seq").agg(sf.min("place").alias("place"))
    before = Window.partitionBy(*_LINE).orderBy("place").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # The difference of two 64-bit numbers may not fit into 64 bits, for example if the seq of a Spark job is a hash.
    depth = sf.coalesce(sf.try_subtract("ahead", "seq"), sf.lit(DEEPEST))
    return (
        rows.withColumn("ahead", sf.max("seq").over(before))
        .where(sf.col("ahead") > sf.col("seq"))
        .select("run", "stream", "seq", "topic", "place", depth.alias("depth"))
    )
