"""Tables of a run: medians, spread, ratios to ours. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from job import Measured


@dataclass(slots=True)
class Table:
    """The measurements of one item, by client."""

    title: str
    waits: bool
    names: list[str]
    runs: dict[str, list[Measured]] = field(default_factory=dict)

    def add(self, name: str, measured: Measured) -> None:
        self.runs.setdefault(name, []).append(measured)

    def values(self, name: str, of: Callable[[Measured], float | None]) -> list[float]:
        return [value for run in self.runs[name] if (value := of(run)) is not None]

    def ratios(self, name: str, of: Callable[[Measured], float]) -> list[float]:
        """Ours to theirs, round by round."""
        ours = self.values(self.names[0], of)
        return [mine / theirs for mine, theirs in zip(ours, self.values(name, of), strict=True)]


def spread(values: Sequence[float], form: str) -> str:
    """The median, and from where to where it went."""
    middle = format(median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def markdown(tables: Sequence[Table]) -> str:
    return "\n\n".join(_table(table) for table in tables) + "\n"


def _table(table: Table) -> str:
    head = ["client", "records/s", "CPU per record, us"]
    head += ["p50, ms", "p99, ms"] if table.waits else ["broker's processor"]
    head += ["rate of aiokprod : its", "its CPU : aiokprod's"]
    lines = [f"### {table.title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name in table.names:
        cells = [name]
        cells.append(spread(table.values(name, lambda run: run.rate), ",.0f"))
        cells.append(spread(table.values(name, lambda run: run.cpu_us), ".2f"))
        if table.waits:
            for of in (lambda run: run.p50_ms, lambda run: run.p99_ms):
                values = table.values(name, of)
                cells.append(spread(values, ".2f") if values else "")
        else:
            busy = [run.broker_cpu_s / run.seconds * 100 for run in table.runs[name]]
            cells.append(f"{median(busy):.0f} %")
        cells.append(spread(table.ratios(name, lambda run: run.rate), ".2f"))
        cells.append(spread([1 / ratio for ratio in table.ratios(name, lambda run: run.cpu_us)], ".2f"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
