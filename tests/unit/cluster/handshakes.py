"""Opening a connection to a scripted broker: the one that must succeed, the one that must be refused."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import trustme
from scripted_broker import Peer, ScriptedBroker, idle

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.dns import Address
from aiokprod.cluster.dialing.handshake import Endpoint, open_connection
from aiokprod.cluster.dialing.tls import TlsFiles, build_context
from aiokprod.errors import (
    AiokprodError,
    ConnectionLostError,
)

CANARY = "canary-s3cret"
CA = trustme.CA()


@contextlib.asynccontextmanager
async def opened(
    broker: ScriptedBroker,
    settings: ConnectionSettings | None = None,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = 5.0,
) -> AsyncIterator[BrokerConnection]:
    connection = await open_connection(
        Endpoint(host=host, port=broker.port, node_id=7), settings or ConnectionSettings(), timeout_s=timeout_s
    )
    try:
        yield connection
    finally:
        connection.close(ConnectionLostError("the test is over"))
        await connection.wait_closed()


async def refused(
    broker: ScriptedBroker,
    settings: ConnectionSettings | None = None,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = 5.0,
) -> AiokprodError:
    """Return the error of an attempt that must fail."""
    with pytest.raises(AiokprodError) as raised:
        async with opened(broker, settings, host=host, timeout_s=timeout_s):
            pass
    assert f":{broker.port}" in str(raised.value) or isinstance(raised.value.__cause__, AiokprodError)
    return raised.value


async def modern(peer: Peer) -> None:
    await peer.negotiate()
    await idle(peer)


def at(*addresses: tuple[str, int]) -> Callable[[str, int], Any]:
    """Return a resolver that knows these addresses."""

    async def resolver(host: str, port: int) -> Sequence[Address]:
        return [Address(socket.AF_INET, address) for address in addresses]

    return resolver


OTHER_CA = trustme.CA()


def server_context(certificate: trustme.LeafCert | None = None, *, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    (certificate or CA.issue_cert("localhost", "127.0.0.1", "*.wild.example")).configure_cert(context)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        CA.configure_trust(context)
    return context


def tls_settings(ca: trustme.CA = CA, **options: Any) -> ConnectionSettings:
    files = TlsFiles(ca_pem=ca.cert_pem.bytes().decode(), **options)
    return ConnectionSettings(ssl_context=build_context(files))
