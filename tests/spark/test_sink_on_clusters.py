"""Executors in processes of their own: one is killed, one hangs and Spark runs a copy of its task elsewhere."""

from __future__ import annotations

from pathlib import Path

import mishaps
import pytest
from sessions import rows_per_value, spark_session
from standalone import standalone_cluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROWS = 20_000
ALL = {str(number) for number in range(ROWS)}


def test_an_executor_that_is_killed_loses_nothing(kafka_bootstrap: str, kafka_topic: str, tmp_path: Path) -> None:
    with spark_session("local-cluster[2,1,1024]", tmp_path, spark__executor__memory="512m") as spark:
        numbers = spark.range(ROWS, numPartitions=4).selectExpr("cast(id as string) as value")
        frame = numbers.select(mishaps.executor_dies(tmp_path / "flag")("value").alias("value"))
        writer = frame.write.format("aiokprod").option("kafka.bootstrap.servers", kafka_bootstrap)
        writer.option("topic", kafka_topic).mode("append").save()
        assert (tmp_path / "flag").exists()
        assert set(rows_per_value(spark, kafka_bootstrap, kafka_topic)) == ALL


def test_a_task_that_hangs_is_written_by_its_copy(kafka_bootstrap: str, kafka_topic: str, tmp_path: Path) -> None:
    eager = {
        "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.3",
        "spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "100ms", "spark.executor.memory": "512m",
    }  # fmt: skip
    options = {name.replace(".", "__"): value for name, value in eager.items()}
    with standalone_cluster(tmp_path) as url, spark_session(url, tmp_path, **options) as spark:
        numbers = spark.range(ROWS, numPartitions=4).selectExpr("cast(id as string) as value")
        frame = numbers.select(mishaps.task_hangs(tmp_path / "flag")("value").alias("value"))
        writer = frame.write.format("aiokprod").option("kafka.bootstrap.servers", kafka_bootstrap)
        writer.option("topic", kafka_topic).option("claims.path", str(tmp_path / "claims")).mode("append").save()
        assert (tmp_path / "flag").exists()
        found = rows_per_value(spark, kafka_bootstrap, kafka_topic)
        assert set(found) == ALL
        claims = spark.read.parquet(str(tmp_path / "claims")).collect()
        assert sum(row["count"] for row in claims) == ROWS
        assert max(row["attempt"] for row in claims) >= 1  # the copy won
