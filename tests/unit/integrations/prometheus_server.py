"""A Prometheus server in virtual time: it scrapes a registry, and evaluates the alerts of docs/prometheus.md over the samples.

It knows the forms of PromQL that the page has, and refuses any other: a comparison of a number with

    sum | max [by (labels)] (...)    histogram_quantile(q, ...)    rate | increase(counter[5m])    a gauge
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isnan, nan
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]
SCRAPED_EVERY_S: Final = 15.0
TOKEN: Final = re.compile(
    r"\s*(?:(?P<word>[a-zA-Z_:]\w*)|(?P<number>\d+(?:\.\d+)?(?![\dsmh]))|(?P<span>\d+[smh])"
    r"|(?P<sign>==|>=|<=|[()\[\],<>]))"
)
SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
COMPARED: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
    "==": lambda one, other: one == other,
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
}


class PromqlError(Exception):
    """A form that is not known here."""


def span_s(text: str) -> float:
    """Return a duration of PromQL in seconds."""
    return int(text[:-1]) * SECONDS[text[-1]]


@dataclass
class Series:
    """The samples of one series, by the time of their scrapes; nan: it was gone."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.values[-1]

    def increase(self, now: float, window_s: float) -> float | None:
        """Return Prometheus's `increase`: with resets, and extrapolated to the window; None: there are too few samples."""
        first = bisect_left(self.times, now - window_s)
        pairs = [
            (at, value) for at, value in zip(self.times[first:], self.values[first:], strict=True) if not isnan(value)
        ]
        if len(pairs) < 2:
            return None
        grown = 0.0
        for (_, before), (_, value) in pairwise(pairs):
            grown += value - before if value >= before else value
        sampled_s = pairs[-1][0] - pairs[0][0]
        average_s = sampled_s / (len(pairs) - 1)
        to_start_s, to_end_s = pairs[0][0] - (now - window_s), now - pairs[-1][0]
        if grown > 0 and pairs[0][1] >= 0:
            to_start_s = min(to_start_s, sampled_s * pairs[0][1] / grown)  # a counter was not below 0
        extended_s = sampled_s
        for gap_s in (to_start_s, to_end_s):
            extended_s += gap_s if gap_s < 1.1 * average_s else average_s / 2
        return grown * extended_s / sampled_s


class Alert:
    """A rule: its expression, for how long it must hold, and when it has fired.

    Args:
        query: a comparison in PromQL.
        for_s: so long each evaluation must find something before the alert fires.
    """

    def __init__(self, query: str, for_s: float) -> None:
        self.query = query
        self.for_s = for_s
        self._since: dict[Labels, float] = {}
        self.fired_at: float | None = None
        self.is_firing = False

    def evaluate(self, server: Server) -> None:
        found = server.evaluate(self.query)
        self._since = {labels: self._since.get(labels, server.now) for labels in found}
        self.is_firing = any(server.now - since >= self.for_s for since in self._since.values())
        if self.is_firing and self.fired_at is None:
            self.fired_at = server.now


class Server:
    """Scrapes a registry, and evaluates its alerts after each scrape.

    Args:
        registry: of prometheus_client.
        alerts: evaluated after each scrape.
    """

    def __init__(self, registry: CollectorRegistry, alerts: list[Alert]) -> None:
        self._registry = registry
        self._alerts = alerts
        self._series: dict[str, dict[Labels, Series]] = {}
        self.now = 0.0

    def scrape(self, now: float) -> None:
        """Take a sample of each series. `now`: loop time."""
        self.now = now
        seen: set[tuple[str, Labels]] = set()
        families: list[Metric] = list(self._registry.collect())
        for family in families:
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                self.add(sample.name, labels, sample.value)
                seen.add((sample.name, labels))
        for name, some in self._series.items():
            for labels in some:
                if (name, labels) not in seen:
                    self.add(name, labels, nan)
        for alert in self._alerts:
            alert.evaluate(self)

    def add(self, name: str, labels: Labels, value: float) -> None:
        """Add a sample at this moment."""
        series = self._series.setdefault(name, {}).setdefault(labels, Series())
        series.times.append(self.now)
        series.values.append(value)

    def evaluate(self, query: str) -> Vector:
        """Return what an expression has found at the last scrape.

        Raises:
            PromqlError: it has a form that is not known here.
        """
        return Query(self, query).comparison()

    def instant(self, name: str) -> Vector:
        return {labels: each.now() for labels, each in self._series.get(name, {}).items() if not isnan(each.now())}

    def increase(self, name: str, window_s: float) -> Vector:
        found: Vector = {}
        for labels, each in self._series.get(name, {}).items():
            grown = each.increase(self.now, window_s)
            if grown is not None:
                found[labels] = grown
        return found


class Query:
    """One evaluation of an expression."""

    def __init__(self, server: Server, text: str) -> None:
        self._server = server
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise PromqlError(f"{text!r} at {at}: {text[at:]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self._tokens.reverse()

    def _take(self, kind: str, *texts: str) -> str:
        if not self._tokens or self._tokens[-1][0] != kind or (texts and self._tokens[-1][1] not in texts):
            found = self._tokens[-1][1] if self._tokens else "the end"
            raise PromqlError(f"{self._text!r}: {found!r} in place of a {kind} {' or '.join(texts)}")
        return self._tokens.pop()[1]

    def _is_next(self, text: str) -> bool:
        return bool(self._tokens) and self._tokens[-1][1] == text

    def comparison(self) -> Vector:
        vector = self._vector()
        compared = COMPARED[self._take("sign", *COMPARED)]
        limit = float(self._take("number"))
        if self._tokens:
            raise PromqlError(f"{self._text!r}: {self._tokens[-1][1]!r} is too much")
        return {labels: value for labels, value in vector.items() if compared(value, limit)}

    def _vector(self) -> Vector:
        word = self._take("word")
        if word in ("sum", "max"):
            return self._grouped(sum if word == "sum" else max)
        if word in ("rate", "increase"):
            self._take("sign", "(")
            name = self._take("word")
            self._take("sign", "[")
            window_s = span_s(self._take("span"))
            self._take("sign", "]")
            self._take("sign", ")")
            grown = self._server.increase(name, window_s)
            return grown if word == "increase" else {labels: value / window_s for labels, value in grown.items()}
        if word == "histogram_quantile":
            self._take("sign", "(")
            rank = float(self._take("number"))
            self._take("sign", ",")
            vector = self._vector()
            self._take("sign", ")")
            return quantiles(rank, vector)
        if self._is_next("("):
            raise PromqlError(f"{self._text!r}: the function {word!r} is not known here")
        return self._server.instant(word)

    def _grouped(self, together: Callable[[list[float]], float]) -> Vector:
        kept: set[str] = set()
        if self._is_next("by"):
            self._take("word")
            self._take("sign", "(")
            kept.add(self._take("word"))
            while self._is_next(","):
                self._take("sign")
                kept.add(self._take("word"))
            self._take("sign", ")")
        self._take("sign", "(")
        vector = self._vector()
        self._take("sign", ")")
        groups: dict[Labels, list[float]] = {}
        for labels, value in vector.items():
            groups.setdefault(tuple(pair for pair in labels if pair[0] in kept), []).append(value)
        return {labels: together(some) for labels, some in groups.items()}


def quantiles(rank: float, buckets: Vector) -> Vector:
    """Return Prometheus's `histogram_quantile`: a straight line within the bucket; the largest bound for what is above all."""
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, value in buckets.items():
        bound = dict(labels).get("le")
        if bound is None:
            raise PromqlError("a quantile needs the label le")
        rest = tuple(pair for pair in labels if pair[0] != "le")
        groups.setdefault(rest, []).append((float(bound), value))
    found: Vector = {}
    for labels, pairs in groups.items():
        pairs.sort()
        total = pairs[-1][1]
        if not total:
            continue  # NaN, with which nothing compares
        below, below_count = 0.0, 0.0
        for bound, count in pairs:
            if count >= rank * total:
                inside = count - below_count
                share = (rank * total - below_count) / inside if inside else 0.0
                found[labels] = below if bound == inf else below + (bound - below) * share
                break
            below, below_count = bound, count
    return found
