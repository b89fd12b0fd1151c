"""Refused options of a job: Spark shows the reason, and never a secret."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from aiokprod.spark import register, write_each_batch
from aiokprod.testing.mock import MockCluster

pytestmark = pytest.mark.slow
CANARY = "canary-7d1f"
SECRETS = {
    "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "user",
    "kafka.sasl.password": CANARY,
}  # fmt: skip


def refusal(frame: DataFrame, mode: str = "append", **options: str) -> str:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    with pytest.raises(PySparkException) as caught:
        frame.write.format("aiokprod").options(**given).mode(mode).save()
    return str(caught.value)


def test_what_can_be_known_is_said_before_any_task(spark: SparkSession) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) as value")
    assert "did you mean 'kafka.linger.ms'?" in refusal(frame, kafka__lingr__ms="1")
    assert "column 'value' is bigint, but must be string or binary" in refusal(spark.range(3).toDF("value"))
    assert "mode 'overwrite' is not supported" in refusal(frame, mode="overwrite")
    assert "set delivery to exactly_once" in refusal(frame, kafka__transactional__id="x")
    with pytest.raises(PySparkException, match="'aiokprod' only writes"):
        spark.read.format("aiokprod").load()


def test_a_row_without_a_topic_fails_its_task(spark: SparkSession, mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    frame = spark.range(10, numPartitions=1).selectExpr("if(id = 7, null, 't') as topic", "'x' as value")
    given = {"kafka.bootstrap.servers": mock_kafka.bootstrap_servers}
    with pytest.raises(PySparkException, match="the topic of row 7 of this task is null"):
        frame.write.format("aiokprod").options(**given).mode("append").save()


def test_a_stream_says_that_complete_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    counted = rows.groupBy("timestamp").count().selectExpr("cast(count as string) as value")
    writer = counted.writeStream.format("aiokprod").options(**given).outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with pytest.raises(PySparkException, match="output mode 'complete' is not supported"):
            query.awaitTermination(60)
    finally:
        query.stop()


def rates(spark: SparkSession, servers: str, folder: Path) -> DataStreamWriter:
    """Return a stream of a hundred rows a second to topic "t"."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).option("numPartitions", 1).load()
    writer = rows.selectExpr("cast(value as string) as value").writeStream.format("aiokprod")
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", "t")
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


@pytest.fixture
def two_epochs(spark: SparkSession) -> Iterator[None]:
    """Let Spark end a continuous query that could not commit more than two epochs."""
    name = "spark.sql.streaming.continuous.epochBacklogQueueSize"
    assert spark.conf.get(name) == "10000"  # as docs/spark.md says
    spark.conf.set(name, "2")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("two_epochs")
def test_a_continuous_trigger_writes_nothing_and_the_log_says_why(
    spark: SparkSession, spark_log: Path, mock_kafka: MockCluster, tmp_path: Path
) -> None:
    mock_kafka.create_topic("t", 1)
    query = rates(spark, mock_kafka.bootstrap_servers, tmp_path).trigger(continuous="300 milliseconds").start()
    try:
        with pytest.raises(StreamingQueryException, match="queue has exceeded its maximum"):  # Spark's, not ours
            query.awaitTermination(120)
    finally:
        query.stop()
    assert "SinkUsageError: a task has no commit message, as with trigger(continuous=...)" in spark_log.read_text()
    assert (mock_kafka.requests_seen("Produce"), mock_kafka.records("t")) == (0, [])


def test_a_real_time_trigger_is_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    writer = rates(spark, "127.0.0.1:1", tmp_path).outputMode("update")
    if "realTime" in signature(DataStreamWriter.trigger).parameters:
        with pytest.raises(PySparkException, match="sink allowlist for Real-Time Mode"):
            writer.trigger(realTime="1 minute").start()
    else:  # PySpark 4.1
        with pytest.raises(TypeError, match="realTime"):
            writer.trigger(realTime="1 minute")


def test_update_goes_by_each_batch(spark: SparkSession, mock_kafka: MockCluster, tmp_path: Path) -> None:
    mock_kafka.create_topic("t", 1)
    spark.range(100, numPartitions=1).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("id bigint").parquet(str(tmp_path / "rows"))
    counted = stream.groupBy((stream.id % 3).alias("third")).count()
    each = write_each_batch(
        {"kafka.bootstrap.servers": mock_kafka.bootstrap_servers, "topic": "t"},
        lambda frame: frame.selectExpr("cast(third as string) as key", "cast(count as string) as value"),
    )
    writer = counted.writeStream.outputMode("update").foreachBatch(each).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(60)
    assert {record.key: record.value for record in mock_kafka.records("t")} == {b"0": b"34", b"1": b"33", b"2": b"33"}


def test_it_can_be_registered_by_hand(spark: SparkSession, mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    register(spark)
    given = {"kafka.bootstrap.servers": mock_kafka.bootstrap_servers, "topic": "t"}
    spark.range(5).selectExpr("cast(id as string) as value").write.format("aiokprod").options(**given).mode(
        "append"
    ).save()
    assert len(mock_kafka.records("t")) == 5


def test_a_task_that_finds_no_cluster_fails_with_one_error(spark: SparkSession) -> None:
    frame = spark.range(3, numPartitions=1).selectExpr("cast(id as string) as value")
    told = refusal(frame, kafka__max__block__ms="200")
    assert told.count("Traceback (most recent call last)") == 1
    assert "engine.py" not in told
    assert "BootstrapError: no cluster was found within 0.2 s; tried 127.0.0.1:1: cannot connect" in told
    assert "\nCheck kafka.bootstrap.servers, the network and" in told
    assert "\nA task waits 200 ms for the cluster" in told


def test_secrets_show_nowhere(
    spark: SparkSession, spark_log: Path, mock_kafka: MockCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    mock_kafka.create_topic("t", 1)
    spark.sparkContext.setLogLevel("INFO")
    frame = spark.range(10, numPartitions=1).selectExpr("cast(id as string) as value")
    servers = {"kafka.bootstrap.servers": mock_kafka.bootstrap_servers}
    try:
        texts = [
            refusal(frame, **SECRETS, **servers),  # the cluster speaks no SASL: a task fails
            refusal(frame, **SECRETS | {"kafka.sasl.mechanism": "NONE"}),
            refusal(spark.range(3).toDF("value"), **SECRETS),
            refusal(frame, **{"kafka.sasl.jaas.config": f"x required password={CANARY};"}),
        ]
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    frame.explain(True)
    texts += [capsys.readouterr().out, spark_log.read_text()]
    assert "does not speak SASL" in texts[0]
    assert "== Physical Plan ==" in texts[-2]
    assert "aiokprod.errors.AuthenticationError" in texts[-1]  # the log of the driver and its workers
    for text in texts:
        assert CANARY not in text
