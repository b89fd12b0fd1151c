"""aiokprod beside other clients, on real brokers, in one run: `python bench/run.py`, all of it in about half an hour.

    python bench/run.py firehose keyed --rounds 5    some items
    python bench/run.py --quick                      a twentieth of the records, one round: for a change
    python bench/run.py --docs                       also write docs/performance.md and its plots
    python bench/run.py slope --minutes 30           half an hour of steady load, not part of `all`

The client has one processor for itself and the brokers the other; clients take turns, round after round. The
acknowledgements are compared with the log. The busier the broker's processor is, the more a rate says about the broker, so
the cost of the client is printed beside it: microseconds of its processor per record. aiokprod has two lines, compiled and
pure: the compiled form is built into a venv of its own (a minute, kept) unless `--compiled PYTHON` names one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import machine
import memory
import startup
import web_app_bench
from brokers import started
from compiled import ROOT, compiled_python
from items import AIOKPROD, CALLBACK, COMPILED, ITEMS, Entry, Item
from tables import Table, markdown
from turns import Turns

from aiokprod.testing import KafkaCluster

QUICK = 0.05
WARM_UP = 1_000_000  # records of each client
RESULTS = ROOT / "build" / "bench" / "results.json"
Extra = Callable[["Bench"], dict[str, Any]]


class Bench:
    """One run: the brokers that are up, and the measurements."""

    def __init__(self, compiled: str, rounds: int | None, scale: float, minutes: float) -> None:
        self.compiled = compiled
        self.rounds = rounds
        self.scale = scale
        self.minutes = minutes
        self.turns = Turns(compiled)
        self.results: dict[str, Any] = {"machine": machine.facts(), "tables": [], "durations_s": {}}
        self._brokers: tuple[int, float, int | None] | None = None
        self._stack = ExitStack()
        self._cluster: KafkaCluster | None = None

    def cluster(
        self, brokers: int = 1, round_trip_ms: float = 0.0, transaction_version: int | None = None
    ) -> KafkaCluster:
        """Return brokers of this kind; stop others that are up."""
        kind = (brokers, round_trip_ms, transaction_version)
        if self._brokers != kind or self._cluster is None:
            self.close()
            self._cluster = self._stack.enter_context(started(*kind))
            self._brokers = kind
            self._warm_up(self._cluster)
        return self._cluster

    def _warm_up(self, cluster: KafkaCluster) -> None:
        """Let two clients send to the new brokers, not counted: a young JVM is slow, and the first in turn would pay for it."""
        for client in (CALLBACK, AIOKPROD):
            entry = Entry(client, "firehose", WARM_UP, form=COMPILED if client == AIOKPROD else "")
            self.turns.take(cluster, Item("warm-up", (entry,), {"size": 100}), entry, self.scale)

    def close(self) -> None:
        self._stack.close()
        self._cluster = None

    def measure(self, name: str) -> None:
        """Measure one item of the command line."""
        began = time.perf_counter()
        if name in ITEMS:
            for item in ITEMS[name]():
                self.results["tables"].append(asdict(self.table(item)))
        else:
            self.results[name] = EXTRAS[name](self)
        self.results["durations_s"][name] = round(time.perf_counter() - began)

    def table(self, item: Item) -> Table:
        table = Table(item.title, item.kind, [entry.name for entry in item.entries])
        cluster = self.cluster(item.brokers, item.round_trip_ms, item.transaction_version)
        for _ in range(self.rounds or item.rounds):
            for entry in item.entries:
                measured = self.turns.take(cluster, item, entry, self.scale)
                table.add(entry.name, measured)
                told = f"{measured.rate:,.0f}/s {measured.cpu_us:.2f} us p50 {measured.p50_ms}"
                print(f"{item.title}: {entry.name}: {told}", file=sys.stderr, flush=True)
        return table


EXTRAS: dict[str, Extra] = {
    "startup": lambda bench: startup.measure(bench.cluster(), bench.compiled, quick=bench.scale < 1),
    "memory": lambda bench: memory.measure(bench.cluster(), bench.compiled, quick=bench.scale < 1),
    "fastapi": lambda bench: web_app_bench.measure(
        bench.cluster(), bench.compiled, rounds=bench.rounds or 3, quick=bench.scale < 1
    ),
    "slope": lambda bench: memory.slope(bench.cluster(), bench.compiled, bench.minutes),
}
ALONE = ("slope",)
ALL = [
    *(name for name in ITEMS if name not in ("growth", "round_trip", "transactions")),
    "startup",
    "fastapi",
    "growth",
    "round_trip",
    "memory",
    "transactions",
]
"""Measure all items, first those that share one broker."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "items", nargs="*", metavar="item", help=f"of {', '.join([*ALL, *ALONE])}; all but slope by default"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each table; the table's own number by default")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, one round")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of records")
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of slope")
    parser.add_argument("--compiled", metavar="PYTHON", help="an interpreter that has the compiled form")
    parser.add_argument(
        "--json",
        type=Path,
        help="folder of the measurements, where those of other items are kept; build/bench by default",
    )
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    parser.add_argument(
        "--docs", action="store_true", help="write docs/performance.md and its plots, from all that is in --json"
    )
    words = parser.parse_args()
    if unknown := set(words.items) - {*ALL, *ALONE}:
        parser.error(f"no item {', '.join(sorted(unknown))}; there are {', '.join([*ALL, *ALONE])}")
    rounds, scale = (1, QUICK) if words.quick else (words.rounds, words.scale)
    compiled = Path(words.compiled).absolute() if words.compiled else compiled_python()
    bench = Bench(str(compiled), rounds, scale, words.minutes)
    path = words.json or (RESULTS if scale == 1.0 else RESULTS.with_name("quick.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else {}
    results = before
    try:
        for name in words.items or ALL:
            bench.measure(name)
            results = merged(before, bench.results)
            path.write_text(json.dumps(results, indent=1))  # stored first: what follows may fail
    finally:
        bench.close()
    text = markdown([Table.from_json(table) for table in bench.results["tables"]])
    print(text)
    print(json.dumps({name: bench.results[name] for name in EXTRAS if name in bench.results}, indent=1))
    print(json.dumps(bench.results["durations_s"]))
    if words.markdown:
        words.markdown.write_text(text)
    if words.docs:
        import write_docs  # it draws: matplotlib is needed only here

        write_docs.write(results)


def merged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the new measurements, and those earlier ones that were not repeated."""
    titles = {table["title"] for table in now["tables"]}
    kept = [table for table in before.get("tables", []) if table["title"] not in titles]
    durations = before.get("durations_s", {}) | now["durations_s"]
    return before | now | {"tables": kept + now["tables"], "durations_s": durations}


if __name__ == "__main__":
    main()
