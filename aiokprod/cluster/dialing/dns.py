"""Resolution of names to addresses (`client.dns.lookup`): done for every dial, in a thread while there are threads.

Stateless. `use_all_dns_ips` gives every address of a name, to be tried in order;
`resolve_canonical_bootstrap_servers_only` also replaces each bootstrap address by its canonical names (KIP-235), which
Kerberos and certificates by host name need when one alias stands for all brokers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from aiokprod.cluster.hosts import address_of, can_be_host, without_brackets
from aiokprod.errors import ConnectionLostError
from aiokprod.logs import printable
from aiokprod.program import has_ended

LOCAL: Final = (OSError, ValueError, TypeError, OverflowError, RuntimeError)
"""Errors of this machine during a dial: no descriptor or thread left, an empty or overlong label in a name, an address
family that the kernel does not have. They fail that dial, and the next one may succeed (`# faults: N21`)."""

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""The argument of `socket.connect`: IPv4, or IPv6 with flow and scope."""


class Address(NamedTuple):
    """One address to dial."""

    family: socket.AddressFamily
    socket_address: SocketAddress

    @property
    def port(self) -> int:
        return self.socket_address[1]

    @property
    def numeric_host(self) -> str:
        """The address as text for `getaddrinfo`: a link-local IPv6 address names its link."""
        host = self.socket_address[0]
        scope = self.socket_address[3] if len(self.socket_address) == 4 else 0
        return f"{host}%{scope}" if scope and "%" not in host else host

    def __str__(self) -> str:
        return address_of(*self.socket_address[:2])


Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
ReverseResolver: TypeAlias = Callable[[Address], Awaitable[str | None]]


async def resolve(host: str, port: int) -> list[Address]:
    """Return every address of a name, in the resolver's order, without repetition.

    Cancellation: only the wait ends; the thread that asks the system's resolver runs on until it answers.

    Raises:
        ConnectionLostError: the name has no address at present.
    """
    try:
        if has_ended():
            found = socket.getaddrinfo(without_brackets(host), port, type=socket.SOCK_STREAM)
        else:
            found = await asyncio.get_running_loop().getaddrinfo(without_brackets(host), port, type=socket.SOCK_STREAM)
    except LOCAL as error:
        raise ConnectionLostError(
            f"{address_of(host, port)}: the name cannot be resolved: {printable(error)}", host=host, port=port
        ) from error
    addresses = [
        Address(socket.AddressFamily(family), socket_address)  # type: ignore[arg-type]
        for family, _, _, _, socket_address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]
    if not addresses:
        raise ConnectionLostError(
            f"{address_of(host, port)}: the name has no IPv4 or IPv6 address", host=host, port=port
        )
    return list(dict.fromkeys(addresses))


async def canonical_name(address: Address) -> str | None:
    """Return the name that reverse resolution gives for an address; None if there is none."""
    try:
        if has_ended():
            name, _ = socket.getnameinfo(address.socket_address, socket.NI_NAMEREQD)
        else:
            name, _ = await asyncio.get_running_loop().getnameinfo(address.socket_address, socket.NI_NAMEREQD)
    except LOCAL:
        return None
    # The owner of the address chose the name: it is logged and dialled, so it must look like one. (faults: H14, H16)
    return name if can_be_host(name) else None


async def canonical_servers(
    servers: Sequence[tuple[str, int]],
    *,
    resolver: Resolver = resolve,
    reverse_resolver: ReverseResolver = canonical_name,
) -> list[tuple[str, int]]:
    """Return the bootstrap servers by their canonical names: each address of a server becomes a server (KIP-235).

    An address without a name is kept as an address; a server that cannot be resolved is left out.

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
            name = await reverse_resolver(address)
            expanded[(name or address.socket_address[0], port)] = None
    if not expanded:
        raise ConnectionLostError("; ".join(str(failure) for failure in failures))
    return list(expanded)
