"""A small Spark session for each module that wants one, and one that has Spark's own Kafka source."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = _started(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def spark_with_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from aiokprod.testing.spark_jars import spark_kafka_jars

    _end_jvm()  # the class path of a JVM is that of its first session
    session = _started(tmp_path_factory.mktemp("spark"), **{"spark.jars": ",".join(spark_kafka_jars())})
    yield session
    session.stop()
    _end_jvm()


def _started(folder: Path, **more: str) -> SparkSession:
    """Start Spark with two local threads; it leaves nothing outside the folder."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("aiokprod-audit-tests")
    session = builder.config(map=settings | more).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        process: subprocess.Popen[bytes] = gateway.proc
        gateway.shutdown()
        if process.stdin is not None:
            process.stdin.close()  # ends it
        process.wait(30)
        SparkContext._gateway = SparkContext._jvm = None
