"""One batch and one stream to a real Kafka, read back by Spark's own source."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sessions import read_back, rows_per_value

pytestmark = pytest.mark.real
ROWS = 4_000


def test_a_batch_is_written_with_every_column(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    began = (int(time.time()) - 3600) * 1_000_000 + 678_999  # not much older: brokers delete what is past its retention
    frame = spark.range(ROWS, numPartitions=3).selectExpr(
        f"'{kafka_topic}' as topic",
        "cast(id as string) as value",
        "if(id % 10 = 0, null, cast(cast(id % 100 as string) as binary)) as key",
        "cast(if(id % 4 = 0, 1, null) as int) as partition",
        f"timestamp_micros({began} + id) as timestamp",
        "if(id % 5 = 0, null, array(struct('h' as key, cast(cast(id as string) as binary) as value))) as headers",
    )
    writer = frame.write.format("aiokprod").option("kafka.bootstrap.servers", kafka_bootstrap)
    writer.option("claims.path", str(tmp_path / "claims")).mode("append").save()

    rows = {int(row["value"]): row for row in read_back(spark, kafka_bootstrap, kafka_topic).collect()}
    assert sorted(rows) == list(range(ROWS))
    for number, row in rows.items():
        assert (row["key"] is None) == (number % 10 == 0)
        assert number % 4 or row["partition"] == 1
        assert row["timestamp"].astimezone(UTC) == datetime.fromtimestamp((began + number) // 1000 / 1000, UTC)
        assert (row["headers"] is None) == (number % 5 == 0)
    assert [header["key"] for header in rows[1]["headers"]] == ["h"]
    claims = pq.read_table(tmp_path / "claims").to_pylist()
    assert sum(row["count"] for row in claims) == ROWS
    assert {row["partition"] for row in claims} == {0, 1, 2}


@pytest.mark.slow
def test_a_stream_is_written_in_batches(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    spark.range(ROWS, numPartitions=4).selectExpr("cast(id as string) as value").write.parquet(str(folder))
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 2).parquet(str(folder))
    writer = stream.writeStream.format("aiokprod").option("kafka.bootstrap.servers", kafka_bootstrap)
    writer = writer.option("topic", kafka_topic).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert [json.loads(each.json)["batchId"] for each in query.recentProgress] == [0, 1]
    assert rows_per_value(spark, kafka_bootstrap, kafka_topic) == {str(number): 1 for number in range(ROWS)}
