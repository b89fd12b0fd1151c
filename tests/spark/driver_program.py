"""A driver of Spark in a process of its own: runs streams from a folder of text files to Kafka, and tells how each ended.

    python driver_program.py FOLDER

FOLDER has `program.json`: `master`, `settings`, and `phases`, each a list of queries that run at the same time: `name`,
`topic`, `run` (for the audit), `checkpoint`, `input`, `tasks`, `files` (of a batch), `options` of the sink. A phase begins when
the file `go.<number>` is there. A query is stopped when there is a file `<name>.stop`; it becomes `<name>.stopping` once Spark
has begun to. `jvm.pid` and `results.jsonl` are written.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from aiokprod import audit
from aiokprod.spark import activate


def session(program: dict[str, Any], folder: Path) -> SparkSession:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.files.openCostInBytes": "1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = SparkSession.builder.master(program["master"]).config(map=settings | program["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def numbered(rows: DataFrame, run: int, topic: str) -> DataFrame:
    """Add the identity by which the audit knows a row: the number of its file and of its line."""
    numbers = "cast(substring(value, 1, 5) as long) * 1000 + cast(substring(value, 7, 3) as long) as seq"
    return audit.marked(rows.selectExpr("value", numbers), run=run, seq="seq", topic=topic)


def start(spark: SparkSession, query: dict[str, Any]) -> Any:
    # A session for each query: a file source reads the setting of the one that it was made in at every batch.
    spark = spark.newSession()
    activate(spark)
    spark.conf.set("spark.sql.files.minPartitionNum", str(query["tasks"]))
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", query["files"]).text(query["input"])
    rows = audit.for_the_sink(numbered(rows, query["run"], query["topic"]))
    writer = rows.writeStream.format("aiokprod").options(**query["options"]).option("topic", query["topic"])
    writer = writer.option("checkpointLocation", query["checkpoint"]).queryName(query["topic"])
    return writer.trigger(availableNow=True).start()


def stop_on_demand(folder: Path, running: dict[str, Any]) -> None:
    """Stop each query for which a file asks."""
    while True:
        for asked in folder.glob("*.stop"):
            query = running[asked.stem]
            threading.Thread(target=query.stop, daemon=True).start()  # waits for the end of the batch's thread
            while query.isActive:
                time.sleep(0.01)
            asked.rename(asked.with_suffix(".stopping"))
        time.sleep(0.02)


def main(folder: Path) -> None:
    program = json.loads((folder / "program.json").read_text())
    spark = session(program, folder)
    process: Any = spark.sparkContext._gateway
    (folder / "jvm.pid").write_text(str(process.proc.pid))
    lock = threading.Lock()

    def watch(name: str, running: Any) -> None:
        error = None
        try:
            running.awaitTermination()
        except Exception as failed:
            error = str(failed)
        with lock, (folder / "results.jsonl").open("a") as results:
            batches = [each["batchId"] for each in map(json.loads, (each.json for each in running.recentProgress))]
            results.write(json.dumps({"name": name, "error": error, "batches": batches}) + "\n")

    watchers: list[threading.Thread] = []
    running: dict[str, Any] = {}
    threading.Thread(target=stop_on_demand, args=(folder, running), daemon=True).start()
    for number, queries in enumerate(program["phases"]):
        while not (folder / f"go.{number}").exists():
            time.sleep(0.05)
        started = [(query["name"], start(spark, query)) for query in queries]
        running |= dict(started)
        watchers += [threading.Thread(target=watch, args=each) for each in started]
        for watcher in watchers[-len(started) :]:
            watcher.start()
    for watcher in watchers:
        watcher.join()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
