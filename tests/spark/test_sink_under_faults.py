"""Jobs in which a task, a worker or a broker dies: nothing is lost. One process of Spark, a real Kafka."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import mishaps
import pytest
from pyspark.sql import DataFrame, SparkSession
from sessions import rows_per_value

from aiokprod.testing.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROWS = 40_000
ALL = {str(number) for number in range(ROWS)}


def numbers(spark: SparkSession, tasks: int = 4) -> DataFrame:
    return spark.range(ROWS, numPartitions=tasks).selectExpr("cast(id as string) as value")


def write(frame: DataFrame, servers: str, topic: str, **options: str) -> None:
    writer = frame.write.format("aiokprod").option("kafka.bootstrap.servers", servers).option("topic", topic)
    writer.options(**{name.replace("__", "."): value for name, value in options.items()}).mode("append").save()


def test_a_task_that_fails_is_run_again_and_may_repeat_its_rows(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    frame = numbers(spark).select(mishaps.task_fails(tmp_path / "flag")("value").alias("value"))
    write(frame, kafka_bootstrap, kafka_topic, claims__path=str(tmp_path / "claims"))
    assert (tmp_path / "flag").exists()
    found = rows_per_value(spark, kafka_bootstrap, kafka_topic)
    assert set(found) == ALL
    assert max(found.values()) <= 2
    claims = spark.read.parquet(str(tmp_path / "claims")).collect()
    assert sorted({row["attempt"] for row in claims}) == [0, 1]
    assert sum(row["count"] for row in claims) == ROWS  # what the winners wrote, and nothing of the loser


def test_a_worker_that_is_killed_loses_nothing(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    (tmp_path / "died").mkdir()
    dies = mishaps.other_workers_die(tmp_path / "died", (kafka_bootstrap, kafka_topic))("value").alias("value")
    long = f"lpad(cast(id as string), {mishaps.LONG_ROWS}, '0') as value"
    frame = spark.range(8_000, numPartitions=4).selectExpr(long).select(dies)
    claims = str(tmp_path / "claims")
    for name, value in mishaps.SMALL_BATCHES.items():
        spark.conf.set(name, value)
    try:
        write(frame, kafka_bootstrap, kafka_topic, claims__path=claims, kafka__linger__ms="0")
    finally:
        for name in mishaps.SMALL_BATCHES:
            spark.conf.unset(name)
    killed = mishaps.killed_attempts(tmp_path / "died")
    assert killed  # in the middle of a task, and not idle workers alone
    won = {row["task_partition"]: row["attempt"] for row in spark.read.parquet(claims).collect()}
    assert all(won[partition] > attempt for partition, attempt in killed), (killed, won)
    found = rows_per_value(spark, kafka_bootstrap, kafka_topic)
    assert set(found) == set(map(mishaps.long_row, range(8_000)))
    assert max(found.values()) > 1  # what the killed attempt had sent


def test_a_broker_that_dies_in_the_middle_of_a_job_costs_nothing(
    spark: SparkSession, kafka_cluster: KafkaCluster, kafka_topic: str
) -> None:
    victim = kafka_cluster.brokers[kafka_cluster.leaders(kafka_topic)[0]]
    done = threading.Event()

    def kill_when_written() -> None:
        while not done.is_set() and not sum(kafka_cluster.end_offsets(kafka_topic)):
            done.wait(0.01)
        victim.kill()

    killer = threading.Thread(target=kill_when_written)
    killer.start()
    try:
        # Small requests, so that the job lasts: 100 batches of Spark's, each acknowledged by itself.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
        write(numbers(spark, 2), kafka_cluster.bootstrap_servers, kafka_topic, maxInFlightBytes="65536")
    finally:
        done.set()
        killer.join()
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        victim.start()
        kafka_cluster.wait_ready()
    found = rows_per_value(spark, kafka_cluster.bootstrap_servers, kafka_topic)
    assert set(found) == ALL
    assert set(found.values()) == {1}  # no task failed, and the producer is idempotent


def test_a_stream_restarts_from_its_checkpoint(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "rows", str(tmp_path / "checkpoint")
    claims = tmp_path / "claims"
    numbers(spark, 3).write.parquet(str(folder))
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(folder))
    failing = stream.select(mishaps.task_fails(tmp_path / "flag")("value").alias("value"))
    writer = failing.writeStream.format("aiokprod").option("kafka.bootstrap.servers", kafka_bootstrap)
    writer = writer.option("topic", kafka_topic).option("checkpointLocation", checkpoint)
    writer = writer.option("claims.path", str(claims)).trigger(processingTime="0 seconds")

    query = writer.start()
    query.processAllAvailable()
    query.stop()
    first_run = {json.loads(each.json)["batchId"] for each in query.recentProgress}
    numbers(spark, 1).selectExpr("concat('again-', value) as value").write.mode("append").parquet(str(folder))
    query = writer.start()
    query.processAllAvailable()
    query.stop()
    second_run = {json.loads(each.json)["batchId"] for each in query.recentProgress if each.numInputRows}
    assert max(first_run) < min(second_run)
    found = rows_per_value(spark, kafka_bootstrap, kafka_topic)
    assert set(found) == ALL | {f"again-{number}" for number in ALL}
    names = {path.name.rsplit("-", 1)[0] for path in claims.iterdir()}
    assert len(names) == 1  # the query keeps its name over restarts
    rows = spark.read.parquet(str(claims)).groupBy("batch_id").sum("count").collect()
    assert sum(row["sum(count)"] for row in rows) == 2 * ROWS
