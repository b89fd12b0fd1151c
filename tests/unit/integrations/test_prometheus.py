"""Prometheus: what is exported from one process, that labels are bounded, and that the dashboard asks for what there is."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast
from weakref import WeakKeyDictionary

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aiokprod import Producer
from aiokprod.errors import ConfigError
from aiokprod.integrations import prometheus as integration
from aiokprod.integrations.prometheus import (
    BrokerNames,
    Files,
    PrometheusMetrics,
    TopicNames,
    TopicSums,
    Totals,
    Written,
)
from aiokprod.metrics import BY_LABEL, IDLE_LOOKS, LOOK_S, MOST_BROKERS, MOST_TOPICS, Metrics
from aiokprod.model import ProducerState
from aiokprod.testing import MemoryProducer, MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

DOCS = Path(__file__).resolve().parents[3] / "docs"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(registry: CollectorRegistry) -> Samples:
    """Return the samples as a server reads them: by name and labels."""
    found: Samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def files_of() -> Files:
    return Files(TopicNames(is_fixed=True), BrokerNames())


def written_to(files: Files, written: Written, client_id: str, metrics: Metrics) -> None:
    figures = cast("dict[str, Any]", metrics.snapshot())
    brokers = cast("integration.Figures", metrics.brokers_snapshot())
    errors = cast("integration.Figures", metrics.errors_snapshot())
    topics = cast("integration.Figures", metrics.topics_snapshot())
    files.write(client_id, written, figures, topics, brokers, errors)


def of(client_id: str, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"client_id": client_id, **more}.items()))


def test_a_scrape_has_the_metrics_of_a_producer() -> None:
    registry = CollectorRegistry()

    async def scenario() -> None:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            metrics = PrometheusMetrics(registry)
            async with Producer(cluster.bootstrap_servers, client_id="a", interceptors=[metrics]) as producer:
                await producer.send_many("orders", [b"v"] * 7)
                samples = scraped(registry)
                told = producer.metrics()
                assert samples["aiokprod_records_delivered_total", of("a")] == 7
                assert samples["aiokprod_buffer_limit_bytes", of("a")] == told["buffer_limit_bytes"]
                assert samples["aiokprod_request_seconds_count", of("a")] == told["request_seconds"].count
                assert samples["aiokprod_request_seconds_sum", of("a")] == pytest.approx(told["request_seconds"].total)
                assert samples["aiokprod_batch_records_bucket", of("a", le="5.0")] == 0
                assert samples["aiokprod_batch_records_bucket", of("a", le="10.0")] == 1
                assert samples["aiokprod_batch_records_bucket", of("a", le="+Inf")] == 1
                assert samples["aiokprod_topic_records_delivered_total", of("a", topic="orders")] == 7
                assert samples["aiokprod_broker_requests_sent_total", of("a", broker="1")] == 1
                assert samples["aiokprod_broker_requests_in_flight", of("a", broker="1")] == 0
                assert samples["aiokprod_broker_request_seconds_bucket", of("a", broker="1", le="+Inf")] == 1
                names = {name for name, _ in samples}
                for name, kind in Metrics().kinds().items():
                    suffix = {"counter": "_total", "gauge": "", "histogram": "_bucket"}[kind]
                    assert f"aiokprod_{name}{suffix}" in names
                labels = {label for _, pairs in samples for label, _ in pairs}
                assert labels == {"client_id", "topic", "broker", "le"}

    asyncio.run(scenario())


def test_producers_share_one_and_those_with_one_client_id_are_summed() -> None:
    registry = CollectorRegistry()

    async def scenario() -> None:
        metrics = PrometheusMetrics(registry)
        ids = ["a", "b", "b"]
        producers = [MemoryProducer(client_id=client_id, interceptors=[metrics]) for client_id in ids]
        for producer in producers:
            async with producer:
                await producer.send("t", b"v")
        samples = scraped(registry)
        assert samples["aiokprod_records_delivered_total", of("a")] == 1
        assert samples["aiokprod_records_delivered_total", of("b")] == 2
        assert samples["aiokprod_delivery_seconds_count", of("b")] == 2
        assert samples["aiokprod_topic_records_delivered_total", of("b", topic="t")] == 2

    asyncio.run(scenario())


def test_a_producer_that_is_dropped_is_exported_no_longer() -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)

    async def scenario() -> None:
        async with MemoryProducer(client_id="a", interceptors=[metrics]) as producer:
            await producer.send("t", b"v")

    asyncio.run(scenario())
    gc.collect()
    assert scraped(registry) == {}


def test_the_number_of_producers_and_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "MOST_PRODUCERS", 3)
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    producers = [MemoryProducer(client_id=f"c{number}", interceptors=[metrics]) for number in range(5)]

    async def scenario() -> None:
        for producer in producers:
            async with producer:
                for number in range(MOST_TOPICS + 5 if producer is producers[0] else 1):
                    await producer.send(f"t{number}", b"v")

    asyncio.run(scenario())
    samples = scraped(registry)
    assert {dict(labels)["client_id"] for _, labels in samples} <= {producer.config.client_id for producer in producers}
    assert len({dict(labels)["client_id"] for _, labels in samples}) == 3
    assert len({dict(labels).get("topic", "") for _, labels in samples}) <= MOST_TOPICS + 2


def test_a_second_collector_in_a_registry_is_refused() -> None:
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusMetrics(registry)


def test_records_pass_unseen() -> None:
    assert MemoryProducer(interceptors=[PrometheusMetrics(None)])._checks.is_plain  # type: ignore[attr-defined]


def test_write_every_is_above_0() -> None:
    with pytest.raises(ConfigError):
        PrometheusMetrics(None, write_every=0)


def test_files_grow_by_what_a_producer_has_added() -> None:
    files, first, second = files_of(), Written(), Written()
    metrics = Metrics()
    metrics.records_delivered.add(5)
    metrics.request_seconds.record(0.002)
    metrics.buffer_used_bytes.set(70)
    metrics.topic("t").records_failed.add(2)
    metrics.broker(1).request_seconds.record(0.002)
    metrics.set_in_flight({1: 3})
    metrics.attempt_failed("NO_ANSWER")
    for written in (first, first, second):  # the second producer is another one with the same figures
        written_to(files, written, "a", metrics)
    values = {key: value.get() for key, value in files._values.items()}
    assert values["records_delivered_total", "a"] == 10
    assert values["request_seconds_bucket", "a", "0.0025"] == 2
    assert values["request_seconds_bucket", "a", "0.005"] == 0
    assert values["request_seconds_sum", "a"] == pytest.approx(0.004)
    assert values["buffer_used_bytes", "a"] == 140  # of two producers
    assert values["topic_records_failed_total", "a", "t"] == 4
    assert values["broker_request_seconds_bucket", "a", "1", "0.0025"] == 2
    assert values["broker_request_seconds_sum", "a", "1"] == pytest.approx(0.004)
    assert values["broker_requests_in_flight", "a", "1"] == 6
    assert values["error_attempts_failed_total", "a", "NO_ANSWER"] == 2
    metrics.set_in_flight({1: 1})
    written_to(files, first, "a", metrics)
    files.end("a", second)
    assert files._values["broker_requests_in_flight", "a", "1"].get() == 1


def test_files_take_so_many_producers_and_topics() -> None:
    files = files_of()
    for number in range(integration.MOST_PRODUCERS + 10):
        metrics = Metrics()
        for topic in range(3):
            metrics.topic(f"t{number * 3 + topic}").records_delivered.add(1)
            metrics.broker(number * 3 + topic).requests_sent.add(1)
        written_to(files, Written(), f"c{number}", metrics)
    assert len({key[1] for key in files._values}) == integration.MOST_PRODUCERS
    assert len({key[2] for key in files._values if key[0].startswith("topic_")}) == MOST_TOPICS + 1
    assert len({key[2] for key in files._values if key[0].startswith("broker_")}) == MOST_BROKERS + 1


def test_topics_after_the_most_are_counted_together_whatever_producer_they_are_of() -> None:
    registry = CollectorRegistry()
    metrics, files = PrometheusMetrics(registry), files_of()
    producers = [MemoryProducer(client_id=client_id, interceptors=[metrics]) for client_id in ("a", "a", "b")]

    async def scenario() -> None:
        for number, producer in enumerate(producers):
            async with producer:
                for topic in range(60):
                    await producer.send(f"t{number}-{topic}", b"v")

    asyncio.run(scenario())
    written = [Written() for _ in producers]
    for _ in range(2):
        for producer, there in zip(producers, written, strict=True):
            written_to(files, there, str(producer.config.client_id), producer._metrics)
        samples = scraped(registry)
        name = "topic_records_delivered_total"
        told = {labels: value for (full, labels), value in samples.items() if full == f"aiokprod_{name}"}
        kept = {key: value.get() for key, value in files._values.items() if key[0] == name}
        assert sum(told.values()) == sum(kept.values()) == 180
        assert len({dict(labels)["topic"] for labels in told}) == len({key[2] for key in kept}) == MOST_TOPICS + 1
        assert told[of("a", topic="(other)")] == kept[name, "a", "(other)"] == 20
        assert told[of("b", topic="(other)")] == kept[name, "b", "(other)"] == 60


def test_a_producer_that_starts_during_a_scrape_does_not_break_it() -> None:
    metrics = PrometheusMetrics(None)
    producers = [MemoryProducer(client_id=str(number), interceptors=[metrics]) for number in range(3)]

    def begin(producer: Producer) -> None:
        metrics._producers[producer] = Written()

    for producer in producers[:2]:
        begin(producer)

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_code is WeakKeyDictionary.__iter__.__code__:
            begin(producers[2])  # as another thread may, between two lines
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        families = list(metrics.collect())
    finally:
        sys.settrace(before)
    assert families


# ---------------------------------------------------------------------- topics
def test_a_topic_that_grows_gets_the_name_of_one_that_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(integration, "monotonic", lambda: now)
    names = TopicNames()
    for number in range(MOST_TOPICS):
        names.label(f"t{number}")
    now = 299.0
    assert (names.label("late"), names.label("t0")) == ("(other)", "t0")
    now = 301.0
    assert names.label("late", has_grown=False) == "(other)"
    assert (names.label("late"), names.has("late")) == ("late", True)
    assert (names.has("t0"), names.has("t1")) == (True, False)  # the one that was idle the longest
    assert TopicNames(is_fixed=True).label("late") == "late"


def test_no_series_of_a_topic_goes_back_when_a_topic_gets_or_loses_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(integration, "monotonic", lambda: now)
    names = TopicNames()
    sums, written, metrics = TopicSums(names), (Written(), Written()), (Metrics(), Metrics())
    before: dict[str, float] = {}
    sent = 0
    for minute in range(20):
        now = minute * 60.0
        for which, each in enumerate(metrics):
            each.look_at_topics(now)
            # The first hundred send for some minutes, then others do: those of the second producer begin earlier.
            for number in range(MOST_TOPICS) if minute < 3 + which else range(MOST_TOPICS, MOST_TOPICS + 30):
                each.topic(f"t{number}").records_delivered.add(1)
                sent += 1
            sums.add("a", written[which], cast("integration.Figures", each.topics_snapshot()))
        told = {topic: figures["records_delivered"] for topic, figures in sums.of(["a"])["a"].items()}
        assert len(told) <= MOST_TOPICS + 1
        for topic, count in told.items():
            assert count >= before.get(topic, 0), (minute, topic)
        before = told
    assert {f"t{number}" for number in range(MOST_TOPICS, MOST_TOPICS + 30)} <= set(before)
    assert sum(before.values()) <= sent
    assert sums.of([]) == sums.of(["a"]).get("b", {})  # those that are not exported are forgotten


def test_a_topic_that_gave_up_its_place_in_a_producer_begins_again() -> None:
    written = Written()
    assert dict(written.topics_grown({"t": {"records_delivered": 5}})) == {"t": {"records_delivered": 5}}
    assert dict(written.topics_grown({"t": {"records_delivered": 7}})) == {"t": {"records_delivered": 2}}
    assert dict(written.topics_grown({"t": {"records_delivered": 1}})) == {"t": {"records_delivered": 1}}
    assert dict(written.topics_grown({})) == {}
    assert dict(written.topics_grown({"t": {"records_delivered": 3}})) == {"t": {"records_delivered": 3}}


@pytest.mark.parametrize("is_multiprocess", [False, True])
def test_topics_that_are_chosen_are_exported_by_name_and_no_others(
    is_multiprocess: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        if is_multiprocess:
            monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "unused")
        registry = CollectorRegistry()
        metrics = PrometheusMetrics(registry, topics=["orders", "never"])
        async with MemoryProducer(client_id="a", interceptors=[metrics]) as producer:
            for number in range(MOST_TOPICS + 5):
                await producer.send(f"t{number}", b"v")
            await producer.send("orders", b"v")
            if is_multiprocess:
                await asyncio.sleep(10)
                name = "topic_records_delivered_total"
                told = {key[2]: value(metrics, *key) for key in metrics._files._values if key[0] == name}
            else:
                name = "aiokprod_topic_records_delivered_total"
                told = {dict(key)["topic"]: count for (full, key), count in scraped(registry).items() if full == name}
            assert told == {"orders": 1, "(other)": MOST_TOPICS + 5}

    run_in_virtual_time(scenario)


def test_chosen_topics_are_a_list_that_is_not_too_long() -> None:
    with pytest.raises(ConfigError, match=r"topics=\['orders'\]"):
        PrometheusMetrics(None, topics="orders")
    with pytest.raises(ConfigError, match="at most 1000"):
        PrometheusMetrics(None, topics=[str(number) for number in range(1001)])


def test_an_idle_topic_is_idle_for_the_exporter_as_it_is_for_the_producer() -> None:
    assert integration.IDLE_S == IDLE_LOOKS * LOOK_S == 300


# ---------------------------------------------------------------------- several processes
@contextmanager
def several_processes() -> Iterator[PrometheusMetrics]:
    """Yield the metrics of one of several processes; their values stay in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROMETHEUS_MULTIPROC_DIR", "unused")
        yield PrometheusMetrics(write_every=1.0)


def value(metrics: PrometheusMetrics, *key: str) -> float:
    return float(metrics._files._values[key].get())


def run_in_virtual_time(scenario: Callable[[VirtualNetwork], Awaitable[None]]) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        await scenario(network)

    run_virtual(whole, seed=1)


def test_gauges_of_one_client_id_are_summed_while_their_producers_are_up() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        with several_processes() as metrics:
            key = "buffer_limit_bytes", "a"
            first = MemoryProducer(client_id="a", interceptors=[metrics])
            second = MemoryProducer(client_id="a", interceptors=[metrics])
            limit = int(first.config.buffer_memory)
            async with first:
                async with second:
                    assert value(metrics, *key) == 2 * limit
                assert value(metrics, *key) == limit
                await asyncio.sleep(3)
                assert value(metrics, *key) == limit
            assert value(metrics, *key) == 0

    run_in_virtual_time(scenario)


def test_the_oldest_record_of_several_producers_is_the_oldest_of_all() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        with several_processes() as metrics:
            first = MemoryProducer(client_id="a", interceptors=[metrics])
            second = MemoryProducer(client_id="a", interceptors=[metrics])
            async with first, second:
                for producer, age_s in ((first, 3.0), (second, 40.0)):
                    metrics._producers[producer].gauges["oldest_record_seconds", "a"] = age_s
                metrics._files.write_gauges("a")
                assert value(metrics, "oldest_record_seconds", "a") == 40
                totals = Totals(BrokerNames())
                for age_s in (3.0, 40.0, 5.0):
                    totals.add(first.metrics() | {"oldest_record_seconds": age_s}, {}, {})
                assert totals.metrics["oldest_record_seconds"] == 40
                assert totals.metrics["ready_producers"] == 3

    run_in_virtual_time(scenario)


def test_a_producer_that_was_dropped_leaves_the_gauges() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        with several_processes() as metrics:
            producer: MemoryProducer | None = MemoryProducer(client_id="a", interceptors=[metrics])
            assert producer is not None
            metrics.on_start(producer)
            assert value(metrics, "buffer_limit_bytes", "a") == 0 and metrics._timers
            metrics._producers[producer].gauges["buffer_limit_bytes", "a"] = 7
            metrics._files.write_gauges("a")
            assert value(metrics, "buffer_limit_bytes", "a") == 7
            producer = None
            gc.collect()
            await asyncio.sleep(2)
            assert value(metrics, "buffer_limit_bytes", "a") == 0 and not metrics._timers

    run_in_virtual_time(scenario)


def test_a_producer_without_brokers_is_written_on_when_another_closes() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        with several_processes() as metrics:
            lonely = Producer("localhost:1", dialer=network.dial, client_id="lonely", interceptors=[metrics])
            await lonely.start(wait=False)
            assert lonely.health().state is ProducerState.DEGRADED
            async with MemoryProducer(interceptors=[metrics]):
                pass
            await asyncio.sleep(5)
            assert value(metrics, "connections_failed_total", "lonely") > 1
            await lonely.close(0)

    run_in_virtual_time(scenario)


def test_what_a_producer_did_before_a_fork_is_exported_by_the_parent_only() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        registry = CollectorRegistry()
        alone = PrometheusMetrics(registry)
        with several_processes() as metrics:
            producer = MemoryProducer(client_id="a", interceptors=[metrics, alone])
            async with producer:
                await producer.send_many("t", [b"v"] * 10)
            for each in (metrics, alone):
                each._producers[producer]  # it is there
            metrics._files = files_of()  # as a child finds it: without the values of its parent
            metrics._producers[producer] = Written()
            metrics._producers[producer].process_id = alone._producers[producer].process_id = -1
            assert scraped(registry) == {}
            async with producer:
                await producer.send("t", b"v")
            assert value(metrics, "records_delivered_total", "a") == 1
            assert value(metrics, "topic_records_delivered_total", "a", "t") == 1
            assert value(metrics, "delivery_seconds_bucket", "a", "+Inf") == 0
            assert (
                sum([value(metrics, *key) for key in metrics._files._values if key[0] == "delivery_seconds_bucket"])
                == 1
            )
            assert scraped(registry)["aiokprod_records_delivered_total", of("a")] == 11

    run_in_virtual_time(scenario)


def test_a_disk_that_is_full_for_a_while_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        with several_processes() as metrics, pytest.MonkeyPatch.context() as patch:
            async with MemoryProducer(client_id="a", interceptors=[metrics]) as producer:
                with patch.context() as full:
                    full.setattr(metrics._files, "write", fails)
                    await asyncio.sleep(3)
                await producer.send("t", b"v")
                await asyncio.sleep(3)
                assert value(metrics, "records_delivered_total", "a") == 1

    def fails(*arguments: object) -> None:
        raise OSError("no space left on device")

    run_in_virtual_time(scenario)
    assert "PrometheusMetrics.write raised" in caplog.text


# ---------------------------------------------------------------------- the dashboard
def expressions() -> Iterator[str]:
    board = json.loads((DOCS / "grafana_dashboard.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["query"]["query"] for each in board["templating"]["list"] if isinstance(each["query"], dict))


def exported_types() -> dict[str, str]:
    """Return the type of each series that a scrape has."""
    found: dict[str, str] = {}
    kinds = Metrics().kinds()
    for label, metrics in BY_LABEL.items():
        kinds |= {f"{label}_{name}": kind for name, kind in metrics.items()}
    for name, kind in kinds.items():
        for suffix in {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[kind]:
            found[f"aiokprod_{name}{suffix}"] = kind
    return found


def fits_the_types(query: str) -> bool:
    """Return whether a query takes the rate of counters and histograms, gauges as they are, and quantiles of buckets."""
    named = re.findall(r"\baiokprod_\w+", query)
    rated = re.findall(r"\b(?:rate|irate|increase)\((\w+)(?:\{[^}]*\})?\[[^]]+\]\)", query)
    quantiles = re.findall(r"\bhistogram_quantile\(0\.\d+, sum by \(([^)]*)\) \(rate\((\w+)", query)
    types = exported_types()
    return (
        bool(named)
        and types.keys() >= set(named)
        and rated == [name for name in named if types[name] != "gauge"]
        and [name for _, name in quantiles] == [name for name in named if name.endswith("_bucket")]
        and len(quantiles) == query.count("histogram_quantile")
        and all("le" in re.split(", *", labels) for labels, _ in quantiles)
    )


@pytest.mark.parametrize(
    "query",
    [
        "sum(rate(aiokprod_connections_open{client_id=~'a'}[5m]))",
        "sum by (client_id) (aiokprod_records_failed_total)",
        "sum(aiokprod_delivery_seconds_sum) / sum(rate(aiokprod_delivery_seconds_count[5m]))",
        "sum by (le) (rate(aiokprod_delivery_seconds_bucket[5m]))",
        "histogram_quantile(0.5, sum by (client_id) (rate(aiokprod_delivery_seconds_bucket[5m])))",
        "histogram_quantile(0.5, sum by (le) (rate(aiokprod_delivery_seconds_sum[5m])))",
        "histogram_quantile(0.5, sum by (le) (aiokprod_delivery_seconds_bucket))",
        "sum(rate(aiokprod_records_failed[5m]))",
        "sum(up)",
    ],
)
def test_a_query_that_is_not_of_the_metrics_type_is_found(query: str) -> None:
    assert not fits_the_types(query)


def test_the_dashboard_asks_for_metrics_and_labels_that_are_exported() -> None:
    asked = list(expressions())
    assert len(asked) > 20
    for expression in asked:
        of_a_variable = re.fullmatch(r"label_values\((\w+)(?:\{[^}]*\})?, (?:client_id|instance)\)", expression)
        assert of_a_variable[1] in exported_types() if of_a_variable else fits_the_types(expression), expression
        labels = set(re.findall(r"(\w+)=~", expression)) - {"instance"}  # of Prometheus itself
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            labels |= {label.strip() for label in grouped.split(",")}
        assert labels <= {"client_id", "le", *BY_LABEL}
        assert of_a_variable or '{instance=~"$instance",client_id=~"$client_id"}' in expression, expression
        assert expression.count("(") == expression.count(")")


def test_the_dashboard_asks_for_every_metric_by_broker_topic_and_error_and_for_the_chosen_producers() -> None:
    asked = " ".join(expressions())
    missing = [
        f"{label}_{name}"
        for label, kinds in BY_LABEL.items()
        for name in kinds
        if f"aiokprod_{label}_{name}" not in asked and (label, name) != ("topic", "batches_sent")
    ]
    assert missing == []
    board = json.loads((DOCS / "grafana_dashboard.json").read_text(encoding="utf-8"))
    chosen = {each["name"]: each for each in board["templating"]["list"]}
    assert list(chosen) == ["datasource", "instance", "client_id"]
    assert all(chosen[name]["multi"] and chosen[name]["includeAll"] for name in ("instance", "client_id"))


# ---------------------------------------------------------------------- the alerts
def alerts() -> dict[str, str]:
    """Return the queries of the table on the page, by what they are for."""
    page = (DOCS / "prometheus.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| when \| query \| for \|\n\|---\|---\|---\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    rows = re.findall(r"^\| (.*) \| `(.*)` \| \d+[smh] \|$", table, re.MULTILINE)
    assert len(rows) == table.count("\n")
    return dict(rows)


def is_possible(query: str) -> bool:
    """Return whether each metric of a query is exported, and of the type that the query needs, as its labels are."""
    labels = {label for grouped in re.findall(r"by \(([^)]*)\)", query) for label in re.split(", *", grouped)}
    return (
        len(re.findall(r"\baiokprod_\w+", query)) == 1
        and fits_the_types(query)
        and labels <= {"client_id", "broker", "le"}
        and query.count("(") == query.count(")")
        and re.search(r" (>|==) \d+(\.\d+)?$", query) is not None
    )


def test_each_alert_asks_for_one_metric_of_the_type_that_its_query_needs() -> None:
    assert len(alerts()) >= 4
    assert [query for query in alerts().values() if not is_possible(query)] == []


@pytest.mark.parametrize(
    "query",
    [
        "sum(rate(aiokprod_records_lost_total[5m])) > 0",
        "sum(rate(aiokprod_records_failed[5m])) > 0",
        "sum(aiokprod_records_failed_total) > 0",
        "sum(rate(aiokprod_connections_open[5m])) == 0",
        "sum by (topic) (aiokprod_connections_open) == 0",
        "histogram_quantile(0.99, sum by (client_id) (rate(aiokprod_delivery_seconds_bucket[5m]))) > 5",
        "histogram_quantile(0.99, sum by (le) (rate(aiokprod_records_failed_total[5m]))) > 5",
        "sum(rate(aiokprod_records_failed_total[5m])",
    ],
)
def test_an_alert_that_asks_for_something_else_is_found(query: str) -> None:
    assert not is_possible(query)


def test_the_alert_about_records_that_fail_says_what_the_metric_counts() -> None:
    (said,) = [when for when, query in alerts().items() if "(aiokprod_records_failed" in query]
    metrics = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert "| `records_failed` | counter | records | failed records, whatever their persistence" in metrics
    assert "may be in the log" in said and "`error.persistence`" in said


def test_every_panel_has_a_place_of_its_own() -> None:
    board = json.loads((DOCS / "grafana_dashboard.json").read_text(encoding="utf-8"))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(places) == len(set(places)) and len({panel["id"] for panel in board["panels"]}) == len(places)
