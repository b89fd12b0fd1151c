"""One dial: TCP to one address, then TLS. No bytes of Kafka's protocol are sent here.

The loop creates the socket: uvloop 0.23 closes a socket passed to it twice when TLS ends early, and by the second time
the descriptor may belong to another part of the process (`# faults: S21`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from aiokprod.cluster.dialing.dns import LOCAL, Address
from aiokprod.cluster.hosts import address_of
from aiokprod.errors import AiokprodError, ConnectionLostError, TlsError
from aiokprod.logs import printable

Dialer: TypeAlias = Callable[
    [str, int, ssl.SSLContext | None, Callable[[], asyncio.Protocol]], Awaitable[asyncio.Transport]
]
"""`await dialer(host, port, ssl_context, protocol_factory)` connects (through a proxy, or in memory), calls the factory
once and returns the transport that its protocol is connected to.

With an `ssl_context` it must do TLS with it, for the server name `host`, and the transport must show it
(`get_extra_info("ssl_object")`): a transport without TLS is refused. The dialer resolves host names itself.
"""


_HUNG_UP: Final = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""Errors of a TLS handshake; connecting TCP raises others (a refused connection, no route, a timeout)."""

PROBES: Final = 6
"""TCP keepalive: the probes without an answer that end a connection."""


async def dial(
    host: str,
    port: int,
    address: Address,
    ssl_context: ssl.SSLContext | None,
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    *,
    send_buffer_bytes: int,
    receive_buffer_bytes: int,
    keepalive_s: float | None = None,
) -> None:
    """Connect a protocol to an address; a buffer size of -1, and None for the keepalive, leave the choice to the system.

    Cancellation: the socket is closed.

    Raises:
        ConnectionLostError: nothing listens there, or this machine cannot dial now.
        TlsError: the other side does not do TLS, or not in a way that this client accepts.
    """
    options: dict[str, Any] = {"family": address.family, "flags": socket.AI_NUMERICHOST}
    if ssl_context is not None:
        from aiokprod.cluster.dialing.tls import server_name

        options |= {"ssl": ssl_context, "server_hostname": server_name(host)}
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_connection(protocol_factory, address.numeric_host, address.port, **options)
    except LOCAL as error:
        if ssl_context is not None and isinstance(error, _HUNG_UP):
            from aiokprod.cluster.dialing.tls import diagnose

            raise diagnose(error, host, port) from error
        where = f" to {address}" if address.numeric_host != host else ""  # not told twice
        raise ConnectionLostError(
            f"{address_of(host, port)}: cannot connect{where}: {reason_of(error)}", host=host, port=port
        ) from error
    try:
        _set_options(transport.get_extra_info("socket"), send_buffer_bytes, receive_buffer_bytes, keepalive_s)
    except OSError as error:
        transport.abort()
        raise ConnectionLostError(
            f"{address_of(host, port)}: the socket to {address} cannot be set up: {reason_of(error)}",
            host=host,
            port=port,
        ) from error


def reason_of(error: BaseException) -> str:
    """Return why this machine could not connect: the system's text if there is one, and never the error's `repr`."""
    # A `repr` of an error of the loop may hold the arguments of the call, or a certificate's contents.
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
        AiokprodError: the dialer raised it.
        ConnectionLostError: the dialer raised anything else.
        TlsError: TLS failed, or the dialer did not do it though it was asked to.
    """
    try:
        transport = await dialer(host, port, ssl_context, protocol_factory)
    except ssl.SSLError as error:
        from aiokprod.cluster.dialing.tls import diagnose

        raise diagnose(error, host, port) from error
    except AiokprodError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        # Whatever a dialer raises: proxy libraries have errors of their own, for outages that pass. Also a CancelledError of
        # something that it awaited; one of the dial itself passes on.
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        raise ConnectionLostError(
            f"{address_of(host, port)}: the dialer cannot connect: {type(error).__name__}: {printable(error)}",
            host=host,
            port=port,
        ) from error
    if ssl_context is not None and transport.get_extra_info("ssl_object") is None:
        # A dialer that ignores the context would send the password in plaintext. (faults: H17)
        transport.abort()
        raise TlsError(f"{address_of(host, port)}: the dialer returned a transport without TLS, and TLS is required")


def _set_options(
    sock: socket.socket | None, send_buffer_bytes: int, receive_buffer_bytes: int, keepalive_s: float | None
) -> None:
    if sock is None:
        return
    with contextlib.suppress(OSError):  # both loops set it already, and it fails if the peer has reset the connection
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # not essential: it finds idle connections whose peer is gone (faults: N7)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Else the first probe comes after two hours, long after the connection was closed as idle; and a balancer drops an
        # idle connection silently after some minutes, which costs the next record a request timeout.
        for name, value in _probes(keepalive_s):
            sock.setsockopt(socket.IPPROTO_TCP, name, value)
    if send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)


def _probes(keepalive_s: float | None) -> list[tuple[int, int]]:
    """Return the options of TCP keepalive that this platform has."""
    if keepalive_s is None:
        return []
    idle_s = min(max(1, round(keepalive_s)), 32_767)  # the most that Linux takes
    wanted = (
        (
            "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE",
            idle_s,
        ),  # macOS has its own name for it
        ("TCP_KEEPINTVL", max(1, idle_s // PROBES)),
        ("TCP_KEEPCNT", PROBES),
    )
    return [(getattr(socket, name), value) for name, value in wanted if hasattr(socket, name)]
