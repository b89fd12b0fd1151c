"""The verdict as one self-contained HTML page: no script, no other file; plots are SVG inside it.

Without matplotlib the page has its tables and names the missing package.
"""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from aiokprod.audit.findings import WRONG, Finding
from aiokprod.audit.latency import bucket_middle_us, quantiles_us
from aiokprod.audit.verdict import CLEAN, FINDINGS, Verdict, names_of

Axes: TypeAlias = Any  # matplotlib's methods have types for some of their parameters only
ROWS_SHOWN: Final = 200
MOST_POINTS: Final = 600  # in the timeline
STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222; }
h1 { padding: .4em .6em; border-radius: .3em; color: #fff; background: #2a7d46; }
h1.wrong { background: #b3261e; } h1.open { background: #8a6100; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } svg { max-width: 100%; height: auto; }
"""


def page(verdict: Verdict) -> str:
    """Make the whole page."""
    kind = {CLEAN: "clean", FINDINGS: "wrong"}.get(verdict.exit_status, "open")
    title = {"clean": "Clean", "wrong": "Findings", "open": "Not judged"}[kind]
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Audit: {title}</title>',
        f"<style>{STYLE}</style></head><body>",
        f'<h1 class="{kind}">{title}</h1><p>{html.escape(verdict.line)}</p>',
        _table(("", "records"), _numbers(verdict)),
        *(_plots(verdict)),
        "<h2>Records</h2>" + _named(verdict) if verdict.named or verdict.named_late else "",
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _numbers(verdict: Verdict) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [("claims", verdict.claims)]
    rows += [(f"claimed: {name.replace('_', ' ')}", count) for name, count in sorted(verdict.statuses.items())]
    rows += [
        ("in the log", verdict.log_records),
        ("in the log, not of these runs", verdict.not_ours),
        ("in the log, of runs whose claims are not complete", verdict.unclaimed),
    ]
    rows += [(names_of(f), verdict.counts[f]) for f in Finding if f in WRONG or verdict.counts[f]]
    rows.append(("reordered", "not judged" if verdict.late is None else verdict.late))
    for kind, title in (("ack", "send to outcome"), ("append", "send to append")):
        rows += [(f"{title}, {name}", f"{us / 1e3:,.2f} ms") for name, us in verdict.quantiles(kind).items()]
    return rows


def _named(verdict: Verdict) -> str:
    rows: list[tuple[object, ...]] = [
        (r.run, r.stream, r.seq, r.topic, names_of(r.findings), _places([r.told] if r.told else []), _places(r.places))
        for r in verdict.named
    ]
    rows += [
        (
            late.run,
            late.stream,
            late.seq,
            late.topic,
            f"reordered, {late.depth} deep",
            "",
            f"{late.partition}/{late.offset}",
        )
        for late in verdict.named_late
    ]
    head = ("run", "stream", "seq", "topic", "", "told", "found (partition/offset)")
    more = f"<p>and {len(rows) - ROWS_SHOWN} more: findings.parquet</p>" if len(rows) > ROWS_SHOWN else ""
    return _table(head, rows[:ROWS_SHOWN]) + more


def _places(places: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{partition}/{offset}" for partition, offset in places)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, int):
            return f'<td class="number">{value}</td>'
        return f"<td>{html.escape(str(value))}</td>"

    body = "\n".join("<tr>" + "".join(cell(value) for value in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in head) + f"</tr>\n{body}</table>"


# ---------------------------------------------------------------------- plots
def _plots(verdict: Verdict) -> list[str]:
    if not verdict.latencies and not verdict.timeline:
        return []
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ['<p>No plots: <code>pip install "aiokprod[audit]"</code> has them (matplotlib).</p>']
    titles = {"ack": "Send to outcome", "append": "Send to append by the broker's clock"}
    plots: list[str] = []
    for kind in ("ack", "append"):
        topics = verdict.topics(kind)
        if topics:
            figure = Figure(figsize=(9, 6.5), layout="constrained")
            upper, lower = figure.subplots(2, 1)
            upper.set_title(titles[kind])
            _draw_distribution(upper, verdict, kind, topics)
            _draw_minutes(lower, verdict, kind)
            plots.append(_svg(figure))
    if verdict.timeline:
        figure = Figure(figsize=(9, 3.5), layout="constrained")
        _draw_timeline(figure.subplots(), verdict)
        plots.append(_svg(figure))
    return plots


def _in_legend(topic: str) -> str:
    """Return a topic's name for a legend: matplotlib omits labels that begin with an underscore."""
    return f" {topic}" if topic.startswith("_") else topic


def _draw_timeline(axes: Axes, verdict: Verdict) -> None:
    """Draw the records of the log by the second of their timestamp."""
    first = min(second for counts in verdict.timeline.values() for second in counts)
    last = max(second for counts in verdict.timeline.values() for second in counts)
    width = -(-(last - first + 1) // MOST_POINTS)  # seconds in one point
    for topic, counts in sorted(verdict.timeline.items()):
        points = [0] * ((last - first) // width + 1)
        for second, records in counts.items():
            points[(second - first) // width] += records
        axes.step(
            [width * number for number in range(len(points))],
            [p / width for p in points],
            where="post",
            label=_in_legend(topic),
        )
    begin = datetime.fromtimestamp(first, UTC).strftime("%Y-%m-%d %H:%M:%S")
    axes.set_title("Records in the log, by their timestamps")
    axes.set(xlabel=f"seconds since {begin} UTC", ylabel="records/s", ylim=(0, None))
    axes.legend()


def _draw_distribution(axes: Axes, verdict: Verdict, kind: str, topics: Sequence[str]) -> None:
    """Draw the distribution of latencies."""
    for topic in topics:
        counts: Counter[int] = Counter()
        for each in verdict.latencies:
            if (each.kind, each.topic) == (kind, topic):
                counts.update(each.buckets)
        buckets = sorted(counts)
        axes.plot([bucket_middle_us(b) / 1e3 for b in buckets], [counts[b] for b in buckets], label=_in_legend(topic))
    axes.set(xscale="log", xlabel="ms", ylabel="records")
    axes.legend()


def _draw_minutes(axes: Axes, verdict: Verdict, kind: str) -> None:
    """Draw median and p99 of each minute, over all topics and partitions."""
    by_minute: dict[int, Counter[int]] = {}
    for each in verdict.latencies:
        if each.kind == kind:
            by_minute.setdefault(each.minute, Counter()).update(each.buckets)
    minutes = sorted(by_minute)
    quantiles = [quantiles_us(by_minute[minute]) for minute in minutes]
    names = [datetime.fromtimestamp(60 * minute, UTC).strftime("%H:%M") for minute in minutes]
    for name in ("p50", "p99"):
        axes.plot(range(len(minutes)), [each[name] / 1e3 for each in quantiles], marker="o", label=name)
    step = max(1, len(minutes) // 12)
    axes.set_xticks(range(0, len(minutes), step), names[::step])
    axes.set(yscale="log", xlabel="minute (UTC)", ylabel="ms")
    axes.legend()


def _svg(figure: Any) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue().partition("<svg")[1] + drawn.getvalue().partition("<svg")[2]
