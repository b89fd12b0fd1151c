"""A SparkSession on this machine that finds aiokprod and Spark's own Kafka source; one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

import aiokprod
from aiokprod.testing.spark_jars import spark_kafka_jars

LOG = "spark.log"
LOCAL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # most sessions end before the second compiler pays
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "10ms",
}


@contextmanager
def spark_session(master: str, folder: Path, **options: str) -> Iterator[SparkSession]:
    """Yield a session with its own JVM, whose standard error, and that of its workers, goes to `LOG` in the folder.

    Args:
        folder: for what Spark leaves behind.
        **options: of Spark, with `__` for a dot.
    """
    end_jvm()
    before = dict(os.environ)
    path = os.pathsep.join((str(Path(aiokprod.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(folder / "work"), "PYTHONPATH": path}
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder / "local")}
    settings = LOCAL | {name.replace("__", "."): value for name, value in options.items()}
    settings |= {"spark.jars": ",".join(spark_kafka_jars()), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    settings["spark.executorEnv.PYTHONPATH"] = path
    try:
        with _standard_error_in(folder / LOG):
            spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        end_jvm()
        os.environ.clear()
        os.environ |= before


@contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Redirect the standard error of processes that are started inside the block."""
    ours = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def end_jvm() -> None:
    """End PySpark's JVM, which keeps the class path and environment of the first session: the next session starts a new one."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()  # ends it
    process.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


def read_back(spark: SparkSession, servers: str, topic: str, *, committed: bool = False) -> DataFrame:
    """Return the whole topic, or what is committed, read by Spark's own Kafka source."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    if committed:
        reader = reader.option("kafka.isolation.level", "read_committed")
    return reader.option("includeHeaders", "true").load()


def rows_per_value(spark: SparkSession, servers: str, topic: str) -> dict[str, int]:
    """Return how often each value is in the topic."""
    found = read_back(spark, servers, topic).selectExpr("cast(value as string) as value").groupBy("value").count()
    return {row["value"]: row["count"] for row in found.collect()}
