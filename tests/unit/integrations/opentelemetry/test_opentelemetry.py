"""OpenTelemetry: names and attributes as in the conventions, contexts in headers, and outcomes of every kind."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from types import FrameType
from typing import Any

import pytest
from opentelemetry import baggage, metrics, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.semconv._incubating.attributes import error_attributes, messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import server_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context
from opentelemetry.trace.status import StatusCode

from aiokprod import Delivery, Producer, ProducerInterceptor, Record
from aiokprod.errors import AiokprodError, BufferFullError, ConfigError
from aiokprod.hooks import BatchSettled, Server
from aiokprod.integrations.opentelemetry import batch_telemetry, open_telemetry
from aiokprod.integrations.opentelemetry.batch_telemetry import BatchTelemetry
from aiokprod.integrations.opentelemetry.draw import Draw
from aiokprod.integrations.opentelemetry.record_spans import RecordSpans
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

THEIRS = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
SERVER = {server_attributes.SERVER_ADDRESS: "127.0.0.1", server_attributes.SERVER_PORT: 9092}
CLUSTER = {messaging_attributes.MESSAGING_KAFKA_CLUSTER_ID: "a-cluster"}
TRACEPARENT = b"00-00000000000000000000000000000abc-0000000000000def-01"


class Telemetry:
    """An SDK that keeps everything in memory."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler=sampler)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def hooks(self, **options: Any) -> list[ProducerInterceptor]:
        return open_telemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Return the attributes of each point of a metric, with the point."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found = []
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        found += [(dict(point.attributes or {}), point) for point in metric.data.data_points]
        return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def run(scenario: Callable[[VirtualNetwork], Awaitable[None]]) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        await scenario(network)

    run_virtual(whole, seed=1)


@asynccontextmanager
async def started(
    network: VirtualNetwork, hooks: Sequence[ProducerInterceptor], brokers: int = 1, **options: Any
) -> AsyncIterator[tuple[MockCluster, Producer]]:
    async with MockCluster(brokers=brokers, network=network, seed=1, cluster_id="a-cluster") as cluster:
        cluster.create_topic("orders")
        options = {"dialer": network.dial, "interceptors": hooks, "client_id": "shop"} | options
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            await producer.partitions_for("orders")
            yield cluster, producer


def test_a_record_has_a_span_by_the_conventions() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):
            await producer.send("orders", b"12345", key=b"k")
            await producer.send("orders", None, key=b"\xff")
            (first, second) = cluster.records("orders")
            assert [name for name, _ in first.headers] == ["traceparent"]
            context = sdk.spans[0].context
            assert context is not None
            told = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
            assert list(first.headers) == [("traceparent", told)]
            assert first.headers != second.headers

    run(scenario)
    first, second = sdk.spans
    assert (first.name, first.kind, first.parent, first.status.status_code) == (
        "send orders", SpanKind.PRODUCER, None, StatusCode.UNSET,
    )  # fmt: skip
    assert attributes(first) == {
        messaging_attributes.MESSAGING_SYSTEM: messaging_attributes.MessagingSystemValues.KAFKA.value,
        messaging_attributes.MESSAGING_OPERATION_NAME: "send",
        messaging_attributes.MESSAGING_OPERATION_TYPE: messaging_attributes.MessagingOperationTypeValues.SEND.value,
        messaging_attributes.MESSAGING_DESTINATION_NAME: "orders",
        messaging_attributes.MESSAGING_DESTINATION_PARTITION_ID: "0",
        messaging_attributes.MESSAGING_CLIENT_ID: "shop",
        messaging_attributes.MESSAGING_KAFKA_MESSAGE_KEY: "k",
        messaging_attributes.MESSAGING_KAFKA_OFFSET: 0,
        messaging_attributes.MESSAGING_MESSAGE_BODY_SIZE: 5,
        "aiokprod.attempts": 1,
        **SERVER,
        **CLUSTER,
    }
    assert attributes(second)[messaging_attributes.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] is True
    assert messaging_attributes.MESSAGING_KAFKA_MESSAGE_KEY not in attributes(second)  # no text
    scope = first.instrumentation_scope
    assert scope is not None and (scope.name, scope.schema_url) == ("aiokprod", Schemas.V1_44_0.value)


def test_the_span_of_the_caller_is_the_parent_and_its_baggage_travels() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):
            token = attach(baggage.set_baggage("user", "me"))
            with sdk.tracers.get_tracer("shop").start_as_current_span("request"):
                delivery = producer.send("orders", b"v", headers={"mine": b"1"})
            detach(token)
            await delivery
            assert [name for name, _ in cluster.records("orders")[0].headers] == ["mine", "traceparent", "baggage"]

    run(scenario)
    (request,) = sdk.named("request")
    (sent,) = sdk.named("send orders")
    assert sent.parent is not None and request.context is not None
    assert sent.parent.span_id == request.context.span_id


def test_a_context_in_the_headers_is_kept_and_linked_to() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):
            await producer.send("orders", b"v", headers=[("traceparent", TRACEPARENT)])
            await producer.send("orders", b"v", headers=[("traceparent", b"nonsense"), ("traceparent", None)])
            first, second = cluster.records("orders")
            assert list(first.headers) == [("traceparent", TRACEPARENT)]
            assert list(second.headers) == [("traceparent", b"nonsense"), ("traceparent", None)]

    run(scenario)
    first, second = sdk.spans
    assert [link.context for link in first.links] == [THEIRS] and not second.links


def test_a_record_that_is_sent_again_is_traced_once() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):
            await producer.send("orders", b"v")
            record = cluster.records("orders")[0]
            await producer.send("orders", record.value, headers=record.headers)
            headers = [list(record.headers) for record in cluster.records("orders")]
            assert headers[0] == headers[1] and len(headers[0]) == 1

    run(scenario)
    first, second = sdk.spans
    assert [link.context.span_id for link in second.links] == [first.context.span_id]  # type: ignore[union-attr]


def test_attempts_are_counted_and_failures_have_their_error() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(), delivery_timeout_ms=20_000, request_timeout_ms=9_000) as (
            cluster,
            producer,
        ):
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
            await producer.send("orders", b"v")
            cluster.fail_next("Produce", "INVALID_TIMESTAMP")
            with pytest.raises(AiokprodError):
                await producer.send("orders", b"v")
            held = cluster.hold("Produce")
            with pytest.raises(AiokprodError):
                await producer.send("orders", b"v")
            cluster.release(held)

    run(scenario)
    late, refused, lost = sdk.spans
    assert attributes(late)["aiokprod.attempts"] == 3 and late.status.status_code is StatusCode.UNSET
    assert attributes(refused)[error_attributes.ERROR_TYPE] == "INVALID_TIMESTAMP"
    assert attributes(refused)["aiokprod.persistence"] == "not persisted"
    assert refused.status.status_code is StatusCode.ERROR and "INVALID_TIMESTAMP" in (refused.status.description or "")
    assert attributes(lost)[error_attributes.ERROR_TYPE] == "DeliveryTimeoutError"
    assert attributes(lost)["aiokprod.persistence"] == "possibly persisted"
    assert messaging_attributes.MESSAGING_KAFKA_OFFSET not in attributes(lost)


def test_the_server_is_that_of_the_last_attempt_and_there_is_none_without_one() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(batch_spans=True), brokers=2, linger_ms=100) as (cluster, producer):
            cluster.move_leader("orders", 0, 1)
            await producer.send("orders", b"a")
            cluster.move_leader("orders", 0, 2)
            await producer.send("orders", b"b")
            assert producer.send("orders", b"c").recall()
            await producer.send("orders", b"d")

    run(scenario)
    expected = [("127.0.0.1", 9092, "a-cluster"), ("127.0.0.1", 9093, "a-cluster"), (None, None, None)]
    names = (*SERVER, *CLUSTER)
    for name in ("create orders", "send orders"):
        told = [tuple(attributes(span).get(name) for name in names) for span in sdk.named(name)]
        assert told == [*expected, expected[1]]
    points = [found.get(server_attributes.SERVER_PORT) for found, _ in sdk.points("messaging.client.sent.messages")]
    assert points == [9092, 9093]


def test_a_record_that_send_refuses_has_a_span_that_failed() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        options = {"buffer_memory": 10_000, "max_request_size": 10_000, "batch_size": 10_000, "max_waiting_bytes": 0}
        async with started(network, sdk.hooks(), **options) as (cluster, producer):
            held = cluster.hold("Produce")
            kept = producer.send("orders", b"x" * 9_000)
            with pytest.raises(BufferFullError):
                producer.send("orders", b"x" * 9_000)
            cluster.release(held)
            await kept

    run(scenario)
    refused, kept = sdk.spans
    assert attributes(refused)[error_attributes.ERROR_TYPE] == "BufferFullError"
    assert attributes(refused)["aiokprod.attempts"] == 0
    assert messaging_attributes.MESSAGING_KAFKA_OFFSET in attributes(kept)


def test_a_cancelled_handle_does_not_end_the_span_and_a_recall_does() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(), linger_ms=1_000) as (cluster, producer):
            held = cluster.hold("Produce")  # a task that has begun to wait makes its batch urgent
            detached = producer.send("orders", b"a")
            detached.cancel()
            waiting = asyncio.ensure_future(producer.send("orders", b"b").wait())
            await asyncio.sleep(0)
            waiting.cancel()
            recalled = producer.send("orders", b"c")
            assert recalled.recall()
            await asyncio.sleep(0.1)
            assert len(sdk.spans) == 1
            cluster.release(held)
            await producer.flush()

    run(scenario)
    recalled, first, second = sdk.spans
    assert attributes(recalled)[error_attributes.ERROR_TYPE] == "RecordRecalledError"
    assert [attributes(span)[messaging_attributes.MESSAGING_KAFKA_OFFSET] for span in (first, second)] == [0, 1]


def test_records_of_transactions_end_with_their_transaction() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(), transactional_id="id", linger_ms=10_000) as (_, producer):
            async with producer.transaction():
                producer.send("orders", b"a")
            producer.begin_transaction()
            producer.send("orders", b"b")
            await producer.abort_transaction()

    run(scenario)
    committed, aborted = sdk.spans
    assert attributes(committed)[messaging_attributes.MESSAGING_KAFKA_OFFSET] == 0
    assert attributes(aborted)[error_attributes.ERROR_TYPE] == "TransactionAbortedError"


def test_each_record_of_send_many_has_a_span() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):
            await producer.send_many("orders", [b"a", Record(value=b"b", headers=(("mine", None),)), b"c"])
            await producer.send_many("orders", iter([b"d"]))
            names = [[name for name, _ in record.headers] for record in cluster.records("orders")]
            assert names == [["traceparent"], ["mine", "traceparent"], ["traceparent"], ["traceparent"]]

    run(scenario)
    offsets = [attributes(span)[messaging_attributes.MESSAGING_KAFKA_OFFSET] for span in sdk.spans]
    assert offsets == [0, 1, 2, 3]


def test_batches_have_spans_with_links_and_their_records_are_created() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(batch_spans=True)) as (_, producer):
            await producer.send_many("orders", [b"a", b"b", b"c"])

    run(scenario)
    created, (batch,) = sdk.named("create orders"), sdk.named("send orders")
    assert [span.kind for span in created] == [SpanKind.PRODUCER] * 3
    assert {attributes(span)[messaging_attributes.MESSAGING_OPERATION_TYPE] for span in created} == {"create"}
    assert (batch.kind, batch.parent) == (SpanKind.CLIENT, None)
    assert [link.context for link in batch.links] == [span.context for span in created]
    assert attributes(batch) == {
        messaging_attributes.MESSAGING_SYSTEM: "kafka",
        messaging_attributes.MESSAGING_OPERATION_NAME: "send",
        messaging_attributes.MESSAGING_OPERATION_TYPE: "send",
        messaging_attributes.MESSAGING_DESTINATION_NAME: "orders",
        messaging_attributes.MESSAGING_DESTINATION_PARTITION_ID: "0",
        messaging_attributes.MESSAGING_CLIENT_ID: "shop",
        messaging_attributes.MESSAGING_BATCH_MESSAGE_COUNT: 3,
        messaging_attributes.MESSAGING_KAFKA_OFFSET: 0,
        "aiokprod.attempts": 1,
        **SERVER,
        **CLUSTER,
    }
    assert {attributes(span)[server_attributes.SERVER_ADDRESS] for span in created} == {"127.0.0.1"}


def test_columns_pass_by_and_their_batches_are_traced() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from aiokprod import BytesColumn

    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(batch_spans=True)) as (cluster, producer):
            values = pyarrow.array([b"a", b"b"], pyarrow.binary())
            await producer.send_columns("orders", BytesColumn.from_arrow(values))
            assert all(not record.headers for record in cluster.records("orders"))

    run(scenario)
    (batch,) = sdk.spans
    assert (batch.name, attributes(batch)[messaging_attributes.MESSAGING_BATCH_MESSAGE_COUNT]) == ("send orders", 2)
    assert not batch.links


def test_sends_of_another_thread_have_its_span_as_parent() -> None:
    sdk = Telemetry()

    async def scenario() -> None:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            async with Producer(cluster.bootstrap_servers, interceptors=sdk.hooks()) as producer:

                def work() -> None:
                    with sdk.tracers.get_tracer("shop").start_as_current_span("work"):
                        producer.send_threadsafe("orders", b"v").result(30)

                thread = threading.Thread(target=work)
                thread.start()
                await asyncio.to_thread(thread.join)

    asyncio.run(scenario())
    (work,), (sent,) = sdk.named("work"), sdk.named("send orders")
    assert sent.parent is not None and work.context is not None and sent.parent.span_id == work.context.span_id


def test_what_is_sent_is_measured_by_the_conventions() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(), linger_ms=2_000) as (cluster, producer):
            await producer.send_many("orders", [b"v"] * 5)
            cluster.fail_next("Produce", "INVALID_TIMESTAMP")
            with pytest.raises(AiokprodError):
                await producer.send("orders", b"v")
            assert producer.send("orders", b"v").recall()  # never sent: not counted

    run(scenario)
    assert batch_telemetry.DURATION_BOUNDS[0] == 0.005
    sent = sdk.points(messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES)
    plain = {
        messaging_attributes.MESSAGING_SYSTEM: "kafka",
        messaging_attributes.MESSAGING_OPERATION_NAME: "send",
        messaging_attributes.MESSAGING_OPERATION_TYPE: "send",
        messaging_attributes.MESSAGING_DESTINATION_NAME: "orders",
        messaging_attributes.MESSAGING_DESTINATION_PARTITION_ID: "0",
        **SERVER,
    }
    assert [(found, point.value) for found, point in sent] == [
        (plain, 5), (plain | {error_attributes.ERROR_TYPE: "INVALID_TIMESTAMP"}, 1),
    ]  # fmt: skip
    durations = sdk.points(messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION)
    assert [(found, point.count) for found, point in durations] == [(found, 1) for found, _ in sent]
    assert durations[0][1].explicit_bounds == batch_telemetry.DURATION_BOUNDS


def test_a_record_that_is_not_sampled_passes_its_context_on() -> None:
    sdk = Telemetry(ParentBased(ALWAYS_OFF))

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):
            theirs = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(0))
            token = attach(set_span_in_context(NonRecordingSpan(theirs), Context()))
            await producer.send("orders", b"v")
            detach(token)
            ((name, value),) = cluster.records("orders")[0].headers
            assert name == "traceparent" and value is not None
            assert value.startswith(b"00-00000000000000000000000000000abc-") and value[-2:] in (b"00", b"02")

    run(scenario)
    assert sdk.spans == []


def test_without_an_sdk_records_go_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    global_provider: list[Any] = [trace.ProxyTracerProvider()]
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: global_provider[0])
    sdk = Telemetry()
    seen: list[Record] = []

    class Spies(RecordSpans):
        def on_send(self, record: Record) -> Record:
            seen.append(record)
            return super().on_send(record)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, [Spies(1.0, 1.0, None, None, None)]) as (cluster, producer):
            await producer.send_many("orders", [b"v"] * 10)
            await asyncio.sleep(0.9)
            await producer.send("orders", b"v")
            assert seen == []
            await asyncio.sleep(0.2)  # the next one finds that a second is over
            await producer.send("orders", b"v")
            assert seen == []
            await producer.send("orders", b"v")
            assert len(seen) == 1
            await producer.send_many("orders", [b"v"] * 10)
            assert len(seen) == 1
            assert all(not record.headers for record in cluster.records("orders"))
            global_provider[0] = sdk.tracers  # set late: it is noticed
            await asyncio.sleep(1.1)
            for _ in range(5):
                await producer.send("orders", b"v")

    run(scenario)
    assert len(sdk.spans) == 4


@pytest.mark.parametrize("late", ["metrics", "spans of batches"])
def test_without_an_sdk_batches_pass_by_until_there_is_one(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tracers: list[Any] = [trace.ProxyTracerProvider()]
    meters: list[Any] = [metrics.NoOpMeterProvider()]
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracers[0])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters[0])
    sdk = Telemetry()
    seen: list[int] = []

    class Spies(BatchTelemetry):
        def on_batch_settled(self, batch: BatchSettled) -> None:
            seen.append(batch.batch)
            super().on_batch_settled(batch)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, [Spies(late == "spans of batches", None, None)]) as (_, producer):
            for _ in range(5):
                await producer.send("orders", b"v")
            assert seen == []
            await asyncio.sleep(1.1)
            for _ in range(5):
                await producer.send("orders", b"v")
            assert seen == [1]  # the first one; then it is asked again
            if late == "metrics":
                meters[0] = sdk.meters
            else:
                tracers[0] = sdk.tracers
            await asyncio.sleep(1.1)
            for _ in range(5):
                await producer.send("orders", b"v")

    run(scenario)
    assert seen == [1, 2, 3, 4, 5, 6]
    if late == "spans of batches":
        assert len(sdk.named("send orders")) == 5


def calls_of_sends(hooks: Sequence[ProducerInterceptor]) -> int:
    """Return how many calls of Python functions 900 sends make."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, hooks, linger_ms=1_000) as (cluster, producer):
            await producer.send("orders", b"v")  # the first one is where it asks whether there is an SDK
            sys.setprofile(count)
            try:
                for _ in range(900):
                    producer.send("orders", b"v")
            finally:
                sys.setprofile(None)
            await producer.flush()
            assert len(cluster.records("orders")) == 901

    run(scenario)
    return calls


@pytest.mark.pure("calls of Python functions are counted")
def test_without_an_sdk_nothing_is_paid_for_a_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    plain, traced, seen = calls_of_sends([]), calls_of_sends(open_telemetry()), calls_of_sends(Telemetry().hooks())
    assert plain > 900 and seen > plain + 10 * 900
    assert traced <= plain + 10


@pytest.mark.parametrize("way", ["send", "send_many", "send_many of an iterator"])
def test_a_sample_of_the_records_is_traced(way: str) -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(sample=0.05)) as (cluster, producer):
            if way == "send":
                for _ in range(2_000):
                    producer.send("orders", b"v")
            elif way == "send_many":
                await producer.send_many("orders", [b"v"] * 2_000)
            else:
                await producer.send_many("orders", iter([b"v"] * 2_000))
            await producer.flush()
            await asyncio.sleep(0.1)  # virtual: outcomes are told on the next turn
            traced = [record for record in cluster.records("orders") if record.headers]
            assert len(traced) == len(sdk.spans)
            assert [record.offset for record in traced] == [
                attributes(span)[messaging_attributes.MESSAGING_KAFKA_OFFSET] for span in sdk.spans
            ]

    run(scenario)
    assert 50 <= len(sdk.spans) <= 160


def test_more_samples_than_may_be_are_thinned_out_and_come_back() -> None:
    draw = Draw(0.5, 100)
    taken = passed = 0
    for step in range(100_000):  # a hundred times too many, for ten seconds
        if passed:
            passed -= 1
            continue
        taken += draw.takes(step / 10_000)
        passed = draw.skip()
    assert 500 <= taken <= 1_300
    for step in range(1_000):  # then a few in a second
        draw.takes(20.0 + step)
    assert sum(draw.skip() for _ in range(1_000)) / 1_000 < 3


def test_another_interceptor_may_change_the_record() -> None:
    class Changes(ProducerInterceptor):
        def on_send(self, record: Record) -> Record:
            return replace(record, value=b"changed")

    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, [*sdk.hooks(sample=0.5), Changes()]) as (cluster, producer):
            await producer.send_many("orders", [b"v"] * 200)
            assert {record.value for record in cluster.records("orders")} == {b"changed"}
            await asyncio.sleep(0.1)  # virtual
            assert len(sdk.spans) == sum(bool(record.headers) for record in cluster.records("orders"))

    run(scenario)
    assert 60 <= len(sdk.spans) <= 140


@pytest.mark.parametrize("options", [{"sample": 0}, {"sample": 1.5}, {"most_per_second": 0}])
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        open_telemetry(**options)  # type: ignore[arg-type]


def settled(**changes: Any) -> BatchSettled:
    values: dict[str, Any] = {
        "batch": 1, "topic": "orders", "partition": 0, "records": 3, "attempts": 1, "base_offset": 0, "error": None,
        "is_last": True, "opened_at": 1.0, "at": 2.0,
    }  # fmt: skip
    return BatchSettled(**(values | changes))


def test_links_of_a_batch_are_bounded() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        _, batches = sdk.hooks(batch_spans=True)
        assert isinstance(batches, BatchTelemetry)
        for index in range(batch_telemetry.MOST_LINKS + 10):
            batches.link(1, index, NonRecordingSpan(THEIRS))
        batches.on_batch_settled(settled(records=batch_telemetry.MOST_LINKS + 10))
        await asyncio.sleep(0)
        assert batches._links == {}

    run(scenario)
    assert [len(span.links) for span in sdk.spans] == [batch_telemetry.MOST_LINKS]


def test_attributes_of_partitions_are_kept_in_bounds_and_without_the_error_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_telemetry, "MOST_PARTITIONS", 2)
    sdk = Telemetry()
    _, batches = sdk.hooks()
    assert isinstance(batches, BatchTelemetry)
    batches.configure(None)
    for _ in range(2):
        for partition in range(3):
            batches.on_batch_settled(settled(partition=partition, error=BufferFullError("full")))
            batches.on_batch_settled(settled(partition=partition))
            assert len(batches._attributes) <= 2
    sums = {
        (each["messaging.destination.partition.id"], each.get("error.type")): point.value
        for each, point in sdk.points("messaging.client.sent.messages")
    }
    assert sums == {(str(partition), error): 6 for partition in range(3) for error in ("BufferFullError", None)}


def test_attributes_of_a_partition_follow_its_leader_and_take_no_room_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_telemetry, "MOST_PARTITIONS", 2)
    sdk = Telemetry()
    _, batches = sdk.hooks()
    assert isinstance(batches, BatchTelemetry)
    batches.configure(None)
    servers = [None, *(Server(broker=id, host=f"b{id}", port=9092, cluster_id=None) for id in (1, 2))]
    batches.on_batch_settled(settled(partition=1))
    of_the_other = batches._attributes["orders", 1]
    for _ in range(2):
        for server in servers:
            batches.on_batch_settled(settled(server=server))
            same = batches._attributes["orders", 0]
            batches.on_batch_settled(settled(server=server))
            assert batches._attributes["orders", 0] is same
    assert len(batches._attributes) == 2 and batches._attributes["orders", 1] is of_the_other
    sums = {
        each.get(server_attributes.SERVER_ADDRESS): point.value
        for each, point in sdk.points("messaging.client.sent.messages")
        if each["messaging.destination.partition.id"] == "0"
    }
    assert sums == {None: 12, "b1": 12, "b2": 12}


def test_each_part_of_a_batch_is_linked_to_its_own_records() -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        hooks = sdk.hooks(batch_spans=True)
        async with started(network, hooks, linger_ms=50) as (_, producer):
            deliveries = [producer.send("orders", b"v") for _ in range(10)]
            assert deliveries[3].recall()
            await producer.flush()
            await asyncio.sleep(0.1)  # virtual
        assert isinstance(hooks[1], BatchTelemetry) and hooks[1]._links == {}

    run(scenario)
    spans = sdk.named("create orders")
    of_parts = [
        (attributes(span)[messaging_attributes.MESSAGING_BATCH_MESSAGE_COUNT], [link.context for link in span.links])
        for span in sdk.named("send orders")
    ]
    contexts = [span.context for span in spans]  # as they ended: the recalled one first
    assert of_parts == [(1, contexts[:1]), (3, contexts[1:4]), (6, contexts[4:])]


class Careless(TextMapPropagator):
    """A propagator that raises after half of its work."""

    @property
    def fields(self) -> set[str]:
        return {"traceparent"}

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = None) -> Context:
        raise RuntimeError("extract")

    def inject(self, carrier: Any, context: Context | None = None, setter: Any = None) -> None:
        setter.set(carrier, "traceparent", "half")
        raise RuntimeError("inject")


@pytest.mark.parametrize("headers", [[("mine", b"1")], [("traceparent", b"theirs")]])
def test_a_propagator_that_raises_costs_neither_the_record_nor_its_span(
    headers: list[tuple[str, bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    sdk = Telemetry()

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks(propagator=Careless())) as (cluster, producer):
            await producer.send("orders", b"v", headers=headers)
            assert list(cluster.records("orders")[0].headers) == headers

    run(scenario)
    (span,) = sdk.spans
    assert attributes(span)[messaging_attributes.MESSAGING_KAFKA_OFFSET] == 0 and not span.links
    assert "Careless" in caplog.text


def test_headers_of_a_generator_are_sent_also_with_a_context_of_their_own() -> None:
    sdk = Telemetry()
    headers = [("traceparent", TRACEPARENT), ("mine", b"1")]

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):
            await producer.send("orders", b"v", headers=(pair for pair in headers))  # type: ignore[arg-type]
            assert list(cluster.records("orders")[0].headers) == headers

    run(scenario)


class Refuses(Sampler):
    def should_sample(self, *arguments: Any, **more: Any) -> Any:
        raise RuntimeError("no sample")

    def get_description(self) -> str:
        return "raises"


def test_a_sampler_that_raises_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    sdk = Telemetry(Refuses())

    async def scenario(network: VirtualNetwork) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        async with started(network, sdk.hooks(batch_spans=True)) as (_, producer):
            assert (await producer.send("orders", b"v")).offset == 0
        assert told == []

    run(scenario)
    assert "RecordSpans.on_send raised" in caplog.text
    assert "BatchTelemetry.on_batch_settled raised" in caplog.text


def test_a_record_that_is_refused_since_the_producer_closes_has_a_span_that_failed() -> None:
    sdk = Telemetry()

    class Closes(ProducerInterceptor):  # as `create_task(producer.close())` does where tasks are eager
        act: Callable[[], None] = staticmethod(lambda: None)

        def on_send(self, record: Record) -> Record:
            self.act()
            return record

    async def scenario(network: VirtualNetwork) -> None:
        closes = Closes()
        async with started(network, [*sdk.hooks(), closes]) as (_, producer):
            pipeline: Any = producer._pipeline
            closes.act = lambda: pipeline.parking.close(pipeline.closed_error)
            with pytest.raises(AiokprodError):
                producer.send("orders", b"v")

    run(scenario)
    assert [attributes(span)[error_attributes.ERROR_TYPE] for span in sdk.spans] == ["ProducerClosedError"]


def test_an_exporter_may_send_spans_through_the_traced_producer() -> None:
    sdk = Telemetry()
    sent: list[Delivery] = []

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, sdk.hooks()) as (cluster, producer):

            class ToKafka(SpanExporter):
                def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                    sent.extend(producer.send("orders", span.name.encode()) for span in spans)
                    return SpanExportResult.SUCCESS

            sdk.tracers.add_span_processor(SimpleSpanProcessor(ToKafka()))
            await producer.send("orders", b"v")
            await asyncio.sleep(1)  # virtual: spans of spans would go on for ever
            first, second = cluster.records("orders")
            assert first.headers and second.value == b"send orders" and not second.headers

    run(scenario)
    assert len(sdk.spans) == len(sent) == 1


def test_less_than_one_span_per_second_is_some_spans() -> None:
    draw = Draw(0.5, 0.5)
    taken = passed = 0
    for step in range(200_000):  # a thousand per second
        if passed:
            passed -= 1
            continue
        taken += draw.takes(step / 1_000)
        passed = draw.skip()
    assert 20 <= taken <= 101


@pytest.mark.parametrize("share", [5e-324, 1e-300, 1e-20])
def test_the_smallest_share_can_be_drawn(share: float) -> None:
    draw = Draw(share, 1e-300)
    for step in range(2_000):  # thinned out each time but the first
        draw.takes(step / 1_000)
        assert draw.skip() >= 0
