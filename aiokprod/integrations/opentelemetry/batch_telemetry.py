"""`BatchTelemetry`: the interceptor that measures sends, and makes a span for each batch."""

from __future__ import annotations

import asyncio
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

from aiokprod.config import ProducerConfig
from aiokprod.hooks import BatchSettled, ProducerInterceptor, Server
from aiokprod.integrations.opentelemetry.conventions import (
    SCHEMA_URL,
    Attributes,
    address_of,
    error_type,
    fail,
    is_without_sdk,
    measures_nothing,
    place_of,
)
from aiokprod.logs import StateLog
from aiokprod.version import __version__

DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
MOST_LINKS: Final = 128
"""of one span: what SDKs keep by default"""
MOST_PARTITIONS: Final = 10_000
"""partitions whose attributes are kept"""
MOST_BATCHES: Final = 10_000
"""batches whose links are kept until they settle"""
NOTHING_KEPT: Final[tuple[Server | None, Attributes]] = (None, {})


class BatchTelemetry(ProducerInterceptor):
    """The metrics of sends, and a span for each batch, from its opening to its outcome.

    Args:
        has_spans: True makes spans; metrics are always made.
        tracer_provider: provider of spans; None is the global one.
        meter_provider: provider of metrics; None is the global one.
    """

    def __init__(
        self, has_spans: bool, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._has_spans = has_spans
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._client_id: str | None = None
        self._sent: Counter | None = None
        self._duration: Histogram | None = None
        self._log = StateLog("producer")
        # By partition; with the server that they name, as another one may lead the partition later.
        self._attributes: dict[tuple[str, int], tuple[Server | None, Attributes]] = {}
        self._links: dict[int, dict[int, Link]] = {}  # by number of the batch and place in it, until their outcome

    def configure(self, config: object) -> None:
        """Make the instruments.

        Args:
            config: the `ProducerConfig` of the producer.
        """
        self._client_id = config.client_id if isinstance(config, ProducerConfig) else None
        self._links.clear()
        meter = metrics.get_meter("aiokprod", __version__, self._meter_provider, SCHEMA_URL)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )

    def skip_batches(self) -> int | None:
        """Return None as long as there is no SDK that wants to know of batches."""
        if not measures_nothing(self._meter_provider or metrics.get_meter_provider()):
            return 0
        if self._has_spans and not is_without_sdk(self._tracer_provider or trace.get_tracer_provider()):
            return 0
        return None  # it may be set later: asked again then

    def link(self, batch: int, index: int, span: Span) -> None:
        """Note the span of a record, which its batch will be linked to.

        Args:
            batch: number of the batch.
            index: place of the record in it.
            span: the span of the record.
        """
        links = self._links.get(batch)
        if links is None:
            if len(self._links) >= MOST_BATCHES:
                return
            links = self._links[batch] = {}
        links[index] = Link(span.get_span_context())

    def _links_of(self, batch: BatchSettled) -> list[Link]:
        """Return the links to these records, which are then forgotten. Other parts of the batch have links of their own."""
        links = self._links.get(batch.batch)
        if links is None:
            return []
        places = range(batch.first, batch.first + batch.records)
        these = [link for index in places if (link := links.pop(index, None)) is not None]
        if not links:
            del self._links[batch.batch]
        return these[:MOST_LINKS]

    def on_batch_settled(self, batch: BatchSettled) -> None:
        """Measure a batch, or the part of it that is settled, and make its span.

        Args:
            batch: the records, and their outcome.
        """
        server, attributes = self._attributes.get((batch.topic, batch.partition), NOTHING_KEPT)
        # The same object as long as the connection lasts.
        if server is not batch.server or not attributes:
            attributes = self._attributes_of(batch.topic, batch.partition, batch.server)
        if batch.error is not None:
            attributes = attributes | {"error.type": error_type(batch.error)}
        if batch.attempts and self._sent is not None and self._duration is not None:
            self._sent.add(batch.records, attributes)
            self._duration.record(max(0.0, batch.at - batch.opened_at), attributes)
        if self._has_spans:
            # The records of the batch are told their outcome in this turn of the loop: then all links are there.
            asyncio.get_running_loop().call_soon(self._make_span, batch, attributes)

    def _attributes_of(self, topic: str, partition: int, server: Server | None) -> Attributes:
        """Return the attributes of a partition, and keep them: most batches are of one that had a batch before."""
        if len(self._attributes) >= MOST_PARTITIONS and (topic, partition) not in self._attributes:
            self._attributes.clear()
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
        }
        if server is not None:
            attributes |= address_of(server)
        self._attributes[topic, partition] = (server, attributes)
        return attributes

    def _make_span(self, batch: BatchSettled, attributes: Attributes) -> None:
        links = self._links_of(batch)
        try:
            self._start_and_end(batch, attributes, links)
        # Of a sampler or a processor: this is a callback of the loop, not a hook that may raise.
        except Exception as broken:
            self._log.hook_failed("BatchTelemetry.on_batch_settled", broken)

    def _start_and_end(self, batch: BatchSettled, attributes: Attributes, links: list[Link]) -> None:
        provider = self._tracer_provider or trace.get_tracer_provider()
        if is_without_sdk(provider):
            return
        tracer = trace.get_tracer("aiokprod", __version__, provider, SCHEMA_URL)
        attributes = attributes | {
            "messaging.batch.message_count": batch.records,
            "aiokprod.attempts": batch.attempts,
        }
        if batch.server is not None:
            attributes |= place_of(batch.server)
        if self._client_id is not None:
            attributes["messaging.client.id"] = self._client_id
        if batch.base_offset is not None:
            attributes["messaging.kafka.offset"] = batch.base_offset
        span = tracer.start_span(
            f"send {batch.topic}",
            context=Context(),  # its records have contexts of their own: none of them is its parent
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            start_time=nanoseconds(batch.opened_at),
        )
        if batch.error is not None:
            fail(span, batch.error)
        span.end(end_time=nanoseconds(batch.at))


def nanoseconds(at: float) -> int:
    return int(at * 1e9)
