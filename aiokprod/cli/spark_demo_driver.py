"""The driver of `aiokprod demo --spark`: a stream of orders to Kafka, exactly once, in a process that the demo kills.

python -m aiokprod.cli.spark_demo_driver FOLDER SERVERS TOPIC RUN
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final, cast

from aiokprod.cli.spark_demo import FILES_OF_A_BATCH, settings_of

SCHEMA: Final = "order long, file long, key string, value string"


def main(folder: Path, servers: str, topic: str, run: int) -> None:
    """Run the stream until all orders are written."""
    from pyspark.sql import SparkSession

    from aiokprod import audit
    from aiokprod.spark import register

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2,4]").config(map=settings_of(folder)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    (folder / "jvm.pid").write_text(str(cast("Any", spark.sparkContext)._gateway.proc.pid))
    register(spark)
    orders = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_OF_A_BATCH)
    rows = audit.marked(orders.parquet(str(folder / "orders")), run=run, seq="order", stream="file", topic=topic)
    sink = audit.for_the_sink(rows).writeStream.format("aiokprod").option("kafka.bootstrap.servers", servers)
    sink = sink.option("delivery", "exactly_once").option("sinkId", topic).option("markerTopic", topic)
    sink = sink.option("kafka.request.timeout.ms", "5000").option("checkpointLocation", str(folder / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
