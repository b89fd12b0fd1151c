"""`ProducerConfig`: every option of a producer, frozen, validated once. Milliseconds and bytes, as in Kafka.

Many configs may exist; a producer takes one and never changes it. The check of an option is at its field (`option_checks`),
rules for combinations are in `option_rules`. docs/configuration.md has the same table for users, and a test compares the
two.

Invariants: an object of this class is valid; it remembers which options were given (and not derived), so that `replace`
derives again; a secret is never shown.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Self, Unpack, cast, get_args

from aiokprod.config import option_rules
from aiokprod.config.oauth_token import name_of
from aiokprod.config.option_checks import (
    MAX_LONG,
    PEM_BEGINS,
    Acks,
    Check,
    Choice,
    ClientId,
    Context,
    DialFunction,
    EncodedText,
    FilePath,
    Flag,
    Interceptors,
    Number,
    Partitioner,
    PlainFunction,
    SecretText,
    Serializer,
    Servers,
    Text,
    TokenFunction,
    TransactionalId,
    milliseconds,
    shown,
    size,
)
from aiokprod.config.options import (
    CodecName,
    ConfigOptions,
    LookupName,
    PartitionerName,
    ProducerOptions,
    ProtocolName,
    RecoveryName,
)
from aiokprod.config.secret import Secret
from aiokprod.config.servers import parse_servers, same_host
from aiokprod.errors import ConfigError
from aiokprod.logs import GuardedLogger

CODECS: tuple[str, ...] = get_args(CodecName)
PARTITIONERS: tuple[str, ...] = get_args(PartitionerName)
PROTOCOLS: tuple[str, ...] = get_args(ProtocolName)
_LISTS = ("bootstrap_servers", "interceptors")
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
_SECRETS = ("sasl_password", "ssl_key_password", "ssl_key_pem")
# Objects that may have an equality of their own and no hash.
_OBJECTS = frozenset({
    "partitioner", "ssl_context", "key_serializer", "value_serializer", "interceptors", "on_delivery_error", "dialer",
    "sasl_oauth_token_provider",
})  # fmt: skip
_numbers = count(1)
_log = GuardedLogger("aiokprod.config")


# ruff: noqa: RUF009 - `_option` makes a dataclass field, as `field` does
def _option(default: Any, check: Check) -> Any:
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class ProducerConfig:
    """The options of a producer; docs/configuration.md explains each.

    Two configs are equal if they have the same effect: the spelling of a server, a default that was given explicitly, or a
    generated client id make no difference.

    Raises:
        ConfigError: an option is unknown, has a wrong type or is out of range, or two options conflict.
    """

    bootstrap_servers: str | Sequence[str] = field(metadata={"check": Servers()})
    client_id: str | None = _option(None, ClientId())
    acks: int | str | None = _option(None, Acks())
    enable_idempotence: bool | None = _option(None, Flag())
    transactional_id: str | None = _option(None, TransactionalId())
    transaction_timeout_ms: float = _option(60_000, milliseconds(1))
    retries: int = _option(2**31 - 1, size(0))
    max_in_flight_requests_per_connection: int = _option(5, size(1, 1_000_000))
    delivery_timeout_ms: float | None = _option(None, milliseconds(1))
    request_timeout_ms: float = _option(30_000, milliseconds(1))
    max_block_ms: float = _option(60_000, milliseconds(0))
    start_timeout_ms: float = _option(30_000, milliseconds(1, -1, "no bound"))
    close_timeout_ms: float = _option(30_000, milliseconds(0, -1, "no bound"))
    linger_ms: float = _option(5, milliseconds(0))
    batch_size: int = _option(65_536, size(0))
    max_request_size: int = _option(1_048_576, size(200))
    buffer_memory: int = _option(33_554_432, size(200, MAX_LONG))
    max_waiting_bytes: int | None = _option(None, size(0, MAX_LONG))
    compression_type: str = _option("none", Choice(CODECS))
    compression_level: int | None = _option(None, Number(-131_072, 22, whole=True))
    partitioner: str | Callable[..., int] = _option("uniform_sticky", Partitioner(PARTITIONERS))
    partitioner_adaptive_partitioning_enable: bool = _option(True, Flag())
    partitioner_availability_timeout_ms: float = _option(0, milliseconds(0))
    partitioner_ignore_keys: bool = _option(False, Flag())
    retry_backoff_ms: float = _option(100, milliseconds(0))
    retry_backoff_max_ms: float = _option(1_000, milliseconds(0))
    reconnect_backoff_ms: float = _option(50, milliseconds(0))
    reconnect_backoff_max_ms: float = _option(1_000, milliseconds(0))
    socket_connection_setup_timeout_ms: float = _option(10_000, milliseconds(1))
    socket_connection_setup_timeout_max_ms: float = _option(30_000, milliseconds(1))
    connections_keepalive_ms: float = _option(60_000, milliseconds(1_000, -1, "as the system has it"))
    connections_max_idle_ms: float = _option(540_000, milliseconds(1, -1, "never"))
    metadata_max_age_ms: float = _option(300_000, milliseconds(0, -1, "never"))
    metadata_max_idle_ms: float = _option(300_000, milliseconds(1))
    metadata_recovery_strategy: str = _option("rebootstrap", Choice(get_args(RecoveryName)))
    metadata_recovery_rebootstrap_trigger_ms: float = _option(300_000, milliseconds(0))
    allow_auto_create_topics: bool = _option(True, Flag())
    enable_metrics_push: bool = _option(True, Flag())
    client_dns_lookup: str = _option("use_all_dns_ips", Choice(get_args(LookupName)))
    send_buffer_bytes: int | None = _option(None, size(1))
    receive_buffer_bytes: int | None = _option(None, size(1))
    max_frame_bytes: int = _option(104_857_600, size(1024))
    security_protocol: str = _option("PLAINTEXT", Choice(PROTOCOLS))
    sasl_mechanism: str | None = _option(None, Text())
    sasl_username: str | None = _option(None, EncodedText())
    sasl_password: str | Secret | None = _option(None, SecretText())
    sasl_oauth_token_provider: Any = _option(None, TokenFunction())
    ssl_context: ssl.SSLContext | None = _option(None, Context())
    ssl_cafile: str | None = _option(None, FilePath("ssl_ca_pem"))
    ssl_certfile: str | None = _option(None, FilePath("ssl_cert_pem"))
    ssl_keyfile: str | None = _option(None, FilePath("ssl_key_pem"))
    ssl_key_password: str | Secret | None = _option(None, SecretText())
    ssl_ca_pem: str | None = _option(None, EncodedText())
    ssl_cert_pem: str | None = _option(None, EncodedText())
    ssl_key_pem: str | Secret | None = _option(None, SecretText())
    ssl_check_hostname: bool = _option(True, Flag())
    key_serializer: Any = _option(None, Serializer())
    value_serializer: Any = _option(None, Serializer())
    interceptors: Sequence[Any] = _option((), Interceptors())
    on_delivery_error: Callable[..., object] | None = _option(None, PlainFunction("error"))
    keep_failed_records: bool = _option(False, Flag())
    fail_on_data_loss: bool = _option(False, Flag())
    dialer: Any = _option(None, DialFunction())

    # ------------------------------------------------------------------ making
    # Written by hand: the `__init__` of a dataclass raises TypeError for an unknown option.
    def __init__(self, **options: Unpack[ConfigOptions]) -> None:
        self._fill(options)
        self._tell_idempotence()

    @classmethod
    def of(cls, **options: Unpack[ProducerOptions]) -> Self:
        """Make a config from options whose names are not known to the type checker.

        Args:
            **options: see `ProducerConfig`; missing servers are a ConfigError.

        Raises:
            ConfigError: an option is wrong or missing.
        """
        return cls(**cast("ConfigOptions", options))

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all options."""
        return [item.name for item in fields(cls)]

    @classmethod
    def _kinds(cls) -> dict[str, str]:
        """Return the annotation of each option."""
        return {item.name: str(item.type) for item in fields(cls)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], **options: Unpack[ProducerOptions]) -> Self:
        """Make a config from names of Java ("linger.ms"), librdkafka ("queue.buffering.max.ms") or aiokafka ("max_batch_size").

        Texts are read as the option's type; None leaves an option out. A known option that has no meaning here is an error
        that says what to use instead, or is ignored with a warning in the log if nothing is lost by it.

        Args:
            mapping: option names with their values.
            **options: options under their own names; they take precedence over the mapping.

        Raises:
            ConfigError: an option is unknown or wrong.
        """
        from aiokprod.config.mapping import build

        return build(cls.of, cls._kinds(), mapping, options)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], **options: Unpack[ProducerOptions]) -> Self:
        """Make a config from a file of `name=value` lines, as for Java clients, librdkafka and kcat.

        Names and values are read as by `from_mapping`, lines as by java.util.Properties: `#` begins a comment, a backslash
        escapes the character after it.

        Args:
            path: path of the file.
            **options: options under their own names; they take precedence over the file.

        Raises:
            ConfigError: the file cannot be read, or something in it is wrong.
        """
        from aiokprod.config.properties import read

        return cls.from_mapping(read(path), **options)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Unpack[ProducerOptions]) -> Self:
        """Make a config from AIOKPROD_<OPTION> and a closed list of KAFKA_ aliases.

        Args:
            environ: names with texts; None is the environment of the process.
            **options: options under their own names; they take precedence over the environment.

        Raises:
            ConfigError: a variable that begins with AIOKPROD_ is unknown, or an option is wrong.
        """
        from aiokprod.config.environment import build

        return build(cls.of, cls._kinds(), os.environ if environ is None else environ, options)

    def replace(self, **changes: Unpack[ProducerOptions]) -> Self:
        """Return a copy with other values; options given before stay given, derived ones are derived again.

        Args:
            **changes: options with their new values.

        Raises:
            ConfigError: an option is wrong.
        """
        copy = type(self).__new__(type(self))
        copy._fill({**self._given(), **changes})
        if self.idempotent:  # else it was logged before
            copy._tell_idempotence()
        return copy

    __replace__ = replace  # copy.replace of Python 3.13

    def _fill(self, options: Mapping[str, Any]) -> None:
        """Check all options and set them; the object may be used only if this returns."""
        given = self._checked(options)
        values = {item.name: given.get(item.name, item.default) for item in fields(self)}
        for conflict in option_rules.conflicts(values, given):
            raise conflict  # the first of them
        values = option_rules.fitted(values, given)
        why_not = option_rules.why_not_idempotent(values)
        values["delivery_timeout_ms"] = option_rules.delivery_timeout_ms(values)
        values["acks"] = option_rules.required_acks(values["acks"])
        values["enable_idempotence"] = why_not is None
        values["client_id"] = values["client_id"] or f"aiokprod-{next(_numbers)}"
        derived = {
            "servers": parse_servers(values["bootstrap_servers"]), "_as_given": given, "_why_not_idempotent": why_not,
        }  # fmt: skip
        self.__dict__.update(values, **derived)

    @classmethod
    def _checked(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that were given, each valid by itself, in a form that cannot be changed from outside."""
        for name in options:
            if name not in cls.__dataclass_fields__:
                from aiokprod.config.unknown import unknown_option  # only for an error

                raise unknown_option(name, cls.names())
        if options.get("bootstrap_servers") is None:
            raise ConfigError("bootstrap_servers is missing: give at least one host:port")
        given: dict[str, Any] = {}
        for item in fields(cls):
            value: Any = options.get(item.name, item.default)
            if item.name not in options or (value is None and item.default is None):
                continue
            item.metadata["check"].refuse(item.name, value)
            if item.name in _SECRETS:
                value = Secret.of(value)
            elif item.name in _FILES:
                value = os.fspath(cast("str | os.PathLike[str]", value))
            elif item.name in _LISTS and not isinstance(value, str):
                value = tuple(cast("Sequence[Any]", value))
            given[item.name] = value
        return given

    def _given(self) -> dict[str, Any]:
        given: dict[str, Any] = self.__dict__["_as_given"]
        return given

    def _tell_idempotence(self) -> None:
        why_not: str | None = self.__dict__["_why_not_idempotent"]
        if not why_not:
            return
        # Fewer acks say what they cost; that more requests in flight cost it, few know.
        tell = _log.warning if why_not.startswith("max_in_flight") else _log.info
        tell("idempotence is off because %s was asked for", why_not)

    # ------------------------------------------------------------------ reading
    @property
    def idempotent(self) -> bool:
        """True if the producer is idempotent; derived from acks, retries and enable_idempotence."""
        return bool(self.enable_idempotence)

    @property
    def required_acks(self) -> int:
        """The value of acks: -1 (all), 0 or 1."""
        assert isinstance(self.acks, int)
        return self.acks

    @property
    def delivery_timeout(self) -> float:
        """delivery_timeout_ms in seconds."""
        assert self.delivery_timeout_ms is not None
        return self.delivery_timeout_ms / 1000

    @property
    def block_option(self) -> str:
        """Name of the option that bounds the wait for room, metadata or a serializer: the shorter of the two."""
        return "delivery_timeout_ms" if self.delivery_timeout * 1000 < self.max_block_ms else "max_block_ms"

    @property
    def longest_block(self) -> str:
        """The bound of that wait, for a text: `60 s (max_block_ms)`."""
        return f"{min(self.max_block_ms / 1000, self.delivery_timeout):g} s ({self.block_option})"

    @property
    def start_timeout(self) -> float | None:
        """start_timeout_ms in seconds; None: no bound."""
        return None if self.start_timeout_ms == -1 else self.start_timeout_ms / 1000

    @property
    def close_timeout(self) -> float | None:
        """close_timeout_ms in seconds; None: no bound."""
        return None if self.close_timeout_ms == -1 else self.close_timeout_ms / 1000

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """(host, port) pairs."""
        servers: tuple[tuple[str, int], ...] = self.__dict__["servers"]
        return servers

    def explain(self) -> list[str]:
        """Return a line for each option: its value, and whether it was given or is the default; secrets stay hidden.

        A default that gave way to an option that was given is called derived.
        """
        return [f"{name} = {value} ({self._origin_of(name)})" for name, value in self._shown().items()]

    def was_given(self, name: str) -> bool:
        """Return True if this option was given, and is no default or derived from others.

        Args:
            name: of the option.
        """
        return name in self._given()

    def _origin_of(self, name: str) -> str:
        if self.was_given(name):
            return "given"
        default = type(self).__dataclass_fields__[name].default
        return "default" if default is None or getattr(self, name) == default else "derived from other options"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._shown().items())})"

    def _shown(self) -> dict[str, str]:
        """Return the value of each option as text. Any PEM text may hold a private key, whatever option it is."""
        return {item.name: _text_of(item.name, getattr(self, item.name)) for item in fields(self)}

    # ------------------------------------------------------------------ comparing and copying
    def _meaning(self) -> dict[str, Any]:
        """Return what two configs are compared by."""
        meaning = {item.name: getattr(self, item.name) for item in fields(self)}
        meaning["bootstrap_servers"] = tuple((same_host(host), port) for host, port in self.bootstrap_addresses)
        meaning["client_id"] = self._given().get("client_id") or None
        return meaning

    def __eq__(self, other: object) -> bool:
        return self._meaning() == other._meaning() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(value for name, value in self._meaning().items() if name not in _OBJECTS))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self.ssl_context is not None:
            raise ConfigError(
                "ssl_context: a config with one cannot be pickled: give the files or PEM texts instead (ssl_cafile, ...)"
            )
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _text_of(name: str, value: Any) -> str:
    if name == "sasl_oauth_token_provider" and value is not None:
        return name_of(value)
    return shown(value) if isinstance(value, str) and PEM_BEGINS in value else repr(value)


def texts_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as a config shows them, whether they fit together or not; secrets stay hidden.

    Args:
        options: values of texts, under our own names.
    """
    hidden = {name: Secret.of(value) if name in _SECRETS else value for name, value in options.items()}
    return {name: _text_of(name, value) for name, value in hidden.items()}
