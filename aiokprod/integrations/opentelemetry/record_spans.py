"""`RecordSpans`: the interceptor that makes a span for each record, and writes its context into the headers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter, TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

from aiokprod.config import ProducerConfig
from aiokprod.hooks import ProducerInterceptor, RecordOutcome
from aiokprod.integrations.opentelemetry.batch_telemetry import BatchTelemetry
from aiokprod.integrations.opentelemetry.conventions import SCHEMA_URL, Attributes, fail, is_without_sdk, place_of
from aiokprod.integrations.opentelemetry.draw import Draw
from aiokprod.logs import StateLog
from aiokprod.model import Record
from aiokprod.version import __version__

LONGEST_KEY: Final = 256
"""characters of a key in an attribute"""
SUPPRESSED: Final[str] = getattr(contexts, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")
"""set by SDKs around an exporter: what it sends has no span, or spans would make spans"""

Pairs: TypeAlias = "list[tuple[str, bytes | None]]"


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
        self._time: Callable[[], float] | None = None  # of the loop, which costs a system call to find
        self._is_asked = False  # how many may pass, since the last record: then the next record is one that was drawn
        self._left = 0  # records to pass until the next one that is drawn, where every record is shown

    def configure(self, config: object) -> None:
        """Learn the client id.

        Args:
            config: the `ProducerConfig` of the producer.
        """
        self._client_id = config.client_id if isinstance(config, ProducerConfig) else None
        self._tracer = None
        self._time = None
        self._is_asked = False

    def skip(self) -> int | None:
        """Return how many records pass until the next one that is drawn; None as long as there is no SDK."""
        self._is_asked = True
        if self._found_tracer() is None:
            return None  # it may be set later: asked again then
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
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return self._draw.takes(self._time())

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
        has_context = bool(pairs) and _has_any(pairs, propagator.fields)
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
        attributes: Attributes = {"aiokprod.attempts": outcome.attempts}
        if metadata is not None:
            attributes["messaging.destination.partition.id"] = str(metadata.partition)
            if metadata.offset is not None:
                attributes["messaging.kafka.offset"] = metadata.offset
        if outcome.server is not None:
            attributes |= place_of(outcome.server)
        if error is not None and error.partition is not None:
            attributes["messaging.destination.partition.id"] = str(error.partition)
        span.set_attributes(attributes)  # at once: each call of the SDK takes a lock
        if error is not None:
            fail(span, error)
        if self._batches is not None and outcome.batch is not None and outcome.index is not None:
            self._batches.link(outcome.batch, outcome.index, span)
        span.end()


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
