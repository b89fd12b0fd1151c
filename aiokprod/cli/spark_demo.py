"""`aiokprod demo --spark`: Spark writes to a local Apache Kafka, brokers fail, Spark reads back, an audit gives the verdict.

Generated orders go through the sink `format("aiokprod")` in several tasks. When half of them are in the topic, a leader is
moved and a broker killed. Then Spark's own Kafka source reads the topic, and the audit compares it with the job's input. A
task that Spark ran again may have repeated rows: the verdict counts them, and they are not an error.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from aiokprod.testing.demo_clusters import local_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aiokprod.audit import Verdict
    from aiokprod.testing.demo_clusters import DemoCluster

PARTITIONS: Final = 12
TASKS: Final = 8
KEYS: Final = 1_000
CITIES: Final = ("Oslo", "Lagos", "Lima", "Hanoi", "Graz")
LOOK_EVERY_S: Final = 0.1


def show(records: int, report: Path) -> int:
    """Run the demonstration; return the exit status of the audit."""
    try:
        import_module("matplotlib")
        import_module("pyspark")
    except ImportError:
        raise click.ClickException('the Spark demo needs: pip install "aiokprod[audit,cli]"') from None
    from aiokprod import audit
    from aiokprod.audit.files import write

    console = Console(highlight=False)
    topic, run = f"aiokprod-demo-{uuid.uuid4().hex[:8]}", uuid.uuid4().int >> 65
    with tempfile.TemporaryDirectory() as scratch, _session(Path(scratch)) as spark, local_kafka() as cluster:
        cluster.create_topic(topic, PARTITIONS)
        console.print(f"{records:,} rows from Spark to topic {topic} on {cluster.title}")
        rows = audit.marked(_orders(spark, records), run=run, seq="order", stream="shard", topic=topic)
        with _breaking(cluster, topic, records // 2, console):
            began = time.perf_counter()
            _write(audit.for_the_sink(rows), cluster.bootstrap_servers)
            seconds = time.perf_counter() - began
        console.print(f"written in {seconds:,.1f} s, the start of Spark's Python workers included")
        verdict = audit.run(spark, audit.claims_of(rows), _read(spark, cluster.bootstrap_servers, topic), timeline=True)
    write(verdict, report)
    _tell(console, verdict, report)
    return verdict.exit_status


def _orders(spark: SparkSession, records: int) -> DataFrame:
    """Make orders; a shard is written by one task, and its order numbers ascend."""
    from pyspark.sql import functions as sf

    cities = sf.array(*(sf.lit(city) for city in CITIES))
    order = sf.struct(
        sf.col("id").alias("order"),
        sf.element_at(cities, (sf.col("id") % len(CITIES) + 1).cast("int")).alias("city"),
        (sf.col("id") % 997).alias("cents"),
    )
    return spark.range(0, records, 1, TASKS).select(
        sf.col("id").alias("order"),
        sf.floor(sf.col("id") * TASKS / records).alias("shard"),
        sf.concat(sf.lit("customer-"), sf.col("id") % KEYS).alias("key"),
        sf.to_json(order).alias("value"),
    )


def _write(rows: DataFrame, servers: str) -> None:
    sink = rows.write.format("aiokprod").mode("append").option("kafka.bootstrap.servers", servers)
    sink.option("kafka.request.timeout.ms", "5000").save()


def _read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return source.option("includeHeaders", "true").load()


@contextmanager
def _breaking(cluster: DemoCluster, topic: str, after: int, console: Console) -> Generator[None]:
    """Break something as soon as `after` records are in the topic, while the context runs."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            if cluster.records_in(topic) >= after:
                for event in cluster.break_something(topic):
                    console.print(f"  [yellow]{event}[/]")
                return

    watcher = threading.Thread(target=watch, name="aiokprod-demo-faults")
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


@contextmanager
def _session(scratch: Path) -> Generator[SparkSession]:
    """Run Spark on this machine with its own Kafka source; all its files are in `scratch`."""
    from pyspark.sql import SparkSession

    from aiokprod.spark import register
    from aiokprod.testing.spark_jars import spark_kafka_jars

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(spark_kafka_jars()),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2,4]").appName("aiokprod-demo").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def _tell(console: Console, verdict: Verdict, report: Path) -> None:
    console.print(f"read back by Spark's Kafka source: {verdict.log_records:,} records")
    colour = "green" if verdict.is_clean else "red"
    console.print(f"[bold {colour}]{verdict.line}[/]")
    console.print(f"pictures: {report / 'index.html'}")
