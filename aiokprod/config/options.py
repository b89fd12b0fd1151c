"""`ProducerOptions`: the options as keyword arguments, for type checkers. `ProducerConfig` defines their meaning.

The closed lists of names that an option may have are written here once; the checks read them.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from aiokprod.config.oauth_token import OAuthTokenProvider
from aiokprod.config.partitioner import KeyPartitioner, Partitioner
from aiokprod.config.secret import Secret

AcksName = Literal["all", "-1", "0", "1", -1, 0, 1]
CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
PartitionerName = Literal[
    "uniform_sticky", "sticky", "round_robin", "random", "murmur2", "murmur2_random", "crc32", "consistent", "fnv1a",
    "fnv1a_reference",
]  # fmt: skip
ProtocolName = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
MechanismName = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
RecoveryName = Literal["rebootstrap", "none"]
LookupName = Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]


class _Options(TypedDict, total=False):
    """All options but the servers."""

    client_id: str | None
    acks: AcksName | None
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: float
    retries: int
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: float | None
    request_timeout_ms: float
    max_block_ms: float
    start_timeout_ms: float
    close_timeout_ms: float
    linger_ms: float
    batch_size: int
    max_request_size: int
    buffer_memory: int
    max_waiting_bytes: int | None
    compression_type: CodecName
    compression_level: int | None
    partitioner: PartitionerName | KeyPartitioner | Partitioner
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: float
    partitioner_ignore_keys: bool
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    reconnect_backoff_ms: float
    reconnect_backoff_max_ms: float
    socket_connection_setup_timeout_ms: float
    socket_connection_setup_timeout_max_ms: float
    connections_keepalive_ms: float
    connections_max_idle_ms: float
    metadata_max_age_ms: float
    metadata_max_idle_ms: float
    metadata_recovery_strategy: RecoveryName
    metadata_recovery_rebootstrap_trigger_ms: float
    allow_auto_create_topics: bool
    enable_metrics_push: bool
    client_dns_lookup: LookupName
    send_buffer_bytes: int | None
    receive_buffer_bytes: int | None
    max_frame_bytes: int
    security_protocol: ProtocolName
    sasl_mechanism: MechanismName | None
    sasl_username: str | None
    sasl_password: str | Secret | None
    sasl_oauth_token_provider: OAuthTokenProvider | None
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | None
    ssl_key_password: str | Secret | None
    ssl_ca_pem: str | None
    ssl_cert_pem: str | None
    ssl_key_pem: str | Secret | None
    ssl_check_hostname: bool
    key_serializer: Any
    value_serializer: Any
    interceptors: Sequence[Any]
    on_delivery_error: Callable[..., object] | None
    keep_failed_records: bool
    fail_on_data_loss: bool
    dialer: Any


class ProducerOptions(_Options, total=False):
    """Keyword arguments of `Producer`, whose servers may be its first argument, and of methods that change a config."""

    bootstrap_servers: str | Sequence[str]


class ConfigOptions(_Options):
    """Keyword arguments of `ProducerConfig`."""

    bootstrap_servers: str | Sequence[str]
