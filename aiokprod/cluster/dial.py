"""One dial: TCP to one address, then TLS. No bytes of Kafka's are sent here.

TCP and TLS are two steps so that their failures are told apart, and the socket's options are set before it connects
(a receive buffer decides the window that is offered).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from aiokprod.cluster import tls
from aiokprod.cluster.dns import Address
from aiokprod.errors import ConnectionLostError, TlsError

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

Dialer: TypeAlias = Callable[
    [str, int, ssl.SSLContext | None, Callable[[], asyncio.Protocol]], Awaitable[asyncio.Transport]
]
"""`await dialer(host, port, ssl_context, protocol_factory)` connects (through a proxy, or in memory), calls the factory
once and returns the transport that its protocol is connected to.

With an `ssl_context` it must do TLS with it, towards the server name `host`, and the transport must show it
(`get_extra_info("ssl_object")`): a transport without TLS is refused. Host names are left to the dialer to resolve.
"""


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
        ConnectionLostError: nobody there.
        TlsError: somebody is there, but not with TLS as we want it.
    """
    loop = asyncio.get_running_loop()
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        _set_options(sock, send_buffer_bytes, receive_buffer_bytes)
        try:
            await loop.sock_connect(sock, address.socket_address)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConnectionLostError(
                f"{host}:{port}: cannot connect to {address}: {reason}", host=host, port=port
            ) from error
        if ssl_context is None:
            await loop.create_connection(protocol_factory, sock=sock)
            return
        try:
            await loop.create_connection(
                protocol_factory, sock=sock, ssl=ssl_context, server_hostname=tls.server_name(host)
            )
        except (OSError, ssl.CertificateError) as error:
            raise tls.diagnose(error, host, port) from error
    except BaseException:
        sock.close()
        raise


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
    except OSError as error:
        raise ConnectionLostError(f"{host}:{port}: the dialer cannot connect: {error}", host=host, port=port) from error
    if ssl_context is not None and transport.get_extra_info("ssl_object") is None:
        transport.abort()
        raise TlsError(f"{host}:{port}: the dialer returned a transport without TLS, and TLS is required")


def _set_options(sock: socket.socket, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # a convenience: finds dead idle peers (faults: N7)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
