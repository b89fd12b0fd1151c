"""Names to addresses (`client.dns.lookup`): asked anew on every dial, never on the loop's own time.

Stateless. `use_all_dns_ips` gives every address of a name, to be tried in order;
`resolve_canonical_bootstrap_servers_only` also turns each bootstrap address into the canonical names behind it
(KIP-235), which Kerberos and certificates by host name need when one alias stands for all brokers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiokprod.errors import ConnectionLostError
from aiokprod.logs import printable

LOCAL: Final = (OSError, ValueError, TypeError, OverflowError, RuntimeError)
"""What a dial can meet on this machine: no descriptor or thread left, an empty or overlong label in a name, a family of
addresses that the kernel does not have. It fails that dial, and the next one may succeed (`# faults: N21`)."""

HOST: Final = re.compile(r"[A-Za-z0-9\-._:\[\]%]{1,255}")
"""Names (the longest has 253 characters), IPv4 and IPv6 addresses, with brackets and zone or without (`# faults: H16`)."""

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""What `socket.connect` takes: IPv4, or IPv6 with flow and scope."""


@dataclass(frozen=True, slots=True)
class Address:
    """One place to dial."""

    family: socket.AddressFamily
    socket_address: SocketAddress

    @property
    def port(self) -> int:
        return self.socket_address[1]

    @property
    def numeric_host(self) -> str:
        """As `getaddrinfo` takes it: an IPv6 address of one link names the link."""
        host = self.socket_address[0]
        scope = self.socket_address[3] if len(self.socket_address) == 4 else 0
        return f"{host}%{scope}" if scope and "%" not in host else host

    def __str__(self) -> str:
        host, port = self.socket_address[:2]
        return f"[{host}]:{port}" if self.family == socket.AF_INET6 else f"{host}:{port}"


Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
ReverseResolver: TypeAlias = Callable[[Address], Awaitable[str | None]]


async def resolve(host: str, port: int) -> list[Address]:
    """Every address of a name, in the resolver's order, without repetition.

    Cancelling stops waiting; the thread that asks the system's resolver goes on alone until it answers.

    Raises:
        ConnectionLostError: the name has no address now.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(without_brackets(host), port, type=socket.SOCK_STREAM)
    except LOCAL as error:
        raise ConnectionLostError(
            f"{host}:{port}: the name cannot be resolved: {printable(error)}", host=host, port=port
        ) from error
    addresses = [
        Address(socket.AddressFamily(family), socket_address)  # type: ignore[arg-type]
        for family, _, _, _, socket_address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]
    if not addresses:
        raise ConnectionLostError(f"{host}:{port}: the name has no IPv4 or IPv6 address", host=host, port=port)
    return list(dict.fromkeys(addresses))


async def canonical_name(address: Address) -> str | None:
    """The name an address goes by; None if it has none."""
    try:
        name, _ = await asyncio.get_running_loop().getnameinfo(address.socket_address, socket.NI_NAMEREQD)
    except LOCAL:
        return None
    return name if can_be_host(name) else None


async def canonical_servers(
    servers: Sequence[tuple[str, int]],
    *,
    resolver: Resolver = resolve,
    reverse_resolver: ReverseResolver = canonical_name,
) -> list[tuple[str, int]]:
    """Bootstrap servers by their canonical names: each address of each server becomes a server of its own (KIP-235).

    An address without a name stands for itself; a server that cannot be resolved is left out.

    Raises:
        ConnectionLostError: none of them can be resolved; the text has each one's reason.
    """
    expanded: dict[tuple[str, int], None] = {}
    failures: list[ConnectionLostError] = []
    for host, port in servers:
        try:
            addresses = await resolver(host, port)
        except ConnectionLostError as error:
            failures.append(error)
            continue
        for address in addresses:
            name = await reverse_resolver(address)  # chosen by the owner of the address
            expanded[(name or address.socket_address[0], port)] = None
    if not expanded:
        raise ConnectionLostError("; ".join(str(failure) for failure in failures))
    return list(expanded)


def can_be_host(text: str) -> bool:
    """True if this can be a name or an address. Asked of hosts from the network before they are dialled, kept or logged."""
    return HOST.fullmatch(text) is not None


def without_brackets(host: str) -> str:
    """`[::1]` as the resolver and certificates want it: `::1`."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_ip(host: str) -> bool:
    """Is this an address and not a name?"""
    try:
        ipaddress.ip_address(without_brackets(host).partition("%")[0])
    except ValueError:
        return False
    return True
