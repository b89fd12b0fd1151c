"""Prometheus: the metrics of producers, also under `prometheus_client`'s multiprocess mode (gunicorn with several workers).

    Producer("localhost:9092", interceptors=[PrometheusMetrics()])

In one process the metrics are read when they are scraped. In multiprocess mode a scrape reads files that each process keeps: a
timer of the producer's event loop writes them, and its close writes them a last time. Nothing happens per record.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast
from weakref import WeakKeyDictionary, WeakSet, ref

from aiokprod.errors import ConfigError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.logs import StateLog
from aiokprod.metrics import MAXIMA, MOST_TOPICS, OTHER_TOPICS, HistogramSnapshot, Metrics
from aiokprod.model import ProducerState
from aiokprod.producer import Producer

try:
    from prometheus_client import REGISTRY, CollectorRegistry, utils, values
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        'aiokprod.integrations.prometheus needs: pip install "aiokprod[prometheus]"', name=missing.name
    ) from missing

__all__ = ["PrometheusMetrics"]

PREFIX: Final = "aiokprod_"
KINDS: Final = Metrics().kinds()
OF_TOPICS: Final = tuple(Metrics().topic("").snapshot())
MOST_PRODUCERS: Final = 100
"""client ids of one process that are exported: a program that makes producer after producer must not fill the server"""
WRITE_EVERY_S: Final = 5.0
ENDING_STATES: Final = (ProducerState.CLOSING, ProducerState.CLOSED)


def help_of(name: str) -> str:
    return f"Of aiokprod producers: {name.replace('_', ' ')}; docs/metrics.md says what it means."


class PrometheusMetrics(ProducerInterceptor, Collector):
    """Exports the metrics of the producers that have it as interceptor; several may share one. See docs/prometheus.md.

    Args:
        registry: where it is registered; None: nowhere, the program does that. Without effect in multiprocess mode.
        write_every: seconds between two writes in multiprocess mode.

    Raises:
        ConfigError: `write_every` is not above 0.
        ValueError: the registry has such a collector already; share that one.
    """

    def __init__(self, registry: CollectorRegistry | None = REGISTRY, *, write_every: float = WRITE_EVERY_S) -> None:
        if not write_every > 0:
            raise ConfigError(f"write_every is a number of seconds above 0, not {write_every!r}")
        self._write_every_s = write_every
        self._is_multiprocess = bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
        self._producers: WeakKeyDictionary[Producer, Written] = WeakKeyDictionary()
        self._timers: dict[ref[Producer], asyncio.TimerHandle] = {}
        self._names = TopicNames()
        self._files = Files(self._names)
        self._log = StateLog("producer")
        if registry is not None and not self._is_multiprocess:
            registry.register(self)

    # ------------------------------------------------------------------ hooks
    def configure(self, config: object) -> None:
        """Leave out what a producer did before this process was forked: its parent exports that.

        Args:
            config: the `ProducerConfig` of a producer.
        """
        for producer, written in self._exported():
            if written.process_id != os.getpid():
                client_id = str(producer.config.client_id)
                written.inherit(client_id, producer.metrics(), producer.topic_metrics())

    def on_start(self, producer: object) -> None:
        """Export this producer from now on.

        Args:
            producer: the `Producer`.
        """
        producer = cast("Producer", producer)
        written = self._producers.get(producer)
        if written is None:
            written = self._producers[producer] = Written()
        written.process_id = os.getpid()
        if self._is_multiprocess:
            self._tick(asyncio.get_running_loop(), ref(producer), str(producer.config.client_id))

    def close(self) -> None:
        """Write the last figures of the producers that close."""
        for producer, written in self._exported():
            if producer.health().state in ENDING_STATES:
                timer = self._timers.pop(ref(producer), None)
                if timer is not None:
                    timer.cancel()
                    self._write(producer)
                    self._files.end(str(producer.config.client_id), written)

    def _exported(self) -> list[tuple[Producer, Written]]:
        """Return the producers that are exported; from any thread, as the references are copied in one step."""
        found: list[tuple[Producer, Written]] = []
        for reference in self._producers.keyrefs():
            producer = reference()
            written = None if producer is None else self._producers.get(producer)
            if producer is not None and written is not None:
                found.append((producer, written))
        return found

    def _tick(self, loop: asyncio.AbstractEventLoop, reference: ref[Producer], client_id: str) -> None:
        producer = reference()
        try:
            if producer is None:
                self._timers.pop(reference, None)
                self._files.write_gauges(client_id)  # without those of the one that is gone
                return
            self._write(producer)
        except Exception as broken:  # the disk is full, or the folder was removed: later it may be there again
            self._log.hook_failed("PrometheusMetrics.write", broken)
        if producer is not None:
            self._timers[reference] = loop.call_later(self._write_every_s, self._tick, loop, reference, client_id)

    def _write(self, producer: Producer) -> None:
        written = self._producers.get(producer)
        if written is not None:
            self._files.write(str(producer.config.client_id), written, producer.metrics(), producer.topic_metrics())

    # ------------------------------------------------------------------ in one process
    def describe(self) -> Iterable[Metric]:
        """Return the names of all metrics, so that a registry notices a second collector."""
        return families({})

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all producers. A registry calls this, from any thread."""
        totals: dict[str, Totals] = {}
        for producer, written in self._exported():
            if written.process_id != os.getpid():
                continue  # the parent of this process exports it
            client_id = str(producer.config.client_id)
            if client_id in totals or len(totals) < MOST_PRODUCERS:
                topics = producer.topic_metrics()
                totals.setdefault(client_id, Totals(self._names)).add(producer.metrics(), topics)
        yield from families(totals)


class TopicNames:
    """The topics that are exported by name: the first `MOST_TOPICS` of all producers; the others are counted together."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def label(self, topic: str) -> str:
        """Return the label of a topic.

        Args:
            topic: its name.
        """
        if topic == OTHER_TOPICS or topic in self._names:
            return topic
        if len(self._names) >= MOST_TOPICS:
            return OTHER_TOPICS
        self._names.add(topic)
        return topic


class Totals:
    """The sums of the metrics of producers with one client id.

    Args:
        names: the topics that are exported by name.
    """

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self.metrics: dict[str, Any] = {}
        self.topics: dict[str, dict[str, float]] = {}

    def add(self, metrics: dict[str, Any], topics: dict[str, dict[str, float]]) -> None:
        """Add a producer.

        Args:
            metrics: as `Producer.metrics` returns them.
            topics: as `Producer.topic_metrics` returns them.
        """
        for name, value in metrics.items():
            before = self.metrics.get(name)
            together = max if name in MAXIMA else summed
            self.metrics[name] = value if before is None else together(before, value)
        for topic, counters in topics.items():
            sums = self.topics.setdefault(self._names.label(topic), dict.fromkeys(OF_TOPICS, 0.0))
            for name, value in counters.items():
                sums[name] += value


def summed(one: Any, other: Any) -> Any:
    if isinstance(one, HistogramSnapshot):
        counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
        return HistogramSnapshot(one.bounds, counts, one.total + other.total)
    return one + other


def families(totals: dict[str, Totals]) -> Iterator[Metric]:
    """Yield each metric with the samples of all producers."""
    for name, kind in KINDS.items():
        family: Any
        if kind == "counter":
            family = CounterMetricFamily(PREFIX + name, help_of(name), labels=["client_id"])
        elif kind == "gauge":
            family = GaugeMetricFamily(PREFIX + name, help_of(name), labels=["client_id"])
        else:
            family = HistogramMetricFamily(PREFIX + name, help_of(name), labels=["client_id"])
        for client_id, each in totals.items():
            value = each.metrics[name]
            if isinstance(value, HistogramSnapshot):
                family.add_metric([client_id], list(cumulated(value)), value.total)
            else:
                family.add_metric([client_id], value)
        yield family
    for name in OF_TOPICS:
        of_topics = CounterMetricFamily(f"{PREFIX}topic_{name}", help_of(name), labels=["client_id", "topic"])
        for client_id, each in totals.items():
            for topic, counters in each.topics.items():
                of_topics.add_metric([client_id, topic], counters[name])
        yield of_topics


def bounds_of(histogram: HistogramSnapshot) -> list[str]:
    """Return the bounds as `prometheus_client` writes them."""
    go_string: Callable[[float], str] = cast("Any", utils).floatToGoString  # it has no types
    return [go_string(bound) for bound in (*histogram.bounds, float("inf"))]


def cumulated(histogram: HistogramSnapshot) -> Iterator[tuple[str, float]]:
    """Yield each bound with the number of values up to it, as Prometheus has them."""
    total = 0
    for bound, count in zip(bounds_of(histogram), histogram.counts, strict=True):
        total += count
        yield bound, total


class Written:
    """The figures of one producer that are in the files already."""

    def __init__(self) -> None:
        self.process_id = os.getpid()  # where the producer was started
        self.values: dict[tuple[str, ...], float] = {}
        self.gauges: dict[str, float] = {}

    def grown(self, key: tuple[str, ...], value: float) -> float:
        """Return by how much a counter has grown since it was written.

        Args:
            key: of the counter.
            value: of the counter, now.
        """
        grown = value - self.values.get(key, 0.0)
        self.values[key] = value
        return grown

    def inherit(self, client_id: str, metrics: dict[str, Any], topics: dict[str, dict[str, float]]) -> None:
        """Note the figures that a process finds when it is forked: others write them.

        Args:
            client_id: of the producer.
            metrics: as `Producer.metrics` returns them.
            topics: as `Producer.topic_metrics` returns them.
        """
        self.gauges.clear()
        for key, _, value in counters_of(client_id, metrics):
            self.values[key] = value
        for topic, counters in topics.items():
            for name, value in counters.items():
                self.values[topic_key(name, client_id, topic)] = value


def topic_key(name: str, client_id: str, topic: str) -> tuple[str, ...]:
    return f"topic_{name}_total", client_id, topic


def counters_of(client_id: str, metrics: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str, float]]:
    """Yield what only grows, also of histograms: its name and the values of its labels, its metric, and its value.

    Args:
        client_id: of the producer.
        metrics: as `Producer.metrics` returns them.
    """
    for name, kind in KINDS.items():
        value = metrics[name]
        if isinstance(value, HistogramSnapshot):
            for bound, count in zip(bounds_of(value), value.counts, strict=True):
                yield (f"{name}_bucket", client_id, bound), name, count
            yield (f"{name}_sum", client_id), name, value.total
        elif kind == "counter":
            yield (f"{name}_total", client_id), name, value


class Files:
    """The values of this process in the files of multiprocess mode.

    Counters and histograms grow by what a producer has added, as those of `prometheus_client` do: the file of a process id may
    hold the figures of an earlier process, which must not go back. A gauge is the sum of the producers with its client id.

    Args:
        names: the topics that are exported by name.
    """

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._values: dict[tuple[str, ...], Any] = {}
        self._written: dict[str, WeakSet[Written]] = {}  # of the producers that are up, by client id

    def write(
        self, client_id: str, written: Written, metrics: dict[str, Any], topics: dict[str, dict[str, float]]
    ) -> None:
        """Write the figures of a producer.

        Args:
            client_id: of the producer.
            written: what was written before.
            metrics: as `Producer.metrics` returns them.
            topics: as `Producer.topic_metrics` returns them.
        """
        if client_id not in self._written:
            if len(self._written) >= MOST_PRODUCERS:
                return
            self._written[client_id] = WeakSet()
        self._written[client_id].add(written)
        for name, kind in KINDS.items():
            if kind == "gauge":
                written.gauges[name] = metrics[name]
        self.write_gauges(client_id)
        for key, name, value in counters_of(client_id, metrics):
            labels = ("client_id", "le") if len(key) == 3 else ("client_id",)
            there = self._value(KINDS[name], name, key[0], labels, key[1:])
            self._grow(there, written.grown(key, value))
        for topic, counters in topics.items():
            label = self._names.label(topic)
            for name, value in counters.items():
                key = topic_key(name, client_id, label)
                there = self._value("counter", f"topic_{name}", key[0], ("client_id", "topic"), key[1:])
                self._grow(there, written.grown(topic_key(name, client_id, topic), value))

    def end(self, client_id: str, written: Written) -> None:
        """Take a producer that is closed out of the gauges.

        Args:
            client_id: of the producer.
            written: what was written of it.
        """
        written.gauges.clear()
        self.write_gauges(client_id)

    def write_gauges(self, client_id: str) -> None:
        """Write the sums, or the maxima, of the gauges of the producers that are up.

        Args:
            client_id: of the producers.
        """
        those = self._written.get(client_id)
        if those is None:
            return
        here = [written.gauges for written in those if written.process_id == os.getpid()]
        for name, kind in KINDS.items():
            if kind == "gauge":
                there = self._value("gauge", name, name, ("client_id",), (client_id,))
                figures = [gauges.get(name, 0) for gauges in here]
                there.set(max(figures, default=0) if name in MAXIMA else sum(figures))

    @staticmethod
    def _grow(there: Any, grown: float) -> None:
        if grown > 0:
            there.inc(grown)

    def _value(self, kind: str, metric: str, name: str, labels: tuple[str, ...], texts: tuple[str, ...]) -> Any:
        found = self._values.get((name, *texts))
        if found is None:
            make: Any = values.ValueClass
            full, told = PREFIX + metric, help_of(metric.removeprefix("topic_"))
            mode = "livemax" if metric in MAXIMA else "livesum"
            found = make(kind, full, PREFIX + name, labels, texts, told, multiprocess_mode=mode)
            self._values[name, *texts] = found
        return found
