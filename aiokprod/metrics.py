"""`Metrics`: counters and gauges of every stage, histograms of durations and sizes. One per producer; read from any thread.

Only the producer's loop writes them: per batch, request or event, and per record only where a record has to wait (for
room, for its topic). A reader copies plain numbers. The unit is part of the name (`_bytes`, `_seconds`); other metrics are
counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokprod import errors

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 120)
BYTES = (256, 1024, 4096, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

INFINITY = float("inf")
Number = int | float
"""Counts stay whole numbers in both forms: as a compiled `float` they would not."""


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Number = 0

    def add(self, amount: Number = 1) -> None:
        self.value += amount


class Gauge:
    """A current value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Number = 0

    def set(self, value: Number) -> None:
        self.value = value

    def add(self, amount: Number) -> None:
        self.value += amount


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """A copy of a histogram: how many values lay between each two bounds.

    `counts[i]` values were above `bounds[i - 1]` and at most `bounds[i]`; the last count is of the values above all bounds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, q: float) -> float | None:
        """Return the bound below which a share `q` of the values lies; None if there are no values."""
        rank, seen = q * self.count, 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= rank:
                return bound
        return None


class Histogram:
    """A distribution over fixed bounds."""

    __slots__ = ("_above", "_at", "_up_to", "bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total: Number = 0
        self._at = 0  # the bucket of the last value and its bounds: the next value is mostly in the same one
        self._above: Number = 0
        self._up_to: Number = 0

    def record(self, value: Number) -> None:
        if not self._above < value <= self._up_to:
            self._look_up(value)
        self.counts[self._at] += 1
        self.total += value

    def _look_up(self, value: Number) -> None:
        at = self._at = bisect_left(self.bounds, value)
        self._above = self.bounds[at - 1] if at else -INFINITY
        self._up_to = self.bounds[at] if at < len(self.bounds) else INFINITY

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(self.bounds, tuple(self.counts), self.total)


MOST_TOPICS = 100
OTHER_TOPICS = "(other)"
"""The name under which topics are counted that have no place among the `MOST_TOPICS`; no topic can have it."""
LOOK_S = 60.0
"""How often the places are looked at, if there are topics without one."""
IDLE_LOOKS = 5
"""So many looks without a record or a batch, and a topic gives up its place."""

MOST_BROKERS = 100
OTHER_BROKERS = "(other)"
"""The name under which the brokers after the first `MOST_BROKERS` are counted."""
OTHER_ERRORS = "(other)"
"""The name under which errors are counted that are neither of aiokprod nor of Kafka."""
KNOWN_ERRORS = frozenset(
    [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.AiokprodError)
    ]
)


MAXIMA = ("oldest_record_seconds",)
"""Gauges of which several producers have the largest value together, not the sum."""


BY_LABEL: dict[str, dict[str, str]] = {
    "topic": {
        "records_delivered": "counter",
        "records_failed": "counter",
        "batches_sent": "counter",
        "sent_bytes": "counter",
    },
    "broker": {"requests_sent": "counter", "requests_in_flight": "gauge", "request_seconds": "histogram"},
    "error": {"records_failed": "counter", "attempts_failed": "counter"},
}
"""The kinds of the metrics that there are for each topic, broker and error."""


class TopicCounters:
    """The counters of one topic."""

    __slots__ = ("_idle_looks", "_seen", "batches_sent", "is_over", "records_delivered", "records_failed", "sent_bytes")

    def __init__(self) -> None:
        self.is_over = False  # they count no more: `Metrics.topic` has others
        self._seen: Number = 0  # at the last look
        self._idle_looks = 0
        self.records_delivered = Counter()
        self.records_failed = Counter()
        self.batches_sent = Counter()
        self.sent_bytes = Counter()

    def snapshot(self) -> dict[str, Number]:
        return {
            "records_delivered": self.records_delivered.value,
            "records_failed": self.records_failed.value,
            "batches_sent": self.batches_sent.value,
            "sent_bytes": self.sent_bytes.value,
        }

    def is_idle(self) -> bool:
        """Look whether they have grown; True: not for so long that another topic may have the place."""
        seen = self.records_delivered.value + self.records_failed.value + self.batches_sent.value
        self._idle_looks = self._idle_looks + 1 if seen == self._seen else 0
        self._seen = seen
        return self._idle_looks >= IDLE_LOOKS

    def went_on(self) -> TopicCounters:
        """End these counters, and return others that go on from them."""
        self.is_over = True
        others = TopicCounters()
        others.records_delivered.value = self.records_delivered.value
        others.records_failed.value = self.records_failed.value
        others.batches_sent.value = self.batches_sent.value
        others.sent_bytes.value = self.sent_bytes.value
        return others


class BrokerMetrics:
    """The metrics of the Produce requests to one broker."""

    __slots__ = ("request_seconds", "requests_in_flight", "requests_sent")

    def __init__(self) -> None:
        self.requests_sent = Counter()
        self.requests_in_flight = Gauge()
        self.request_seconds = Histogram(SECONDS)

    def snapshot(self) -> dict[str, Number | HistogramSnapshot]:
        return {
            "requests_sent": self.requests_sent.value,
            "requests_in_flight": self.requests_in_flight.value,
            "request_seconds": self.request_seconds.snapshot(),
        }


class Metrics:
    """All metrics of one producer; docs/metrics.md says what each means."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCounters] = {}
        self._kept_topics: frozenset[str] = frozenset()  # they have a place each, beside the others
        self._looks_at = 0.0
        self._brokers: dict[str, BrokerMetrics] = {}
        self._records_failed: dict[str, Counter] = {}  # by error
        self._attempts_failed: dict[str, Counter] = {}  # by Kafka's code
        # admission
        self.buffer_limit_bytes = Gauge()
        self.buffer_used_bytes = Gauge()
        self.buffer_waiting_records = Gauge()
        self.buffer_wait_seconds = Histogram(SECONDS)
        self.buffer_full_errors = Counter()
        # topics
        self.parked_records = Gauge()
        self.parked_seconds = Histogram(SECONDS)
        # records
        self.records_delivered = Counter()
        self.records_failed = Counter()
        self.delivered_by_retry = Counter()
        self.delivered_by_proof = Counter()
        self.oldest_record_seconds = Gauge()
        self.delivery_seconds = Histogram(SECONDS)
        self.segment_room_seconds = Histogram(SECONDS)
        self.segment_linger_seconds = Histogram(SECONDS)
        self.segment_queue_seconds = Histogram(SECONDS)
        self.segment_retry_seconds = Histogram(SECONDS)
        self.segment_request_seconds = Histogram(SECONDS)
        # batches
        self.batches_sent = Counter()
        self.batches_resent = Counter()
        self.attempts_failed = Counter()
        self.batch_records = Histogram(COUNTS)
        self.batch_bytes = Histogram(BYTES)
        self.batch_uncompressed_bytes = Counter()
        self.batch_compressed_bytes = Counter()
        self.queue_seconds = Histogram(SECONDS)
        # requests
        self.requests_sent = Counter()
        self.requests_in_flight = Gauge()
        self.request_seconds = Histogram(SECONDS)
        self.throttle_seconds = Counter()
        # retry
        self.chaser_rounds = Counter()
        self.epoch_bumps = Counter()
        # health
        self.ready_producers = Gauge()
        self.degraded_producers = Gauge()
        self.failed_producers = Gauge()
        # the cluster's log
        self.acknowledged_records_lost = Counter()
        # the loop
        self.loop_stalled_seconds = Counter()
        # the watch
        self.stalls_healed = Counter()
        # steps that only observe
        self.defects_caught = Counter()
        # transactions
        self.transactions_committed = Counter()
        self.transactions_aborted = Counter()
        self.transactions_unknown = Counter()
        # cluster
        self.metadata_refreshes = Counter()
        self.metadata_errors = Counter()
        self.metadata_seconds = Histogram(SECONDS)
        self.connections_opened = Counter()
        self.connections_lost = Counter()
        self.connections_failed = Counter()
        self.connections_open = Gauge()
        self.connection_setup_seconds = Histogram(SECONDS)

    def topic(self, name: str) -> TopicCounters:
        """Return the counters of a topic; topics without a place among the `MOST_TOPICS` share those of `OTHER_TOPICS`.

        What keeps them asks again as soon as they are over (`is_over`).
        """
        topics = self._topics
        counters = topics.get(name)
        if counters is None:
            if len(topics) >= self._places() and name not in self._kept_topics:
                name = OTHER_TOPICS
                counters = topics.get(name)
            if counters is None:
                counters = topics[name] = TopicCounters()
        return counters

    def _places(self) -> int:
        """Return how many entries there may be, so that a topic that is not kept gets one of its own."""
        places = MOST_TOPICS
        for name in self._kept_topics:
            if name in self._topics:
                places += 1
        return places + 1 if OTHER_TOPICS in self._topics else places

    def keep_topics(self, names: Iterable[str]) -> None:
        """Count these topics by name always, beside the `MOST_TOPICS` others."""
        self._kept_topics = self._kept_topics.union(names)
        self._give_others_a_chance()

    def look_at_topics(self, now: float) -> None:
        """Take their places from topics that have been idle, if there are others without one. `now`: loop time."""
        if now < self._looks_at <= now + LOOK_S:  # of another loop's clock otherwise
            return
        self._looks_at = now + LOOK_S
        if OTHER_TOPICS not in self._topics:
            return
        for name, counters in list(self._topics.items()):
            if name != OTHER_TOPICS and name not in self._kept_topics and counters.is_idle():
                counters.is_over = True
                del self._topics[name]
        if len(self._topics) < self._places():
            self._give_others_a_chance()

    def _give_others_a_chance(self) -> None:
        """Let each topic without a place ask again with its next batch: those that send most come first."""
        others = self._topics.get(OTHER_TOPICS)
        if others is not None:
            self._topics[OTHER_TOPICS] = others.went_on()

    def topics_snapshot(self) -> dict[str, dict[str, Number]]:
        """Return the counters of all topics by name at this moment; callable from any thread."""
        return {name: counters.snapshot() for name, counters in list(self._topics.items())}

    # ------------------------------------------------------------------ brokers
    def broker(self, node_id: int) -> BrokerMetrics:
        """Return the metrics of a broker; brokers after the first `MOST_BROKERS` share those of `OTHER_BROKERS`."""
        brokers = self._brokers
        name = self._name_of_broker(node_id)
        found = brokers.get(name)
        if found is None:
            found = brokers[name] = BrokerMetrics()
        return found

    def _name_of_broker(self, node_id: int) -> str:
        name = str(node_id)
        return name if name in self._brokers or len(self._brokers) < MOST_BROKERS else OTHER_BROKERS

    def set_in_flight(self, requests: Mapping[int, int]) -> None:
        """Set the gauges of requests in flight, of all brokers. `requests`: by broker; callable from any thread."""
        counts: dict[str, int] = {}
        total = 0
        for node_id, count in requests.items():
            name = self._name_of_broker(node_id)
            counts[name] = counts.get(name, 0) + count
            total += count
        self.requests_in_flight.set(total)
        for name, metrics in list(self._brokers.items()):
            metrics.requests_in_flight.set(counts.get(name, 0))

    def brokers_snapshot(self) -> dict[str, dict[str, Number | HistogramSnapshot]]:
        """Return the metrics of all brokers by their id at this moment; callable from any thread."""
        return {name: metrics.snapshot() for name, metrics in list(self._brokers.items())}

    # ------------------------------------------------------------------ errors
    def failed(self, error: errors.AiokprodError, count: int) -> None:
        """Count records that failed with this error."""
        self.records_failed.add(count)
        name = type(error).__name__
        _counted(self._records_failed, name if name in KNOWN_ERRORS else OTHER_ERRORS, count)

    def attempt_failed(self, code: str | None) -> None:
        """Count an attempt of a batch that failed. `code`: its name; None: it is not known."""
        self.attempts_failed.add(1)
        _counted(self._attempts_failed, OTHER_ERRORS if code is None else code, 1)

    def errors_snapshot(self) -> dict[str, dict[str, Number]]:
        """Return the counters of all errors by name at this moment; callable from any thread."""
        found: dict[str, dict[str, Number]] = {}
        for error, counter in list(self._records_failed.items()):
            found[error] = {"records_failed": counter.value}
        for code, counter in list(self._attempts_failed.items()):
            found.setdefault(code, {})["attempts_failed"] = counter.value
        return found

    def kinds(self) -> dict[str, str]:
        """Return the kind of each metric by name: "counter", "gauge" or "histogram"."""
        return {name: type(metric).__name__.lower() for name, metric in self._all()}

    def snapshot(self) -> dict[str, float | HistogramSnapshot]:
        """Return all metrics by name at this moment; callable from any thread."""
        return {
            name: metric.snapshot() if isinstance(metric, Histogram) else metric.value for name, metric in self._all()
        }

    def _all(self) -> list[tuple[str, Counter | Gauge | Histogram]]:
        # In the compiled form an object has no __dict__.
        named = [(name, getattr(self, name)) for name in dir(self) if not name.startswith("_")]
        return [(name, metric) for name, metric in named if isinstance(metric, (Counter, Gauge, Histogram))]


def _counted(counters: dict[str, Counter], name: str, count: int) -> None:
    counter = counters.get(name)
    if counter is None:
        counter = counters[name] = Counter()
    counter.add(count)
