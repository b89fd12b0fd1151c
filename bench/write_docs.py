"""Write docs/performance.md, its plots and the README's table from the results of a run.

`python bench/write_docs.py [RESULTS.json]`. If the results have not every table of the page, theirs are replaced, and the
others stay: page.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import plots
from compiled import ROOT
from items import FORMS
from memory import NOT_KEPT
from page import blocks, replaced
from readme_table import has_all, write_table
from tables import Table, bounds, grid, markdown

PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "performance"

HEAD = """# Performance

Written by `nox -s bench -- --docs` (bench/write_docs.py); do not edit.

aiokprod and other clients were measured in the same run on the same real Apache Kafka, taking turns round after round. Each
figure is the median of the rounds, with the minimum and the maximum in brackets. Ratios are computed round by round. All
clients wait for all in-sync replicas and are idempotent. aiokprod has two lines, one for each of its [forms](compiled.md):
compiled and pure. The clients' settings are in `bench/items.py` and `bench/peers`.

The client has one processor core, the brokers the other. Where *brokers' processor* is at 95 % or more, the broker limits the
rate. Then compare the clients by their cost: CPU per record, over all threads of the client. After every turn the
acknowledgements were compared with the offsets in the log.
"""

CLIENTS = """All clients hash keys with murmur2. Codecs have each client's own level: aiokafka 9 for gzip and lz4,
kafka-python 9 for gzip, and neither can be set. AIOProducer has no headers. Java's tool has no keys, no headers
and only one topic. It waits for no single record, and counts latency from when a record was sent, not from when
it was due.

How a program learns of the outcomes is part of the work. *Firehose*: nothing is read, `flush()` waits for all; of
confluent-kafka there is a line without a callback and one with a callback that counts, Java's tool has a callback, and
AIOProducer's futures are gathered. *Outcomes*: each way of reading beside the peer's same way. *asyncio alone* is no client
but what `asyncio.gather` takes over bare futures that one callback settles, without any record.

Where sends are awaited, confluent-kafka calls its callbacks in a thread that polls, and kafka-python in its own thread; they
settle a future of the event loop (`call_soon_threadsafe`). One at a time, these two clients block instead, without an event
loop."""

GROWTH = """Two and three brokers share one processor core. The work this adds for the brokers shows in the rates of those
lines, not in the cost of the client."""

TRANSACTIONS = """Measured by `nox -s bench -- transactions`: begin, send, commit, one transaction after another. The time of a
commit includes the delivery of what is left of its records. Each client takes transactions of 1, 100 and 10,000 records, and
of 100 ms at full load, on brokers with transaction.version 2 (KIP-890, which aiokprod and Java speak) and 1. *No transactions*
is our own idempotent rate. Java's tool (`--transaction-duration-ms`) ends transactions by time alone, and tells no time of
commits. *asyncio alone* is no client but what is left where a client does nothing: the three requests of such a transaction,
whose bytes are ready, on a bare `asyncio.Protocol` (`bench/peers/bare_asyncio.py`)."""

BOUNDS = """*Waits* is the median commit of a transaction of one record: it contains the markers of the transaction before,
the first write, and the commit itself. While a program waits for that, it sends nothing. So *left at most* is a limit for
transactions one after another, whatever the client does; larger transactions, or several producers, get closer to the full
rate."""

STARTUP = """The import is timed in an interpreter that has started; the first acknowledgement from the construction of the
producer on; the resident size is taken then. Each client has fresh processes, and the clients take turns."""

FASTAPI = """FastAPI under uvicorn with uvloop, one worker with one core; 64 connections of a load generator, which shares
the other core with the broker. Each request sends one 100 B record and is answered when it is acknowledged
(except *not awaited*)."""

MEMORY = """The broker is stopped while records are sent, so all of them are pending. Full: every Delivery is kept, until
`buffer_memory` (32 MiB) is charged."""

PENDING = """The same number of records pending at once: what this costs the garbage collector and the event loop. In the
compiled form the collector does not track Deliveries ([compiled.md](compiled.md#what-differs)); in the pure
form it walks those that the program keeps. The collector does not see the records themselves in either form.
The other clients' limits on pending records are raised.

The program keeps nothing with confluent-kafka's callback (one function for all records), and a future for each record with the
others. aiokafka's `send` waits as soon as one batch of its partition is full, so its records are spread over the 24 partitions
that the other clients have here, in batches of up to 900 kB."""


def write(results: dict[str, Any]) -> None:
    """Write the page, and the plots beside it."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    tables = [Table.from_json(table) for table in results["tables"]]
    parts = [HEAD, facts(results["machine"])]
    parts += [f"![{title}](performance/{name})" for name, title in plots.draw(tables, results, FIGURES)]
    parts += ["## Throughput and latency", CLIENTS]
    parts.append(markdown([table for table in tables if table.kind not in ("growth", "commits")]).rstrip())
    if commits := [table for table in tables if table.kind == "commits"]:
        parts += ["## Transactions", TRANSACTIONS, markdown(commits).rstrip()]
        if left := bounds(commits):
            parts += [left, BOUNDS]
    if any(table.kind == "growth" for table in tables):
        parts += ["## Growth", GROWTH, markdown([table for table in tables if table.kind == "growth"]).rstrip()]
    parts += sections(results)
    page = "\n\n".join(part.strip("\n") for part in parts) + "\n"
    before = PAGE.read_text() if PAGE.exists() else ""
    if blocks(before).keys() - blocks(page).keys():
        above = blocks(before)[""]
        other = {name: value for name, value in results["machine"].items() if f"{name}: {value}" not in above}
        page = replaced(before, page, f"Measured later: {facts(other)}" if other else "")
    PAGE.write_text(page)
    if has_all(tables):
        write_table(tables, ROOT / "README.md")


def facts(machine: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in machine.items()) + "."


def sections(results: dict[str, Any]) -> list[str]:
    """Return the sections whose figures are not in a table of clients."""
    parts: list[str] = []
    if "fastapi" in results:
        names = ["requests_per_s", "cpu_us", "p50_ms", "p99_ms"]
        head = ["sends by", "requests/s", "CPU per request, µs", "p50, ms", "p99, ms"]
        rows = [[name, *(told(line[each]) for each in names)] for name, line in results["fastapi"].items()]
        parts += ["## A web application", FASTAPI, grid("FastAPI, with and without the send", head, rows)]
    if "startup" in results:
        names = ["import_ms", "first_ack_ms", "idle_mb"]
        head = ["client", "import, ms", "first acknowledgement, ms", "resident, MiB"]
        rows = [[name, *(told(line[each]) for each in names)] for name, line in results["startup"].items()]
        parts += ["## Start", STARTUP, grid("Import and first record", head, rows)]
    if "memory" in results:
        parts += ["## Memory", MEMORY, *memory_grids(results["memory"])]
    if "slope" in results:
        slope = results["slope"]
        parts.append(
            f"Steady load of {slope['records_per_second']:,} records/s for {slope['minutes']:g} minutes (compiled): "
            f"{slope['first_mb']:.1f} MiB resident after the first fifth, {slope['last_mb']:.1f} MiB at the end, slope "
            f"{slope['slope_mb_per_hour']:+.2f} MiB per hour."
        )
    return parts


def memory_grids(found: dict[str, Any]) -> list[str]:
    head = ["form", "buffer", "records", "idle, MiB", "full, MiB", "above idle : buffer_memory", "bytes per record"]
    keys = ["records", "idle_mb", "full_mb", "above_idle_to_buffer_memory", "bytes_per_record"]
    rows = [
        [form, what, *(f"{row[key]:,}" for key in keys)]
        for form, lines in found.items()
        for what, row in lines.items()
        if not what.startswith("pending")
    ]
    columns = {
        "records": "records",
        "idle_mb": "idle, MiB",
        "bytes_per_record": "bytes per record",
        "collector_worst_ms": "longest collection, ms",
        "collector_total_ms": "all collections, ms",
        "stall_ms_sending": "longest stall while sending, ms",
        "stall_ms_settling": "while settling, ms",
    }
    more = []
    for name, lines in found.items():
        client = f"aiokprod, {name}" if name in FORMS else name
        for what, pending in lines.items():
            if what.startswith("pending"):
                label = client + (", Deliveries not kept" if what == NOT_KEPT else "")
                more.append([label, *(f"{pending[key]:,}" if key in pending else "" for key in columns)])
    return [grid("Full buffers", head, rows), PENDING, grid("Pending records", ["client", *columns.values()], more)]


def told(figure: list[float]) -> str:
    """Return the median, with the minimum and the maximum."""
    middle, least, most = figure
    return f"{middle:,.1f} ({least:,.1f} to {most:,.1f})"


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "bench" / "results.json"
    write(json.loads(given.read_text()))
