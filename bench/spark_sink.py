"""The Spark sink beside Spark's own, beside confluent-kafka called per row in the same Arrow writer, and beside writers
that send nothing: an Arrow writer that drops what it is given (what Spark and Arrow take alone), and `noop` (no Python).

    python bench/spark_sink.py [--rows 3000000] [--rounds 3] [--batches 100] [--out FILE] [--docs]

It takes about an hour for each form on two quiet cores, and some 20 GB of disk. The streams alone, and a try of a few minutes:

    python bench/spark_sink.py --shapes [--docs]
    python bench/spark_sink.py --rows 30000 --rounds 1 --shapes "100 B" --batches 8

aiokprod is in the form in which this interpreter has it, compiled or pure; docs/spark.md has a table of each.

One real broker, one Spark (`local[2]`), one job per figure: rows made in the JVM, two tasks. The sinks take turns round by
round, so that other work of the machine affects them alike; figures are medians. Rows per second are those of the whole
job; Python CPU is user and system time of all Python workers of Spark, per row. Nothing is compressed, acks=all, all
are idempotent. Before the first round of each shape each client writes everything once.

Streams of micro-batches of 100,000 rows, 100 B and 1 KB, go to `delivery=exactly_once`, to `at_least_once` and to Spark's own
sink by turns; then batches of 4 and of 200 tasks, for the time that their commit takes. Behind each stream an audit reads what
is committed: each row of each finished batch has to be there once. Otherwise there are no figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "spark"))

from pyspark.sql import DataFrame, SparkSession
from sessions import LOG, read_back, spark_session

import aiokprod
from aiokprod.testing.kafka_cluster import KafkaCluster

SINKS = {
    "aiokprod": "aiokprod",
    "exactly_once": "aiokprod, exactly once",
    "kafka": "Spark's own",
    "confluent": "confluent-kafka per row",
    "dropped": "Arrow writer that drops all",
    "noop": "no sink (noop)",
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "spark.md"
FORM = "compiled" if aiokprod.compiled else "pure"
SHAPES = {
    "100 B": (100, False, False),
    "100 B, keys": (100, True, False),
    "100 B, keys, two headers": (100, True, True),
    "1 KB": (1024, False, False),
    "1 KB, keys": (1024, True, False),
    "1 KB, keys, two headers": (1024, True, True),
}
KAFKA_SINKS = ("aiokprod", "exactly_once", "kafka", "confluent")
PYTHON_SINKS = ("aiokprod", "exactly_once", "confluent", "dropped")
STREAM_SINKS = ("aiokprod", "exactly_once", "kafka")
ONES = ("kafka", "aiokprod")
"""Sinks that others are compared with: Spark's own, and ours with `delivery=at_least_once`."""
ROWS_OF_A_BATCH = 100_000
COMMITTED_TASKS = (4, 200)
STARTING = 5
"""Batches at the beginning of a stream that are not measured: they start the workers."""
DIGITS = 12
"""At the beginning of a value: the number of the row."""


def rows(spark: SparkSession, count: int, size: int, *, has_keys: bool, has_headers: bool) -> DataFrame:
    """Return rows made in the JVM: a number, then the same letters."""
    columns = [f"cast(concat(lpad(id, {DIGITS}, '0'), repeat('x', {size - DIGITS})) as binary) as value"]
    if has_keys:
        columns.append("cast(cast(id % 50000 as string) as binary) as key")
    if has_headers:
        header = "struct('{}' as key, cast('{}' as binary) as value)"
        columns.append(f"array({header.format('trace', 'abcdefgh')}, {header.format('source', 'bench')}) as headers")
    return spark.range(count, numPartitions=2).selectExpr(*columns)


def make_confluent_source() -> type[Any]:
    """Return the source. Its class is made here so that Spark pickles it whole: workers cannot import this script."""
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class Writer(DataSourceArrowWriter):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            from confluent_kafka import Producer

            settings = {"bootstrap.servers": self.options["kafka.bootstrap.servers"], "enable.idempotence": True}
            producer = Producer(settings | {"queue.buffering.max.messages": 500_000, "linger.ms": 5})
            topic, failed = self.options["topic"], []

            def told(error: Any, _: Any) -> None:
                if error is not None:
                    failed.append(error)

            for batch in iterator:
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                nothing = [None] * batch.num_rows
                headers = columns.get("headers") or nothing
                for value, key, pairs in zip(columns["value"], columns.get("key") or nothing, headers, strict=True):
                    given = None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs]
                    while True:
                        try:
                            producer.produce(topic, value, key, headers=given, on_delivery=told)
                            break
                        except BufferError:
                            producer.poll(0.01)
                producer.poll(0)
            producer.flush()
            if failed:
                raise RuntimeError(str(failed[0]))
            return WriterCommitMessage()

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "confluent"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer(dict(self.options))

    return Source


def make_dropping_source() -> type[Any]:
    """Return a source that drops every row: the upper bound of any Python writer."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class StreamWriter(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dropped"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer()

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return StreamWriter()

    return Source


def write(frame: DataFrame, sink: str, servers: str, topic: str) -> None:
    options_of(frame.write.format(format_of(sink)).mode("append"), sink, servers, topic).save()


def format_of(sink: str) -> str:
    return "aiokprod" if sink == "exactly_once" else sink


def options_of(writer: Any, sink: str, servers: str, topic: str) -> Any:
    if sink in KAFKA_SINKS:
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
    return writer.option("delivery", "exactly_once") if sink == "exactly_once" else writer


def python_cpu_s() -> float:
    """Return user and system seconds of all Python processes below Spark's JVM, ended ones included."""
    parents: dict[int, list[int]] = {}
    stats: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
        stats[int(entry.name)] = (name, sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK"))
    total, found = 0.0, [os.getpid()]
    while found:
        for child in parents.get(found.pop(), ()):
            found.append(child)
            if not stats[child][0].startswith("java"):
                total += stats[child][1]
    return total


def measure(frame: DataFrame, sink: str, servers: str, topic: str, count: int) -> dict[str, float]:
    cpu, began = python_cpu_s(), time.monotonic()
    write(frame, sink, servers, topic)
    elapsed = time.monotonic() - began
    return {"rows_per_s": count / elapsed, "python_us_per_row": (python_cpu_s() - cpu) / count * 1e6}


def micro_batches(spark: SparkSession, sink: str, servers: str, topic: str, folder: Path, batches: int) -> float:
    """Return the median milliseconds of `addBatch` over micro-batches of 1,000 rows."""
    source = folder / "micro"
    if not source.exists():
        spark.range(1000 * batches, numPartitions=batches).selectExpr("cast(id as string) as value").write.parquet(
            str(source)
        )
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = stream.writeStream.format(format_of(sink)).trigger(availableNow=True)
    writer = options_of(writer, sink, servers, topic)
    query = writer.option("checkpointLocation", str(folder / f"checkpoint-{sink}-{time.monotonic_ns()}")).start()
    query.awaitTermination()
    taken = [json.loads(each.json)["durationMs"]["addBatch"] for each in query.recentProgress]
    return float(statistics.median(taken[5:]))  # without the first batches, which start the workers


def stream_of(
    spark: SparkSession,
    sink: str,
    servers: str,
    topic: str,
    folder: Path,
    *,
    rows: int,
    size: int,
    tasks: int,
    batches: int,
) -> dict[str, float]:
    """Run a stream of batches of `rows` rows, and audit it.

    Returns:
        Rows/s of the stream (of `triggerExecution`, Spark's own work between batches included), and milliseconds.
    """
    source = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", tasks).load()
    )
    row = f"concat(lpad(value, {DIGITS}, '0'), repeat('x', {size - DIGITS}))"
    values = source.selectExpr(f"cast({row} as binary) as value")
    writer = options_of(values.writeStream.format(format_of(sink)), sink, servers, topic)
    log = folder / LOG
    logged = log.stat().st_size if log.exists() else 0
    query = writer.option("checkpointLocation", str(folder / f"checkpoint-{time.monotonic_ns()}")).start()
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < batches):
        time.sleep(0.05)
    query.stop()
    if query.exception() is not None:
        raise RuntimeError(f"the stream to {SINKS[sink]} has failed: {query.exception()}")
    progress = [json.loads(each.json) for each in query.recentProgress]
    finished = 1 + max(each["batchId"] for each in progress)
    add_ms = sorted(
        each["durationMs"]["addBatch"]
        for each in progress
        if each["batchId"] >= STARTING and "addBatch" in each["durationMs"]
    )
    whole_ms = statistics.median(
        each["durationMs"]["triggerExecution"] for each in progress if each["batchId"] >= STARTING
    )
    found = {"rows_per_s": rows / whole_ms * 1000, "trigger_ms": whole_ms, **quantiles("add_batch_ms", add_ms)}
    if sink == "exactly_once":
        lines = log.read_bytes()[logged:].decode(errors="replace").splitlines()
        told = [json.loads(line[line.index("{") :]) for line in lines if '"commit_s"' in line]
        own = [
            each["commit_s"] * 1000
            for each in told
            if each["query_id"] == str(query.id) and STARTING <= each["batch_id"] < finished
        ]
        found |= quantiles("commit_ms", sorted(own))
    audit(spark, sink, servers, topic, finished * rows)
    return found


def audit(spark: SparkSession, sink: str, servers: str, topic: str, count: int) -> None:
    """Compare what readers of committed records see of a stream with its first `count` rows; numbers of rows count from 0.

    Count, sum and the sum of hashes of the numbers have to agree. What the batch behind these has left is not looked at: the
    stream was stopped in it.

    Raises:
        RuntimeError: a row is lost, or is there twice.
    """
    sums = ("count(*)", "sum(number)", "sum(cast(hash(number) as bigint))")
    value = f"cast(substring(cast(value as string), 1, {DIGITS}) as bigint) as number"
    seen = read_back(spark, servers, topic, committed=True).selectExpr(value).where(f"number < {count}")
    expected = spark.range(count).withColumnRenamed("id", "number")
    there, wanted = (tuple(each.selectExpr(*sums).first() or ()) for each in (seen, expected))
    if there != wanted:
        raise RuntimeError(f"audit of {SINKS[sink]}: count and sums are {there}, and have to be {wanted}")


def quantiles(name: str, ordered: list[float]) -> dict[str, float]:
    return {f"{name}_p{part}": ordered[min(len(ordered) - 1, len(ordered) * part // 100)] for part in (50, 99)}


def streams(spark: SparkSession, kafka: KafkaCluster, folder: Path, batches: int, rounds: int) -> dict[str, Any]:
    """Measure batches of 100,000 rows, sinks in turns, and commits of batches with few and with many tasks."""
    figures = dict[str, Any]()

    def measured(sink: str, **how: int) -> dict[str, float]:
        topic = f"stream-{time.monotonic_ns()}"  # of its own, which the audit reads, and which is deleted: it takes gigabytes
        kafka.create_topic(topic, 6)
        found = stream_of(spark, sink, kafka.bootstrap_servers, topic, folder, batches=batches, **how)
        kafka.delete_topic(topic)
        print(f"  {sink}, {how}: {found['rows_per_s']:,.0f} rows/s", flush=True)
        return found

    for size in (100, 1024):
        runs: dict[str, list[dict[str, float]]] = {sink: [] for sink in STREAM_SINKS}
        for number in range(rounds + 1):
            turn = number % len(STREAM_SINKS)
            for sink in [*STREAM_SINKS][turn:] + [*STREAM_SINKS][:turn]:
                run = measured(sink, rows=ROWS_OF_A_BATCH, size=size, tasks=2)
                if number:  # warm-up
                    runs[sink].append(run)
        figures[f"{size} B"] = {
            sink: {what: statistics.median(run[what] for run in each) for what in each[0]}
            for sink, each in runs.items()
        }
    for tasks in COMMITTED_TASKS:
        figures[f"{tasks} tasks"] = {
            sink: measured(sink, rows=tasks * 10, size=100, tasks=tasks) for sink in STREAM_SINKS
        }
    for name, each in figures.items():
        print(f"\nbatches, {name}")
        for sink, found in each.items():
            shown = ", ".join(f"{what} {value:,.1f}" for what, value in found.items())
            print(f"  {sink:12} {found['rows_per_s'] / each['kafka']['rows_per_s']:.2f}x  {shown}", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of 100 B; a third as many of 1 KB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="none: only the streams")
    parser.add_argument(
        "--batches", type=int, default=100, help="of each stream, for the figures of exactly-once writes"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--docs",
        action="store_true",
        help="put the tables into docs/spark.md: of the streams, and of the shapes if all are measured",
    )
    arguments = parser.parse_args()
    if arguments.batches <= STARTING:
        parser.error(f"--batches: more than {STARTING}, as the first {STARTING} are not measured")
    if arguments.docs and any(each not in PAGE.read_text() for each in places("streams")):
        parser.error(f"--docs: the page has figures of streams for the other form only, and aiokprod is {FORM} here")
    began = time.monotonic()
    print(f"aiokprod is {FORM} here", flush=True)
    out = arguments.out.resolve() if arguments.out else None
    figures: dict[str, Any] = {"form": FORM, "rows": arguments.rows, "rounds": arguments.rounds, "shapes": {}}
    with tempfile.TemporaryDirectory() as name, KafkaCluster(brokers=1, java_options=()) as kafka:
        folder, servers = Path(name), kafka.bootstrap_servers
        os.chdir(folder)  # Spark's workers import from their folder first: it must not be this tree
        with spark_session("local[2]", folder) as spark:
            forms = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("aiokprod").compiled).collect()
            assert forms == [aiokprod.compiled], "the workers have another form than this interpreter"
            spark.dataSource.register(make_confluent_source())
            spark.dataSource.register(make_dropping_source())
            for shape in arguments.shapes:
                size, has_keys, has_headers = SHAPES[shape]
                count = arguments.rows if size <= 100 else arguments.rows // 3
                frame = rows(spark, count, size, has_keys=has_keys, has_headers=has_headers)
                runs: dict[str, list[dict[str, float]]] = {sink: [] for sink in SINKS}
                for number in range(arguments.rounds + 1):
                    kafka.create_topic(f"bench-{number}", 6)
                    turn = number % len(SINKS)
                    for sink in [*SINKS][turn:] + [*SINKS][:turn]:
                        measured = measure(frame, sink, servers, f"bench-{number}", count)
                        if number:  # warm-up: the JVMs compile their code, and the workers start
                            runs[sink].append(measured)
                    kafka.delete_topic(f"bench-{number}")
                figures["shapes"][shape] = {
                    sink: {what: statistics.median(run[what] for run in each) for what in each[0]}
                    for sink, each in runs.items()
                }
                show(shape, figures["shapes"][shape])
            kafka.create_topic("micro", 6)
            figures["micro_batch_ms"] = {
                sink: micro_batches(spark, sink, servers, "micro", folder, 40)
                for sink in ("aiokprod", "exactly_once", "kafka", "dropped", "noop")
            }
            print("addBatch of 1,000 rows, ms:", figures["micro_batch_ms"], flush=True)
            figures["streams"] = streams(spark, kafka, folder, arguments.batches, arguments.rounds)
    print(f"\nall of it took {(time.monotonic() - began) / 60:.0f} minutes; aiokprod was {FORM}")
    if out:
        out.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.docs:
        put("streams", streams_table(figures))
        if len(figures["shapes"]) == len(SHAPES):
            put("rows", shapes_tables(figures))


def places(part: str) -> tuple[str, str]:
    """Return the two comments of the page between which a part is, in this form."""
    return f"<!-- {part}, {FORM}: bench/spark_sink.py --docs -->", f"<!-- end of {part}, {FORM} -->"


def put(part: str, text: str) -> None:
    """Put `text` into the page, in its place."""
    begin, end = places(part)
    before, _, rest = PAGE.read_text().partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}{end}{after}")


def shapes_tables(figures: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"| rows/s of the whole job, {FORM} | " + " | ".join(SINKS.values()) + " |",
        "|---" * (len(SINKS) + 1) + "|",
    ]
    for shape, each in figures["shapes"].items():
        own = each["kafka"]["rows_per_s"]
        cells = [f"{each[sink]['rows_per_s']:,.0f} ({each[sink]['rows_per_s'] / own:.2f}x)" for sink in SINKS]
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    python = PYTHON_SINKS
    lines += ["", f"| CPU of Python, µs per row, {FORM} | " + " | ".join(SINKS[sink] for sink in python) + " |"]
    lines.append("|---" * (len(python) + 1) + "|")
    for shape, each in figures["shapes"].items():
        lines.append(f"| {shape} | {' | '.join(format(each[sink]['python_us_per_row'], '.2f') for sink in python)} |")
    lines.append("")
    return "\n".join(lines)


def streams_table(figures: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"| micro-batches, {FORM} | rows/s of the stream | to Spark's own | to at_least_once | addBatch p50, p99 | rows/s of"
        " addBatch, to at_least_once | commit p50, p99 |"
    ]
    lines += ["|---" * 7 + "|"]
    for name, sinks in figures["streams"].items():
        ratios = [{sink: each["rows_per_s"] / sinks[one]["rows_per_s"] for sink, each in sinks.items()} for one in ONES]
        for sink, each in sinks.items():
            times = [f"{each['add_batch_ms_p50']:.0f}, {each['add_batch_ms_p99']:.0f} ms"]
            times += [f"{sinks['aiokprod']['add_batch_ms_p50'] / each['add_batch_ms_p50']:.2f}x"]
            times += [f"{each['commit_ms_p50']:.0f}, {each['commit_ms_p99']:.0f} ms" if "commit_ms_p50" in each else ""]
            lines.append(
                f"| {name}, {SINKS[sink]} | {each['rows_per_s']:,.0f} | {ratios[0][sink]:.2f}x | {ratios[1][sink]:.2f}x "
                f"| {' | '.join(times)} |"
            )
    micro = ", ".join(f"{SINKS[sink]} {taken:.0f} ms" for sink, taken in figures["micro_batch_ms"].items())
    lines += ["", f"A micro-batch of 1,000 rows in one task (`addBatch`, median): {micro}."]
    lines += ["", "An audit of each stream of the table found each row of each finished batch once.", ""]
    return "\n".join(lines)


def show(shape: str, medians: dict[str, dict[str, float]]) -> None:
    print(f"\n{shape}: rows/s, times Spark's own, Python CPU in us per row")
    own = medians["kafka"]["rows_per_s"]
    for sink, each in medians.items():
        rate = each["rows_per_s"]
        print(f"  {sink:10} {rate:12,.0f} {rate / own:6.2f}x {each['python_us_per_row']:8.2f}", flush=True)


if __name__ == "__main__":
    main()
