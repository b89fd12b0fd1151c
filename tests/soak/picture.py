"""The picture of a soak: records acknowledged per second, their latency, and the nemesis' faults below. SVG, by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from evidence import Evidence
from recovery import per_second, successes

from aiokprod.testing.checker import Outcome

LEFT, WIDTH, RATE_HEIGHT, LATENCY_HEIGHT, ROW, GAP = 150, 1200, 160, 160, 13, 30
FASTEST_S, SLOWEST_S = 0.001, 100.0  # of the latency's scale


def picture_of(evidence: Evidence) -> str:
    """Return an SVG document."""
    end = max([evidence.ended, *(injection.settled for injection in evidence.injections)])
    seconds = max(1.0, end - evidence.began)
    kinds = list(dict.fromkeys(injection.kind for injection in evidence.injections))
    height = 2 * GAP + RATE_HEIGHT + GAP + LATENCY_HEIGHT + GAP + ROW * len(kinds) + GAP

    def x(at: float) -> float:
        return LEFT + WIDTH * (at - evidence.began) / seconds

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    top = GAP
    faults_top = top + RATE_HEIGHT + GAP + LATENCY_HEIGHT + GAP
    for injection in evidence.injections:  # a shadow over everything, so that cause and effect stand in one line
        wide = max(1.0, x(injection.healed) - x(injection.began))
        parts.append(
            f'<rect x="{x(injection.began):.1f}" y="{top}" width="{wide:.1f}" height="{faults_top - top}" fill="#f3e4e0"/>'
        )
    parts += _rate(evidence, seconds, top)
    parts += _latency(evidence, seconds, top + RATE_HEIGHT + GAP)
    for row, kind in enumerate(kinds):
        y = faults_top + row * ROW
        parts.append(f'<text x="{LEFT - 6}" y="{y + 10}" text-anchor="end">{escape(kind)}</text>')
        for injection in evidence.injections:
            if injection.kind == kind:
                parts += _bar(x(injection.began), x(injection.healed), x(injection.settled), y, injection.text)
    parts += _clock(seconds, faults_top + ROW * len(kinds) + 14)
    return "\n".join([*parts, "</svg>", ""])


def _bar(began: float, healed: float, settled: float, y: float, text: str) -> list[str]:
    """Draw a bar, dark during the fault and light until the cluster is whole again; the text is its tooltip."""
    return [
        f'<rect x="{healed:.1f}" y="{y + 2}" width="{max(0.0, settled - healed):.1f}" height="{ROW - 4}" fill="#e0b4a8"/>',
        f'<rect x="{began:.1f}" y="{y + 2}" width="{max(1.5, healed - began):.1f}" height="{ROW - 4}" fill="#b03a2e">'
        f"<title>{escape(text)}</title></rect>",
    ]


def _rate(evidence: Evidence, seconds: float, top: float) -> list[str]:
    counts = per_second(successes(evidence.lives), evidence.began, evidence.began + seconds)
    most = max([*counts, 1])
    points = [(second + 0.5, top + RATE_HEIGHT * (1 - count / most)) for second, count in enumerate(counts)]
    return [
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most} records/s</text>',
        f'<text x="{LEFT - 6}" y="{top + RATE_HEIGHT}" text-anchor="end">acknowledged 0</text>',
        _line(points, seconds, "#1f4e79"),
    ]


def _latency(evidence: Evidence, seconds: float, top: float) -> list[str]:
    """Draw the median and the slowest of the records acknowledged in each second."""
    by_second: list[list[float]] = [[] for _ in range(int(seconds) + 1)]
    for life in evidence.lives:
        for sent in life.book.sends:
            if sent.outcome is Outcome.DELIVERED and 0 <= (at := sent.settled_at - evidence.began) < seconds:
                by_second[int(at)].append(sent.settled_at - sent.sent_at)

    def y(latency_s: float) -> float:
        within = min(SLOWEST_S, max(FASTEST_S, latency_s))
        share = math.log(within / FASTEST_S) / math.log(SLOWEST_S / FASTEST_S)
        return top + LATENCY_HEIGHT * (1 - share)

    parts = []
    for mark, name in (
        (0.001, "1 ms"),
        (0.01, "10 ms"),
        (0.1, "0.1 s"),
        (1.0, "1 s"),
        (10.0, "10 s"),
        (100.0, "100 s"),
    ):
        parts.append(f'<path d="M{LEFT} {y(mark):.1f}H{LEFT + WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{name}</text>')
    full = [(second + 0.5, sorted(each)) for second, each in enumerate(by_second) if each]
    parts.append(_line([(second, y(each[-1])) for second, each in full], seconds, "#b9770e"))
    parts.append(_line([(second, y(each[len(each) // 2])) for second, each in full], seconds, "#1e8449"))
    parts.append(f'<text x="{LEFT + 6}" y="{top + 12}" fill="#b9770e">slowest record</text>')
    parts.append(f'<text x="{LEFT + 106}" y="{top + 12}" fill="#1e8449">median</text>')
    return parts


def _line(points: Iterable[tuple[float, float]], seconds: float, colour: str) -> str:
    path = " ".join(f"{LEFT + WIDTH * second / seconds:.1f},{y:.1f}" for second, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}"/>'


def _clock(seconds: float, y: float) -> list[str]:
    step = next((each for each in (10, 30, 60, 300, 600, 1800) if seconds / each <= 20), 3600)
    return [
        f'<text x="{LEFT + WIDTH * at / seconds:.1f}" y="{y}" text-anchor="middle">{at // 60}:{at % 60:02d}</text>'
        for at in range(0, int(seconds) + 1, step)
    ]
