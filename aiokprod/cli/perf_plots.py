"""Latencies as plots: bars in the terminal, curves in SVG. Pure; written out by hand, so that nothing need be installed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

SHARES: Final = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0)
BAR: Final = 42
SHORTEST_S: Final = 1e-5
POWERS: Final = 6
"""the bars end at 10 s"""
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 70, 40, 44, 50
COLOURS: Final = ("#0b6bcb", "#c2410c", "#15803d", "#7e22ce")


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed.

    Args:
        ordered: ascending, not empty.
        share: from 0 to 1.
    """
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def name_of_share(share: float) -> str:
    """Return "p99.9", or "max"."""
    return "max" if share >= 1 else f"p{share * 100:.6g}"


def shares_of(count: int) -> list[float]:
    """Return the shares that so many values can tell apart."""
    return [share for share in SHARES if share == 1 or count * (1 - share) >= 0.999]


def bars(latencies_s: Sequence[float]) -> list[str]:
    """Return a line per percentile with a bar: a sixth of the width for each power of ten above 10 microseconds.

    The scale is the same for all clients and runs, so that bars can be compared.
    """
    ordered = sorted(latencies_s)
    lines: list[str] = []
    for share in shares_of(len(ordered)) if ordered else ():
        value = percentile(ordered, share)
        powers = min(POWERS, math.log10(max(value, SHORTEST_S) / SHORTEST_S))
        bar = "#" * max(1, round(powers / POWERS * BAR))
        lines.append(f"  {name_of_share(share):>6} {value * 1000:>11.3f} ms  {bar}")
    return lines


def svg(found: Mapping[str, Sequence[float]], title: str) -> str:
    """Return a picture of the latencies by percentile, both on logarithmic scales.

    Args:
        found: seconds by the name of a client.
        title: the line above.
    """
    curves = {name: sorted(values) for name, values in found.items() if values}
    most = max((len(values) for values in curves.values()), default=1)
    low = min((max(values[0], 1e-6) for values in curves.values()), default=1e-3)
    high = max((values[-1] for values in curves.values()), default=1.0)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(max(high, low * 1.01)))
    last = max(last, first + 1)
    decades = max(1.0, math.log10(max(most, 10)))

    def x_of(share: float) -> float:
        nines = min(decades, -math.log10(max(1 - share, 10**-decades)))
        return LEFT + nines / decades * (WIDTH - LEFT - RIGHT)

    def y_of(value_s: float) -> float:
        part = (math.log10(max(value_s, 10.0**first)) - first) / (last - first)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for power in range(first, last + 1):
        y = y_of(10.0**power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_time(10.0**power)}</text>')
    for share in (0.0, 0.5, *(1 - 10.0**-nines for nines in range(1, int(decades) + 1))):
        x = x_of(share)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">p{share * 100:.6g}</text>')
    for number, (name, values) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x_of(share):.1f},{y_of(percentile(values, share)):.1f}" for share in _steps(len(values)))
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        parts.append(f'<text x="{LEFT + 12}" y="{TOP + 16 * (number + 1)}" fill="{colour}">{escape(name)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">share of records</text></svg>')
    return "\n".join(parts) + "\n"


def _steps(count: int) -> list[float]:
    """Return shares that are evenly far apart on the scale of nines."""
    nines = math.log10(max(count, 2))
    return [1 - 10 ** (-nines * step / 100) for step in range(100)] + [1.0]


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor * 0.999:
            return f"{seconds / factor:g} {unit}"
    return f"{seconds * 1e9:g} ns"
