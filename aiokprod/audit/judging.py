"""The verdict as one plan: claims and log meet in one shuffle, by the identity of the record; hash aggregates only.

    claims + log -> shuffle by identity -> one row per record -> its findings -> cells

A cell counts records of one kind: those without findings by topic, partition, minute and latency, the others one by one.
All later questions (totals, latencies, offenders) are answered from the cells, which are few.

The shuffle puts a record into the partition computed from its identity, and the partition's number is a key of all later
groupings: so Spark needs no second shuffle. All aggregates are numbers, so Spark can use hash aggregates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokprod.audit.findings import WRONG, Finding
from aiokprod.audit.latency import BUCKETS_PER_OCTAVE
from aiokprod.audit.sides import LOG_SIDE, OFFSET_BITS
from aiokprod.claims.rows import KEY_NOT_KNOWN, Status

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


MINUTE_US: Final = 60_000_000
_IDENTITY = ("bucket", "run", "stream", "seq", "topic")


def judged(claims: DataFrame, log: DataFrame, partitions: int) -> DataFrame:
    """Return one row per record: how often it was claimed and found, where, when, and its `findings` (bits of `Finding`).

    `claims` and `log` are in the narrow shape; the only shuffle is in here.
    """
    from pyspark.sql import functions as sf

    both = claims.unionByName(log.select(*claims.columns))
    # A record of other producers has no identity: such records are spread evenly.
    spread = sf.coalesce(sf.xxhash64("run", "stream", "seq"), sf.lit(0))
    spread = sf.when(sf.col("run").isNull(), sf.xxhash64("place")).otherwise(spread)
    both = both.withColumn("bucket", sf.pmod(spread, sf.lit(partitions)).cast("int"))
    is_claim = sf.col("side") > LOG_SIDE
    is_found = sf.col("side") == LOG_SIDE
    records = (
        both.repartitionById(partitions, "bucket")
        .groupBy(*_IDENTITY)
        .agg(
            sf.sum(is_claim.cast("long")).alias("claims"),
            sf.sum(is_found.cast("long")).alias("copies"),
            sf.max("side").alias("status"),
            sf.max(sf.when(is_claim, sf.col("place"))).alias("told_place"),
            sf.min(sf.when(is_found, sf.col("place"))).alias("first_place"),
            sf.max(sf.when(is_found, sf.col("place"))).alias("last_place"),
            sf.max(sf.when(is_claim, sf.col("key_hash"))).alias("told_key"),
            sf.min(sf.when(is_found, sf.col("key_hash"))).alias("least_key"),
            sf.max(sf.when(is_found, sf.col("key_hash"))).alias("greatest_key"),
            sf.min(sf.when(is_claim, sf.col("first_us"))).alias("send_us"),
            sf.min(sf.when(is_claim, sf.col("second_us"))).alias("ack_us"),
            sf.min(sf.when(is_found, sf.col("first_us"))).alias("append_us"),
        )
    )
    return records.withColumn("findings", _findings())


def _findings() -> Column:
    from pyspark.sql import functions as sf

    claimed, present = sf.col("claims") > 0, sf.col("copies") > 0
    status, told = sf.col("status"), sf.col("told_place")
    is_acked = status.isin(int(Status.ACKED), int(Status.ACKED_AT_LEAST_ONCE))
    is_unknown = status.isin(int(Status.POSSIBLY_PERSISTED), int(Status.POSSIBLY_REPEATED))
    may_repeat = status.isin(int(Status.ACKED_AT_LEAST_ONCE), int(Status.POSSIBLY_REPEATED))
    several = sf.col("copies") > 1
    # Only the first and the last of several copies are known: of more than two, the acknowledged one may lie between.
    elsewhere = (
        (told < sf.col("first_place"))
        | (told > sf.col("last_place"))
        | ((sf.col("copies") == 2) & (told != sf.col("first_place")) & (told != sf.col("last_place")))
    )
    other_key = (sf.col("told_key") != sf.col("least_key")) | (sf.col("told_key") != sf.col("greatest_key"))
    rules = {
        Finding.LOST: claimed & is_acked & ~present,
        Finding.DUPLICATE: several & ~(claimed & may_repeat),
        Finding.PHANTOM: ~claimed & present,
        Finding.CONTRADICTED: claimed & present & (status == int(Status.NOT_PERSISTED)),
        Finding.MISPLACED: claimed & present & is_acked & (told >= 0) & elsewhere,
        Finding.ALTERED: claimed & present & (sf.col("told_key") != KEY_NOT_KNOWN) & other_key,
        Finding.UNKNOWN_PRESENT: claimed & present & is_unknown,
        Finding.UNKNOWN_ABSENT: claimed & ~present & is_unknown,
        Finding.REPEATED: several & claimed & may_repeat,
    }
    bits = sf.lit(0)
    for finding, rule in rules.items():
        bits = bits + sf.when(rule, sf.lit(int(finding))).otherwise(sf.lit(0))
    # Two senders used this identity: it is not known which record belongs to which claim, so no other finding is possible.
    twice = sf.when(sf.col("claims") > 1, sf.lit(int(Finding.CLAIMED_TWICE)))
    return sf.when(sf.col("run").isNull(), sf.lit(int(Finding.NOT_OURS))).otherwise(sf.coalesce(twice, bits))


def cells(records: DataFrame) -> DataFrame:
    """Count records of one kind; those with findings keep their identity."""
    from pyspark.sql import functions as sf

    is_named = (sf.col("findings") != 0) & sf.col("run").isNotNull()
    somewhere = sf.when(sf.col("told_place") >= 0, sf.col("told_place")).otherwise(sf.col("first_place"))
    is_measured = (sf.col("send_us") >= 0) & (sf.col("findings").bitwiseAND(int(WRONG | Finding.CLAIMED_TWICE)) == 0)
    told_us = sf.when(
        is_measured & sf.col("status").isin(int(Status.ACKED), int(Status.ACKED_AT_LEAST_ONCE)),
        sf.col("ack_us") - sf.col("send_us"),
    )
    appended_us = sf.when(is_measured & (sf.col("append_us") >= 0), sf.col("append_us") - sf.col("send_us"))
    return (
        records.select(
            "bucket",
            "findings",
            "topic",
            sf.coalesce(sf.shiftright(somewhere, OFFSET_BITS), sf.lit(-1)).cast("int").alias("partition"),
            sf.when(sf.col("send_us") >= 0, sf.floor(sf.col("send_us") / MINUTE_US)).alias("minute"),
            _bucket(told_us).alias("ack_bucket"),
            _bucket(appended_us).alias("append_bucket"),
            *(sf.when(is_named, sf.col(name)).alias(name) for name in ("run", "stream", "seq")),
            sf.when(sf.col("claims") > 0, sf.col("status")).alias("status"),
            "claims",
            "copies",
            "told_place",
            "first_place",
            "last_place",
        )
        .groupBy(
            "bucket", "findings", "status", "topic", "partition", "minute", "ack_bucket", "append_bucket",
            "run", "stream", "seq",
        )
        .agg(
            sf.count(sf.lit(1)).alias("records"),
            sf.sum("claims").alias("claims"),
            sf.sum("copies").alias("copies"),
            sf.max("told_place").alias("told_place"),
            sf.min("first_place").alias("first_place"),
            sf.max("last_place").alias("last_place"),
        )
        .drop("bucket")
    )  # fmt: skip


def _bucket(latency_us: Column) -> Column:
    """Return the number of the latency's bucket; -1 if it is negative, as two clocks differ; null if it was not measured."""
    from pyspark.sql import functions as sf

    rounded = sf.floor(sf.log2(sf.greatest(latency_us, sf.lit(1)).cast("double")) * BUCKETS_PER_OCTAVE).cast("int")
    return sf.when(latency_us >= 0, rounded).when(latency_us < 0, sf.lit(-1))
