"""`aiokprod demo`: the main use of the library, shown. Sends records, breaks something midway, reads everything back.

By default on an embedded in-process cluster of three brokers (real sockets); `--real` starts a local Apache Kafka of three
brokers; `--bootstrap` (or `--config`) uses any cluster (nothing is broken there). The exit status is that of the verdict:
0 clean, 1 not clean, 2 no verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from aiokprod.cli.check import Verdict, judge_log
from aiokprod.cli.common.connection import outside_transactions
from aiokprod.cli.common.log_lines import log_lines
from aiokprod.cli.common.parameter import FilePath, Text
from aiokprod.cli.common.running import line_of, tell
from aiokprod.cli.common.statuses import DONE, NOT_DONE
from aiokprod.config import ProducerConfig
from aiokprod.config.command_line import config_of, given_options
from aiokprod.errors import AiokprodError
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.producer import Producer
from aiokprod.reader import Reader
from aiokprod.testing.demo_clusters import DemoCluster, embedded, external, local_kafka

PARTITIONS = 12
SAMPLE_EVERY = 50  # one in this many records is timed
CITIES = ("Oslo", "Lagos", "Lima", "Hanoi", "Graz", "Quito", "Perth", "Turin")


@dataclass(slots=True)
class Run:
    """The results of one demonstration."""

    acknowledged: list[tuple[int, int, bytes]] = field(default_factory=list[tuple[int, int, bytes]])
    """(number of the send, partition, value)"""
    sends: int = 0
    failures: int = 0
    latencies_s: list[float] = field(default_factory=list[float])
    seconds: float = 0.0
    value_bytes: int = 0
    events: list[str] = field(default_factory=list[str])

    def in_send_order(self) -> list[tuple[int, bytes]]:
        """Return (partition, value) of the acknowledged records."""
        return [(partition, value) for _, partition, value in sorted(self.acknowledged)]


def made_up(count: int, seed: int) -> Iterator[bytes]:
    """Yield values that look like orders."""
    draw = random.Random(seed)
    for number in range(count):
        yield (
            f'{{"order":{number},"city":"{draw.choice(CITIES)}","items":{draw.randrange(1, 9)},'
            f'"cents":{draw.randrange(100, 99_999)}}}'
        ).encode()


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, numbered so that all values are different."""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            yield b"%d " % number + line.rstrip(b"\r\n")


async def show(cluster: DemoCluster, values: Iterable[bytes], count: int, topic: str, console: Console) -> Run:
    """Send everything, break something in the middle, and note the acknowledged records."""
    run = Run()
    async with Producer(cluster.config) as producer:
        partitions = await producer.partitions_for(topic)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("acknowledged", total=count)
            began = time.perf_counter()
            outcomes: asyncio.Queue[int] = asyncio.Queue()
            waiting: list[asyncio.Task[None]] = []
            chunk: list[bytes] = []
            number = 0
            broken = False
            for value in values:
                chunk.append(value)
                run.value_bytes += len(value)
                if len(chunk) == 1_000:
                    waiting.append(asyncio.create_task(_send(producer, topic, partitions, chunk, run, outcomes)))
                    number += len(chunk)
                    chunk = []
                    await producer.ready()
                    await asyncio.sleep(0)
                    while not outcomes.empty():
                        progress.advance(bar, outcomes.get_nowait())
                    if not broken and number >= count // 2:
                        broken = True
                        for event in await asyncio.to_thread(cluster.break_something, topic):
                            run.events.append(event)
                            console.print(f"  [yellow]{event}[/]")
            if chunk:
                waiting.append(asyncio.create_task(_send(producer, topic, partitions, chunk, run, outcomes)))
            for task in waiting:
                await task
                while not outcomes.empty():
                    progress.advance(bar, outcomes.get_nowait())
            run.seconds = time.perf_counter() - began
        metrics = producer.metrics()
        for name in ("requests_sent", "batches_resent", "connections_lost"):
            run.events.append(f"{name.replace('_', ' ')}: {metrics[name]:.0f}")
    return run


async def _send(
    producer: Producer, topic: str, partitions: list[int], values: list[bytes], run: Run, outcomes: asyncio.Queue[int]
) -> None:
    """Send one thousand records, and await the outcome of each."""
    deliveries: list[tuple[int, float, Delivery, bytes]] = []
    for index, value in enumerate(values):
        deliveries.append((run.sends, time.perf_counter(), producer.send(topic, value), value))
        run.sends += 1
        if index % 250 == 249:
            await producer.ready()
    for index, (number, began, delivery, value) in enumerate(deliveries):
        try:
            done = await delivery
        except AiokprodError:
            run.failures += 1
            continue
        run.acknowledged.append((number, done.partition, value))
        if index % SAMPLE_EVERY == 0:
            run.latencies_s.append(time.perf_counter() - began)
    outcomes.put_nowait(len(values))


async def read_back(cluster: DemoCluster, topic: str, console: Console, total: int) -> dict[int, list[bytes]]:
    """Read everything in the topic, by partition, in the order of the log."""
    log: dict[int, list[bytes]] = {}
    async with Reader(cluster.config) as reader:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("read back", total=total)
            for partition in await reader.partitions(topic):
                values = log[partition] = []
                async for record in reader.read(topic, partition):
                    values.append(record.value or b"")
                    if len(values) % 1_000 == 0:
                        progress.advance(bar, 1_000)
    return log


def report(console: Console, run: Run, verdict: Verdict) -> None:
    """Print what happened, and the verdict."""
    table = Table(show_header=False, box=None, pad_edge=False)
    sent = len(run.acknowledged)
    table.add_row("records", f"{sent:,} acknowledged, {run.failures:,} failed")
    table.add_row("throughput", f"{sent / run.seconds:,.0f} records/s, {run.value_bytes / run.seconds / 1e6:,.1f} MB/s")
    if run.latencies_s:
        ordered = sorted(run.latencies_s)
        shown = (f"p{q} {ordered[min(len(ordered) - 1, len(ordered) * q // 100)] * 1e3:.1f} ms" for q in (50, 90, 99))
        table.add_row("send to acknowledged", ", ".join(shown))
    table.add_row("what happened", "\n".join(run.events))
    console.print(table)
    colour = "green" if verdict.is_clean else "red"
    console.print(f"[bold {colour}]{verdict.line}[/]")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-n",
    "--records",
    type=click.IntRange(1),
    default=200_000,
    show_default=True,
    metavar="N",
    help="Number of records to generate.",
)
@click.option(
    "-f",
    "--file",
    type=FilePath(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Send its lines instead.",
)
@click.option(
    "-b", "--bootstrap", type=Text(), metavar="HOST:PORT,...", help="Use this cluster, and break nothing there."
)
@click.option(
    "--config",
    "options_file",
    type=FilePath(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The same, with options from a file (TLS, SASL): lines of name=value.",
)
@click.option("-X", "pairs", type=Text(), metavar="NAME=VALUE", multiple=True, help="Set an option of the connection.")
@click.option("--real", is_flag=True, help="Start a local Apache Kafka (Java 17 and Maven).")
@click.option("--seed", default=1, show_default=True, metavar="N", help="Seed of the generated records.")
@click.option(
    "--spark", is_flag=True, help="Spark writes and reads back, on a local Apache Kafka; an audit is the verdict."
)
@click.option(
    "--report",
    "folder",
    type=FilePath(file_okay=False, path_type=Path),
    default="aiokprod-audit",
    show_default=True,
    help="With --spark: folder for the verdict and its plots.",
)
def demo(
    records: int,
    file: Path | None,
    bootstrap: str | None,
    options_file: Path | None,
    pairs: Sequence[str],
    real: bool,
    seed: int,
    spark: bool,
    folder: Path,
) -> None:
    """Send records through the whole pipeline, break something midway, read everything back.

    On a cluster in this process, unless one is given (-b, --config, -X) or started (--real, --spark).

    \b
    Examples:
      aiokprod demo
      aiokprod demo -n 10000 -b localhost:9092

    Exit status: 0 each acknowledged record is in the log once and in order; 1 it is not, or records failed; 2 no verdict, or
    --report is not complete.
    """
    is_given = bool(bootstrap or options_file or pairs)
    if spark and (is_given or file):
        raise click.UsageError("--spark makes up its rows and starts its own cluster: no --bootstrap, no --file")
    if spark and real:
        raise click.UsageError("--spark starts a local Apache Kafka anyway: leave --real out")
    if is_given and real:
        raise click.UsageError("--real and --bootstrap (or --config, -X) exclude each other")
    try:
        if spark:
            from aiokprod.cli.spark_demo import show as show_spark

            sys.exit(show_spark(records, folder))
        config = None
        if is_given:
            config = outside_transactions(config_of(given_options(bootstrap, options_file, pairs)))
        with log_lines(tell) as warnings:
            status = _demonstrated(config, real, records, file, seed)
            if status == DONE:
                warnings.forget_held()
        sys.exit(status)
    except (AiokprodError, OSError) as error:
        tell(line_of(error))
        sys.exit(NOT_DONE)


def _demonstrated(config: ProducerConfig | None, real: bool, records: int, file: Path | None, seed: int) -> int:
    """Run the demonstration; return the exit status."""
    console = Console(highlight=False)
    topic = f"aiokprod-demo-{uuid.uuid4().hex[:8]}"
    if file is None:
        values: Iterable[bytes] = made_up(records, seed)
    else:
        values = list(lines_of(file))  # read once: a pipe cannot be read a second time
        records = len(values)
        if not records:
            raise click.UsageError(f"{file} has no lines: there is nothing to send")
    with contextlib.ExitStack() as stack:
        if config is not None:
            cluster = external(config)
        else:
            cluster = stack.enter_context(local_kafka() if real else embedded())
        console.print(f"{records:,} records to topic {topic} on {cluster.title}", soft_wrap=True)
        cluster.create_topic(topic, PARTITIONS)
        run = asyncio.run(show(cluster, values, records, topic, console))
        log = asyncio.run(read_back(cluster, topic, console, len(run.acknowledged)))
    if run.sends != records:
        tell(f"{run.sends:,} of {records:,} records were sent: there is no verdict")
        return NOT_DONE
    verdict = judge_log(run.in_send_order(), log)
    report(console, run, verdict)
    return 0 if verdict.is_clean and not run.failures else 1
