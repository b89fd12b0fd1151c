"""Identities for rows that Spark writes, and the claims of the job that writes them.

A sink in Spark knows of a task only that all its rows are acknowledged, and Spark may run a task again: so a job claims of
each row that it is in the log at least once. It claims its input. So rows need an identity that a second run of a task gives
them again: a number in the data, not one drawn at random.

    marked = audit.marked(orders, run=20261121, stream="shard", seq="order_id", topic="orders")
    audit.for_the_sink(marked).write.format("aiokprod")...save()
    audit.claims_of(marked).write.parquet("claims/")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokprod.audit.sides import SchemaError
from aiokprod.claims.identity import HEADER
from aiokprod.claims.rows import Status

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

IDENTITY_COLUMNS = ("aiokprod_run", "aiokprod_stream", "aiokprod_seq")
STATUSES = {"at_least_once": Status.ACKED_AT_LEAST_ONCE, "exactly_once": Status.ACKED}


def identity(run: Column, stream: Column, seq: Column) -> Column:
    """Return the 24 bytes of the identity header, from three long columns.

    Args:
        run: number of the run.
        stream: number of the sender within the run.
        seq: number of the row within the stream.
    """
    from pyspark.sql import functions as sf

    return sf.concat(*(sf.unhex(sf.lpad(sf.hex(each.cast("long")), 16, "0")) for each in (run, stream, seq)))


def marked(rows: DataFrame, *, run: int, seq: str, topic: str, stream: str | int = 0) -> DataFrame:
    """Add `topic`, the identity as the last header, and its parts as columns to the rows.

    Args:
        rows: columns for a Kafka sink (`value`, and optionally `key`, `headers`, ...).
        run: one number for this job and all its retries.
        seq: the column that identifies a row within a stream; if order is judged, it ascends within a key of a stream.
        topic: the topic the rows are written to.
        stream: the column that identifies the sender, or one number for all rows.

    Returns:
        The rows. Columns are found in any case, as the sink finds them. The sink must not get the `IDENTITY_COLUMNS`
        (`for_the_sink` drops them).

    Raises:
        SchemaError: `rows` has `topic` or `headers` twice.
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
    """Return marked rows without the columns that are not part of a record.

    Args:
        rows: the result of `marked`.
    """
    from pyspark.sql import functions as sf

    wanted = {name: column_of(rows, name) for name in ("topic", "key", "value", "headers", "partition", "timestamp")}
    return rows.select(*(sf.col(found).alias(name) for name, found in wanted.items() if found is not None))


def claims_of(rows: DataFrame, *, delivery: str = "at_least_once") -> DataFrame:
    """Return the claims of a job that wrote these rows and succeeded: each row is in the log.

    Args:
        rows: the result of `marked`.
        delivery: the sink's option: "at_least_once"; with "exactly_once" a row that is there twice is a duplicate. Then give
            the audit a log that was read with `kafka.isolation.level` set to `read_committed`.

    Returns:
        The claims, for `run`.

    Raises:
        ValueError: `delivery` is something else.
    """
    from pyspark.sql import functions as sf

    if delivery not in STATUSES:
        raise ValueError(f"delivery is {delivery!r}: it must be {' or '.join(STATUSES)}")
    key = column_of(rows, "key")
    key_hash = sf.lit(-1) if key is None else sf.coalesce(sf.crc32(sf.col(key).cast("binary")), sf.lit(-1))
    not_known = sf.lit(-1)
    return rows.select(
        *(sf.col(name).alias(name.removeprefix("aiokprod_")) for name in IDENTITY_COLUMNS),
        key_hash.cast("long").alias("key_hash"),
        "topic",
        not_known.cast("int").alias("partition"),
        not_known.cast("long").alias("offset"),
        sf.lit(int(STATUSES[delivery])).cast("byte").alias("status"),
        not_known.cast("long").alias("send_us"),
        not_known.cast("long").alias("ack_us"),
    )


def column_of(rows: DataFrame, name: str) -> str | None:
    """Return the name of a column as the rows have it, found in any case, as by the sink and Spark; None if they have none.

    Raises:
        SchemaError: the rows have the column twice, which the sink would refuse.
    """
    found = [each for each in rows.columns if each.lower() == name]
    if len(found) > 1:
        raise SchemaError(f"column {name!r} is there twice ({', '.join(found)}): select it once")
    return found[0] if found else None
