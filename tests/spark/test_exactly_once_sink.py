"""Exactly-once writes of a real Spark to a real Kafka: streams, jobs, foreachBatch, tasks that fail. One process of Spark."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mishaps
import pytest
from drivers import open_transactions, read_by_librdkafka, write_behind
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from aiokprod.spark import write_each_batch
from aiokprod.testing.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.real
ROWS = 4_000
ONCE = Counter(map(mishaps.long_row, range(ROWS)))


def numbers(spark: SparkSession, tasks: int = 4) -> DataFrame:
    return spark.range(ROWS, numPartitions=tasks).selectExpr(
        f"lpad(cast(id as string), {mishaps.LONG_ROWS}, '0') as value"
    )


def options(servers: str, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": "exactly_once", **more}


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Let the sink have rows while the tasks behind it still run."""
    for name, value in mishaps.SMALL_BATCHES.items():
        spark.conf.set(name, value)
    yield
    for name in mishaps.SMALL_BATCHES:
        spark.conf.unset(name)


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_a_stream_and_a_job_that_is_run_again(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    # Case 1 too: one task of each fails behind a thousand rows, some of which are sent.
    sent = (kafka_bootstrap, kafka_topic)
    at_once = {"kafka.linger.ms": "0"}
    given = options(*sent, sinkId=kafka_topic, txnAppId=kafka_topic, txnVersion="3", **at_once)
    fails = mishaps.task_fails(tmp_path / "job", sent)("value").alias("value")
    for frame in (numbers(spark, 2).select(fails), numbers(spark, 3)):  # other parallelism, too
        frame.write.format("aiokprod").options(**given).mode("append").save()
        assert open_transactions(kafka_bootstrap, f"{kafka_topic}-") == []  # of the failed attempt either
    assert (tmp_path / "job").exists()
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE
    with_job = read_by_librdkafka(kafka_bootstrap, kafka_topic, committed=False).total()
    assert with_job > ROWS

    folder = tmp_path / "rows"
    numbers(spark).write.parquet(str(folder))
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 2).parquet(str(folder))
    stream = stream.select(mishaps.task_fails(tmp_path / "stream", sent)("value").alias("value"))
    writer = stream.writeStream.format("aiokprod").options(**options(*sent, **at_once))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    for _ in range(2):
        query = writer.start()
        assert query.awaitTermination(100)
    assert (tmp_path / "stream").exists()
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE + ONCE
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic, committed=False).total() > with_job + ROWS


@pytest.mark.slow
def test_foreach_batch_writes_each_batch_once(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    numbers(spark, 2).write.parquet(str(folder))
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(folder))
    counts = stream.groupBy("value").count()
    writing = write_each_batch(
        options(kafka_bootstrap, kafka_topic, txnAppId="counts"), lambda frame: frame.select("value")
    )

    def twice(frame: DataFrame, batch_id: int) -> None:
        writing(frame, batch_id)
        writing(frame, batch_id)  # as after a crash before the commit log

    writer = counts.writeStream.outputMode("update").foreachBatch(twice)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE

    # The batch 0 of a new checkpoint is no replay of the old one's.
    plain = spark.readStream.schema("value string").parquet(str(folder))
    each = write_each_batch(options(kafka_bootstrap, kafka_topic, txnAppId="plain"))

    def run(checkpoint: str) -> None:
        writer = plain.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination(200)

    run("first")
    with pytest.raises(StreamingQueryException, match="another streaming query has written it under this txnAppId"):
        run("second")
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE + ONCE


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_a_batch_whose_tasks_all_fail_leaves_nothing_and_is_written_later(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    # Case 6: one task raises behind rows that are in the log, as often as it is run, and the other one has reported by then.
    folder, attempts = tmp_path / "rows", tmp_path / "attempts"
    attempts.mkdir()
    numbers(spark, 2).write.parquet(str(folder))
    given = options(kafka_bootstrap, kafka_topic, sinkId=kafka_topic)
    given["kafka.linger.ms"] = "0"

    def written(column: Any) -> None:
        stream = spark.readStream.schema("value string").parquet(str(folder)).select(column.alias("value"))
        writer = stream.writeStream.format("aiokprod").options(**given)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination(200)

    fails = mishaps.each_attempt_fails(attempts, (kafka_bootstrap, kafka_topic))
    with ThreadPoolExecutor(1) as referees:
        referee = referees.submit(go_when_a_task_has_ended, spark, attempts)
        with pytest.raises(StreamingQueryException, match="the rows end here"):
            written(fails("value"))
        referee.result()
    assert open_transactions(kafka_bootstrap, f"{kafka_topic}.") == []  # and not by the next batch, or a timeout
    assert {path.name for path in attempts.iterdir()} == {"0", "1", "2", "3", "go"}
    sent = read_by_librdkafka(kafka_bootstrap, kafka_topic, committed=False)
    assert sent.total() > ROWS // 2  # all rows of one task, and some of the other
    assert max(sent.values()) == 4  # some of each attempt
    behind = write_behind(kafka_bootstrap, kafka_topic)
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == behind  # readers wait for nothing
    written(col("value"))
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE + behind


def go_when_a_task_has_ended(spark: SparkSession, folder: Path) -> None:
    """Make the file `go` when the last attempt waits for it, and a task of the running stage has ended."""
    try:
        appears(folder / "3")
        tracker = spark.sparkContext.statusTracker()
        until = time.monotonic() + 120
        while not any(
            each.numCompletedTasks for each in map(tracker.getStageInfo, tracker.getActiveStageIds()) if each
        ):
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:  # or the query would wait for it
        (folder / "go").touch()


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_leaders_that_die_in_the_middle_of_a_task_lose_and_double_nothing(
    spark: SparkSession, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    # Two of the three brokers, one after the other: each leads the partition that has rows of the open transactions.
    topic, servers = "led", kafka_cluster.bootstrap_servers
    kafka_cluster.create_topic(topic, 1)
    given = options(servers, topic, sinkId=topic, txnAppId=topic, txnVersion="1")
    given |= {"claims.path": str(tmp_path / "claims"), "kafka.linger.ms": "0"}
    waits = mishaps.attempt_waits(tmp_path)("value").alias("value")
    with ThreadPoolExecutor(1) as referees:
        referee = referees.submit(kill_leaders, kafka_cluster, topic, tmp_path)
        numbers(spark, 2).select(waits).write.format("aiokprod").options(**given).mode("append").save()
        referee.result()
    claims = spark.read.parquet(given["claims.path"]).collect()
    assert {(row["task_partition"], row["attempt"]) for row in claims} == {(0, 0), (1, 0)}  # no task was run again
    assert sum(row["count"] for row in claims) == ROWS
    assert open_transactions(servers, f"{topic}-") == []
    assert read_by_librdkafka(servers, topic) == ONCE
    assert read_by_librdkafka(servers, topic, committed=False) == ONCE  # the producers have sent nothing twice either


def kill_leaders(cluster: KafkaCluster, topic: str, folder: Path) -> None:
    """Kill the leader while the first task waits, and then the next one; the task goes on while that one is down."""
    try:
        appears(folder / "0")
        until = time.monotonic() + 60
        while not cluster.end_offsets(topic)[0]:
            assert time.monotonic() < until
            time.sleep(0.01)
        first = cluster.broker(cluster.leaders(topic)[0])
        first.kill()
        first.start()
        cluster.wait_ready()
        cluster.wait_all_in_sync(topic)
        second = cluster.broker(cluster.leaders(topic)[0])
        second.kill()
        (folder / "0.go").touch()
        time.sleep(2)  # the task goes on without it
        second.start()
        cluster.wait_ready()
    finally:  # or the job would wait for it
        (folder / "0.go").touch()


def deny_the_first_attempt(spark: SparkSession, folder: Path) -> None:
    """Make Spark's commit coordinator give the right to commit the first task to another attempt, until that one is lost."""
    coordinator = spark.sparkContext._jsc.sc().dagScheduler().outputCommitCoordinator()
    is_lost = getattr(getattr(spark._jvm.org.apache.spark, "TaskResultLost$"), "MODULE$")
    another = 99
    try:
        stage = int(appears(folder / "0").read_text())
        assert coordinator.canCommit(stage, 0, 0, another)
        (folder / "0.go").touch()
        appears(folder / "1")
        coordinator.taskCompleted(stage, 0, 0, another, is_lost)
    finally:  # or the job would wait for it
        for number in range(4):
            (folder / f"{number}.go").touch()


def appears(path: Path) -> Path:
    until = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.01)
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_a_task_that_may_not_commit_what_it_has_sent_leaves_nothing(
    spark: SparkSession, spark_log: Path, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    # Case 2: the coordinator denies the first attempt when its rows are acknowledged, and allows the second one.
    given = options(kafka_bootstrap, kafka_topic, sinkId=kafka_topic, txnAppId=kafka_topic)
    given["claims.path"] = str(tmp_path / "claims")
    waits = mishaps.attempt_waits(tmp_path)("value").alias("value")
    spark.sparkContext.setLogLevel("WARN")
    with ThreadPoolExecutor(1) as referees:
        referee = referees.submit(deny_the_first_attempt, spark, tmp_path)
        job = numbers(spark, 2).select(waits).write.format("aiokprod").options(**given)
        job.option("txnVersion", "1").mode("append").save()
        referee.result()
    spark.sparkContext.setLogLevel("ERROR")
    assert re.search(r"commit ?denied", spark_log.read_text(), re.IGNORECASE)
    claims = spark.read.parquet(given["claims.path"]).collect()
    assert {(row["task_partition"], row["attempt"]) for row in claims} == {(0, 1), (1, 0)}
    assert sum(row["count"] for row in claims) == ROWS
    assert open_transactions(kafka_bootstrap, f"{kafka_topic}-") == []  # of the denied attempt either
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE
    sent = read_by_librdkafka(kafka_bootstrap, kafka_topic, committed=False)
    assert sent == ONCE + Counter(map(mishaps.long_row, range(ROWS // 2)))  # it had sent all of its rows


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_a_task_whose_worker_is_killed_is_written_by_its_next_attempt(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    # Case 1, of a worker: SIGKILL in the middle of a task that has sent rows.
    given = options(kafka_bootstrap, kafka_topic, sinkId=kafka_topic, txnAppId=kafka_topic, txnVersion="1")
    given |= {"claims.path": str(tmp_path / "claims"), "kafka.linger.ms": "0"}
    (tmp_path / "died").mkdir()
    dies = mishaps.other_workers_die(tmp_path / "died", (kafka_bootstrap, kafka_topic))("value").alias("value")
    numbers(spark, 2).select(dies).write.format("aiokprod").options(**given).mode("append").save()
    killed = mishaps.killed_attempts(tmp_path / "died")
    assert killed  # and not idle workers alone
    claims = spark.read.parquet(given["claims.path"]).collect()
    won = {row["task_partition"]: row["attempt"] for row in claims}
    assert all(won[partition] > attempt for partition, attempt in killed), (killed, won)
    assert sum(row["count"] for row in claims) == ROWS
    assert open_transactions(kafka_bootstrap, f"{kafka_topic}-") == []  # of the killed attempt either
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic, committed=False).total() > ROWS


@pytest.fixture(params=[2, 0], ids=["TV2", "TV0"])
def lossy(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Yield a broker behind a proxy; transaction.version is the parameter."""
    with KafkaCluster(brokers=1, proxied=True, features={"transaction.version": request.param}) as cluster:
        cluster.create_topic("t", 3)
        yield cluster


@pytest.mark.slow
def test_the_answer_to_any_end_of_a_transaction_may_be_lost(
    spark: SparkSession, lossy: KafkaCluster, tmp_path: Path
) -> None:
    # Case 10: the broker carries the request out, and the connection ends in place of its answer.
    folder = tmp_path / "rows"
    numbers(spark).write.parquet(str(folder))
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 2).parquet(str(folder))
    writer = stream.writeStream.format("aiokprod").options(**options(lossy.bootstrap_servers, "t", sinkId="lossy"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    lost = [lossy.proxy.drop_answer("EndTxn", nth=number) for number in (1, 3, 5, 6)]
    query = writer.start()
    assert query.awaitTermination(200)
    assert query.exception() is None
    assert [rule.hits for rule in lost] == [1] * len(lost)
    lossy.proxy.clear_faults()
    assert read_by_librdkafka(lossy.bootstrap_servers, "t") == ONCE


@pytest.mark.slow
def test_brokers_that_cannot_list_transactions_are_refused_before_any_task(spark: SparkSession, tmp_path: Path) -> None:
    # Case 19.
    text = r"the brokers are older than Kafka 3\.0, which cannot list transactions"
    with KafkaCluster(brokers=1, version="2.8.2") as old:
        old.create_topic("t", 3)
        given = options(old.bootstrap_servers, "t", sinkId="old")
        with pytest.raises(AnalysisException, match=text):
            numbers(spark).write.format("aiokprod").options(**given).mode("append").save()
        folder = tmp_path / "rows"
        numbers(spark, 2).write.parquet(str(folder))
        stream = spark.readStream.schema("value string").parquet(str(folder)).writeStream.format("aiokprod")
        stream = stream.options(**given).option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(StreamingQueryException, match=text):
            stream.trigger(availableNow=True).start().awaitTermination(100)
        assert old.end_offsets("t") == [0, 0, 0]


@pytest.mark.slow
def test_what_is_wrong_is_told_before_any_task(spark: SparkSession, kafka_bootstrap: str, kafka_topic: str) -> None:
    for wrong, text in (
        ({"txnVersion": "1"}, "txnVersion is given without txnAppId"),
        ({"onReplayMismatch": "x"}, "it must be fail, duplicate or skip"),
        ({"kafka.acks": "1"}, "kafka.acks"),
        ({"kafka.transaction.timeout.ms": "900001"}, "larger than the brokers allow"),
    ):
        writer = numbers(spark).write.format("aiokprod").mode("append")  # a new one, as it keeps its options
        with pytest.raises(AnalysisException, match=text):
            writer.options(**options(kafka_bootstrap, kafka_topic) | wrong).save()
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic, committed=False) == Counter()


@pytest.mark.slow
def test_the_programs_of_the_page_run(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    section = page[page.index("## Exactly once") : page.index("## Performance")]
    found = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    # The whole program is run by test_spark_pages.py.
    programs = [program for program in found if "SparkSession" not in program]
    assert (len(found), len(programs)) == (3, 2)
    folder = tmp_path / "rows"
    numbers(spark, 2).write.parquet(str(folder))
    stream = spark.readStream.schema("value string").parquet(str(folder))
    given = {
        "orders_of_the_day": numbers(spark),
        "counts": stream.groupBy("value").count(),
        "options": {"kafka.bootstrap.servers": kafka_bootstrap, "topic": kafka_topic},
        "to_columns": lambda frame: frame.select("value"),
        "write_each_batch": write_each_batch,
    }
    for program in programs:
        text = program.replace("localhost:9092", kafka_bootstrap).replace(
            '"topic", "orders"', f'"topic", "{kafka_topic}"'
        )
        text = text.replace(
            "to_columns)).start()", "to_columns)).trigger(availableNow=True).start().awaitTermination(100)"
        )
        exec(text, dict(given))
    assert read_by_librdkafka(kafka_bootstrap, kafka_topic) == ONCE + ONCE
