"""Spark: `df.write.format("aiokprod")` and `df.writeStream.format("aiokprod")`. Needs the extra `spark`.

The format registers itself where aiokprod is installed (`pyspark_aiokprod`); `register(spark)` does it by hand, and
`activate(spark)` makes it known to a thread of the driver. Nothing of Spark is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiokprod.spark.foreach import write_each_batch as write_each_batch

__all__ = ["activate", "register", "write_each_batch"]


def activate(spark: SparkSession) -> None:
    """Make this session the active one of this thread, on the JVM's side too.

    Call it first in a thread of the driver, of a pool's too: `ThreadPoolExecutor(initializer=activate, initargs=(spark,))`.

    Spark 4.1 to 4.3 look for Python sources in the active session, and the JVM thread that serves a new Python thread has
    none: without this call they raise DATA_SOURCE_NOT_FOUND there. If py4j connects again, the thread has another JVM thread:
    call it again. With Spark Connect the call is not needed and does nothing.

    Args:
        spark: the session; a format that was registered by hand is known to that session only.
    """
    internals = cast(Any, spark)  # pyspark has no public way to the JVM
    java = getattr(internals, "_jsparkSession", None)
    if java is not None:
        getattr(internals._jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(java)


def register(spark: SparkSession) -> None:
    """Register the format "aiokprod" with this session, and make the session the active one of this thread.

    Needed if aiokprod came with `spark.submit.pyFiles` or a path and is not installed on the driver, or if another
    `pyspark_*` module fails at import (Spark then finds no Python source at all). In other threads call `activate`.

    Args:
        spark: the session.
    """
    from aiokprod.spark.source import AiokprodSource

    spark.dataSource.register(AiokprodSource)
    activate(spark)


def __getattr__(name: str) -> Any:
    if name == "write_each_batch":
        return import_module("aiokprod.spark.foreach").write_each_batch
    raise AttributeError(f"module 'aiokprod.spark' has no attribute {name!r}")
