"""docs/performance.md, its plots, the README's table: what a run measured. `python bench/write_docs.py [RESULTS.json]`.

Every figure in that page comes from there; the page is written anew each time.
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
from readme_table import write_table
from tables import Table, grid, markdown

PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "performance"

HEAD = """# Performance

Written by `nox -s bench -- --docs` (bench/write_docs.py); do not edit. aiokprod beside its peers on the same real
Apache Kafka in the same run: clients take turns, round after round; each figure is the median of the rounds, with the
least and the most in brackets; ratios are taken round by round. All clients wait for all in-sync replicas and are
idempotent. The client has one processor core, the brokers the other: where *brokers' processor* is at 95 % or more the
rate is the broker's, and the cost (CPU per record, all threads of the client) is what tells clients apart. What was
acknowledged was compared with the offsets in the log after every turn. aiokprod is in two lines: compiled by mypyc, and
pure Python. The clients' settings are in `bench/items.py` and `bench/peers`.
"""

CLIENTS = """Keys are hashed with murmur2 by all. Codecs have each client's own level: aiokafka 9 for gzip and lz4,
kafka-python 9 for gzip, and neither can be set. Where sends are awaited, confluent-kafka's callbacks come from a thread that
polls and kafka-python's from its own, and settle a future of the event loop (`call_soon_threadsafe`); one at a time these
two block instead, without an event loop. AIOProducer has no headers. Java's tool has neither keys nor headers nor many
topics, waits for no single record, and counts latency from when a record was sent, not from when it was due."""

GROWTH = """Two and three brokers share the one processor core that a single one has: what they take of each other is in the
rates of those lines, not in the cost of the client."""

STARTUP = """Import from a started interpreter; from the construction of the producer to the acknowledgement of its first
record; resident size then. Fresh processes, taking turns."""

FASTAPI = """FastAPI under uvicorn with uvloop, one worker with one core; 64 connections of a load generator, which shares
the other core with the broker. Each request sends one 100 B record and is answered when it is acknowledged (but for *not
awaited*)."""

MEMORY = """The broker is stopped while records are sent, so all of them are pending. Full: every Delivery is kept, until
`buffer_memory` (32 MiB) is charged."""

PENDING = """As many records pending at once: what the garbage collector and the loop make of them. Compiled, the
collector does not know Deliveries ([design.md](design.md#not-obvious)); pure, it walks those that the program keeps. The
records themselves are nothing to it in either form. The peers' limits on what is pending are raised.
What their program keeps: nothing with confluent-kafka's callback, one function for all records, and a future for each with
the others. aiokafka's `send` waits as soon as one batch of its partition is full: its records go round the 24 partitions
that the peers have here, in batches of up to 900 kB."""


def write(results: dict[str, Any]) -> None:
    """The page, and the plots beside it."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    tables = [Table.from_json(table) for table in results["tables"]]
    parts = [HEAD, facts(results["machine"])]
    parts += [f"![{title}](performance/{name})" for name, title in plots.draw(tables, results, FIGURES)]
    parts += ["## Throughput and latency", CLIENTS]
    parts.append(markdown([table for table in tables if table.kind != "growth"]).rstrip())
    if any(table.kind == "growth" for table in tables):
        parts += ["## Growth", GROWTH, markdown([table for table in tables if table.kind == "growth"]).rstrip()]
    parts += sections(results)
    PAGE.write_text("\n\n".join(part.strip("\n") for part in parts) + "\n")
    write_table(tables, ROOT / "README.md")


def facts(machine: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in machine.items()) + "."


def sections(results: dict[str, Any]) -> list[str]:
    """What is no table of clients."""
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
    """Median, and from where to where."""
    middle, least, most = figure
    return f"{middle:,.1f} ({least:,.1f} to {most:,.1f})"


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "bench" / "results.json"
    write(json.loads(given.read_text()))
