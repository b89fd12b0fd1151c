"""Threads of a driver find the format when they are told the session; short, so that each tested PySpark runs it.

docs/spark.md says what is so on PySpark 4.1, 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aiokprod.spark import activate, register, write_each_batch
from aiokprod.testing.mock import MockCluster

pytestmark = pytest.mark.slow  # a session of Spark for four tests of what Spark's threads find

TIME_LIMIT_S = 1_800.0
Result = TypeVar("Result")


def in_a_thread(work: Callable[[], Result], before: Callable[[], None] | None = None) -> Result:
    """Run the work in a thread that is new to the driver, with a JVM thread of its own, as a pool of a user's would."""
    with ThreadPoolExecutor(1, initializer=before) as threads:
        return threads.submit(work).result()


def forget_connection(spark: SparkSession) -> None:
    """Close this thread's connection to the JVM, as py4j does after an error: the next call makes one, to a new JVM thread."""
    client = spark.sparkContext._gateway._gateway_client
    connection = client.get_thread_connection()
    client.deque.remove(connection)
    connection.close()
    del client.thread_connection.connection


def is_known(spark: SparkSession) -> bool:
    """Return True if this thread finds the format: our refusal of the options is told, not Spark's of the name."""
    writer = spark.range(1).selectExpr("'x' as value").write.format("aiokprod").option("xyzzy", "1").mode("append")
    with pytest.raises(
        (PySparkException, Py4JJavaError), match=r"unknown option 'xyzzy'|DATA_SOURCE_NOT_FOUND"
    ) as caught:
        writer.save()
    return "DATA_SOURCE_NOT_FOUND" not in str(caught.value)


def test_a_thread_of_the_driver_does_not_find_the_format_by_itself(spark: SparkSession) -> None:
    """Spark's side of it, as docs/spark.md has it; a Spark that mends it needs no `activate`."""
    assert is_known(spark)
    assert not in_a_thread(lambda: is_known(spark))
    assert not in_a_thread(lambda: is_known(SparkSession.builder.getOrCreate()))
    assert not in_a_thread(lambda: is_known(spark.newSession()))


@pytest.mark.parametrize("known_by", [activate, register])
def test_a_thread_of_the_driver_is_told_the_session(
    spark: SparkSession, known_by: Callable[[SparkSession], None]
) -> None:
    def known_after_a_new_connection() -> list[bool]:
        known = [is_known(spark)]
        forget_connection(spark)
        known.append(is_known(spark))
        known_by(spark)
        return [*known, is_known(spark), is_known(spark.newSession())]

    assert in_a_thread(known_after_a_new_connection, partial(known_by, spark)) == [True, False, True, True]


def test_a_thread_of_the_driver_writes_a_batch_and_a_stream(
    spark: SparkSession, mock_kafka: MockCluster, tmp_path: Path
) -> None:
    mock_kafka.create_topic("t", 1)
    given = {"kafka.bootstrap.servers": mock_kafka.bootstrap_servers, "topic": "t"}
    folder = str(tmp_path / "rows")

    def write() -> None:
        frame = spark.range(5).selectExpr("cast(id as string) as value")
        write_each_batch(given)(frame, 0)  # makes the session active
        frame.write.parquet(folder)
        stream = spark.readStream.schema("value string").parquet(folder).writeStream.format("aiokprod").options(**given)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert stream.start().awaitTermination(60)

    in_a_thread(write)
    values = [record.value for record in mock_kafka.records("t")]
    assert sorted(values) == sorted([b"%d" % number for number in range(5)] * 2)
