"""The two sides of an audit in one narrow shape: the claims, and the records of the log.

Each row of either becomes numbers and a topic:

    run, stream, seq, topic    the record; run is null for a record of the log that is not of the audited runs
    side                       its status (0 and above) for a claim, -1 for a record of the log
    place                      partition * 2**42 + offset; -1: not known
    key_hash                   CRC-32 of the key; -1: no key; -2: not known
    first_us                   claim: when it was sent; log: when the broker appended it; -1: not known
    second_us                  claim: when it had its outcome
    line                       log only: 64 bits of the key's hash, for order, as two keys may well have the same CRC-32

Partition and offset are one number so that the minimum of several is one real place, not a mixture of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiokprod.claims.identity import HEADER, SIZE_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OFFSET_BITS: Final = 42  # offsets up to 4.4 * 10**12, partitions up to 2**21
CLAIM_COLUMNS: Final = (
    "run", "stream", "seq", "key_hash", "topic", "partition", "offset", "status", "send_us", "ack_us",
)  # fmt: skip
LOG_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
LOG_SIDE: Final = -1


class SchemaError(ValueError):
    """A required column is missing from the claims or the log."""


def claim_rows(claims: DataFrame) -> DataFrame:
    """Convert claims, as `aiokprod.claims` writes them or `claims_of` makes them, to the narrow shape."""
    from pyspark.sql import functions as sf

    _check(claims, CLAIM_COLUMNS, "claims")
    return claims.select(
        "run",
        "stream",
        "seq",
        "topic",
        sf.col("status").cast("int").alias("side"),
        sf.when((sf.col("partition") >= 0) & (sf.col("offset") >= 0), place(sf.col("partition"), sf.col("offset")))
        .otherwise(sf.lit(-1).cast("long"))
        .alias("place"),
        "key_hash",
        sf.col("send_us").alias("first_us"),
        sf.col("ack_us").alias("second_us"),
    )


def log_rows(log: DataFrame, runs: Sequence[int]) -> DataFrame:
    """Convert what Spark's Kafka source reads (`includeHeaders`), or a dump of it, to the narrow shape."""
    from pyspark.sql import functions as sf

    _check(log, LOG_COLUMNS, "log")
    found = log.select(
        "topic",
        place(sf.col("partition"), sf.col("offset")).alias("place"),
        sf.coalesce(sf.crc32("key"), sf.lit(-1).cast("long")).alias("key_hash"),
        sf.xxhash64("key").alias("line"),
        sf.when(sf.col("timestampType") == 1, sf.unix_micros("timestamp"))
        .otherwise(sf.lit(-1).cast("long"))
        .alias("first_us"),
        _identity(sf.col("headers")).alias("identity"),
    )
    run = _number(sf.col("identity"), 0)
    found = found.withColumn("run", sf.when(run.isin(list(runs)), run))
    return found.select(
        "run",
        sf.when(sf.col("run").isNotNull(), _number(sf.col("identity"), 1)).alias("stream"),
        sf.when(sf.col("run").isNotNull(), _number(sf.col("identity"), 2)).alias("seq"),
        "topic",
        sf.lit(LOG_SIDE).alias("side"),
        "place",
        "key_hash",
        "first_us",
        sf.lit(-1).cast("long").alias("second_us"),
        "line",
    )


def place(partition: Column, offset: Column) -> Column:
    """Combine partition and offset into one number that keeps the order of offsets."""
    from pyspark.sql import functions as sf

    return sf.shiftleft(partition.cast("long"), OFFSET_BITS).bitwiseOR(offset.cast("long"))


def partition_and_offset(number: int) -> tuple[int, int]:
    """Split a number made by `place`; (-1, -1) if it is not known."""
    return (number >> OFFSET_BITS, number & (1 << OFFSET_BITS) - 1) if number >= 0 else (-1, -1)


def _identity(headers: Column) -> Column:
    """Return the value of the last identity header, which is usually the last header; null if there is none.

    A record that was forwarded with its headers has older identities before it.
    """
    from pyspark.sql import functions as sf

    def is_it(header: Column) -> Column:
        return (header["key"] == HEADER) & (sf.octet_length(header["value"]) == SIZE_BYTES)

    last = sf.try_element_at(headers, sf.lit(-1))
    return sf.when(is_it(last), last["value"]).otherwise(
        sf.try_element_at(sf.filter(headers, is_it), sf.lit(-1))["value"]
    )


def _number(identity: Column, index: int) -> Column:
    """Return one of the three integers of an identity."""
    from pyspark.sql import functions as sf

    return sf.conv(sf.hex(sf.substring(identity, 8 * index + 1, 8)), 16, -10).cast("long")


def _check(side: DataFrame, columns: Sequence[str], name: str) -> None:
    missing = [column for column in columns if column not in side.columns]
    if missing:
        raise SchemaError(f"the {name} have no column {', '.join(missing)}; they have {', '.join(side.columns)}")
