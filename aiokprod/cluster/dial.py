"""One dial: TCP to one address, then TLS. No bytes of Kafka's are sent here.

The loop makes the socket: uvloop 0.23 closes one that it was handed a second time when TLS ends early, and by then the
descriptor may belong to another part of the process (`# faults: S21`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

from aiokprod.cluster import tls
from aiokprod.cluster.dns import LOCAL, Address
from aiokprod.errors import ConnectionLostError, TlsError
from aiokprod.logs import printable

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

Dialer: TypeAlias = Callable[
    [str, int, ssl.SSLContext | None, Callable[[], asyncio.Protocol]], Awaitable[asyncio.Transport]
]
"""`await dialer(host, port, ssl_context, protocol_factory)` connects (through a proxy, or in memory), calls the factory
once and returns the transport that its protocol is connected to.

With an `ssl_context` it must do TLS with it, towards the server name `host`, and the transport must show it
(`get_extra_info("ssl_object")`): a transport without TLS is refused. Host names are left to the dialer to resolve.
"""


_HUNG_UP: Final = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""What a TLS handshake ends with; connecting TCP ends with other errors."""


async def dial(
    host: str,
    port: int,
    address: Address,
    ssl_context: ssl.SSLContext | None,
    protocol_factory: Callable[[], asyncio.Protocol],
    *,
    send_buffer_bytes: int,
    receive_buffer_bytes: int,
) -> None:
    """Connect a protocol to an address; -1 bytes leaves a buffer to the system.

    Cancelling closes the socket.

    Raises:
        ConnectionLostError: nothing listens there, or this machine cannot dial now.
        TlsError: somebody is there, but not with TLS as we want it.
    """
    options: dict[str, Any] = {"family": address.family, "flags": socket.AI_NUMERICHOST}
    if ssl_context is not None:
        options |= {"ssl": ssl_context, "server_hostname": tls.server_name(host)}
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_connection(protocol_factory, address.numeric_host, address.port, **options)
    except LOCAL as error:
        if ssl_context is not None and isinstance(error, _HUNG_UP):
            raise tls.diagnose(error, host, port) from error
        raise ConnectionLostError(
            f"{host}:{port}: cannot connect to {address}: {reason_of(error)}", host=host, port=port
        ) from error
    try:
        _set_options(transport.get_extra_info("socket"), send_buffer_bytes, receive_buffer_bytes)
    except OSError as error:
        transport.abort()
        raise ConnectionLostError(
            f"{host}:{port}: the socket to {address} cannot be set up: {reason_of(error)}", host=host, port=port
        ) from error


def reason_of(error: BaseException) -> str:
    """Why this machine could not: the system's words where it has some, and never the error's `repr`."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return f"{type(error).__name__}: {printable(error)}"


async def dial_by(
    dialer: Dialer,
    host: str,
    port: int,
    ssl_context: ssl.SSLContext | None,
    protocol_factory: Callable[[], asyncio.Protocol],
) -> None:
    """Connect a protocol through the user's dialer.

    Raises:
        ConnectionLostError: the dialer failed.
        TlsError: TLS failed, or the dialer did not do it though it was asked to.
    """
    try:
        transport = await dialer(host, port, ssl_context, protocol_factory)
    except ssl.SSLError as error:
        raise tls.diagnose(error, host, port) from error
    except LOCAL as error:  # of any other kind it is a bug of the user's, which ends the producer
        raise ConnectionLostError(
            f"{host}:{port}: the dialer cannot connect: {type(error).__name__}: {printable(error)}",
            host=host,
            port=port,
        ) from error
    if ssl_context is not None and transport.get_extra_info("ssl_object") is None:
        transport.abort()
        raise TlsError(f"{host}:{port}: the dialer returned a transport without TLS, and TLS is required")


def _set_options(sock: socket.socket | None, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    if sock is None:
        return
    with contextlib.suppress(OSError):  # asyncio and uvloop have set it; the peer may be gone already
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # a convenience: finds dead idle peers (faults: N7)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
