"""One server: its name, its addresses, TLS, SASL, its version. Each step that fails is asked why, by further dials."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from aiokprod.cli.common.texts import printable
from aiokprod.cli.doctoring.finding import NOT_HERE, Finding
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.dialing.connection_settings import MECHANISMS, ConnectionSettings
from aiokprod.cluster.dialing.dns import Address, resolve
from aiokprod.cluster.dialing.handshake import CONTROLLER, Endpoint, open_connection
from aiokprod.cluster.dialing.tls import (
    EXPIRED,
    HOST_NAME_MISMATCH,
    IP_MISMATCH,
    NO_ROOT,
    NO_WAY_TO_ROOT,
    NOT_YET_VALID,
    server_name,
)
from aiokprod.cluster.hosts import address_of
from aiokprod.config import ProducerConfig
from aiokprod.config.option_rules import TOKENS
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    ConnectionLostError,
    ProtocolError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TLS_OF: Final = {"PLAINTEXT": "SSL", "SASL_PLAINTEXT": "SASL_SSL"}
PLAIN_OF: Final = {with_tls: without for without, with_tls in TLS_OF.items()}
SASL_OF: Final = {"PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SASL_SSL"}
NO_SASL_OF: Final = {with_sasl: without for without, with_sasl in SASL_OF.items()}


@dataclass(frozen=True, slots=True)
class Reached:
    """A server that answered."""

    connection: BrokerConnection
    cluster: MetadataResponse


@dataclass(frozen=True, slots=True)
class Examination:
    """The result for one server: what it told, or why it told nothing."""

    reached: Reached | None
    findings: tuple[Finding, ...]


class ServerExaminer:
    """The examinations of single servers.

    Args:
        config: of the connection.
        timeout_s: bound of each step, in seconds; socket_connection_setup_timeout_ms if that is shorter.
    """

    def __init__(self, config: ProducerConfig, timeout_s: float) -> None:
        self._config = config
        self._timeout_s = min(timeout_s, config.socket_connection_setup_timeout_ms / 1000)

    async def examine(self, host: str, port: int) -> Examination:
        """Go through all steps with a server, as a client would; the caller closes the connection.

        Raises:
            ConfigError: a certificate or the credentials cannot be used.
        """
        settings = ConnectionSettings.from_config(self._config)
        endpoint = Endpoint(host=host, port=port)
        try:
            addresses = await asyncio.wait_for(resolve(host, port), self._timeout_s)
        except (ConnectionLostError, TimeoutError):
            return Examination(None, (_no_name(endpoint),))
        failed: dict[Address, str] = {}
        for address in addresses:
            why = await self._connects(address)
            if why is not None:
                failed[address] = why
        if len(failed) == len(addresses):
            return Examination(None, (_nothing_there(endpoint, failed),))
        notes = tuple(_of_families(endpoint, addresses, failed))
        try:
            connection = await open_connection(endpoint, settings, timeout_s=self._timeout_s)
        except AiokprodError as error:
            return Examination(None, (await self._why_not_open(endpoint, error), *notes))
        try:
            answer: MetadataResponse = await connection.request(MetadataRequest(topics=[]), timeout_s=self._timeout_s)
        except AiokprodError as error:
            connection.close(error)
            await connection.wait_closed()
            return Examination(None, (await self._why_no_answer(endpoint, error), *notes))
        return Examination(Reached(connection, answer), notes)

    # ------------------------------------------------------------------ steps

    async def _connects(self, address: Address) -> str | None:
        """Return why TCP does not connect to an address; None if it does."""
        try:
            _, writer = await asyncio.wait_for(
                asyncio.open_connection(address.numeric_host, address.port), self._timeout_s
            )
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return printable(os.strerror(error.errno) if error.errno else error)  # asyncio's own text names a call
        writer.transport.abort()
        return None

    async def _opens(self, endpoint: Endpoint, protocol: str) -> BrokerConnection | None:
        """Return a connection by another protocol, without checks of the other side; None if there is none.

        No password and no certificate of ours is given to a side that proves nothing.
        """
        context = None
        if protocol == "SSL":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        settings = ConnectionSettings(ssl_context=context, setup_timeout_s=self._timeout_s)
        try:
            return await open_connection(endpoint, settings, timeout_s=self._timeout_s)
        except AiokprodError:
            return None

    async def _speaks_tls(self, endpoint: Endpoint) -> bool:
        """Return whether a TLS handshake can be begun there; a server may still want a certificate of ours."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return await self._peer_certificate(endpoint, context) is not None

    async def _speaks_kafka(self, endpoint: Endpoint) -> bool:
        connection = await self._opens(endpoint, "PLAINTEXT")
        await _closed(connection)
        return connection is not None

    async def _mechanisms(self, endpoint: Endpoint, protocol: str | None = None) -> list[str] | None:
        """Return the SASL mechanisms of a listener; None if it does not speak SASL.

        Args:
            endpoint: of the listener.
            protocol: PLAINTEXT or SSL; None: the one of the config.
        """
        if protocol is None:
            protocol = NO_SASL_OF.get(self._config.security_protocol, self._config.security_protocol)
        connection = await self._opens(endpoint, protocol)
        if connection is None:
            return None
        try:
            answer: SaslHandshakeResponse = await connection.request(
                SaslHandshakeRequest(mechanism="none-that-exists"), timeout_s=self._timeout_s
            )
        except AiokprodError:
            return None
        finally:
            await _closed(connection)
        if answer.error_code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return None
        return [printable(name, 50) for name in answer.mechanisms[:20]]

    # ------------------------------------------------------------------ reasons

    async def _why_not_open(self, endpoint: Endpoint, error: AiokprodError) -> Finding:
        protocol = self._config.security_protocol
        if isinstance(error, AuthenticationError):
            return await self._why_no_sasl(endpoint, error)
        if isinstance(error, UnsupportedVersionError):
            is_controller = error.message.endswith(CONTROLLER)
            if is_controller or ("API" in error.message and "does not support" in error.message):
                return Finding(
                    "no-broker",
                    f"{endpoint} is no listener for clients: {CONTROLLER if is_controller else error.message}",
                    "bootstrap.servers=HOST:PORT  (of a broker: see its advertised.listeners)",
                )
            return Finding("broker-too-old", error.message, "upgrade the brokers: Kafka 2.1 or later is needed")
        uses_tls = protocol in PLAIN_OF
        if uses_tls and isinstance(error, TlsError):
            return await self._why_no_tls(endpoint, error)
        if not uses_tls and await self._speaks_tls(endpoint):
            wanted = await self._mechanisms(endpoint, "SSL") if protocol in SASL_OF else None
            return Finding(
                "tls-expected",
                f"{endpoint} speaks TLS, and security.protocol is {protocol}",
                f"security.protocol={TLS_OF[protocol]}"
                if wanted is None
                else f"security.protocol={SASL_OF[TLS_OF[protocol]]}  (with {_options_of(wanted)})",
            )
        if uses_tls and isinstance(error, ConnectionLostError) and await self._speaks_tls(endpoint):
            return Finding("client-certificate", error.message, "ssl.certfile=FILE  (and ssl.keyfile=FILE)")
        if isinstance(error, ProtocolError) or "hung up" in error.message:
            return Finding(
                "not-kafka",
                f"{endpoint} answers, and not as a Kafka broker: {error.message}",
                "bootstrap.servers=HOST:PORT  (the port of a listener for clients; 9092 as a rule)",
            )
        return Finding("no-answer", error.message, "bootstrap.servers=HOST:PORT  (of a broker that answers)")

    async def _why_no_tls(self, endpoint: Endpoint, error: TlsError) -> Finding:
        cause = next((each for each in _causes(error) if isinstance(each, ssl.SSLError)), None)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return await self._bad_certificate(endpoint, error, cause.verify_code)
        reason = str(getattr(cause, "reason", "") or "").upper()
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return Finding("client-certificate", error.message, "ssl.certfile=FILE  (and ssl.keyfile=FILE)")
        if await self._speaks_kafka(endpoint):
            return await self._no_tls_there(endpoint)
        if await self._speaks_tls(endpoint):
            return Finding("client-certificate", error.message, "ssl.certfile=FILE  (and ssl.keyfile=FILE)")
        return Finding("tls", error.message, "bootstrap.servers=HOST:PORT  (of a TLS listener)")

    async def _bad_certificate(self, endpoint: Endpoint, error: TlsError, code: int) -> Finding:
        if code == EXPIRED:
            return Finding("tls-expired", error.message, "renew the broker's certificate (ssl.keystore.location there)")
        if code == NOT_YET_VALID:
            return Finding("clock-skew", error.message, "set this machine's clock (timedatectl set-ntp true)")
        if code in (HOST_NAME_MISMATCH, IP_MISMATCH):
            names = await self._names_in_certificate(endpoint)
            told = f"; it is for {', '.join(names)}" if names else ""
            name = next((each for each in names if not each.startswith("*")), "NAME_IN_THE_CERTIFICATE")
            return Finding(
                "tls-host-name", f"{error.message}{told}", f"bootstrap.servers={address_of(name, endpoint.port)}"
            )
        if code in NO_WAY_TO_ROOT and (self._config.ssl_cafile or self._config.ssl_ca_pem):
            return _broken_chain(endpoint, self._config, await self._issuer_of_certificate(endpoint))
        if code == NO_ROOT:
            return Finding(
                "tls-authority",
                f"{endpoint}: the certificate that signed the broker's is trusted here, and its own root is not",
                "ssl.cafile=FILE  (with the certificate of the root too, behind the one that it has)",
            )
        return Finding(
            "tls-authority", error.message, "ssl.cafile=FILE  (with the certificate of the authority that signed it)"
        )

    async def _names_in_certificate(self, endpoint: Endpoint) -> list[str]:
        """Return the names of a certificate whose authority is trusted."""
        trusted = ConnectionSettings.from_config(self._config).ssl_context
        if trusted is None or self._config.ssl_context is not None:  # not ours to change
            return []
        trusted.check_hostname = False
        sent = await self._peer_certificate(endpoint, trusted)
        found: dict[str, Any] = (sent and sent.getpeercert()) or {}
        names: list[tuple[str, str]] = list(found.get("subjectAltName", ()))
        return [printable(value, 253) for kind, value in names if kind in ("DNS", "IP Address")]

    async def _issuer_of_certificate(self, endpoint: Endpoint) -> str | None:
        """Return the issuer of a server's certificate; None if it cannot be learned."""
        unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        sent = await self._peer_certificate(endpoint, unchecked)
        if sent is None:
            return None
        # Python decodes only a certificate that is trusted. So this one alone is, in a second handshake.
        itself = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        itself.check_hostname = False
        itself.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            itself.load_verify_locations(cadata=sent.getpeercert(binary_form=True) or b"")
        except (ssl.SSLError, ValueError):
            return None
        decoded = await self._peer_certificate(endpoint, itself)
        found: dict[str, Any] = (decoded and decoded.getpeercert()) or {}
        parts: list[tuple[str, str]] = [pair for parts in found.get("issuer", ()) for pair in parts]
        names = [value for kind, value in parts if kind == "commonName"] or [value for _, value in parts]
        return printable(", ".join(names), 200) or None

    async def _peer_certificate(self, endpoint: Endpoint, context: ssl.SSLContext) -> ssl.SSLObject | None:
        """Make a handshake; return the TLS object, which has the certificate. None: there was no handshake."""
        try:
            _, writer = await asyncio.wait_for(
                asyncio.open_connection(
                    endpoint.host, endpoint.port, ssl=context, server_hostname=server_name(endpoint.host)
                ),
                self._timeout_s,
            )
        except (OSError, TimeoutError):
            return None
        found: ssl.SSLObject = writer.get_extra_info("ssl_object")
        writer.transport.abort()
        return found

    async def _why_no_sasl(self, endpoint: Endpoint, error: AuthenticationError) -> Finding:
        protocol, mechanism = self._config.security_protocol, self._config.sasl_mechanism
        offered = await self._mechanisms(endpoint)
        if offered is None:
            return Finding(
                "sasl-not-spoken",
                f"{endpoint} does not speak SASL, and security.protocol is {protocol}",
                self._protocol(NO_SASL_OF[protocol]),
            )
        if mechanism not in offered:
            return Finding(
                "sasl-mechanism",
                f"{endpoint} does not offer {mechanism}; it offers {', '.join(offered)}",
                _mechanism_of(offered),
            )
        return Finding(
            "sasl-password", error.message, "sasl.password=...  (or sasl.username; the broker refuses the two together)"
        )

    async def _no_tls_there(self, endpoint: Endpoint) -> Finding:
        """Return what the listener speaks instead of TLS: with or without SASL, so that one change is enough."""
        protocol = self._config.security_protocol
        plain = PLAIN_OF[protocol]
        offered = await self._mechanisms(endpoint, "PLAINTEXT")
        there = "TLS"
        if plain in NO_SASL_OF and offered is None:
            plain, there = NO_SASL_OF[plain], "TLS, and no SASL"
        if offered is not None and plain in SASL_OF:
            plain = f"{SASL_OF[plain]}  (with {_options_of(offered)})"
        change = self._protocol(plain)
        return Finding(
            "plaintext-expected",
            f"{endpoint} does not speak {there}, and security.protocol is {protocol}",
            f"{change}{'' if '(' in change else '  (or the port of its TLS listener in bootstrap.servers)'}",
        )

    def _protocol(self, protocol: str) -> str:
        """Return the line to change to a protocol, with the options that must go with it."""
        gone = self._unused(protocol.partition(" ")[0])
        return f"security.protocol={protocol}" + (f"  (and delete {', '.join(gone)})" if gone else "")

    def _unused(self, protocol: str) -> list[str]:
        """Return the options that are set and that a protocol does not use: with it they are an error."""
        starts = [] if protocol.startswith("SASL_") else ["sasl_"]
        starts += [] if protocol.endswith("SSL") else ["ssl_"]
        return [
            item.name.replace("_", ".")
            for item in fields(ProducerConfig)
            if item.name.startswith(tuple(starts)) and getattr(self._config, item.name) != item.default
        ]

    async def _why_no_answer(self, endpoint: Endpoint, error: AiokprodError) -> Finding:
        offered = await self._mechanisms(endpoint)
        protocol = self._config.security_protocol
        if offered and protocol in SASL_OF:
            return Finding(
                "sasl-wanted",
                f"{endpoint} wants SASL ({', '.join(offered)}), and security.protocol is {protocol}",
                f"security.protocol={SASL_OF[protocol]}  (with {_options_of(offered)})",
            )
        if protocol == "SSL":
            return Finding("client-certificate", error.message, "ssl.certfile=FILE  (and ssl.keyfile=FILE)")
        return Finding(
            "no-answer",
            error.message,
            f"bootstrap.servers=HOST:PORT  (of another broker: {NOT_HERE}; the log of this one says why it did not answer)",
        )


def _mechanism_of(offered: list[str]) -> str:
    """Return the line to change: the first mechanism that this command has too, or what else can be done."""
    ours = [name for name in offered if name in MECHANISMS]
    if not ours and TOKENS in offered:
        return f"sasl.mechanism={TOKENS}  (in a program, with sasl_oauth_token_provider: a command cannot use it)"
    return f"sasl.mechanism={ours[0] if ours else '...'}"


def _options_of(offered: list[str]) -> str:
    if TOKENS in offered and not any(name in MECHANISMS for name in offered):
        return f"sasl.mechanism={TOKENS} and sasl_oauth_token_provider, in a program: a command cannot use it"
    return "sasl.mechanism, sasl.username, sasl.password"


async def _closed(connection: BrokerConnection | None) -> None:
    if connection is not None:
        connection.close(ConnectionLostError("the examination is over"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(connection.wait_closed(), 2.0)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _broken_chain(endpoint: Endpoint, config: ProducerConfig, issuer: str | None) -> Finding:
    """Return both ways to mend it: a broker that sends too little, and another authority, look the same from here."""
    trusted = f"ssl.cafile={config.ssl_cafile}" if config.ssl_cafile else "ssl.ca.pem"
    return Finding(
        "tls-chain",
        f"{endpoint}: nothing leads from the broker's certificate to an authority of {trusted}: the broker does not send the"
        " certificate of its issuer, or that authority is another one"
        + (f"; the issuer is {issuer!r}" if issuer else ""),
        "ssl.keystore.certificate.chain=PEM  (at the broker, or in its keystore: its certificate, then that of its issuer"
        + (f" {issuer!r}" if issuer else "")
        + "; or ssl.cafile=FILE, if another authority signed it)",
    )


def _no_name(endpoint: Endpoint) -> Finding:
    return Finding(
        "dns",
        f"the name {endpoint.host!r} has no address (DNS)",
        f"bootstrap.servers=NAME:{endpoint.port}  (a name that `getent hosts NAME` knows here)",
    )


def _nothing_there(endpoint: Endpoint, failed: dict[Address, str]) -> Finding:
    told = "; ".join(f"{address}: {why}" for address, why in failed.items())
    if all(why == "no answer" for why in failed.values()):
        return Finding(
            "unreachable",
            f"{endpoint} does not answer: {told}",
            f"let TCP to port {endpoint.port} pass (firewall, security group, network policy, VPN)",
        )
    return Finding(
        "refused",
        f"nothing listens at {endpoint}: {told}",
        f"bootstrap.servers={address_of(endpoint.host, 'PORT')}  (the port in the broker's listeners; or start the broker)",
    )


def _of_families(endpoint: Endpoint, addresses: list[Address], failed: dict[Address, str]) -> Iterator[Finding]:
    """Yield a note if a name has addresses of which some do not answer: each dial tries them first."""
    if not failed:
        return
    good = next(address for address in addresses if address not in failed)
    families = {address.family for address in failed}
    name = "ipv6" if families == {socket.AF_INET6} and good.family == socket.AF_INET else "some-addresses"
    told = "; ".join(f"{address}: {why}" for address, why in failed.items())
    yield Finding(
        name,
        f"{endpoint.host} also has addresses where nothing answers: {told}",
        f"bootstrap.servers={good}  (or let the broker listen on all of them)",
        is_trouble=False,
    )
