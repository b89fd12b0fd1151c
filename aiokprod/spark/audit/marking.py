"""Identities for rows that Spark writes, and the claims of the job that writes them.

A sink in Spark tells of a task that all its rows are acknowledged, and Spark may run a task again: so a job claims of each
row that it is in the log at least once. What it claims is what it was given, which is why rows need an identity that a
second run of a task gives them again: a number of the data's own, not one that is drawn.

    marked = audit.marked(orders, run=20261121, stream="shard", seq="order_id", topic="orders")
    audit.for_the_sink(marked).write.format("aiokprod")...save()
    audit.claims_of(marked).write.parquet("claims/")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokprod.claims.identity import HEADER
from aiokprod.claims.rows import Status
from aiokprod.spark.audit.sides import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

IDENTITY_COLUMNS = ("aiokprod_run", "aiokprod_stream", "aiokprod_seq")


def identity(run: Column, stream: Column, seq: Column) -> Column:
    """The 24 bytes of the identity header, of three long columns."""
    from pyspark.sql import functions as sf

    return sf.concat(*(sf.unhex(sf.lpad(sf.hex(each.cast("long")), 16, "0")) for each in (run, stream, seq)))


def marked(rows: DataFrame, *, run: int, seq: str, topic: str, stream: str | int = 0) -> DataFrame:
    """The rows with `topic`, with the identity as their last header, and with its parts as columns.

    Args:
        rows: what a sink for Kafka takes (`value`, and `key`, `headers`, ... if there are any).
        run: one number for this job and all its retries.
        seq: the column that tells rows of a stream apart; where order matters it ascends within a key of a stream.
        topic: where they go.
        stream: the column that names the sender; or one number for all.

    Columns are found in any case, as the sink finds them. The sink must not be given those of `IDENTITY_COLUMNS`
    (`for_the_sink` drops them).
    """
    from pyspark.sql import functions as sf

    for name in ("topic", "headers"):
        given = column_of(rows, name)
        if given is not None:
            rows = rows.withColumnRenamed(given, name)
    numbers = (sf.lit(run), sf.lit(stream) if isinstance(stream, int) else sf.col(stream), sf.col(seq))
    header = sf.struct(sf.lit(HEADER).alias("key"), identity(*numbers).alias("value"))
    headers = sf.array(header)
    if "headers" in rows.columns:
        headers = sf.concat(sf.coalesce("headers", sf.array().cast("array<struct<key:string,value:binary>>")), headers)
    columns = {name: number.cast("long") for name, number in zip(IDENTITY_COLUMNS, numbers, strict=True)}
    return rows.withColumns({"topic": sf.lit(topic), "headers": headers, **columns})


def for_the_sink(rows: DataFrame) -> DataFrame:
    """Marked rows without the columns that are no record's."""
    from pyspark.sql import functions as sf

    wanted = {name: column_of(rows, name) for name in ("topic", "key", "value", "headers", "partition", "timestamp")}
    return rows.select(*(sf.col(found).alias(name) for name, found in wanted.items() if found is not None))


def claims_of(rows: DataFrame) -> DataFrame:
    """What a job that wrote these marked rows, and ended well, claims: each is in the log at least once."""
    from pyspark.sql import functions as sf

    key = column_of(rows, "key")
    key_hash = sf.lit(-1) if key is None else sf.coalesce(sf.crc32(sf.col(key).cast("binary")), sf.lit(-1))
    not_known = sf.lit(-1)
    return rows.select(
        *(sf.col(name).alias(name.removeprefix("aiokprod_")) for name in IDENTITY_COLUMNS),
        key_hash.cast("long").alias("key_hash"),
        "topic",
        not_known.cast("int").alias("partition"),
        not_known.cast("long").alias("offset"),
        sf.lit(int(Status.ACKED_AT_LEAST_ONCE)).cast("byte").alias("status"),
        not_known.cast("long").alias("send_us"),
        not_known.cast("long").alias("ack_us"),
    )


def column_of(rows: DataFrame, name: str) -> str | None:
    """How the rows have this column: names are found in any case, as the sink and Spark find them. None: they have none.

    Raises:
        SchemaError: they have it twice, and the sink would not take them.
    """
    found = [each for each in rows.columns if each.lower() == name]
    if len(found) > 1:
        raise SchemaError(f"column {name!r} is there twice ({', '.join(found)}): select it once")
    return found[0] if found else None
