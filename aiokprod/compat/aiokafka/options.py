"""The options of aiokafka's constructor, and what each is among those of aiokprod. Pure.

Where aiokafka's default is weaker, and was left as it is, the stronger one of aiokprod is used: acks=all with idempotence. What
is written out keeps its meaning.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokprod.compat.aiokafka.theirs import LEFT_OUT, DefaultPartitioner
from aiokprod.config import ProducerOptions
from aiokprod.errors import ConfigError

NEVER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options as they were given, or their defaults; `LEFT_OUT` for those whose default here is stronger."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    metadata_max_age_ms: float
    request_timeout_ms: float
    acks: Any
    compression_type: str | None
    max_batch_size: int
    partitioner: Callable[..., Any]
    max_request_size: int
    linger_ms: float
    retry_backoff_ms: float
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    connections_max_idle_ms: float | None
    enable_idempotence: Any
    transactional_id: str | None
    transaction_timeout_ms: float
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: Any

    @property
    def has_deadline(self) -> bool:
        """True if aiokafka bounds the delivery of a record: it does by `request_timeout_ms`, unless it is idempotent."""
        return self.transactional_id is None and self.enable_idempotence in (False, LEFT_OUT)


def producer_options(given: Given) -> ProducerOptions:
    """Return the options of `aiokprod.Producer` for those of aiokafka.

    Args:
        given: the options of the constructor.

    Raises:
        ConfigError: two options conflict, or one cannot be had here.
    """
    options: ProducerOptions = {
        "bootstrap_servers": given.bootstrap_servers,
        "client_id": given.client_id,
        "metadata_max_age_ms": given.metadata_max_age_ms,
        "request_timeout_ms": given.request_timeout_ms,
        "max_block_ms": given.request_timeout_ms,
        "close_timeout_ms": NEVER,  # `stop` waits for each record, which its deadline bounds
        "batch_size": min(given.max_batch_size, given.max_request_size),
        "max_request_size": given.max_request_size,
        "max_waiting_bytes": 0,  # `send` waits for room itself, as aiokafka's does
        "linger_ms": given.linger_ms,
        "retry_backoff_ms": given.retry_backoff_ms,
        "connections_max_idle_ms": NEVER if given.connections_max_idle_ms is None else given.connections_max_idle_ms,
        "partitioner": _partitioner(given.partitioner),
        "security_protocol": given.security_protocol,  # type: ignore[typeddict-item] # the config checks it
        "compression_type": given.compression_type or "none",  # type: ignore[typeddict-item]
    }
    if given.has_deadline:
        options["delivery_timeout_ms"] = given.linger_ms + given.request_timeout_ms
    if given.acks is not LEFT_OUT:
        options["acks"] = given.acks
    if given.transactional_id is not None:
        options["transactional_id"] = given.transactional_id
        options["transaction_timeout_ms"] = given.transaction_timeout_ms
    elif given.enable_idempotence is not LEFT_OUT:
        options["enable_idempotence"] = given.enable_idempotence
    _secure(options, given)
    return options


def _secure(options: ProducerOptions, given: Given) -> None:
    """Add what the protocol needs. aiokafka gives a mechanism and takes a context also where neither is used."""
    if given.security_protocol.endswith("SSL"):
        if given.ssl_context is None:
            raise ConfigError(f"ssl_context is missing: security_protocol {given.security_protocol} needs one")
        options["ssl_context"] = given.ssl_context
    if not given.security_protocol.startswith("SASL_"):
        return
    if given.sasl_mechanism == "GSSAPI":
        raise ConfigError("sasl_mechanism GSSAPI (Kerberos) cannot be had here: such a service stays with aiokafka")
    options["sasl_mechanism"] = given.sasl_mechanism  # type: ignore[typeddict-item]
    if given.sasl_mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = given.sasl_oauth_token_provider
    else:
        options["sasl_username"] = given.sasl_plain_username
        options["sasl_password"] = given.sasl_plain_password


def _partitioner(partitioner: Callable[..., Any]) -> Any:
    """Return the name of aiokafka's own partitioner; around another one, a function that gives it lists, as aiokafka does."""
    if type(partitioner) is DefaultPartitioner:
        return "murmur2_random"

    def called(key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        chosen: int = partitioner(key, list(all_partitions), list(available))
        return chosen

    return called
