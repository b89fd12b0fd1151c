"""Counters, gauges, histograms and their snapshot."""

from __future__ import annotations

from aiokprod.errors import DeliveryError, DeliveryTimeoutError
from aiokprod.metrics import (
    IDLE_LOOKS,
    LOOK_S,
    MOST_BROKERS,
    MOST_TOPICS,
    OTHER_BROKERS,
    OTHER_ERRORS,
    OTHER_TOPICS,
    Histogram,
    HistogramSnapshot,
    Metrics,
)


def test_a_value_on_a_bound_belongs_to_that_bound() -> None:
    histogram = Histogram((1, 2))
    for value in (1, 1.5, 2, 3):
        histogram.record(value)
    snapshot = histogram.snapshot()
    assert snapshot.counts == (1, 2, 1)
    assert (snapshot.count, snapshot.total) == (4, 7.5)


def test_a_quantile_is_the_bound_its_value_lies_under() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 0.5, 1.5, 9):
        histogram.record(value)
    snapshot = histogram.snapshot()
    assert snapshot.quantile(0.5) == 1
    assert snapshot.quantile(0.75) == 2
    assert snapshot.quantile(1.0) == float("inf")


def test_nothing_recorded_has_no_quantile() -> None:
    assert Histogram((1,)).snapshot().quantile(0.5) is None


def test_a_snapshot_does_not_change_afterwards() -> None:
    metrics = Metrics()
    metrics.records_delivered.add(3)
    metrics.batch_records.record(3)
    before = metrics.snapshot()
    metrics.records_delivered.add(1)
    metrics.batch_records.record(3)
    assert before["records_delivered"] == 3
    assert isinstance(before["batch_records"], HistogramSnapshot)
    assert before["batch_records"].count == 1


def test_two_producers_share_no_numbers() -> None:
    one, other = Metrics(), Metrics()
    one.records_delivered.add(1)
    assert other.snapshot()["records_delivered"] == 0


def test_brokers_are_counted_each_up_to_a_bound() -> None:
    metrics = Metrics()
    for node in range(MOST_BROKERS + 5):
        metrics.broker(node).requests_sent.add(1)
    metrics.broker(3).request_seconds.record(0.2)
    metrics.set_in_flight({3: 2, 7: 1, MOST_BROKERS + 1: 1, MOST_BROKERS + 2: 4})
    told = metrics.brokers_snapshot()
    assert len(told) == MOST_BROKERS + 1
    seconds = told["3"]["request_seconds"]
    assert isinstance(seconds, HistogramSnapshot)
    assert (told["3"]["requests_sent"], told["3"]["requests_in_flight"], seconds.count) == (1, 2, 1)
    assert (told[OTHER_BROKERS]["requests_sent"], told[OTHER_BROKERS]["requests_in_flight"]) == (5, 5)
    assert metrics.snapshot()["requests_in_flight"] == 8
    metrics.set_in_flight({7: 1})
    told = metrics.brokers_snapshot()
    assert (told["3"]["requests_in_flight"], told["7"]["requests_in_flight"]) == (0, 1)


def test_errors_are_counted_by_names_that_are_known() -> None:
    class TheirsError(DeliveryError):
        pass

    metrics = Metrics()
    for error in (DeliveryTimeoutError("late"), DeliveryTimeoutError("late"), TheirsError("?")):
        metrics.failed(error, 2)
    for code in ("NO_ANSWER", None, None):
        metrics.attempt_failed(code)
    assert metrics.errors_snapshot() == {
        "DeliveryTimeoutError": {"records_failed": 4},
        OTHER_ERRORS: {"records_failed": 2, "attempts_failed": 2},
        "NO_ANSWER": {"attempts_failed": 1},
    }
    told = metrics.snapshot()
    assert (told["records_failed"], told["attempts_failed"]) == (6, 3)


def test_topics_are_counted_each_up_to_a_bound() -> None:
    metrics = Metrics()
    for number in range(MOST_TOPICS + 5):
        metrics.topic(f"t{number}").records_delivered.add(1)
    metrics.topic("t3").sent_bytes.add(7)
    topics = metrics.topics_snapshot()
    assert len(topics) == MOST_TOPICS + 1
    assert topics["t3"] == {"records_delivered": 1, "records_failed": 0, "batches_sent": 0, "sent_bytes": 7}
    assert topics[OTHER_TOPICS]["records_delivered"] == 5


def full() -> Metrics:
    """Return metrics with as many topics as have places, and one more."""
    metrics = Metrics()
    for number in range(MOST_TOPICS + 1):
        metrics.topic(f"t{number}").records_delivered.add(1)
    return metrics


def look(metrics: Metrics, looks: int, *busy: str) -> None:
    """Look so many times; these topics send in between."""
    for number in range(looks):
        for name in busy:
            metrics.topic(name).records_delivered.add(1)
        metrics.look_at_topics((number + 1) * LOOK_S)
        metrics.look_at_topics((number + 1.5) * LOOK_S)  # too early


def test_idle_topics_give_up_their_places_to_those_that_send() -> None:
    metrics = full()
    others = metrics.topic("late")
    assert others is metrics.topic(OTHER_TOPICS)
    look(metrics, IDLE_LOOKS, "t1", "late")
    assert set(metrics.topics_snapshot()) == {f"t{number}" for number in range(MOST_TOPICS)} | {OTHER_TOPICS}
    look(metrics, 1, "t1", "late")
    assert set(metrics.topics_snapshot()) == {"t1", OTHER_TOPICS}
    assert others.is_over and metrics.topic("late") is not others
    metrics.topic("late").records_delivered.add(1)
    told = metrics.topics_snapshot()
    assert told["late"]["records_delivered"] == 1
    assert told[OTHER_TOPICS]["records_delivered"] == 1 + IDLE_LOOKS + 1  # what it had counted stays
    assert metrics.topic("t2").records_delivered.value == 0  # it begins again


def test_without_topics_that_have_no_place_idle_ones_keep_theirs() -> None:
    metrics = Metrics()
    counters = metrics.topic("t")
    look(metrics, IDLE_LOOKS + 3)
    assert metrics.topic("t") is counters and not counters.is_over


def test_topics_that_are_kept_have_places_beside_the_others() -> None:
    metrics = full()
    others = metrics.topic("orders")
    metrics.keep_topics(["orders", "t3"])
    assert others.is_over
    metrics.topic("orders").records_delivered.add(7)
    metrics.topic("late").records_delivered.add(1)  # in the place that "t3" does not need any more
    assert metrics.topic("later") is metrics.topic(OTHER_TOPICS)
    assert len(metrics.topics_snapshot()) == MOST_TOPICS + 3
    metrics.topic("later").records_delivered.add(1)
    look(metrics, IDLE_LOOKS + 2, "late")
    assert set(metrics.topics_snapshot()) == {"orders", "t3", "late", OTHER_TOPICS}
    assert metrics.topics_snapshot()["orders"]["records_delivered"] == 7


def test_a_clock_that_begins_again_is_looked_at_all_the_same() -> None:
    metrics = full()
    metrics.look_at_topics(1e9)
    look(metrics, IDLE_LOOKS + 1, "late")
    assert metrics.topic("late") is not metrics.topic(OTHER_TOPICS)
