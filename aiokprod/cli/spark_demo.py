"""`aiokprod demo --spark`: a stream of Spark is killed midway and goes on; an audit says that nothing is lost or doubled.

Generated orders go through the sink `format("aiokprod")` with `delivery=exactly_once`, from a driver in a process of its own
(`spark_demo_driver.py`). When half of them are in the topic, a leader is moved, a broker killed, and the driver's JVM killed.
The query starts again from its checkpoint. Then Spark's own Kafka source reads the committed records, and the audit compares
them with the stream's input: each record has to be there once. If the driver was not killed midway, there is no verdict and no
page, as the run would show nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from aiokprod.cli.common.running import line_of, tell
from aiokprod.cli.common.statuses import NOT_DONE
from aiokprod.testing.demo_clusters import local_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aiokprod.audit import Verdict
    from aiokprod.testing.demo_clusters import DemoCluster

PARTITIONS: Final = 12
FILES: Final = 24
FILES_OF_A_BATCH: Final = 2
KEYS: Final = 1_000
CITIES: Final = ("Oslo", "Lagos", "Lima", "Hanoi", "Graz")
LOOK_EVERY_S: Final = 0.1
PATIENCE_S: Final = 600.0
DRIVER: Final = ("-m", "aiokprod.cli.spark_demo_driver")
STDERR: Final = 2
LOG: Final = "spark.log"
"""what the drivers and their JVMs print: its warnings are about Spark, and an error is an exception"""
SHOWN_OF_LOG: Final = 2_000


class NoVerdictError(click.ClickException):
    """The demonstration could not be made: nothing is known about the sink."""

    exit_code = NOT_DONE


def show(records: int, report: Path) -> int:
    """Run the demonstration; return the exit status of the audit."""
    try:
        import_module("matplotlib")
        import_module("pyspark")
    except ImportError:
        raise NoVerdictError('the Spark demo needs: pip install "aiokprod[audit,cli]"') from None
    from aiokprod import audit
    from aiokprod.audit.files import check, write

    check(report)
    console = Console(highlight=False)
    topic, run = f"aiokprod-demo-{uuid.uuid4().hex[:8]}", uuid.uuid4().int >> 65
    console.print("starting three brokers of Apache Kafka; all of it takes two to six minutes", soft_wrap=True)
    with tempfile.TemporaryDirectory() as scratch, local_kafka() as cluster:
        folder = Path(scratch)
        write_orders(folder / "orders", records)
        cluster.create_topic(topic, PARTITIONS)
        console.print(
            f"{records:,} rows from a stream of Spark, exactly once, to topic {topic} on {cluster.title}",
            soft_wrap=True,
        )
        began = time.perf_counter()
        _write_in_spite_of_all(folder, cluster, topic, run, records, console)
        seconds = time.perf_counter() - began
        console.print(f"written in {seconds:,.1f} s, two starts of Spark included")
        console.print("starting Spark to read everything back, and to compare", soft_wrap=True)
        with _session(folder) as spark:
            rows = audit.marked(read_orders(spark, folder), run=run, seq="order", stream="file", topic=topic)
            claims = audit.claims_of(rows, delivery="exactly_once")
            verdict = audit.run(spark, claims, _read(spark, cluster.bootstrap_servers, topic), timeline=True)
            _tell(console, verdict)  # before anything else can fail: it took minutes
    try:
        write(verdict, report)
    except OSError as error:
        error.filename = error.filename or str(report)
        tell(f"--report is not complete: {line_of(error)}")
        return verdict.exit_status or NOT_DONE
    console.print(f"pictures: {report / 'index.html'}")
    return verdict.exit_status


def write_orders(folder: Path, records: int) -> None:
    """Write orders as Parquet files, of which the stream reads some in each batch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    files = min(FILES, records)
    for number in range(files):
        orders = range(number * records // files, (number + 1) * records // files)
        table = pa.table(
            {
                "order": pa.array(orders, pa.int64()),
                "file": pa.array([number] * len(orders), pa.int64()),
                "key": [f"customer-{each % KEYS}" for each in orders],
                "value": [
                    f'{{"order":{each},"city":"{CITIES[each % len(CITIES)]}","cents":{each % 997}}}' for each in orders
                ],
            }
        )
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))  # the order in which a stream reads them


def read_orders(spark: SparkSession, folder: Path) -> DataFrame:
    """Return all orders."""
    return spark.read.parquet(str(folder / "orders"))


def _write_in_spite_of_all(
    folder: Path, cluster: DemoCluster, topic: str, run: int, records: int, console: Console
) -> None:
    """Run the driver until half of the records are there, kill it, and run it again to its end."""
    batches = _Batches(folder, -(-min(FILES, records) // FILES_OF_A_BATCH), console)
    console.print("starting Spark")
    with _driver(folder, cluster.bootstrap_servers, topic, run) as first:
        if not _wait(first, batches, lambda: cluster.records_in(topic) >= records // 2):
            raise NoVerdictError(f"half of the rows were not in the topic after {PATIENCE_S:.0f} s{_log_of(folder)}")
        if first.poll() is None:
            for event in cluster.break_something(topic):
                console.print(f"  [yellow]{event}[/]")
        is_killed = first.poll() is None and _kill(folder / "jvm.pid")
        status = _ended(first, batches, folder)
        if status and not is_killed:
            raise NoVerdictError(f"the driver of Spark failed before it was killed{_log_of(folder)}")
        if not status:  # also if it was killed: it had nothing left to write
            raise NoVerdictError(
                "the driver of Spark had written everything before it was killed, so this run shows nothing and makes no"
                f" page: give it more rows (--records, {records:,} now)"
            )
        console.print(
            "  [yellow]killed the driver of Spark (-9); the query starts again from its checkpoint[/]",
            soft_wrap=True,
        )
        console.print("starting Spark again")
    with _driver(folder, cluster.bootstrap_servers, topic, run) as second:
        if _ended(second, batches, folder):
            raise NoVerdictError(f"the second driver of Spark failed{_log_of(folder)}")


class _Batches:
    """The batches of the stream, told as they are done."""

    def __init__(self, folder: Path, count: int, console: Console) -> None:
        self._commits = folder / "checkpoint" / "commits"
        self._count = count
        self._console = console
        self._done = 0

    def tell(self) -> None:
        """Print how many are done, if there are more than before."""
        done = 1 + max((int(path.name) for path in self._commits.glob("*") if path.name.isdigit()), default=-1)
        if done > self._done:
            self._done = done
            self._console.print(f"  batch {done} of {self._count} is done")


def _wait(process: subprocess.Popen[bytes], batches: _Batches, is_there: Callable[[], bool]) -> bool:
    """Wait until it is there, or the process has ended; False: neither has happened for long."""
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and not is_there():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_EVERY_S)
        batches.tell()
    batches.tell()
    return True


def _ended(process: subprocess.Popen[bytes], batches: _Batches, folder: Path) -> int:
    """Wait for the end of a driver; return its exit status, which is 0 if all rows are written."""
    if not _wait(process, batches, lambda: False):
        raise NoVerdictError(f"the driver of Spark goes on for more than {PATIENCE_S:.0f} s{_log_of(folder)}")
    return process.wait()


def _kill(pid: Path) -> bool:
    """Kill a process; return whether it was there."""
    try:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _log_of(folder: Path) -> str:
    """Return the end of what Spark has printed."""
    return f":\n{(folder / LOG).read_text(errors='replace')[-SHOWN_OF_LOG:]}"


@contextmanager
def _driver(folder: Path, servers: str, topic: str, run: int) -> Generator[subprocess.Popen[bytes]]:
    """Run the driver of the stream in a process group of its own; nothing of it is left behind."""
    command = [sys.executable, *DRIVER, str(folder), servers, topic, str(run)]
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - our own module
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return source.option("includeHeaders", "true").option("kafka.isolation.level", "read_committed").load()


def settings_of(scratch: Path) -> dict[str, bool | float | int | str | None]:
    """Return the settings of a Spark on this machine, all of whose files are in `scratch`."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def _session(scratch: Path) -> Generator[SparkSession]:
    """Run Spark on this machine with its own Kafka source; all its files are in `scratch`.

    Raises:
        NoVerdictError: it does not start.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from aiokprod.testing.spark_jars import spark_kafka_jars

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = settings_of(scratch) | {"spark.jars": ",".join(spark_kafka_jars())}
    warnings.filterwarnings("ignore", module="pyspark")  # of its other requirements
    try:
        with stderr_to(scratch / LOG):
            spark = SparkSession.builder.master("local[2]").appName("aiokprod-demo").config(map=settings).getOrCreate()
    except PySparkException as error:
        raise NoVerdictError(f"Spark does not start: {error}{_log_of(scratch)}") from None
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def stderr_to(path: Path) -> Generator[None]:
    """Let what is started inside the block write its errors into a file, all its life."""
    ours = os.dup(STDERR)
    with path.open("ab") as log:
        os.dup2(log.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(ours, STDERR)
        os.close(ours)


def _tell(console: Console, verdict: Verdict) -> None:
    console.print(f"read back by Spark's Kafka source: {verdict.log_records:,} committed records")
    colour = "green" if verdict.is_clean else "red"
    console.print(f"[bold {colour}]{verdict.line}[/]")
