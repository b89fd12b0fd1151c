"""Prometheus: the metrics of producers, also under `prometheus_client`'s multiprocess mode (gunicorn with several workers).

    Producer("localhost:9092", interceptors=[PrometheusMetrics()])

In one process the metrics are read when they are scraped. In multiprocess mode a scrape reads files that each process keeps: a
timer of the producer's event loop writes them, and its close writes them a last time. Nothing happens per record.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary, WeakSet, ref

from aiokprod.errors import ConfigError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.logs import StateLog
from aiokprod.metrics import (
    BY_LABEL,
    IDLE_LOOKS,
    LOOK_S,
    MAXIMA,
    MOST_BROKERS,
    MOST_TOPICS,
    OTHER_BROKERS,
    OTHER_TOPICS,
    HistogramSnapshot,
    Metrics,
)
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
GAUGES: Final = {name for name, kind in KINDS.items() if kind == "gauge"} | {"broker_requests_in_flight"}
IDLE_S: Final = IDLE_LOOKS * LOOK_S
"""so long without growth, and a topic gives its name up to another"""
MOST_CHOSEN: Final = 1000
"""topics that may be chosen"""
Figures: TypeAlias = dict[str, dict[str, Any]]
"""by the value of a label, and by the name of the metric"""
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
        topics: the topics that are exported by name, at most 1,000. None: at most 100, of which one that is idle for five
            minutes gives its place up to one that is not.
        write_every: seconds between two writes in multiprocess mode.

    Raises:
        ConfigError: `write_every` is not above 0, or `topics` is one text, or too long.
        ValueError: the registry has such a collector already; share that one.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = REGISTRY,
        *,
        topics: Iterable[str] | None = None,
        write_every: float = WRITE_EVERY_S,
    ) -> None:
        if not write_every > 0:
            raise ConfigError(f"write_every is a number of seconds above 0, not {write_every!r}")
        if isinstance(topics, str):
            raise ConfigError(f"topics is a list of topic names: topics=[{topics!r}]")
        self._topics = None if topics is None else frozenset(topics)
        if self._topics is not None and len(self._topics) > MOST_CHOSEN:
            raise ConfigError(f"topics has {len(self._topics)} names: choose at most {MOST_CHOSEN}")
        self._write_every_s = write_every
        self._is_multiprocess = bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
        self._producers: WeakKeyDictionary[Producer, Written] = WeakKeyDictionary()
        self._timers: dict[ref[Producer], asyncio.TimerHandle] = {}
        names = TopicNames(self._topics, is_fixed=self._is_multiprocess)
        self._brokers = BrokerNames()
        self._sums = TopicSums(names)
        self._lock = Lock()  # scrapes come from any thread
        self._files = Files(names, self._brokers)
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
                self._lock = Lock()  # a thread of the parent may have held it
                topics = producer.topic_metrics() if self._is_multiprocess else written.topics
                written.inherit(self._series(producer), topics)

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
        if self._topics:
            producer.keep_topic_metrics(self._topics)
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
            client_id = str(producer.config.client_id)
            topics, errors = producer.topic_metrics(), producer.error_metrics()
            self._files.write(client_id, written, producer.metrics(), topics, producer.broker_metrics(), errors)

    def _series(self, producer: Producer) -> Iterator[Series]:
        client_id, errors = str(producer.config.client_id), producer.error_metrics()
        return series_of(client_id, producer.metrics(), producer.broker_metrics(), errors, self._brokers)

    # ------------------------------------------------------------------ in one process
    def describe(self) -> Iterable[Metric]:
        """Return the names of all metrics, so that a registry notices a second collector."""
        return families({})

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all producers. A registry calls this, from any thread."""
        totals: dict[str, Totals] = {}
        here = [
            each for each in self._exported() if each[1].process_id == os.getpid()
        ]  # others: their parent exports them
        if here:
            with self._lock:
                for producer, written in here:
                    client_id = str(producer.config.client_id)
                    if client_id in totals or len(totals) < MOST_PRODUCERS:
                        each = totals.setdefault(client_id, Totals(self._brokers))
                        each.add(producer.metrics(), producer.broker_metrics(), producer.error_metrics())
                        self._sums.add(client_id, written, producer.topic_metrics())
                for client_id, sums in self._sums.of(totals).items():
                    totals[client_id].labelled["topic"] = sums
        yield from families(totals)


class TopicNames:
    """The topics that are exported by name; the others are counted together.

    Args:
        allowed: those, if they were chosen. Else at most `MOST_TOPICS` of all producers.
        is_fixed: a name stays, as in the files of multiprocess mode. Else a topic that grows takes the place of one that was
            idle for `IDLE_S`.
    """

    def __init__(self, allowed: frozenset[str] | None = None, *, is_fixed: bool = False) -> None:
        self._allowed = allowed
        self._is_fixed = is_fixed
        self._grew_at: dict[str, float] = {}

    def label(self, topic: str, *, has_grown: bool = True) -> str:
        """Return the label of a topic.

        Args:
            topic: its name.
            has_grown: one of its counters has grown.
        """
        if topic == OTHER_TOPICS:
            return topic
        if self._allowed is not None:
            return topic if topic in self._allowed else OTHER_TOPICS
        if topic not in self._grew_at and len(self._grew_at) >= MOST_TOPICS:
            idlest = min(self._grew_at.items(), key=itemgetter(1))
            if self._is_fixed or not has_grown or monotonic() - idlest[1] < IDLE_S:
                return OTHER_TOPICS
            del self._grew_at[idlest[0]]
        if has_grown or topic not in self._grew_at:
            self._grew_at[topic] = monotonic()
        return topic

    def has(self, label: str) -> bool:
        """Return whether this label is exported now.

        Args:
            label: of a topic.
        """
        return label == OTHER_TOPICS or label in (self._grew_at if self._allowed is None else self._allowed)


class BrokerNames:
    """The brokers that are exported by their id: the first `MOST_BROKERS` of all producers."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def label(self, broker: str) -> str:
        """Return the label of a broker.

        Args:
            broker: its id.
        """
        if broker == OTHER_BROKERS or broker in self._names:
            return broker
        if len(self._names) >= MOST_BROKERS:
            return OTHER_BROKERS
        self._names.add(broker)
        return broker


class TopicSums:
    """The counters of topics by client id, as they are exported in one process.

    They grow by what producers have added, so that none goes back when a topic gets a name or loses it.

    Args:
        names: the topics that are exported by name.
    """

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._sums: dict[str, Figures] = {}

    def add(self, client_id: str, written: Written, topics: Figures) -> None:
        """Add what a producer has counted since the last call.

        Args:
            client_id: of the producer.
            written: what was added before.
            topics: as `Producer.topic_metrics` returns them.
        """
        sums = self._sums.setdefault(client_id, {})
        for topic, grown in written.topics_grown(topics):
            label = self._names.label(topic, has_grown=any(grown.values()))
            there = sums.setdefault(label, dict.fromkeys(BY_LABEL["topic"], 0.0))
            for name, value in grown.items():
                there[name] += value

    def of(self, client_ids: Iterable[str]) -> dict[str, Figures]:
        """Return the sums of these, and forget all others.

        Args:
            client_ids: of the producers that are exported.
        """
        kept: dict[str, Figures] = {}
        for client_id in client_ids:
            sums = self._sums.get(client_id, {})
            kept[client_id] = {label: figures for label, figures in sums.items() if self._names.has(label)}
        self._sums = kept
        return {client_id: {label: dict(each) for label, each in sums.items()} for client_id, sums in kept.items()}


class Totals:
    """The sums of the metrics of producers with one client id.

    Args:
        brokers: the brokers that are exported by their id.
    """

    def __init__(self, brokers: BrokerNames) -> None:
        self._brokers = brokers
        self.metrics: dict[str, Any] = {}
        self.labelled: dict[str, Figures] = {label: {} for label in BY_LABEL}

    def add(self, metrics: dict[str, Any], brokers: Figures, errors: Figures) -> None:
        """Add a producer.

        Args:
            metrics: as `Producer.metrics` returns them.
            brokers: as `Producer.broker_metrics` returns them.
            errors: as `Producer.error_metrics` returns them.
        """
        add_up(self.metrics, metrics)
        for broker, figures in brokers.items():
            add_up(self.labelled["broker"].setdefault(self._brokers.label(broker), {}), figures)
        for error, figures in errors.items():
            add_up(self.labelled["error"].setdefault(error, {}), figures)


def add_up(sums: dict[str, Any], figures: dict[str, Any]) -> None:
    for name, value in figures.items():
        before = sums.get(name)
        together = max if name in MAXIMA else summed
        sums[name] = value if before is None else together(before, value)


def summed(one: Any, other: Any) -> Any:
    if isinstance(one, HistogramSnapshot):
        counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
        return HistogramSnapshot(one.bounds, counts, one.total + other.total)
    return one + other


def families(totals: dict[str, Totals]) -> Iterator[Metric]:
    """Yield each metric with the samples of all producers."""
    for name, kind in KINDS.items():
        family = family_of(kind, name, name, ["client_id"])
        for client_id, each in totals.items():
            add_sample(family, [client_id], each.metrics[name])
        yield family
    for label, kinds in BY_LABEL.items():
        for name, kind in kinds.items():
            family = family_of(kind, f"{label}_{name}", name, ["client_id", label])
            for client_id, each in totals.items():
                for value, figures in each.labelled[label].items():
                    if name in figures:
                        add_sample(family, [client_id, value], figures[name])
            yield family


def family_of(kind: str, name: str, told: str, labels: list[str]) -> Any:
    made: Any = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}[kind]
    return made(PREFIX + name, help_of(told), labels=labels)


def add_sample(family: Any, labels: list[str], value: Any) -> None:
    if isinstance(value, HistogramSnapshot):
        family.add_metric(labels, list(cumulated(value)), value.total)
    else:
        family.add_metric(labels, value)


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
    """The figures of one producer that are exported already: in the files, or in the sums of topics."""

    def __init__(self) -> None:
        self.process_id = os.getpid()  # where the producer was started
        self.values: dict[tuple[str, ...], float] = {}
        self.gauges: dict[tuple[str, ...], float] = {}
        self.topics: Figures = {}

    def grown(self, key: tuple[str, ...], value: float) -> float:
        """Return by how much a counter has grown since it was written.

        Args:
            key: of the counter.
            value: of the counter, now.
        """
        grown = value - self.values.get(key, 0.0)
        self.values[key] = value
        return grown

    def topics_grown(self, topics: Figures) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield by how much the counters of each topic have grown. One that gave up its place has begun again at 0.

        Args:
            topics: as `Producer.topic_metrics` returns them, now.
        """
        before, self.topics = self.topics, topics
        for topic, counters in topics.items():
            had = before.get(topic, {})
            grown: dict[str, float] = {}
            for name, value in counters.items():
                former = had.get(name, 0)
                grown[name] = value - former if value >= former else value
            yield topic, grown

    def inherit(self, series: Iterable[Series], topics: Figures) -> None:
        """Note the figures that a process finds when it is forked: others write them.

        Args:
            series: of the producer.
            topics: as `Producer.topic_metrics` returns them.
        """
        self.gauges.clear()
        self.topics = topics
        for one in series:
            for key, _, value in counters_of(one):
                self.values[key] = value


class Series(NamedTuple):
    """One metric with the values of its labels."""

    kind: str
    name: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    value: Any


def series_of(
    client_id: str, metrics: dict[str, Any], brokers: Figures, errors: Figures, names: BrokerNames
) -> Iterator[Series]:
    """Yield all metrics of a producer but those of topics; brokers without a name of their own may come more than once.

    Args:
        client_id: of the producer.
        metrics: as `Producer.metrics` returns them.
        brokers: as `Producer.broker_metrics` returns them.
        errors: as `Producer.error_metrics` returns them.
        names: the brokers that are exported by their id.
    """
    for name, kind in KINDS.items():
        yield Series(kind, name, ("client_id",), (client_id,), metrics[name])
    named: Figures = {}
    for broker, figures in brokers.items():
        add_up(named.setdefault(names.label(broker), {}), figures)
    for label, group in (("broker", named), ("error", errors)):
        for text, figures in group.items():
            for name, value in figures.items():
                kind = BY_LABEL[label][name]
                yield Series(kind, f"{label}_{name}", ("client_id", label), (client_id, text), value)


def counters_of(series: Series) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], float]]:
    """Yield what only grows, also of histograms: its name and the values of its labels, the labels, and its value.

    Args:
        series: a metric.
    """
    value, name = series.value, series.name
    if isinstance(value, HistogramSnapshot):
        for bound, count in zip(bounds_of(value), value.counts, strict=True):
            yield (f"{name}_bucket", *series.texts, bound), (*series.labels, "le"), count
        yield (f"{name}_sum", *series.texts), series.labels, value.total
    elif series.kind == "counter":
        yield (f"{name}_total", *series.texts), series.labels, value


class Files:
    """The values of this process in the files of multiprocess mode.

    Counters and histograms grow by what a producer has added, as those of `prometheus_client` do: the file of a process id may
    hold the figures of an earlier process, which must not go back. A gauge is the sum of the producers with its client id.

    Args:
        names: the topics that are exported by name.
        brokers: the brokers that are exported by their id.
    """

    def __init__(self, names: TopicNames, brokers: BrokerNames) -> None:
        self._names = names
        self._brokers = brokers
        self._values: dict[tuple[str, ...], Any] = {}
        self._written: dict[str, WeakSet[Written]] = {}  # of the producers that are up, by client id

    def write(
        self,
        client_id: str,
        written: Written,
        metrics: dict[str, Any],
        topics: Figures,
        brokers: Figures,
        errors: Figures,
    ) -> None:
        """Write the figures of a producer.

        Args:
            client_id: of the producer.
            written: what was written before.
            metrics: as `Producer.metrics` returns them.
            topics: as `Producer.topic_metrics` returns them.
            brokers: as `Producer.broker_metrics` returns them.
            errors: as `Producer.error_metrics` returns them.
        """
        if client_id not in self._written:
            if len(self._written) >= MOST_PRODUCERS:
                return
            self._written[client_id] = WeakSet()
        self._written[client_id].add(written)
        all_series = list(series_of(client_id, metrics, brokers, errors, self._brokers))
        for series in all_series:
            if series.kind == "gauge":
                written.gauges[series.name, *series.texts] = series.value
        self.write_gauges(client_id)
        for series in all_series:
            for key, labels, value in counters_of(series):
                there = self._value(series.kind, series.name, key[0], labels, key[1:])
                self._grow(there, written.grown(key, value))
        for topic, grown in written.topics_grown(topics):
            label = self._names.label(topic)
            for name, value in grown.items():
                of_topic, texts = f"topic_{name}", (client_id, label)
                self._grow(self._value("counter", of_topic, f"{of_topic}_total", ("client_id", "topic"), texts), value)

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
        keys = {key for key in self._values if key[0] in GAUGES and key[1] == client_id}
        for key in keys.union(*here):
            name, *texts = key
            labels = ("client_id",) if len(texts) == 1 else ("client_id", "broker")
            there = self._value("gauge", name, name, labels, tuple(texts))
            figures = [gauges.get(key, 0) for gauges in here]
            there.set(max(figures, default=0) if name in MAXIMA else sum(figures))

    @staticmethod
    def _grow(there: Any, grown: float) -> None:
        if grown > 0:
            there.inc(grown)

    def _value(self, kind: str, metric: str, name: str, labels: tuple[str, ...], texts: tuple[str, ...]) -> Any:
        found = self._values.get((name, *texts))
        if found is None:
            make: Any = values.ValueClass
            full, told = (
                PREFIX + metric,
                help_of(metric.split("_", 1)[1] if metric.split("_", maxsplit=1)[0] in BY_LABEL else metric),
            )
            mode = "livemax" if metric in MAXIMA else "livesum"
            found = make(kind, full, PREFIX + name, labels, texts, told, multiprocess_mode=mode)
            self._values[name, *texts] = found
        return found
