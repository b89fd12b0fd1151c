"""Names of other clients' options, and texts as values. Pure tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from aiokprod.config.unknown import unknown_option
from aiokprod.errors import ConfigError

if TYPE_CHECKING:
    from aiokprod.config.producer_config import ProducerConfig

RENAMED = {
    # Java, where dots to underscores is not enough
    "partitioner.class": "partitioner",
    "send.buffer.bytes": "send_buffer_bytes",
    "allow.auto.create.topics": "allow_auto_create_topics",
    # librdkafka
    "metadata.broker.list": "bootstrap_servers",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery_timeout_ms",
    "queue.buffering.max.ms": "linger_ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression_type",
    "max.in.flight": "max_in_flight_requests_per_connection",
    "socket.send.buffer.bytes": "send_buffer_bytes",
    "socket.receive.buffer.bytes": "receive_buffer_bytes",
    "message.max.bytes": "max_request_size",
    "socket.timeout.ms": "request_timeout_ms",
    "sasl.mechanisms": "sasl_mechanism",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_key_password",
    "ssl.ca.pem": "ssl_ca_pem",
    "ssl.certificate.pem": "ssl_cert_pem",
    "ssl.key.pem": "ssl_key_pem",
    "receive.message.max.bytes": "max_frame_bytes",
    # aiokafka
    "max_batch_size": "batch_size",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    # Java's newer PEM names
    "ssl.keystore.key": "ssl_key_pem",
    "ssl.keystore.certificate.chain": "ssl_cert_pem",
    "ssl.truststore.certificates": "ssl_ca_pem",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
}
SCALED = {"queue.buffering.max.kbytes": ("buffer_memory", 1024)}
PARTITIONER_NAMES = {
    "consistent_random": "crc32", "murmur2_random": "murmur2_random", "fnv1a_random": "fnv1a",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "uniform_sticky",
}  # fmt: skip
WITHOUT_MEANING = {
    "key.serializer": "Java classes cannot run here: pass key_serializer as a Python object",
    "value.serializer": "Java classes cannot run here: pass value_serializer as a Python object",
    "interceptor.classes": "Java classes cannot run here: pass interceptors as Python objects",
    "metric.reporters": "read producer.metrics() instead",
    "statistics.interval.ms": "read producer.metrics() instead",
    "sasl.jaas.config": "set sasl_username and sasl_password",
    "ssl.keystore.location": "Java key stores are not read: set ssl_certfile and ssl_keyfile (PEM)",
    "ssl.truststore.location": "Java trust stores are not read: set ssl_cafile (PEM)",
    "queue.buffering.max.messages": "memory is bounded by bytes: set buffer_memory",
    "batch.num.messages": "batches are bounded by bytes: set batch_size",
    "transactional.id": "transactions are not there yet",
    "transactional_id": "transactions are not there yet",
    "api_version": "versions are negotiated with each broker",
    "loop": "a producer takes the loop that starts it",
}


def translated(mapping: Mapping[str, Any], config: type[ProducerConfig]) -> dict[str, Any]:
    """Our names and typed values."""
    kinds = {item.name: str(item.type) for item in fields(config)}
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in mapping.items():
        if name in WITHOUT_MEANING:
            raise ConfigError(f"option {name!r} has no meaning here: {WITHOUT_MEANING[name]}")
        if name in SCALED:
            ours, factor = SCALED[name]
            value = int(typed(ours, value, "int")) * factor
        else:
            ours = RENAMED.get(name, name.replace(".", "_"))
        if ours not in kinds:
            raise unknown_option(name, [*kinds, *RENAMED])
        if ours in found and found[ours] != value:
            raise ConfigError(f"options {origin[ours]!r} and {name!r} are the same one with two values")
        if ours == "partitioner" and isinstance(value, str):
            value = PARTITIONER_NAMES.get(value, value)
        if ours == "security_protocol" and isinstance(value, str):
            value = value.upper()
        if name == "linger.ms" and value is None:
            continue
        found[ours] = typed(ours, value, kinds[ours])
        origin[ours] = name
    return found


def typed(name: str, value: Any, kind: str) -> Any:
    """A text as the option's type; other values as they are."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        if kind.startswith("bool"):
            return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}[text.lower()]
        if name == "acks":
            return text.lower()
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            number = float(text)
            return int(number) if number.is_integer() else number
    except (KeyError, ValueError):
        raise ConfigError(f"{name} is {value!r}, which is no {kind.split(' ', maxsplit=1)[0]}") from None
    return value
