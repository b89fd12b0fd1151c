"""Tables of a run: medians, spread, ratios to ours round by round. Pure functions from measurements to Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

from job import Measured

Of = Callable[[Measured], float | None]


@dataclass(slots=True)
class Table:
    """The measurements of one item, by client. The first two names are ours: compiled, and pure."""

    title: str
    kind: str
    names: list[str]
    runs: dict[str, list[Measured]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        runs = {name: [Measured(**run) for run in found] for name, found in fields["runs"].items()}
        return cls(fields["title"], fields["kind"], fields["names"], runs)

    def add(self, name: str, measured: Measured) -> None:
        self.runs.setdefault(name, []).append(measured)

    def values(self, name: str, of: Of) -> list[float]:
        return [value for run in self.runs[name] if (value := of(run)) is not None]

    def middle(self, name: str, of: Of) -> float | None:
        """Return the median of a client's rounds."""
        values = self.values(name, of)
        return median(values) if values else None

    def ratios(self, ours: str, name: str, of: Of) -> list[float]:
        """Return the ratios of ours to theirs, round by round."""
        theirs = self.values(name, of)
        return [mine / its for mine, its in zip(self.values(ours, of), theirs, strict=True)]


def rate(run: Measured) -> float:
    return run.rate


def cpu_us(run: Measured) -> float:
    return run.cpu_us


def busy(run: Measured) -> float:
    """Return how much of their processor the brokers used, in percent."""
    return run.broker_cpu_s / run.seconds * 100


def proxy_busy(run: Measured) -> float:
    """Return how much of the brokers' processor the delay proxy used, in percent."""
    return run.proxy_cpu_s / run.seconds * 100


def commit_p50(run: Measured) -> float | None:
    """Return the median time of a commit, with the delivery of what is left, in milliseconds."""
    return run.p50_ms


def commit_p99(run: Measured) -> float | None:
    return run.p99_ms


def spread(values: Sequence[float], form: str) -> str:
    """Return the median, with the minimum and the maximum."""
    if not values:
        return ""
    middle = format(median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def markdown(tables: Sequence[Table]) -> str:
    """Return every table; the points of one growth series become one table."""
    parts: list[str] = []
    grown: dict[str, list[Table]] = {}
    for table in tables:
        if table.kind == "outcomes":
            parts.append(beside(table))
        if table.kind != "growth":
            parts.append(rates_or_waits(table))
            continue
        what = table.title.rpartition(": ")[0]
        grown.setdefault(what, []).append(table)
    parts += [growth(what, points) for what, points in grown.items()]
    return "\n\n".join(parts) + "\n"


def rates_or_waits(table: Table) -> str:
    waits, commits = table.kind == "waits", table.kind == "commits"
    head = ["client", "records/s", "CPU per record, µs"]
    head += ["commit p50, ms", "commit p99, ms"] if commits else []
    head += ["p50, ms", "p99, ms", "p99.9, ms", "longest stall, ms"] if waits else ["brokers' processor"]
    head += ["rate, compiled : its", "rate, pure : its", "CPU, its : compiled", "CPU, its : pure"]
    head += ["commit p50, compiled : its", "commit p50, pure : its"] if commits else []
    rows = []
    for name in table.names:
        cells = [name, spread(table.values(name, rate), ",.0f"), spread(table.values(name, cpu_us), ".2f")]
        if commits:
            cells += [spread(table.values(name, of), ".2f") for of in (commit_p50, commit_p99)]
        if waits:
            times: list[Of] = [lambda run: run.p50_ms, lambda run: run.p99_ms, lambda run: run.p999_ms]
            cells += [spread(table.values(name, of), ".2f") for of in times]
            cells.append(spread(table.values(name, lambda run: run.stall_ms), ".0f"))
        else:
            proxy = table.middle(name, proxy_busy)
            cells.append(f"{table.middle(name, busy):.0f} %" + (f", proxy {proxy:.0f} %" if proxy else ""))
        cells += [spread(table.ratios(form, name, rate), ".2f") for form in table.names[:2]]
        cells += [spread([1 / each for each in table.ratios(form, name, cpu_us)], ".2f") for form in table.names[:2]]
        if commits:
            has_p50 = bool(table.values(name, commit_p50))
            cells += [
                spread(table.ratios(form, name, commit_p50) if has_p50 else [], ".2f") for form in table.names[:2]
            ]
        rows.append(cells)
    return grid(table.title, head, rows)


def bounds(tables: Sequence[Table]) -> str:
    """Return the part of the rate without transactions that is left for transactions one after another: at most, and measured.

    A transaction of one record shows what each one waits for: the markers of the one before, the first write, and the commit.
    While it waits for that, a program that has one transaction at a time sends nothing. So of the rate without transactions no
    more than `records / (records + waits)` is left, both as times, measured in the same run.
    """
    head = ["transaction.version", "form", "records", "their time without transactions, ms", "waits, ms"]
    head += ["left at most", "left, measured"]
    rows = []
    found = {match.groups(): table for table in tables if (match := TRANSACTIONS.match(table.title))}
    for (count, version), table in found.items():
        single = found.get(("1", version))
        for name in table.names[:2]:
            plain = f"{name}, no transactions"
            if single is None or plain not in table.names:
                continue
            records = int(count.replace(",", ""))
            times = [records / each * 1e3 for each in table.values(plain, rate)]
            waits = single.middle(name, commit_p50)
            if waits is None:
                continue
            most = [each / (each + waits) for each in times]
            cells = [version, name.rpartition(", ")[2], count, spread(times, ".2f"), f"{waits:.2f}"]
            rows.append([*cells, spread(most, ".2f"), spread(table.ratios(name, plain, rate), ".2f")])
    return grid("Transactions one after another: what is left of the rate without them", head, rows) if rows else ""


TRANSACTIONS = re.compile(r"Transactions of ([\d,]+) records?: .*transaction\.version (\d)$")


SAME_WAY = {
    "not read": ("confluent-kafka, no callback", "aiokafka, not read"),
    "each awaited, 20,000 at a time": ("confluent-kafka, callback that reads the offset", "aiokafka, awaited"),
    "each awaited after flush": ("confluent-kafka, callback that reads the offset", "aiokafka, awaited"),
    "`result()` after flush": ("confluent-kafka, callback that reads the offset",),
    "`exception()` after flush": ("confluent-kafka, callback that counts",),
    "a done callback each": ("confluent-kafka, callback that reads the offset",),
    "`gather` of 20,000": (
        "confluent-kafka, callback that reads the offset",
        "confluent-kafka, AIOProducer, awaited",
        "aiokafka, awaited",
    ),
}
"""Of our ways of reading an outcome: what a program does with the other clients to learn the same."""


def beside(table: Table, ways: Mapping[str, Sequence[str]] = SAME_WAY) -> str:
    """Return our cost of each way of reading an outcome, as the ratio to that of the peer's same way, round by round."""
    forms = [name.split(", ")[1] for name in table.names[:2]]
    head = ["how the outcome is read", "beside", "its CPU per record, µs"]
    head += [f"{form}, µs (times cheaper)" for form in forms] + [f"rate, {form} : its" for form in forms]
    rows = []
    for way, peers in ways.items():
        for peer in peers:
            ours = [f"aiokprod, {form}, {way}" for form in forms]
            cells = [way, peer, spread(table.values(peer, cpu_us), ".2f")]
            for name in ours:
                cheaper = [1 / each for each in table.ratios(name, peer, cpu_us)]
                cells.append(f"{table.middle(name, cpu_us):.2f} ({spread(cheaper, '.2f')})")
            cells += [spread(table.ratios(name, peer, rate), ".2f") for name in ours]
            rows.append(cells)
    return grid("Outcomes, each way beside the peers' same way", head, rows)


def growth(what: str, points: Sequence[Table]) -> str:
    """Return a line for each client: CPU per record at each point, and its ratio to the point 10, or else to the first."""
    names = points[0].names
    base = next((point for point in points if point.title.endswith(": 10")), points[0])
    labels = [point.title.rpartition(": ")[2] for point in points]
    of = what.removeprefix("Growth, ")
    head = [f"{of}: CPU per record, µs (times that at {labels[points.index(base)]})", *labels]
    rows = []
    for name in names:
        least = base.middle(name, cpu_us)
        costs = [point.middle(name, cpu_us) for point in points]
        assert least is not None
        rows.append([name, *(f"{cost:.2f} ({cost / least:.2f})" for cost in costs if cost is not None)])
    rows.append([f"{names[0]}: records/s", *(spread(point.values(names[0], rate), ",.0f") for point in points)])
    return grid(what, head, rows)


def grid(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])
