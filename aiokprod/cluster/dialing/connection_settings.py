"""`ConnectionSettings`: the parameters of a dial, made once from the options.

One per start of a client. Certificates are read here, once; credentials are read from the options at every dial, so that
a changed password is used from the next authentication on (`# faults: S17`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiokprod.cluster.dialing.dial import Dialer
from aiokprod.cluster.dialing.dns import Resolver, resolve
from aiokprod.cluster.dialing.lookups import Lookups
from aiokprod.config import ProducerConfig, Secret
from aiokprod.config.option_rules import TOKENS
from aiokprod.errors import ConfigError
from aiokprod.logs import GuardedLogger, RateLimiter, StateLog, printable

if TYPE_CHECKING:  # imported for configs that use SASL or TLS
    from aiokprod.cluster.dialing.sasl.mechanism import Mechanism
    from aiokprod.cluster.dialing.tls import TlsFiles
    from aiokprod.cluster.dialing.tokens import TokenSource

logger = GuardedLogger(__name__)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Those with a user and a password."""

CLEAR_TEXT: Final = {"PLAIN": "read the password", TOKENS: "read the token and use it"}
"""What an eavesdropper can do about mechanisms that send a secret as it is."""

THREADS: Final = 2
"""SCRAM hashes at a time. Two, so that a broker that demands a long one does not hold up all others."""


def _threads() -> ThreadPoolExecutor:
    """Make the threads in which SCRAM's hashes are computed: begun when they are needed, ended when their owner is gone."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="aiokprod-scram")


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ConnectionSettings:
    """The parameters of a dial: without `ssl_context` plaintext, without `new_mechanism` and `tokens` no SASL.

    Buffer sizes of -1 leave the choice to the system; without `lookups` any number of names is resolved at a time.
    """

    client_id: str = "aiokprod"
    setup_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    max_frame_bytes: int = 100 * 1024 * 1024
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    keepalive_s: float | None = None
    ssl_context: ssl.SSLContext | None = None
    new_mechanism: Callable[[], Mechanism] | None = None
    tokens: TokenSource | None = None
    lookups: Lookups | None = None
    resolver: Resolver = resolve
    dialer: Dialer | None = None
    threads: ThreadPoolExecutor = field(default_factory=_threads, repr=False)
    answered: set[str] = field(default_factory=set[str], repr=False)
    """Endpoints that a connection was opened to: where one hangs up later, these settings are not why."""
    _limiter: RateLimiter = field(default_factory=RateLimiter, repr=False)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> ConnectionSettings:
        """Make the settings from the options; reads certificate files, so call it before the loop is busy.

        Raises:
            ConfigError: a certificate, key or mechanism cannot be used.
        """
        uses_tls = config.security_protocol in ("SSL", "SASL_SSL")
        uses_sasl = config.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        uses_tokens = uses_sasl and config.sasl_mechanism == TOKENS
        if uses_sasl and not uses_tls:
            what = CLEAR_TEXT.get(config.sasl_mechanism or "", "guess the password from what they see")
            logger.warning(
                "SASL %s without TLS [%s]: an eavesdropper on the network can %s, and read and change records (use SASL_SSL)",
                config.sasl_mechanism,
                printable(config.client_id or ""),
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
            keepalive_s=None if config.connections_keepalive_ms == -1 else config.connections_keepalive_ms / 1000,
            ssl_context=_ssl_context(config) if uses_tls else None,
            new_mechanism=_mechanisms(config) if uses_sasl and not uses_tokens else None,
            tokens=_tokens(config) if uses_tokens else None,
            dialer=config.dialer,
        )

    def log_of(self, endpoint: str) -> StateLog:
        """Return a log for a connection to an endpoint, limited together with all others: for an endpoint that flaps
        (`# faults: N16`), and for an answer that names thousands of endpoints (`# faults: H16`).
        """
        return StateLog(
            f"connection to {endpoint}",
            client_id=self.client_id,
            broker=endpoint,
            name="aiokprod.cluster.connection",
            limiter=self._limiter,
        )


def _ssl_context(config: ProducerConfig) -> ssl.SSLContext:
    from aiokprod.cluster.dialing.tls import accept_context, build_context

    if config.ssl_context is not None:
        return accept_context(config.ssl_context, config.client_id or "")
    return build_context(_files(config), config.client_id or "")


def _files(config: ProducerConfig) -> TlsFiles:
    from aiokprod.cluster.dialing.tls import TlsFiles

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
    """Check that the files that a config names hold PEM; they are loaded at a start, which may find newer ones.

    Raises:
        ConfigError: a file cannot be read, or holds no PEM.
    """
    from aiokprod.cluster.dialing.tls import check_readable

    check_readable(_files(config))


def _mechanisms(config: ProducerConfig) -> Callable[[], Mechanism]:
    from aiokprod.cluster.dialing.sasl.plain import Plain
    from aiokprod.cluster.dialing.sasl.scram import ScramSha256, ScramSha512

    kind = {each.name: each for each in (Plain, ScramSha256, ScramSha512)}.get(config.sasl_mechanism or "")
    if kind is None:
        raise ConfigError(f"sasl_mechanism can be {', '.join((*MECHANISMS, TOKENS))}")

    def new_mechanism() -> Mechanism:
        return kind(config.sasl_username or "", _secret(config.sasl_password) or Secret(""))

    new_mechanism()  # so that bad credentials raise a ConfigError here, and not an error at every dial
    return new_mechanism


def _tokens(config: ProducerConfig) -> TokenSource:
    from aiokprod.cluster.dialing.tokens import TokenSource

    return TokenSource(config.sasl_oauth_token_provider, client_id=config.client_id)


def _secret(value: str | Secret | None) -> Secret | None:
    return Secret(value) if isinstance(value, str) else value
