"""OpenTelemetry: spans of records and batches, and metrics, by the semantic conventions for messaging, version 1.44.

    Producer("localhost:9092", interceptors=open_telemetry())

Built on interceptors: `RecordSpans` sees records, `BatchTelemetry` follows batches. Without an SDK records pass by unseen.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ConfigError
from aiokprod.hooks import BatchSettled, ProducerInterceptor, RecordOutcome
from aiokprod.logs import StateLog
from aiokprod.model import Record
from aiokprod.randomness import new_random
from aiokprod.version import __version__
from aiokprod.wire.codes import name_of

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, MeterProvider
    from opentelemetry.propagators.textmap import Getter, Setter, TextMapPropagator
    from opentelemetry.trace import Link, NoOpTracerProvider, ProxyTracerProvider, Span, SpanKind, TracerProvider
    from opentelemetry.trace.status import Status, StatusCode
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        'aiokprod.integrations.opentelemetry needs: pip install "aiokprod[otel]"', name=missing.name
    ) from missing

__all__ = ["open_telemetry"]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
MOST_PER_SECOND: Final = 500.0
SKIPPED_WITHOUT_SDK: Final = 1_000
MOST_LINKS: Final = 128
"""of one span: what SDKs keep by default"""
LONGEST_KEY: Final = 256
"""characters of a key in an attribute"""
MOST_PARTITIONS: Final = 10_000
"""partitions whose attributes are kept"""
MOST_BATCHES: Final = 10_000
"""batches whose links are kept until they settle"""
SUPPRESSED: Final[str] = getattr(contexts, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")
"""set by SDKs around an exporter: what it sends has no span, or spans would make spans"""
LEAST_SHARE: Final = 1e-12
"""of the records that are drawn: one in more than any producer sends"""

Pairs: TypeAlias = "list[tuple[str, bytes | None]]"
Attributes: TypeAlias = "dict[str, str | bool | int | float]"


def open_telemetry(
    *,
    sample: float = 1.0,
    most_per_second: float = MOST_PER_SECOND,
    batch_spans: bool = False,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> list[ProducerInterceptor]:
    """Make the interceptors that trace the records of one producer and measure its sends. See docs/tracing.md.

    With `sample=1` each record is shown to the sampler of the SDK. With less, that share of the records is drawn before
    OpenTelemetry is asked, and the others are sent at the cost of a producer without tracing.

    Args:
        sample: share of the records that may get a span, above 0 and at most 1.
        most_per_second: spans of records per second, about, where `sample` is less than 1.
        batch_spans: True adds a span for each batch, with links to the spans of its records.
        tracer_provider: provider of spans; None is the global one.
        meter_provider: provider of metrics; None is the global one.
        propagator: writes the context into headers; None is the global one.

    Returns:
        The interceptors, for the option `interceptors`; others may stand before them.

    Raises:
        ConfigError: `sample` or `most_per_second` is out of range.
    """
    if not 0 < sample <= 1:
        raise ConfigError(f"sample is a share of the records, above 0 and at most 1, not {sample!r}")
    if not most_per_second > 0:
        raise ConfigError(f"most_per_second is a number above 0, not {most_per_second!r}")
    batches = BatchTelemetry(batch_spans, tracer_provider, meter_provider)
    records = RecordSpans(sample, most_per_second, tracer_provider, propagator, batches if batch_spans else None)
    return [records, batches]


@dataclass(slots=True, kw_only=True)
class TracedRecord(Record):
    """A record with its span. `dataclasses.replace` in another interceptor keeps the span."""

    span: Span | None = None


class HeaderSetter(Setter[Pairs]):
    """Adds headers for a propagator."""

    def set(self, carrier: Pairs, key: str, value: str) -> None:
        """Add a header.

        Args:
            carrier: the headers.
            key: name of the header.
            value: its text.
        """
        carrier.append((key, value.encode()))


class HeaderGetter(Getter[Pairs]):
    """Reads headers for a propagator."""

    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        """Return the texts of all headers of a name; None if there is none.

        Args:
            carrier: the headers.
            key: name of the header.
        """
        return [(value or b"").decode(errors="replace") for name, value in carrier if name == key] or None

    def keys(self, carrier: Pairs) -> list[str]:
        """Return the names of the headers.

        Args:
            carrier: the headers.
        """
        return [name for name, _ in carrier]


SETTER: Final = HeaderSetter()
GETTER: Final = HeaderGetter()


class Draw:
    """Chooses which records are sampled: a share of them, and about `most_per_second` at most."""

    def __init__(self, share: float, most_per_second: float) -> None:
        self._share = share
        self._most_per_second = most_per_second
        self._most_tokens = max(1.0, most_per_second)  # below 1 per second a whole one is still saved up
        self._random = new_random()
        self._tokens = self._most_tokens
        self._filled_at = 0.0
        self._thinning = 1.0  # above 1 while more records are drawn than may be sampled

    def skip(self) -> int:
        """Return how many records pass until the next one that is drawn."""
        share = max(LEAST_SHARE, self._share / self._thinning)
        if share >= 1:
            return 0
        return int(math.log(1.0 - self._random.random()) / math.log1p(-share))

    def takes(self, now: float) -> bool:
        """Return whether a record that was drawn is sampled; `now` in monotonic seconds."""
        if self._share >= 1:
            return True
        most = self._most_tokens
        self._tokens = min(most, self._tokens + (now - self._filled_at) * self._most_per_second)
        self._filled_at = now
        if self._tokens < 1:
            self._thinning *= 2
            return False
        if self._tokens > most * 0.9:
            self._thinning = 1.0
        elif self._tokens > most / 2:
            self._thinning = max(1.0, self._thinning / 2)
        self._tokens -= 1
        return True


def is_without_sdk(provider: TracerProvider) -> bool:
    """Return whether spans of this provider go nowhere."""
    return isinstance(provider, ProxyTracerProvider | NoOpTracerProvider)


def nanoseconds(at: float) -> int:
    return int(at * 1e9)


def error_type(error: AiokprodError) -> str:
    """Return the value of `error.type`: Kafka's name of the error code, or the name of the class."""
    return name_of(error.code) if error.code else type(error).__qualname__


class RecordSpans(ProducerInterceptor):
    """A span for each record, from its `send` to its outcome.

    Args:
        sample: share of the records that may get a span.
        most_per_second: bound of the spans per second, where that share is less than 1.
        tracer_provider: provider of spans; None is the global one.
        propagator: writes the context into headers; None is the global one.
        batches: the telemetry of batches, which sends what is only created here; None: records are sent one by one.
    """

    may_miss_columns = True  # their batches have spans and metrics

    def __init__(
        self,
        sample: float,
        most_per_second: float,
        tracer_provider: TracerProvider | None,
        propagator: TextMapPropagator | None,
        batches: BatchTelemetry | None,
    ) -> None:
        self._draw = Draw(sample, most_per_second)
        self._provider = tracer_provider
        self._propagator = propagator
        self._batches = batches
        # By the conventions: a message that is sent alone needs no "create" span, and its "send" span is the context that
        # consumers link to. In a batch the context is that of "create", and the batch has the "send" span.
        self._operation = "send" if batches is None else "create"
        self._client_id: str | None = None
        self._log = StateLog("producer")
        self._tracer: trace.Tracer | None = None
        self._is_asked = False  # how many may pass, since the last record: then the next record is one that was drawn
        self._left = 0  # records to pass until the next one that is drawn, where every record is shown

    def configure(self, config: object) -> None:
        """Learn the client id.

        Args:
            config: the `ProducerConfig` of the producer.
        """
        self._client_id = config.client_id if isinstance(config, ProducerConfig) else None
        self._tracer = None
        self._is_asked = False

    def skip(self) -> int:
        """Return how many records pass until the next one that is drawn."""
        self._is_asked = True
        if self._found_tracer() is None:
            return SKIPPED_WITHOUT_SDK  # it may be set later: looked at again then
        return self._draw.skip()

    def _found_tracer(self) -> trace.Tracer | None:
        if self._tracer is None:
            provider = self._provider or trace.get_tracer_provider()
            if not is_without_sdk(provider):
                self._tracer = trace.get_tracer("aiokprod", __version__, provider, SCHEMA_URL)
        return self._tracer

    def _is_drawn(self) -> bool:
        """Return whether the record at hand is one of those that may get a span."""
        if self._is_asked:
            self._is_asked = False
        elif self._left > 0:
            self._left -= 1
            return False
        else:
            self._left = self._draw.skip()
        return self._draw.takes(asyncio.get_running_loop().time())

    def on_send(self, record: Record) -> Record:
        """Begin the span of a record, and write its context into the headers.

        Args:
            record: the record as the interceptors before this one made it.
        """
        tracer = self._found_tracer()
        if tracer is None or not self._is_drawn() or contexts.get_value(SUPPRESSED):
            return record
        propagator = self._propagator or propagate.get_global_textmap()
        headers = record.headers
        pairs: Pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        has_context = _has_any(pairs, propagator.fields)
        # That of the program, or of a producer that sent the record before, stays as it is.
        links = self._links_of(pairs, propagator) if has_context else []
        span = tracer.start_span(
            f"{self._operation} {record.topic}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes_of(record),
            links=links,
        )
        if not has_context and span.get_span_context().is_valid:
            pairs = self._with_context(pairs, span, propagator)
        if not span.is_recording():
            return record if has_context else _with_headers(record, pairs)
        return TracedRecord(
            value=record.value,
            key=record.key,
            topic=record.topic,
            partition=record.partition,
            headers=record.headers if has_context else pairs,
            timestamp_ms=record.timestamp_ms,
            timeout=record.timeout,
            span=span,
        )

    # A propagator of the program may raise. The record is then sent without its work, and still has its span: one that was
    # begun and is forgotten would never end.
    def _links_of(self, pairs: Pairs, propagator: TextMapPropagator) -> list[Link]:
        """Return a link to the context in these headers, if there is one."""
        try:
            theirs = trace.get_current_span(propagator.extract(pairs, Context(), GETTER)).get_span_context()
        except Exception as broken:
            self._log.hook_failed(f"{type(propagator).__name__}.extract", broken)
            return []
        return [Link(theirs)] if theirs.is_valid else []

    def _with_context(self, pairs: Pairs, span: Span, propagator: TextMapPropagator) -> Pairs:
        """Return the headers with the context of the span."""
        changed = list(pairs)
        try:
            propagator.inject(changed, trace.set_span_in_context(span), SETTER)
        except Exception as broken:
            self._log.hook_failed(f"{type(propagator).__name__}.inject", broken)
            return pairs
        return changed

    def _attributes_of(self, record: Record) -> Attributes:
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": self._operation,
            "messaging.operation.type": self._operation,
            "messaging.destination.name": str(record.topic),
        }
        if self._client_id is not None:
            attributes["messaging.client.id"] = self._client_id
        if record.key is not None:
            key = _text_of(record.key)
            if key is not None:
                attributes["messaging.kafka.message.key"] = key
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        elif isinstance(record.value, bytes):
            attributes["messaging.message.body.size"] = len(record.value)
        return attributes

    def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
        """End the span of a record.

        Args:
            record: the record as it was sent.
            outcome: its place or its error, and its attempts.
        """
        span = record.span if isinstance(record, TracedRecord) else None
        if span is None:
            return
        metadata, error = outcome.metadata, outcome.error
        span.set_attribute("aiokprod.attempts", outcome.attempts)
        if metadata is not None:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
            if metadata.offset is not None:
                span.set_attribute("messaging.kafka.offset", metadata.offset)
        if error is not None:
            if error.partition is not None:
                span.set_attribute("messaging.destination.partition.id", str(error.partition))
            fail(span, error)
        if self._batches is not None and outcome.batch is not None and outcome.index is not None:
            self._batches.link(outcome.batch, outcome.index, span)
        span.end()


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
        self._attributes: dict[tuple[str, int], Attributes] = {}  # by partition
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
        attributes = self._attributes.get((batch.topic, batch.partition)) or self._attributes_of(
            batch.topic, batch.partition
        )
        if batch.error is not None:
            attributes = attributes | {"error.type": error_type(batch.error)}
        if batch.attempts and self._sent is not None and self._duration is not None:
            self._sent.add(batch.records, attributes)
            self._duration.record(max(0.0, batch.at - batch.opened_at), attributes)
        if self._has_spans:
            # The records of the batch are told their outcome in this turn of the loop: then all links are there.
            asyncio.get_running_loop().call_soon(self._make_span, batch, attributes)

    def _attributes_of(self, topic: str, partition: int) -> Attributes:
        """Return the attributes of a partition, and keep them: most batches are of one that had a batch before."""
        if len(self._attributes) >= MOST_PARTITIONS:
            self._attributes.clear()
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
        }
        self._attributes[topic, partition] = attributes
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


def fail(span: Span, error: AiokprodError) -> None:
    """Note an error on a span that is about to end."""
    span.set_attribute("error.type", error_type(error))
    if error.persistence is not None:
        span.set_attribute("aiokprod.persistence", error.persistence.value)
    span.set_status(Status(StatusCode.ERROR, error.message))


def _has_any(pairs: Sequence[tuple[str, bytes | None]], fields: set[str]) -> bool:
    return any(name in fields for name, _ in pairs)


def _with_headers(record: Record, pairs: Pairs) -> Record:
    record.headers = pairs
    return record


def _text_of(key: object) -> str | None:
    """Return the key as text, if it is one."""
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    return key[:LONGEST_KEY] if isinstance(key, str) else None
