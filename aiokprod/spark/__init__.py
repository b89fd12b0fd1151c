"""Spark: `df.write.format("aiokprod")` and `df.writeStream.format("aiokprod")`. Needs the extra `spark`.

Registered by itself where aiokprod is installed (`pyspark_aiokprod`); `register(spark)` does it by hand,
`activate(spark)` lets a thread of the driver find it. Nothing of Spark is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiokprod.spark.foreach import write_each_batch as write_each_batch

__all__ = ["activate", "register", "write_each_batch"]


def activate(spark: SparkSession) -> None:
    """Make this session the active one of this thread, on the JVM's side too. Call it first in a thread of the driver.

    Spark looks for Python sources in the active session, and the JVM thread that serves a new thread of Python has none:
    without this it says DATA_SOURCE_NOT_FOUND there. With Spark Connect there is nothing to do, and nothing is done.
    """
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:
        getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(java)


def register(spark: SparkSession) -> None:
    """Make the format "aiokprod" known to this session, where it did not register itself, and the session to this thread.

    Needed if aiokprod came by `spark.submit.pyFiles` or a path and was not installed by pip on the driver, or if another
    `pyspark_*` module fails at import (Spark then finds no Python source at all). Other threads: `activate`.
    """
    from aiokprod.spark.source import AiokprodSource

    spark.dataSource.register(AiokprodSource)
    activate(spark)


def __getattr__(name: str) -> Any:
    if name == "write_each_batch":
        return import_module("aiokprod.spark.foreach").write_each_batch
    raise AttributeError(f"module 'aiokprod.spark' has no attribute {name!r}")
