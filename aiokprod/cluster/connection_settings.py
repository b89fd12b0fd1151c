"""`ConnectionSettings`: everything a dial needs to know, made once from the options.

One per start of a client. Certificates are read here, once; credentials are asked for on every dial, so that an option
object whose password changes is obeyed from the next authentication on (`# faults: S17`).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiokprod.cluster.dial import Dialer
from aiokprod.cluster.dns import Resolver, resolve
from aiokprod.cluster.sasl import plain
from aiokprod.cluster.sasl.mechanism import Mechanism
from aiokprod.cluster.sasl.plain import Plain
from aiokprod.cluster.sasl.scram import ScramSha256, ScramSha512
from aiokprod.cluster.tls import TlsFiles, accept_context, build_context, check_readable
from aiokprod.config import ProducerConfig, Secret
from aiokprod.errors import ConfigError
from aiokprod.logs import StateLog

logger = logging.getLogger(__name__)

MECHANISMS: Final[dict[str, type[Plain] | type[ScramSha256] | type[ScramSha512]]] = {
    kind.name: kind for kind in (Plain, ScramSha256, ScramSha512)
}

LOGS_LIMIT: Final = 1000
"""Endpoints whose log is remembered; a cluster has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConnectionSettings:
    """How to connect. `ssl_context` None means plaintext, `new_mechanism` None means no SASL; buffers of -1 bytes are
    left to the system."""

    client_id: str = "aiokprod"
    setup_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    max_frame_bytes: int = 100 * 1024 * 1024
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    ssl_context: ssl.SSLContext | None = None
    new_mechanism: Callable[[], Mechanism] | None = None
    resolver: Resolver = resolve
    dialer: Dialer | None = None
    _logs: dict[str, StateLog] = field(default_factory=dict[str, StateLog], repr=False)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> ConnectionSettings:
        """Read the options; reads certificate files, so call it before the loop has much to do.

        Raises:
            ConfigError: a certificate, key or mechanism cannot be used.
        """
        uses_tls = config.security_protocol in ("SSL", "SASL_SSL")
        uses_sasl = config.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        if uses_sasl and not uses_tls:
            what = (
                "read the password" if config.sasl_mechanism == plain.NAME else "guess the password from what they see"
            )
            logger.warning(
                "SASL %s without TLS: an eavesdropper on the network can %s, and read and change records (use SASL_SSL)",
                config.sasl_mechanism,
                what,
            )
        assert config.client_id is not None
        return cls(
            client_id=config.client_id,
            setup_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
            request_timeout_s=config.request_timeout_ms / 1000,
            max_frame_bytes=config.max_frame_bytes,
            send_buffer_bytes=config.send_buffer_bytes or -1,
            receive_buffer_bytes=config.receive_buffer_bytes or -1,
            ssl_context=_ssl_context(config) if uses_tls else None,
            new_mechanism=_mechanisms(config) if uses_sasl else None,
            dialer=config.dialer,
        )

    def log_of(self, endpoint: str) -> StateLog:
        """The log of an endpoint, shared by its connections: it tells of one that flaps now and then (faults: N16)."""
        log = self._logs.get(endpoint)
        if log is None:
            if len(self._logs) >= LOGS_LIMIT:
                self._logs.clear()
            log = self._logs[endpoint] = StateLog(
                f"connection to {endpoint}",
                client_id=self.client_id,
                broker=endpoint,
                name="aiokprod.cluster.connection",
            )
        return log


def _ssl_context(config: ProducerConfig) -> ssl.SSLContext:
    if config.ssl_context is not None:
        return accept_context(config.ssl_context)
    return build_context(_files(config))


def _files(config: ProducerConfig) -> TlsFiles:
    return TlsFiles(
        ca_file=config.ssl_cafile,
        ca_pem=config.ssl_ca_pem,
        certificate_file=config.ssl_certfile,
        certificate_pem=config.ssl_cert_pem,
        key_file=config.ssl_keyfile,
        key_pem=_secret(config.ssl_key_pem),
        key_password=_secret(config.ssl_key_password),
        check_host_name=config.ssl_check_hostname,
    )


def check_files(config: ProducerConfig) -> None:
    """Look at the files that a config names, without loading them: a start does that, and may find newer ones.

    Raises:
        ConfigError: one cannot be read, or holds no PEM.
    """
    check_readable(_files(config))


def _mechanisms(config: ProducerConfig) -> Callable[[], Mechanism]:
    kind = MECHANISMS.get(config.sasl_mechanism or "")
    if kind is None:
        raise ConfigError(f"sasl_mechanism can be {', '.join(MECHANISMS)}")

    def new_mechanism() -> Mechanism:
        return kind(config.sasl_username or "", _secret(config.sasl_password) or Secret(""))

    new_mechanism()  # what is wrong with the credentials is known now, not at the first dial
    return new_mechanism


def _secret(value: str | Secret | None) -> Secret | None:
    return Secret(value) if isinstance(value, str) else value
