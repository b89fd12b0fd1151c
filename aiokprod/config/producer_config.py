"""`ProducerConfig`: every option of a producer, frozen, validated once. Milliseconds and bytes, as Kafka has them."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from math import isnan
from typing import Any, Self, Unpack

from aiokprod.config.options import ProducerOptions
from aiokprod.config.secret import Secret
from aiokprod.config.servers import parse_servers
from aiokprod.config.unknown import unknown_option
from aiokprod.errors import ConfigError

MAX_INT = 2**31 - 1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
PARTITIONERS = (
    "uniform_sticky", "sticky", "round_robin", "random", "murmur2", "murmur2_random", "crc32", "consistent", "fnv1a",
    "fnv1a_reference",
)  # fmt: skip
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CHOICES: dict[str, tuple[str, ...]] = {
    "compression_type": CODECS,
    "metadata_recovery_strategy": ("rebootstrap", "none"),
    "client_dns_lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "security_protocol": PROTOCOLS,
}
_SECRETS = ("sasl_password", "ssl_key_password", "ssl_key_pem")
_numbers = count(1)
_log = logging.getLogger("aiokprod.config")


def _option(default: Any, low: float | None = None, high: float | None = None) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Options of a producer; the defaults are those of the documentation's table.

    Raises:
        ConfigError: a value has a wrong type or is out of range, or two options conflict.
    """

    bootstrap_servers: str | Sequence[str]
    client_id: str | None = None
    acks: int | str | None = None
    enable_idempotence: bool | None = None
    retries: int = _option(MAX_INT, 0, MAX_INT)
    max_in_flight_requests_per_connection: int = _option(5, 1, 1_000_000)
    delivery_timeout_ms: float | None = _option(None, 1)
    request_timeout_ms: float = _option(30_000, 1)
    max_block_ms: float = _option(60_000, 0)
    linger_ms: float = _option(5, 0)
    batch_size: int = _option(65_536, 0, MAX_INT)
    max_request_size: int = _option(1_048_576, 200, MAX_INT)
    buffer_memory: int = _option(33_554_432, 1)
    max_waiting_bytes: int | None = _option(None, 0)
    compression_type: str = "none"
    compression_level: int | None = None
    partitioner: str | Callable[..., int] = "uniform_sticky"
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: float = _option(0, 0)
    partitioner_ignore_keys: bool = False
    retry_backoff_ms: float = _option(100, 0)
    retry_backoff_max_ms: float = _option(1_000, 0)
    reconnect_backoff_ms: float = _option(50, 0)
    reconnect_backoff_max_ms: float = _option(1_000, 0)
    socket_connection_setup_timeout_ms: float = _option(10_000, 1)
    socket_connection_setup_timeout_max_ms: float = _option(30_000, 1)
    connections_max_idle_ms: float = _option(540_000, -1)
    metadata_max_age_ms: float = _option(300_000, -1)
    metadata_max_idle_ms: float = _option(300_000, 1)
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: float = _option(300_000, 0)
    allow_auto_create_topics: bool = False
    client_dns_lookup: str = "use_all_dns_ips"
    send_buffer_bytes: int | None = _option(None, 1)
    receive_buffer_bytes: int | None = _option(None, 1)
    max_frame_bytes: int = _option(104_857_600, 1024, MAX_INT)
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | Secret | None = None
    ssl_context: ssl.SSLContext | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: str | Secret | None = None
    ssl_ca_pem: str | None = None
    ssl_cert_pem: str | None = None
    ssl_key_pem: str | Secret | None = None
    ssl_check_hostname: bool = True
    key_serializer: Any = None
    value_serializer: Any = None
    interceptors: Sequence[Any] = ()
    on_delivery_error: Callable[..., object] | None = None
    dialer: Any = None

    # ------------------------------------------------------------------ making
    @classmethod
    def of(cls, **options: Unpack[ProducerOptions]) -> Self:
        """As the constructor, with the nearest name for an unknown option."""
        return cls._checked(dict(options))

    @classmethod
    def _checked(cls, options: Mapping[str, Any]) -> Self:
        known = cls.names()
        for name in options:
            if name not in known:
                raise unknown_option(name, known)
        if "bootstrap_servers" not in options:
            raise ConfigError("bootstrap_servers is missing: give at least one host:port")
        return cls(**options)

    @classmethod
    def names(cls) -> list[str]:
        """All options."""
        return [item.name for item in fields(cls)]

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """From names of Java ("linger.ms"), librdkafka ("queue.buffering.max.ms") or aiokafka ("max_batch_size").

        Texts are read as the option's type. A known option that has no meaning here is an error that says why.
        """
        from aiokprod.config.mapping import translated

        return cls._checked(translated(mapping, cls))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Unpack[ProducerOptions]) -> Self:
        """From AIOKPROD_<OPTION> and a closed list of KAFKA_ aliases; keyword arguments win."""
        from aiokprod.config.environment import read_environment

        found: dict[str, Any] = dict(read_environment(os.environ if environ is None else environ, cls))
        return cls._checked({**found, **options})

    def replace(self, **changes: Unpack[ProducerOptions]) -> Self:
        """A copy with other values; what was given before stays given."""
        return self._checked({**self._given(), **changes})

    def _given(self) -> dict[str, Any]:
        given: dict[str, Any] = dict(self.__dict__["_as_given"])
        return given

    # ------------------------------------------------------------------ validation
    def __post_init__(self) -> None:
        given = {
            item.name: getattr(self, item.name) for item in fields(self) if getattr(self, item.name) is not item.default
        }
        for name in _SECRETS:
            self._set(name, Secret.of(getattr(self, name)))
            if name in given:
                given[name] = getattr(self, name)
        object.__setattr__(self, "_as_given", given)
        self._check_types()
        self._set("servers", parse_servers(self.bootstrap_servers))
        self._set("client_id", self.client_id or f"aiokprod-{next(_numbers)}")
        self._decide_acks("acks" in given, "enable_idempotence" in given)
        self._check_times("delivery_timeout_ms" in given)
        self._check_sizes("batch_size" in given)
        self._check_compression()
        self._check_security()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_types(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if "low" in item.metadata:
                self._check_number(item.name, value, item.default is None, str(item.type), item.metadata)
            elif item.name in _CHOICES:
                if not isinstance(value, str):
                    raise _wrong_type(item.name, value, "a str")
                if value not in _CHOICES[item.name]:
                    raise ConfigError(f"{item.name} is {value!r}; it can be {', '.join(_CHOICES[item.name])}")
            elif str(item.type).startswith("bool") and not isinstance(value, bool):
                if not (value is None and "None" in str(item.type)):
                    raise _wrong_type(item.name, value, "True or False")
            elif str(item.type) == "str | None" and not (value is None or isinstance(value, str)):
                raise _wrong_type(item.name, value, "a str")
        if not (isinstance(self.bootstrap_servers, str) or _is_strings(self.bootstrap_servers)):
            raise _wrong_type(
                "bootstrap_servers", self.bootstrap_servers, "'host:port,host:port' or a list of 'host:port'"
            )
        if isinstance(self.partitioner, str):
            if self.partitioner not in PARTITIONERS:
                raise ConfigError(
                    f"partitioner is {self.partitioner!r}; it can be {', '.join(PARTITIONERS)} or a function"
                )
        elif not callable(self.partitioner):
            raise _wrong_type("partitioner", self.partitioner, "a name or a function")
        if self.on_delivery_error is not None and not callable(self.on_delivery_error):
            raise _wrong_type("on_delivery_error", self.on_delivery_error, "a function")

    @staticmethod
    def _check_number(name: str, value: Any, optional: bool, kind: str, limits: Mapping[str, Any]) -> None:
        if value is None and optional:
            return
        wants_int = kind.startswith("int")
        if isinstance(value, bool) or not isinstance(value, int if wants_int else int | float) or isnan(value):
            raise _wrong_type(name, value, "a whole number" if wants_int else "a number")
        low, high = limits["low"], limits["high"]
        if (low is not None and value < low) or (high is not None and value > high):
            raise ConfigError(
                f"{name} is {value}; it must be at least {low}" + (f" and at most {high}" if high else "")
            )

    def _decide_acks(self, acks_given: bool, idempotence_given: bool) -> None:
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(self.acks) if isinstance(self.acks, str) else self.acks
        acks = -1 if self.acks is None else acks
        if isinstance(acks, bool) or acks not in (-1, 0, 1):
            raise ConfigError(f"acks is {self.acks!r}; it can be 'all', -1, 0 or 1")
        self._set("acks", acks)
        idempotent = self.enable_idempotence
        if acks != -1:
            if idempotent:
                raise ConfigError(f"acks={acks} and enable_idempotence=True conflict: idempotence needs acks='all'")
            if idempotent is None:
                _log.info("idempotence is off because acks=%s was asked for", acks)
            idempotent = False
        elif idempotent is None:
            idempotent = True
        if idempotent:
            if self.retries == 0:
                raise ConfigError(
                    "retries=0 and idempotence conflict: set enable_idempotence=False, or leave retries out"
                )
            if self.max_in_flight_requests_per_connection > 5:
                raise ConfigError(
                    f"max_in_flight_requests_per_connection is {self.max_in_flight_requests_per_connection}; "
                    "with idempotence it is at most 5"
                )
        self._set("enable_idempotence", idempotent)

    def _check_times(self, delivery_given: bool) -> None:
        least = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms is None or not delivery_given:
            self._set("delivery_timeout_ms", max(120_000, least))
        elif self.delivery_timeout_ms < least:
            raise ConfigError(
                f"delivery_timeout_ms is {self.delivery_timeout_ms}; it must be at least linger_ms + request_timeout_ms "
                f"({least})"
            )
        for base, most in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
            ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
        ):
            if getattr(self, base) > getattr(self, most):
                self._set(most, getattr(self, base))

    def _check_sizes(self, batch_given: bool) -> None:
        if self.max_request_size > self.buffer_memory:
            if "max_request_size" in self._given() or "buffer_memory" not in self._given():
                raise ConfigError(
                    f"max_request_size ({self.max_request_size}) is above buffer_memory ({self.buffer_memory})"
                )
            self._set("max_request_size", max(200, self.buffer_memory))
        if self.batch_size > self.max_request_size:
            if batch_given:
                raise ConfigError(f"batch_size ({self.batch_size}) is above max_request_size ({self.max_request_size})")
            self._set("batch_size", self.max_request_size)

    def _check_compression(self) -> None:
        level = self.compression_level
        if level is None:
            return
        if isinstance(level, bool) or not isinstance(level, int):
            raise _wrong_type("compression_level", level, "a whole number")
        if self.compression_type not in LEVELS:
            raise ConfigError(f"compression_level: compression_type {self.compression_type} has no levels")
        low, high = LEVELS[self.compression_type]
        if not low <= level <= high:
            raise ConfigError(f"compression_level is {level}; for {self.compression_type} it is {low} to {high}")

    def _check_security(self) -> None:
        sasl, tls = self.security_protocol.startswith("SASL"), self.security_protocol.endswith("SSL")
        if sasl:
            if self.sasl_mechanism is None:
                raise ConfigError(
                    f"security_protocol {self.security_protocol} needs sasl_mechanism: {', '.join(MECHANISMS)}"
                )
            if self.sasl_mechanism not in MECHANISMS:
                raise ConfigError(f"sasl_mechanism is {self.sasl_mechanism!r}; it can be {', '.join(MECHANISMS)}")
            if not self.sasl_username or not self.sasl_password:
                raise ConfigError(f"sasl_mechanism {self.sasl_mechanism} needs sasl_username and sasl_password")
        elif self.sasl_mechanism is not None:
            raise ConfigError(
                f"sasl_mechanism is set and security_protocol is {self.security_protocol}: set SASL_SSL or SASL_PLAINTEXT"
            )
        files = [name for name in self.names() if name.startswith("ssl_") and name in self._given()]
        if files and not tls:
            raise ConfigError(
                f"{files[0]} is set and security_protocol is {self.security_protocol}: set SSL or SASL_SSL"
            )
        if self.ssl_context is not None and len(files) > 1:
            raise ConfigError(f"ssl_context and {next(f for f in files if f != 'ssl_context')} conflict: give one")
        if (self.ssl_keyfile or self.ssl_key_pem) and not (self.ssl_certfile or self.ssl_cert_pem):
            raise ConfigError("a client key needs its certificate: set ssl_certfile or ssl_cert_pem")

    # ------------------------------------------------------------------ reading
    @property
    def idempotent(self) -> bool:
        """Is the producer idempotent? Decided from acks and enable_idempotence."""
        return bool(self.enable_idempotence)

    @property
    def required_acks(self) -> int:
        """-1 (all), 0 or 1."""
        assert isinstance(self.acks, int)
        return self.acks

    @property
    def delivery_timeout(self) -> float:
        """delivery_timeout_ms in seconds."""
        assert self.delivery_timeout_ms is not None
        return self.delivery_timeout_ms / 1000

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """(host, port) pairs."""
        servers: tuple[tuple[str, int], ...] = self.__dict__["servers"]
        return servers

    def explain(self) -> list[str]:
        """Each option with its value, and whether it was given or is the default; secrets stay hidden."""
        given = self._given()
        return [
            f"{item.name} = {getattr(self, item.name)!r} ({'given' if item.name in given else 'default'})"
            for item in fields(self)
        ]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if state.get("ssl_context") is not None:
            raise ConfigError("a config with ssl_context cannot be pickled: give the files or PEM texts instead")
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _is_strings(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(item, str) for item in value)


def _wrong_type(name: str, value: object, wanted: str) -> ConfigError:
    shown = "a secret" if name in _SECRETS else f"{value!r}"
    return ConfigError(f"{name} must be {wanted}, not {shown} ({type(value).__name__})")
