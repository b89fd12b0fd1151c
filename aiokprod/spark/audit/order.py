"""The order pass: within each key of each partition, did the records of a stream stay in the order they were sent in?

    log -> shuffle by (run, stream, topic, partition, key) -> sort by offset -> running maximum of seq -> the late ones

A record is late if one that was sent after it stands before it; its depth is how far the running maximum is ahead of
its seq. Of several copies of a record the first counts: a repeat is no matter of order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokprod.spark.audit.sides import OFFSET_BITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LINE = ("bucket", "run", "stream", "topic", "partition", "key_hash")


def late_records(log: DataFrame, partitions: int, *, has_repeats: bool) -> DataFrame:
    """Rows of the log, in the narrow shape, that are late: run, stream, seq, topic, place, key_hash, depth."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    rows = (
        log.where(sf.col("run").isNotNull())
        .select(
            "run", "stream", "seq", "topic", "place", "key_hash",
            sf.shiftright("place", OFFSET_BITS).cast("int").alias("partition"),
        )
        .withColumn(
            "bucket",
            sf.pmod(sf.xxhash64("run", "stream", "topic", "partition", "key_hash"), sf.lit(partitions)).cast("int"),
        )
        .repartitionById(partitions, "bucket")
    )  # fmt: skip
    if has_repeats:
        rows = rows.groupBy(*_LINE, "seq").agg(sf.min("place").alias("place"))
    before = Window.partitionBy(*_LINE).orderBy("place").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        rows.withColumn("ahead", sf.max("seq").over(before))
        .where(sf.col("ahead") > sf.col("seq"))
        .select("run", "stream", "seq", "topic", "place", "key_hash", (sf.col("ahead") - sf.col("seq")).alias("depth"))
    )
