"""Executors in processes of their own: one is killed, one hangs and Spark runs a copy of its task, one goes on as a zombie.

One cluster and one session of Spark for all of it. The numbers are the cases of docs/spark_exactly_once.md.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mishaps
import pytest
from drivers import read_by_librdkafka
from pyspark.sql import DataFrame, SparkSession
from sessions import rows_per_value, spark_session
from standalone import standalone_cluster

from aiokprod.testing.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROWS = 20_000
ALL = set(map(mishaps.long_row, range(ROWS)))
ONCE = Counter(ALL)
SETTINGS = {
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "100ms", "spark.executor.memory": "512m",
    "spark.network.timeout": "12s", "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeoutInterval": "2s", **mishaps.SMALL_BATCHES,
}  # fmt: skip


@pytest.fixture(scope="module")
def spark(spark_folder: Path) -> Iterator[SparkSession]:
    """Yield Spark with two executors, each on a host of its own, as copies of a task run on another one."""
    options = {name.replace(".", "__"): value for name, value in SETTINGS.items()}
    with standalone_cluster(spark_folder) as url, spark_session(url, spark_folder, **options) as session:
        yield session


def numbers(spark: SparkSession, mishap: Any) -> DataFrame:
    long = f"lpad(cast(id as string), {mishaps.LONG_ROWS}, '0') as value"
    frame = spark.range(ROWS, numPartitions=4).selectExpr(long)
    return frame.select(mishap("value").alias("value"))


def write(frame: DataFrame, servers: str, topic: str, **options: str) -> None:
    given = {"kafka.bootstrap.servers": servers, "topic": topic} | options
    frame.write.format("aiokprod").options(**given).mode("append").save()


def test_an_executor_that_is_killed_loses_nothing(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    write(numbers(spark, mishaps.executor_dies(tmp_path / "flag")), kafka_bootstrap, kafka_topic)
    assert (tmp_path / "flag").exists()
    assert set(rows_per_value(spark, kafka_bootstrap, kafka_topic)) == ALL


def test_a_task_that_hangs_is_written_by_its_copy(
    spark: SparkSession, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    claimed = {"claims.path": str(tmp_path / "claims")}
    write(numbers(spark, mishaps.task_hangs(tmp_path / "flag")), kafka_bootstrap, kafka_topic, **claimed)
    assert (tmp_path / "flag").exists()
    assert set(rows_per_value(spark, kafka_bootstrap, kafka_topic)) == ALL
    claims = spark.read.parquet(claimed["claims.path"]).collect()
    assert sum(row["count"] for row in claims) == ROWS
    assert max(row["attempt"] for row in claims) >= 1  # the copy won


def test_copies_zombies_and_dead_executors_leave_each_row_once(
    spark: SparkSession, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    servers = kafka_cluster.bootstrap_servers
    topics = ("copies", "originals", "died", "zombies")
    for topic in topics:
        kafka_cluster.create_topic(topic, 3)

    def once(topic: str, mishap: Any) -> None:
        options = {"delivery": "exactly_once", "txnAppId": topic, "txnVersion": "1", "kafka.linger.ms": "0"}
        options["claims.path"] = str(tmp_path / f"{topic}-claims")
        write(numbers(spark, mishap), servers, topic, **options)
        assert read_by_librdkafka(servers, topic) == ONCE, topic  # and readers do not wait for a lost attempt

    def claimed(topic: str) -> set[tuple[int, int]]:
        claims = spark.read.parquet(str(tmp_path / f"{topic}-claims")).collect()
        assert sum(row["count"] for row in claims) == ROWS
        return {(row["task_partition"], row["attempt"]) for row in claims}

    once("copies", mishaps.task_hangs(tmp_path / "copies", (servers, "copies")))  # case 3: the copy wins
    assert any(attempt for _, attempt in claimed("copies"))
    (tmp_path / "originals").mkdir()
    once("originals", mishaps.copy_loses(tmp_path / "originals", (servers, "originals")))  # case 3: it loses
    assert (tmp_path / "originals" / "copy").exists()
    assert (0, 0) in claimed("originals")
    (tmp_path / "died").mkdir()
    once("died", mishaps.executor_dies_late(tmp_path / "died"))  # case 5
    dead = (tmp_path / "died" / "died").read_text()
    of_dead = [each.name.split(".") for each in (tmp_path / "died").glob("*.*") if each.read_text() == dead]
    # What a task of the dead executor had reported before was committed, and not run again.
    assert {(int(partition), int(attempt)) for partition, attempt in of_dead} & claimed("died")
    zombie = tmp_path / "zombies"
    try:
        once("zombies", mishaps.executor_stops(zombie, (servers, "zombies")))  # case 4
    finally:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
            os.kill(int(zombie.read_text()), signal.SIGCONT)
    wait_ended(spark, int(zombie.read_text()))
    for topic in topics:
        assert (tmp_path / topic).exists()
        assert read_by_librdkafka(servers, topic) == ONCE, topic
    for topic in ("copies", "originals", "zombies"):
        in_log = read_by_librdkafka(servers, topic, committed=False).total()
        assert in_log > ROWS, topic  # the lost attempt had sent some


def wait_ended(spark: SparkSession, pid: int) -> None:
    """Wait until an executor has no attempt any more, or has ended itself: until then it may send something."""
    until = time.monotonic() + 60
    while not has_ended(spark, pid):
        assert time.monotonic() < until, pid
        time.sleep(0.1)


def has_ended(spark: SparkSession, pid: int) -> bool:
    """Return whether its last attempt has ended, as the driver was told; if that has given it up: whether the process has."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return True
    if "--executor-id" not in command:  # has ended, and its parent does not know yet
        return True
    number = command[command.index("--executor-id") + 1]
    running = spark.sparkContext._jsc.sc().taskScheduler().runningTasksByExecutors()
    return bool(running.contains(number)) and int(running.apply(number)) == 0
