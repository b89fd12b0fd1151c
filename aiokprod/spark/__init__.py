"""Spark: `df.write.format("aiokprod")` and `df.writeStream.format("aiokprod")`. Needs the extra `spark`.

Registered by itself where aiokprod is installed (`pyspark_aiokprod`); `register(spark)` does it by hand. Nothing of Spark
is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiokprod.spark.foreach import write_each_batch as write_each_batch

__all__ = ["register", "write_each_batch"]


def register(spark: SparkSession) -> None:
    """Make the format "aiokprod" known to this session, where it did not register itself.

    Needed if aiokprod came by `spark.submit.pyFiles` or a path and was not installed by pip on the driver, or if another
    `pyspark_*` module fails at import (Spark then finds no Python source at all).
    """
    from aiokprod.spark.source import AiokprodSource

    spark.dataSource.register(AiokprodSource)


def __getattr__(name: str) -> Any:
    if name == "write_each_batch":
        return import_module("aiokprod.spark.foreach").write_each_batch
    raise AttributeError(f"module 'aiokprod.spark' has no attribute {name!r}")
