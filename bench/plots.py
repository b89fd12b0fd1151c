"""The plots of docs/performance.md, as SVG. A plot without measurements is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update(
    {"svg.hashsalt": "aiokprod", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
)

from matplotlib import pyplot  # noqa: E402
from tables import Of, Table, cpu_us  # noqa: E402

OURS, THEIRS = "#1565c0", "#9e9e9e"


def draw(tables: Sequence[Table], results: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Draw the plots for which there are measurements."""
    drawn = [
        costs("firehose.svg", "Firehose, 100 B values", tables, "Firehose: 100 B values, no keys, 6", folder),
        costs(
            "keyed.svg",
            "Firehose, 100,000 keys and two headers",
            tables,
            "Firehose: 100 B values, 100,000 keys, 2 headers",
            folder,
        ),
        latencies("open-loop.svg", tables, folder),
        growth("growth.svg", tables, folder),
        slope("memory.svg", results, folder),
    ]
    return [each for each in drawn if each is not None]


def save(figure: Any, name: str, folder: Path) -> None:
    figure.tight_layout()
    figure.savefig(folder / name, metadata={"Date": None})
    pyplot.close(figure)


def costs(name: str, title: str, tables: Sequence[Table], starts: str, folder: Path) -> tuple[str, str] | None:
    """Draw two rows of bars: rate, and CPU per record."""
    table = next((table for table in tables if table.title.startswith(starts)), None)
    if table is None:
        return None
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 0.4 * len(table.names) + 1.2), sharey=True)
    bars(axes[0], table, lambda run: run.rate / 1e3, "thousand records/s")
    bars(axes[1], table, cpu_us, "CPU per record, µs (log)")
    axes[1].set_xscale("log")
    axes[0].invert_yaxis()
    figure.suptitle(title)
    save(figure, name, folder)
    return name, title


def bars(axis: Any, table: Table, of: Of, label: str) -> None:
    """Draw the median of each client, with a line from the minimum to the maximum."""
    found = [(client, table.values(client, of)) for client in table.names]
    middles = [table.middle(client, of) or 0.0 for client in table.names]
    reach = [
        [middle - min(values) for middle, (_, values) in zip(middles, found, strict=True)],
        [max(values) - middle for middle, (_, values) in zip(middles, found, strict=True)],
    ]
    colours = [OURS if client.startswith("aiokprod") else THEIRS for client in table.names]
    axis.barh(table.names, middles, xerr=reach, color=colours, ecolor="#424242", capsize=2)
    axis.set_xlabel(label)


def latencies(name: str, tables: Sequence[Table], folder: Path) -> tuple[str, str] | None:
    """Draw the percentiles of the open loop."""
    table = next((table for table in tables if table.title.startswith("Open loop")), None)
    if table is None:
        return None
    quantiles: list[tuple[str, Callable[[Any], float | None]]] = [
        ("p50", lambda run: run.p50_ms),
        ("p99", lambda run: run.p99_ms),
        ("p99.9", lambda run: run.p999_ms),
        ("worst", lambda run: run.worst_ms),
    ]
    figure, axis = pyplot.subplots(figsize=(7, 3.2))
    for client in table.names:
        values = [table.middle(client, of) or 0.0 for _, of in quantiles]
        offered = table.middle(client, lambda run: run.offered) or 0.0
        axis.plot([label for label, _ in quantiles], values, marker="o", label=f"{client} at {offered / 1e3:,.0f} k/s")
    axis.set_yscale("log")
    axis.set_ylabel("ms from when it was due (log)")
    axis.legend(fontsize=8)
    title = "Open loop, each client at half of its own rate"
    figure.suptitle(title)
    save(figure, name, folder)
    return name, title


def growth(name: str, tables: Sequence[Table], folder: Path) -> tuple[str, str] | None:
    """Draw the CPU per record as clusters grow."""
    grown: dict[str, list[Table]] = {}
    for table in tables:
        if table.kind == "growth":
            grown.setdefault(table.title.rpartition(": ")[0], []).append(table)
    if not grown:
        return None
    figure, axes = pyplot.subplots(1, len(grown), figsize=(3 * len(grown) + 2, 3), sharey=True, squeeze=False)
    for axis, (what, points) in zip(axes[0], grown.items(), strict=True):
        labels = [point.title.rpartition(": ")[2] for point in points]
        for client in points[0].names:
            axis.plot(labels, [point.middle(client, cpu_us) or 0.0 for point in points], marker="o", label=client)
        axis.set_title(what.removeprefix("Growth, "), fontsize=9)
        axis.set_yscale("log")
    axes[0][0].set_ylabel("CPU per record, µs (log)")
    axes[0][-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, name, folder)
    return name, "Cost per record as clusters grow"


def slope(name: str, results: dict[str, Any], folder: Path) -> tuple[str, str] | None:
    """Draw the resident size under an even load."""
    if "slope" not in results:
        return None
    figure, axis = pyplot.subplots(figsize=(7, 2.6))
    axis.plot(
        [at / 60 for at, _ in results["slope"]["series"]], [mb for _, mb in results["slope"]["series"]], color=OURS
    )
    axis.set_ylim(bottom=0)
    axis.set_xlabel("minutes")
    axis.set_ylabel("MiB resident")
    title = f"{results['slope']['records_per_second']:,} records/s, steadily"
    figure.suptitle(title)
    save(figure, name, folder)
    return name, title
