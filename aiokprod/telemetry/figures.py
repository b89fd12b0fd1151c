"""`Figures`: the metrics of a producer as brokers ask for them, by name. One per start of a producer. Pure.

Kafka's names, where Kafka has such a metric (KIP-714), and all metrics of docs/metrics.md under `aiokprod.producer.`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from aiokprod.metrics import HistogramSnapshot
from aiokprod.telemetry.otlp import Distribution, Figure, Gauge, Sum

Snapshot: TypeAlias = "dict[str, float | HistogramSnapshot]"
KAFKA: Final = "org.apache.kafka.producer."
OURS: Final = "aiokprod.producer."
EVERY: Final = "*"
UNITS: Final = {"seconds": "s", "bytes": "By"}


def name_of_metric(name: str) -> str:
    return OURS + name.replace("_", ".")


def is_asked_for(name: str, prefixes: Sequence[str]) -> bool:
    """Return whether a metric is among those that the broker asks for; "" (KIP-714) and "*" (Kafka) ask for all."""
    return any(prefix == EVERY or name.startswith(prefix) for prefix in prefixes)


class Figures:
    """The metrics that were pushed last, and those to be pushed now.

    Args:
        kinds: kind of each metric, as `Metrics.kinds` returns them.
        snapshot: the metrics at the start.
        now: seconds since 1970.
    """

    def __init__(self, kinds: dict[str, str], snapshot: Snapshot, now: float) -> None:
        self._kinds = kinds
        self.began_at = self.pushed_at = now
        self._zero: Snapshot = snapshot
        self._pushed: Snapshot = snapshot

    def pushed(self, snapshot: Snapshot, now: float) -> None:
        """Note that this was pushed: differences count from here."""
        self._pushed, self.pushed_at = snapshot, now

    def figures(self, snapshot: Snapshot, prefixes: Sequence[str], now: float, *, is_delta: bool) -> list[Figure]:
        """Return the metrics that are asked for, Kafka's first.

        Args:
            snapshot: the metrics now.
            prefixes: beginnings of their names.
            now: seconds since 1970.
            is_delta: True: differences to the last push; False: since the start.
        """
        before = self._pushed if is_delta else self._zero
        found = [*self._of_kafka(snapshot, before, now), *self._of_ours(snapshot, before)]
        return [figure for figure in found if is_asked_for(figure.name, prefixes)]

    def _of_kafka(self, snapshot: Snapshot, before: Snapshot, now: float) -> list[Figure]:
        last = self._pushed
        elapsed_s = max(now - self.pushed_at, 1e-3)
        opened = _difference(snapshot, last, "connections_opened")
        requests, queued = _since(snapshot, last, "request_seconds"), _since(snapshot, last, "queue_seconds")
        throttled_s, sent = (
            _difference(snapshot, last, "throttle_seconds"),
            _difference(snapshot, last, "requests_sent"),
        )
        return [
            Gauge(KAFKA + "connection.creation.rate", opened / elapsed_s, "1/s"),
            Sum(KAFKA + "connection.creation.total", _difference(snapshot, before, "connections_opened")),
            Gauge(KAFKA + "node.request.latency.avg", _mean_ms(requests), "ms"),
            Gauge(KAFKA + "produce.throttle.time.avg", 1000.0 * throttled_s / sent if sent else 0.0, "ms"),
            Gauge(KAFKA + "record.queue.time.avg", _mean_ms(queued), "ms"),
        ]

    def _of_ours(self, snapshot: Snapshot, before: Snapshot) -> list[Figure]:
        found: list[Figure] = []
        for name, kind in self._kinds.items():
            unit = UNITS.get(name.rpartition("_")[2], "")
            if kind == "histogram":
                since = _since(snapshot, before, name)
                found.append(Distribution(name_of_metric(name), since.bounds, since.counts, since.total, unit))
            elif kind == "counter":
                found.append(Sum(name_of_metric(name), _difference(snapshot, before, name), unit))
            else:
                found.append(Gauge(name_of_metric(name), _number(snapshot, name), unit))
        return found


def _number(snapshot: Snapshot, name: str) -> float:
    value = snapshot[name]
    assert not isinstance(value, HistogramSnapshot)
    return value


def _difference(snapshot: Snapshot, before: Snapshot, name: str) -> float:
    return _number(snapshot, name) - _number(before, name)


def _since(snapshot: Snapshot, before: Snapshot, name: str) -> HistogramSnapshot:
    now, then = snapshot[name], before[name]
    assert isinstance(now, HistogramSnapshot) and isinstance(then, HistogramSnapshot)
    counts = tuple(a - b for a, b in zip(now.counts, then.counts, strict=True))
    return HistogramSnapshot(now.bounds, counts, now.total - then.total)


def _mean_ms(histogram: HistogramSnapshot) -> float:
    return 1000.0 * histogram.total / histogram.count if histogram.count else 0.0
