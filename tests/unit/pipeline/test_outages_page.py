"""docs/outages.md: each outage is seen in log, health, metrics and explanation 15 s after it began, and its end within 5 s.

The page has what a service sees that sends a record each second, in virtual time. When it has to change, read it again:

    PYTHONPATH=tests/unit/pipeline:tests/unit/integrations python tests/unit/pipeline/test_outages_page.py

writes it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import pytest
from outage_cases import OUTAGES, TOPIC, Outage, Scene, service
from spark_outage import ATTEMPTS, BATCHES, ROWS, Story, story_of_spark
from virtual_rig import run

from aiokprod import Producer
from aiokprod.claims.rows import Status
from aiokprod.claims.writer import ClaimsWriter
from aiokprod.errors import BootstrapError
from aiokprod.logs import StateLog
from aiokprod.metrics import HistogramSnapshot
from aiokprod.model import Health, ProducerState
from aiokprod.spark.errors import RowError
from aiokprod.testing.virtual import VirtualNetwork

sys.path.append(str(Path(__file__).resolve().parents[1] / "integrations"))
from prometheus_client import CollectorRegistry
from prometheus_server import SCRAPED_EVERY_S, Server
from test_prometheus_alerts import alerts

from aiokprod.integrations.prometheus import PrometheusMetrics

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "outages.md"
MARK: Final = "<!-- generated: tests/unit/pipeline/test_outages_page.py -->\n"
BENCH_MARK: Final = "<!-- generated: bench/outages.py -->\n"
"""The last section of the page is that of the bench, beside other clients: it is not compared here."""
SEEN_S: Final = 15.0
"""At most so long after its beginning an outage is seen everywhere."""
LASTS_S: Final = 600.0
GAUGES: Final = ("buffer_waiting_records", "parked_records")
COUNTERS: Final = (
    "attempts_failed", "records_failed", "buffer_full_errors", "connections_failed", "connections_lost", "metadata_errors",
    "throttle_seconds", "transactions_aborted", "transactions_unknown", "stalls_healed", "acknowledged_records_lost",
    "loop_stalled_seconds", "defects_caught",
)  # fmt: skip


class Lines(logging.Handler):
    """The warnings and errors of aiokprod."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "without TLS" not in record.getMessage():  # of the configuration, at each start
            self.lines.append(f"{record.levelname} {record.getMessage()}".partition("\n")[0])


@dataclass
class Seen:
    """The signs of one outage, as a service has them."""

    lines: list[str] = field(default_factory=list)
    health: Health | None = None
    moved: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    is_fine: bool = True
    alerts: list[str] = field(default_factory=list)
    last_lines: list[str] = field(default_factory=list)
    after: Health | None = None
    is_fine_after: bool = True


def numbers(producer: Producer) -> dict[str, float]:
    return {name: value for name, value in producer.metrics().items() if not isinstance(value, HistogramSnapshot)}


def moved(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """Return the metrics that an operator would look at, and that are not as in calm."""
    found = [f"`{name}` {int(now[name])}" for name in ("ready_producers",) if not now[name]]
    found += [f"`{name}` {int(now[name])}" for name in ("degraded_producers", "failed_producers") if now[name]]
    if now["oldest_record_seconds"] > 5:
        found.append(f"`oldest_record_seconds` {now['oldest_record_seconds']:.0f}")
    found += [f"`{name}` {int(now[name])}" for name in GAUGES if now[name]]
    found += [f"`{name}` +{now[name] - before[name]:.0f}" for name in COUNTERS if now[name] > before[name]]
    return found


async def look(network: VirtualNetwork, outage: Outage, seen: Seen, lines: Lines) -> None:
    scene = Scene(network, outage.brokers, outage.cluster)
    registry = CollectorRegistry()
    every = alerts()
    async with scene.cluster as cluster:
        cluster.create_topic(TOPIC, partitions=1, replication_factor=outage.brokers)
        options: dict[str, Any] = {
            "dialer": scene.dial,
            "client_id": "shop",
            "interceptors": [PrometheusMetrics(registry)],
            **outage.options(scene),
        }
        producer = scene.producer = Producer(cluster.bootstrap_servers, **options)
        await producer.start()
        server = Server(registry, list(every.values()))
        tasks = [asyncio.ensure_future(service(scene, outage)), asyncio.ensure_future(scraped(server))]
        try:
            await asyncio.sleep(60)
            assert not lines.lines, "in calm"
            assert producer.health().ready and producer.explain().is_fine
            before = numbers(producer)
            await step(outage.begin, scene)
            await asyncio.sleep(SEEN_S)
            seen.lines, seen.health, seen.moved = list(lines.lines), producer.health(), moved(before, numbers(producer))
            told = producer.explain()
            seen.is_fine, seen.explained = told.is_fine, str(told).splitlines()
            await asyncio.sleep(LASTS_S - SEEN_S)
            seen.alerts = [alert.query for alert in every.values() if alert.fired_at is not None]
            lines.lines.clear()
            if outage.end is not None:
                await step(outage.end, scene)
                await asyncio.sleep(outage.over_s)
                seen.last_lines, seen.after, seen.is_fine_after = (
                    list(lines.lines),
                    producer.health(),
                    producer.explain().is_fine,
                )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            scene.gate.set()
            for each in [producer, *scene.others]:
                await each.close(1.0)


async def scraped(server: Server) -> None:
    while True:
        server.scrape(asyncio.get_running_loop().time())
        await asyncio.sleep(SCRAPED_EVERY_S)


async def step(action: Any, scene: Scene) -> None:
    done = action(scene)
    if done is not None:
        await done


def seen_of(outage: Outage) -> Seen:
    seen, lines = Seen(), Lines()
    logger = logging.getLogger("aiokprod")
    logger.addHandler(lines)
    try:

        async def scenario(network: VirtualNetwork) -> None:
            await look(network, outage, seen, lines)

        run(scenario)
    finally:
        logger.removeHandler(lines)
    return seen


# ---------------------------------------------------------------------- the page
def cell(text: str) -> str:
    whole = re.sub(r"(\d+)\.\d+ s\b", r"\1 s", text.replace("|", "\\|").replace("\n", " "))
    return re.sub(r"elapsed_s=(\d+)\.\d+", r"elapsed_s=\1", whole)


def shown(lines: list[str], most: int = 2) -> str:
    if not lines:
        return "nothing"
    told = [f"`{cell(line)}`" for line in dict.fromkeys(lines[:most])]
    more = len(lines) - most
    return "<br>".join(told) + (f"<br>and {more} more" if more > 0 else "")


def health_cell(health: Health) -> str:
    ready = "ready" if health.ready else "not ready"
    reason = "" if health.reason is None else f": `{cell(health.reason)}`"
    error = "" if health.last_error is None else f"<br>`last_error`: `{cell(health.last_error)}`"
    return f"{health.state.value}, {ready}{reason}{error}"


def section(outage: Outage, seen: Seen) -> str:
    health, after = seen.health, seen.after
    assert health is not None
    names = [re.findall(r"aiokprod_\w+", query)[0] for query in seen.alerts]
    fired = ", ".join(f"`{name}`" for name in names) or "none"
    if after is None:
        end = outage.end_text
    else:
        late = "" if outage.over_s == 5 else f"within {outage.over_s:.0f} s: "
        end = f"{late}{after.state.value}, {'ready' if after.ready else 'not ready'}<br>{shown(seen.last_lines, 3)}"
    rows = (
        ("log", shown(seen.lines)),
        ("health", health_cell(health)),
        ("metrics", ", ".join(seen.moved) or "nothing"),
        ("alerts, in ten minutes", fired),
        ("explain", f"`{cell(seen.explained[0])}`"),
        ("end", end),
    )
    table = "".join(f"| {name} | {text} |\n" for name, text in rows)
    return f"\n## {outage.name}\n\n{outage.cause[0].upper()}{outage.cause[1:]}.\n\n| | |\n|---|---|\n{table}"


CLAIMS: Final = "A full disk for claims"
CLAIMED: Final[dict[str, Any]] = {"rows_per_file": 100, "most_rows": 1_000, "flush_s": 3600.0, "retry_s": 0.001}


def claims_section() -> str:
    """Return the section of a `Claims` whose disk is full for a while: the writer is a thread of its own."""
    lines = Lines()
    logger = logging.getLogger("aiokprod")
    logger.addHandler(lines)

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        with TemporaryDirectory() as folder:
            writer = ClaimsWriter(Path(folder), 7, 1, StateLog("claims of run 7 stream 1"), **CLAIMED)
            writer.begin()
            with patch("pyarrow.parquet.write_table", full):
                for seq in range(3):
                    writer.add(seq, -1, TOPIC, 0, seq, Status.ACKED, 5, 6)
                writer._wake.set()
                while not lines.lines:
                    threading.Event().wait(0.001)
            while not writer.report().rows:
                threading.Event().wait(0.001)
            writer.end()
            writer._ended.wait()
    finally:
        logger.removeHandler(lines)
    table = (
        f"| log | {shown(lines.lines[:1])} |\n"
        "| health | READY, ready: records are delivered all the same |\n"
        "| metrics | nothing; `claims.report()` counts the claims that wait, and those that were dropped |\n"
        "| explain | nothing |\n"
        f"| end | {shown(lines.lines[-1:])} |\n"
    )
    cause = "Claims ([audit.md](audit.md)) are kept in memory until they can be written."
    return f"\n## {CLAIMS}\n\n{cause}\n\n| | |\n|---|---|\n{table}"


SPARK: Final = "A task of Spark"
SPARK_CAUSE: Final = (
    "All brokers die while a task of the sink ([spark.md](spark.md)) writes rows. Read the log of its executor and the failed\n"
    "task in Spark's UI: health, metrics and explain are those of the sink's producer, which no code of yours sees."
)


class SparkSigns:
    """The signs that the producer of a task gives: what it says of itself, and what is in the log of its executor."""

    def __init__(self, lines: Lines) -> None:
        self.seen = Seen()
        self._lines = lines
        self._before: dict[str, float] = {}

    def before(self, producer: Producer) -> None:
        assert not self._lines.lines, "in calm"
        self._before = numbers(producer)

    def during(self, producer: Producer) -> None:
        seen, told = self.seen, producer.explain()
        seen.lines, seen.health = list(self._lines.lines), producer.health()
        seen.moved, seen.explained = moved(self._before, numbers(producer)), str(told).splitlines()


def spark_signs() -> tuple[Seen, Story]:
    lines = Lines()
    logger = logging.getLogger("aiokprod")
    logger.addHandler(lines)
    try:
        signs = SparkSigns(lines)
        story = story_of_spark(signs, SEEN_S)
    finally:
        logger.removeHandler(lines)
    return signs.seen, story


def spark_section(seen: Seen, story: Story) -> str:
    """Return the section of a task of the Spark sink."""
    first = story.attempts[0]
    assert seen.health is not None
    assert first.error is not None and story.elsewhere.error is not None
    rows = (
        ("log", shown(seen.lines)),
        ("health", health_cell(seen.health)),
        ("metrics", ", ".join(seen.moved)),
        ("alerts", "none of the producer's: the sink takes no interceptors. Alert on Spark's failed tasks and queries"),
        ("explain", f"`{cell(seen.explained[0])}`"),
        ("the task, after", f"{first.seconds:.0f} s: {raised(first.error)}"),
        ("in a new worker, after", f"{story.elsewhere.seconds:.0f} s: {raised(story.elsewhere.error)}"),
        (
            "end",
            f"within ten minutes all {len(story.attempts)} attempts (`spark.task.maxFailures`) have failed after"
            f" {first.seconds:.0f} s each, and so has the job. Run again when the brokers are back, it writes its"
            f" {story.after.rows:,} rows in {story.after.seconds:.0f} s. The topic has {story.written:,} records: what was"
            " acknowledged before is there twice, as at least once has it",
        ),
    )
    table = "".join(f"| {name} | {text} |\n" for name, text in rows)
    return f"\n## {SPARK}\n\n{SPARK_CAUSE}\n\n| | |\n|---|---|\n{table}"


def raised(error: BaseException) -> str:
    """Return an error as the last lines of a traceback show it."""
    text = "".join(traceback.format_exception_only(error)).strip()
    return "<br>".join(f"`{cell(line)}`" for line in text.splitlines())


def page() -> str:
    return PAGE.read_text(encoding="utf-8").partition(MARK)[2].partition(f"\n{BENCH_MARK}")[0]


def parts() -> dict[str, str]:
    found = re.split(r"^\n## (.*)\n", page(), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda outage: outage.name)
def test_an_outage_and_its_end_are_seen_everywhere(outage: Outage) -> None:
    seen = seen_of(outage)
    assert section(outage, seen) == f"\n## {outage.name}\n{parts()[outage.name]}"
    assert seen.health is not None
    assert seen.lines and (seen.health.reason or seen.health.last_error) and seen.moved
    if outage.end is not None:
        assert seen.last_lines and seen.after is not None
        assert seen.after.state is ProducerState.READY and seen.after.ready and seen.is_fine_after


def test_a_full_disk_for_claims_and_its_end_are_in_the_log() -> None:
    assert claims_section() == f"\n## {CLAIMS}\n{parts()[CLAIMS]}"


def test_a_task_of_spark_and_its_end_are_seen_in_its_log_and_its_error() -> None:
    seen, story = spark_signs()
    assert spark_section(seen, story) == f"\n## {SPARK}\n{parts()[SPARK]}"
    assert seen.lines and seen.health is not None and not seen.health.ready and seen.moved
    assert [type(each.error) for each in story.attempts] == [RowError] * ATTEMPTS
    assert isinstance(story.elsewhere.error, BootstrapError)
    assert story.after.error is None and story.after.rows == BATCHES * ROWS
    assert story.written == story.after.rows + ROWS, "the rows of the first call were acknowledged before"


def test_the_page_has_each_outage_in_their_order() -> None:
    assert list(parts()) == [*(outage.name for outage in OUTAGES), CLAIMS, SPARK]


if __name__ == "__main__":
    chosen = [outage for outage in OUTAGES if not sys.argv[1:] or outage.name in sys.argv[1:]]
    texts = [section(outage, seen_of(outage)) for outage in chosen]
    if len(chosen) == len(OUTAGES):
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
        bench = "".join(rest.partition(f"\n{BENCH_MARK}")[1:])
        PAGE.write_text(
            head + MARK + "".join([*texts, claims_section(), spark_section(*spark_signs())]) + bench, encoding="utf-8"
        )
    else:
        print("".join(texts))
