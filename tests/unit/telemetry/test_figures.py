"""The metrics of a push: Kafka's names and ours, chosen by prefix, since the start or since the last push."""

from __future__ import annotations

from aiokprod.metrics import Metrics
from aiokprod.telemetry.figures import Figures, is_asked_for, name_of_metric
from aiokprod.telemetry.otlp import Distribution, Figure, Gauge, Sum

ALL = ("",)


def begun(metrics: Metrics) -> Figures:
    return Figures(metrics.kinds(), metrics.snapshot(), 100.0)


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def test_every_metric_has_a_name_of_ours_and_five_have_kafkas() -> None:
    metrics = Metrics()
    found = by_name(begun(metrics).figures(metrics.snapshot(), ALL, 110.0, is_delta=True))
    kafka = {name for name in found if name.startswith("org.apache.kafka.producer.")}
    assert {name.removeprefix("org.apache.kafka.producer.") for name in kafka} == {
        "connection.creation.rate", "connection.creation.total", "node.request.latency.avg",
        "produce.throttle.time.avg", "record.queue.time.avg",
    }  # fmt: skip
    assert set(found) - kafka == {name_of_metric(name) for name in metrics.kinds()}
    for name, kind in metrics.kinds().items():
        assert isinstance(
            found[name_of_metric(name)], {"gauge": Gauge, "counter": Sum, "histogram": Distribution}[kind]
        )


def test_prefixes_choose() -> None:
    assert is_asked_for("org.apache.kafka.producer.node.x", ["a", "org.apache.kafka.producer.node"])
    assert is_asked_for("x", [""]) and not is_asked_for("x", []) and not is_asked_for("x", ["xy", "y*"])
    assert is_asked_for("x", ["*"])  # what a broker of Kafka 4.3 hands out for a subscription of all


def test_differences_count_from_the_last_push_and_sums_from_the_start() -> None:
    metrics = Metrics()
    metrics.connections_opened.add(7)  # of an earlier start of the producer
    figures = begun(metrics)
    metrics.connections_opened.add(2)
    metrics.request_seconds.record(0.010)
    metrics.request_seconds.record(0.030)
    metrics.requests_sent.add(4)
    metrics.throttle_seconds.add(2.0)
    metrics.buffer_used_bytes.set(5)
    first = metrics.snapshot()
    found = by_name(figures.figures(first, ALL, 110.0, is_delta=True))
    assert found["org.apache.kafka.producer.connection.creation.total"].value == 2  # type: ignore[union-attr]
    assert found["org.apache.kafka.producer.connection.creation.rate"].value == 0.2  # type: ignore[union-attr]
    assert found["org.apache.kafka.producer.node.request.latency.avg"].value == 20.0  # type: ignore[union-attr]
    assert found["org.apache.kafka.producer.produce.throttle.time.avg"].value == 500.0  # type: ignore[union-attr]
    figures.pushed(first, 110.0)
    metrics.connections_opened.add(1)
    since_push = by_name(figures.figures(metrics.snapshot(), ALL, 120.0, is_delta=True))
    since_start = by_name(figures.figures(metrics.snapshot(), ALL, 120.0, is_delta=False))
    opened = name_of_metric("connections_opened")
    assert (since_push[opened], since_start[opened]) == (Sum(opened, 1), Sum(opened, 3))
    latency, used = name_of_metric("request_seconds"), name_of_metric("buffer_used_bytes")
    assert sum(since_push[latency].counts) == 0  # type: ignore[union-attr]
    assert sum(since_start[latency].counts) == 2  # type: ignore[union-attr]
    assert since_push[used] == since_start[used] == Gauge(used, 5, "By")
    assert since_push["org.apache.kafka.producer.node.request.latency.avg"].value == 0.0  # type: ignore[union-attr]
