"""Sessions of Spark for the tests: one per module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from limits import limited
from pyspark.sql import SparkSession
from sessions import LOG, spark_session

HANGS_S = 1_800.0
"""No judgement of a machine: on one with little to spare a test of five minutes takes twenty."""


@pytest.fixture(scope="module")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def spark(spark_folder: Path) -> Iterator[SparkSession]:
    """Yield Spark with two threads and four attempts per task."""
    with spark_session("local[2,4]", spark_folder) as session:
        yield session


@pytest.fixture
def spark_log(spark_folder: Path) -> Path:
    """Return the log of Spark and its workers."""
    return spark_folder / LOG


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that hangs: after the `TIME_LIMIT_S` of its module, or after half an hour if it is slow.

    The body of the test alone has the limit: what raises in pytest's own work ends the run.
    """
    is_slow = item.get_closest_marker("slow") is not None
    limit_s: float | None = getattr(getattr(item, "module", None), "TIME_LIMIT_S", HANGS_S if is_slow else None)
    if limit_s is None:
        yield
        return
    with limited(limit_s):
        yield
