"""Rows that Spark writes, marked; the claims of their job; the identity's bytes as the producer's hook has them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from aiokprod import audit
from aiokprod.claims import HEADER, Status, encode_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_marked_rows_carry_their_identity_and_claims_name_it(spark: SparkSession) -> None:
    from pyspark.sql import functions as sf

    rows = spark.createDataFrame(
        [(-5, 0, "v", "k", [("a", b"b")]), (2**62, 1, "v", None, None)],
        "seq long, shard long, value string, key string, headers array<struct<key:string,value:binary>>",
    )
    marked = audit.marked(rows, run=-7, seq="seq", stream="shard", topic="t")
    sink = audit.for_the_sink(marked)
    assert sink.columns == ["topic", "key", "value", "headers"]
    first, second = sink.orderBy(sf.col("key").desc()).collect()
    assert [(h.key, bytes(h.value)) for h in first.headers] == [("a", b"b"), (HEADER, encode_identity(-7, 0, -5))]
    assert [(h.key, bytes(h.value)) for h in second.headers] == [(HEADER, encode_identity(-7, 1, 2**62))]
    one, other = audit.claims_of(marked).orderBy("seq").collect()
    assert (one.run, one.stream, one.seq, one.topic, one.status) == (-7, 0, -5, "t", Status.ACKED_AT_LEAST_ONCE)
    assert (one.key_hash, other.key_hash) == (zlib.crc32(b"k"), -1)
    assert (one.partition, one.offset, one.send_us, one.ack_us) == (-1, -1, -1, -1)


@pytest.mark.parametrize("is_strict", [False, True])
def test_columns_are_found_in_any_case_as_the_sink_finds_them(spark: SparkSession, is_strict: bool) -> None:
    spark.conf.set("spark.sql.caseSensitive", str(is_strict))
    try:
        rows = spark.createDataFrame(
            [(1, "k", "v", [("a", b"b")], 2, "elsewhere")],
            "id long, Key string, VALUE string, Headers array<struct<key:string,value:binary>>, Partition int, Topic string",
        )
        marked = audit.marked(rows, run=1, seq="id", topic="t")
        sink = audit.for_the_sink(marked)
        assert sink.columns == ["topic", "key", "value", "headers", "partition"]
        (row,) = sink.collect()
        assert (row.topic, row.key, row.value, row.partition) == ("t", "k", "v", 2)
        assert [header.key for header in row.headers] == ["a", HEADER]
        (claim,) = audit.claims_of(marked).collect()
        assert (claim.key_hash, claim.topic) == (zlib.crc32(b"k"), "t")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_column_that_is_there_twice_is_refused(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        rows = spark.range(1).selectExpr("id", "'v' as value", "'k' as key", "'l' as KEY")
        marked = audit.marked(rows, run=1, seq="id", topic="t")
        for use in (audit.for_the_sink, audit.claims_of):
            with pytest.raises(audit.SchemaError, match=r"'key' is there twice \(key, KEY\): select it once"):
                use(marked)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_rows_without_headers_or_key_and_with_one_stream_are_marked_too(spark: SparkSession) -> None:
    marked = audit.marked(spark.range(2).selectExpr("id", "'v' as value"), run=1, seq="id", stream=4, topic="t")
    row = audit.for_the_sink(marked).orderBy("headers").collect()[1]
    assert [bytes(header.value) for header in row.headers] == [encode_identity(1, 4, 1)]
    assert {claim.key_hash for claim in audit.claims_of(marked).collect()} == {-1}


def test_what_was_marked_and_written_is_judged_clean(spark: SparkSession) -> None:
    from pyspark.sql import functions as sf

    marked = audit.marked(spark.range(100).selectExpr("id", "'k' as key", "'v' as value"), run=1, seq="id", topic="t")
    log = marked.select(
        sf.col("key").cast("binary").alias("key"), "topic", "headers", sf.lit(0).alias("partition"),
        sf.col("id").alias("offset"), sf.timestamp_seconds(sf.lit(60)).alias("timestamp"), sf.lit(1).alias("timestampType"),
    )  # fmt: skip
    verdict = audit.run(spark, audit.claims_of(marked), log, timeline=True)
    assert (verdict.exit_status, verdict.claims, verdict.late) == (0, 100, 0)
    assert verdict.timeline == {"t": {60: 100}}
    assert verdict.latencies == []
    less = audit.run(spark, audit.claims_of(marked), log.where("offset != 50"))
    assert less.identities(audit.Finding.LOST) == [(1, 0, 50)]
