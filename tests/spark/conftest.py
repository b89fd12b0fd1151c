"""Sessions of Spark for the tests: one per module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from sessions import spark_session


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two threads, four attempts per task."""
    with spark_session("local[2,4]", tmp_path_factory.mktemp("spark")) as session:
        yield session
