"""Executors in processes of their own: one is killed, one hangs and Spark runs a copy of its task, one goes on as a zombie.

One cluster and one session of Spark for all of it. The numbers are the cases of docs/spark_exactly_once.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mishaps
import pytest
from drivers import is_alive, open_transactions, read_by_librdkafka, wait_none_open, write_behind
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


def numbers(spark: SparkSession, mishap: Any = None) -> DataFrame:
    long = f"lpad(cast(id as string), {mishaps.LONG_ROWS}, '0') as value"
    frame = spark.range(ROWS, numPartitions=4).selectExpr(long)
    return frame if mishap is None else frame.select(mishap("value").alias("value"))


def write(frame: DataFrame, servers: str, topic: str, source: str = "aiokprod", **options: str) -> None:
    given = {"kafka.bootstrap.servers": servers, "topic": topic} | options
    frame.write.format(source).options(**given).mode("append").save()


def once(topic: str) -> dict[str, str]:
    """Return the options of a job, the transactional ids of whose tasks begin with the topic."""
    return {"delivery": "exactly_once", "sinkId": topic, "txnAppId": topic, "txnVersion": "1", "kafka.linger.ms": "0"}


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


def test_copies_and_dead_executors_leave_each_row_once(
    spark: SparkSession, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    servers = kafka_cluster.bootstrap_servers
    topics = ("copies", "originals", "died")
    for topic in topics:
        kafka_cluster.create_topic(topic, 3)

    def write_once(topic: str, mishap: Any) -> None:
        claims = {"claims.path": str(tmp_path / f"{topic}-claims")}
        write(numbers(spark, mishap), servers, topic, **once(topic), **claims)
        assert read_by_librdkafka(servers, topic) == ONCE, topic  # and readers do not wait for a lost attempt

    def claimed(topic: str) -> set[tuple[int, int]]:
        claims = spark.read.parquet(str(tmp_path / f"{topic}-claims")).collect()
        assert sum(row["count"] for row in claims) == ROWS
        return {(row["task_partition"], row["attempt"]) for row in claims}

    write_once("copies", mishaps.task_hangs(tmp_path / "copies", (servers, "copies")))  # case 3: the copy wins
    assert any(attempt for _, attempt in claimed("copies"))
    (tmp_path / "originals").mkdir()
    write_once("originals", mishaps.copy_loses(tmp_path / "originals", (servers, "originals")))  # case 3: it loses
    assert (tmp_path / "originals" / "copy").exists()
    assert (0, 0) in claimed("originals")
    (tmp_path / "died").mkdir()
    write_once("died", mishaps.executor_dies_late(tmp_path / "died"))  # case 5
    dead = (tmp_path / "died" / "died").read_text()
    of_dead = [each.name.split(".") for each in (tmp_path / "died").glob("*.*") if each.read_text() == dead]
    # What a task of the dead executor had reported before was committed, and not run again.
    assert {(int(partition), int(attempt)) for partition, attempt in of_dead} & claimed("died")
    for topic in topics:
        assert (tmp_path / topic).exists()
        check_nothing_is_left(spark, servers, topic)
    for topic in ("copies", "originals"):
        in_log = read_by_librdkafka(servers, topic, committed=False).total()
        assert in_log > ROWS, topic  # the lost attempt had sent some


def test_nothing_is_ever_visible_of_a_zombie_that_goes_on_behind_the_commit(
    spark: SparkSession, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    # Case 4: the worker of attempt 0 of partition 0 outlives its executor.
    servers = kafka_cluster.bootstrap_servers
    kafka_cluster.create_topic("zombies", 3)
    spark.dataSource.register(mishaps.zombie_sink(tmp_path, (servers, "zombies")))

    def in_log() -> Counter[str]:
        """Return the rows of the zombie: its own ones, so that they are not those of another attempt."""
        found = read_by_librdkafka(servers, "zombies", committed=False)
        return Counter({row: number for row, number in found.items() if row not in ALL})

    def open_ids() -> list[str]:
        return [each for each in open_transactions(servers, "zombies-") if each.endswith(".0.0")]

    try:
        write(numbers(spark), servers, "zombies", source="zombie", **once("zombies"))
        assert not is_alive((tmp_path / "zombie").read_text())
        # What it has sent when everything was committed is in the log, and aborted by the sweep.
        assert in_log() == mishaps.zombie_rows("before", "behind")
        assert read_by_librdkafka(servers, "zombies") == ONCE
        assert open_ids() == []
    finally:  # or it would wait for this
        (tmp_path / "go").touch()
    # It is fenced: the brokers take nothing more into this transaction.
    fenced = told(tmp_path, "fenced")
    assert f"{mishaps.ROWS_OF_A_ZOMBIE} of {mishaps.ROWS_OF_A_ZOMBIE} rows were not delivered" in fenced
    assert "TransactionAbortedError" in fenced
    assert "INVALID_PRODUCER_EPOCH" in fenced
    # An attempt that begins only now writes a whole transaction.
    assert told(tmp_path, "again") == str(mishaps.ROWS_OF_A_ZOMBIE)
    assert in_log() == mishaps.zombie_rows("before", "behind", "again")
    assert len(open_ids()) == 1
    assert read_by_librdkafka(servers, "zombies") == ONCE
    check_nothing_is_left(spark, servers, "zombies")


def told(folder: Path, name: str) -> str:
    """Wait until the zombie has written this file; return its text."""
    until = time.monotonic() + 120
    while not (folder / name).exists():
        failed = folder / "failed"
        assert not failed.exists(), failed.read_text()
        assert time.monotonic() < until, name
        time.sleep(0.05)
    return (folder / name).read_text()


def check_nothing_is_left(spark: SparkSession, servers: str, topic: str) -> None:
    """Run a job again, behind all of its attempts: it ends what a killed one has left, and readers wait for nothing."""
    wait_idle(spark)
    write(numbers(spark), servers, topic, **once(topic))
    wait_none_open(servers, f"{topic}-")
    behind = write_behind(servers, topic)
    assert read_by_librdkafka(servers, topic) == ONCE + behind, topic


def wait_idle(spark: SparkSession) -> None:
    """Wait until no attempt runs, those included that have lost: until then they may send something."""
    until = time.monotonic() + 60
    while any(running_tasks(spark)):
        assert time.monotonic() < until
        time.sleep(0.1)


def running_tasks(spark: SparkSession) -> Iterator[int]:
    """Yield the number of attempts that run on each executor."""
    numbers = spark.sparkContext._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    while numbers.hasNext():
        yield int(numbers.next())
