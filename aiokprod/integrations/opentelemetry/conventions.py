"""Parts that spans and metrics share: the schema, attributes of a broker and of an error, and whether there is an SDK."""

from __future__ import annotations

from typing import Final, TypeAlias

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, Span, TracerProvider
from opentelemetry.trace.status import Status, StatusCode

from aiokprod.errors import AiokprodError
from aiokprod.hooks import Server
from aiokprod.wire.codes import name_of

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

Attributes: TypeAlias = "dict[str, str | bool | int | float]"


def is_without_sdk(provider: TracerProvider) -> bool:
    """Return whether spans of this provider go nowhere."""
    return isinstance(provider, ProxyTracerProvider | NoOpTracerProvider)


def measures_nothing(provider: MeterProvider) -> bool:
    """Return whether what is measured by this provider goes nowhere: it is one of the API."""
    return type(provider).__module__.startswith("opentelemetry.metrics")


def address_of(server: Server) -> Attributes:
    """Return the attributes of a broker that metrics have, too."""
    return {"server.address": server.host, "server.port": server.port}


def place_of(server: Server) -> Attributes:
    """Return the attributes of a broker on a span: by the conventions metrics do not have that of the cluster."""
    attributes = address_of(server)
    if server.cluster_id is not None:
        attributes["messaging.kafka.cluster.id"] = server.cluster_id
    return attributes


def error_type(error: AiokprodError) -> str:
    """Return the value of `error.type`: Kafka's name of the error code, or the name of the class."""
    return name_of(error.code) if error.code else type(error).__qualname__


def fail(span: Span, error: AiokprodError) -> None:
    """Note an error on a span that is about to end."""
    span.set_attribute("error.type", error_type(error))
    if error.persistence is not None:
        span.set_attribute("aiokprod.persistence", error.persistence.value)
    span.set_status(Status(StatusCode.ERROR, error.message))
