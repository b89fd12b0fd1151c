"""OpenTelemetry: spans of records and batches, and metrics, by the semantic conventions for messaging, version 1.44.

    Producer("localhost:9092", interceptors=open_telemetry())

Built on interceptors: `RecordSpans` sees records, `BatchTelemetry` follows batches. Without an SDK both pass by unseen.
"""

from __future__ import annotations

try:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        'aiokprod.integrations.opentelemetry needs: pip install "aiokprod[otel]"', name=missing.name
    ) from missing

from aiokprod.errors import ConfigError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.integrations.opentelemetry.batch_telemetry import BatchTelemetry
from aiokprod.integrations.opentelemetry.record_spans import RecordSpans

__all__ = ["open_telemetry"]

MOST_PER_SECOND = 500.0


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
