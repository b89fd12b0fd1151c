"""`BootstrapServers`: the addresses the user gave, as nodes that the pool can dial, and the last error of each.

One per start of a `ClusterClient`. A server has a negative id, because its broker id is unknown; an address keeps its
negative id as long as the client lives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from aiokprod.cluster.hosts import address_of
from aiokprod.cluster.metadata.snapshot import BrokerNode
from aiokprod.errors import AiokprodError, BootstrapError, ConnectionLostError

Address: TypeAlias = tuple[str, int]

Expand: TypeAlias = Callable[[Sequence[Address]], Awaitable[Sequence[Address]]]
"""A function from the addresses given to those to dial (KIP-235); may raise an `AiokprodError`."""


class BootstrapServers:
    """The bootstrap servers of a client.

    Args:
        servers: host and port of each; repeated ones count once (`# faults: N18`).
        expand: resolves names as `client_dns_lookup` says; None uses the addresses as they are.
    """

    def __init__(self, servers: Sequence[Address], expand: Expand | None = None) -> None:
        self._servers = list(dict.fromkeys(servers))
        self._expand = expand
        self._ids: dict[Address, int] = {}
        self.causes: dict[Address, AiokprodError] = {}  # the error of the last attempt at each address

    async def nodes(self) -> list[BrokerNode]:
        """Return the current servers; names are resolved at each call.

        Raises:
            AiokprodError: no name can be resolved.
        """
        addresses: Sequence[Address] = self._servers
        if self._expand is not None:
            try:
                addresses = await self._expand(self._servers)
            except AiokprodError as error:
                for address in self._servers:
                    self.causes[address] = error
                raise
        return [
            BrokerNode(id=self._ids.setdefault((host, port), -1 - len(self._ids)), host=host, port=port)
            for host, port in addresses
        ]

    def addresses(self) -> list[tuple[str, int, int]]:
        """Return host, port and id of every address that `nodes` has returned so far."""
        return [(host, port, node_id) for (host, port), node_id in self._ids.items()]

    def failed(self, host: str, port: int, cause: AiokprodError) -> None:
        """Note that an attempt to use this address failed."""
        self.causes[host, port] = cause

    def are_unreachable(self) -> bool:
        """Return whether the last attempt at every address found no connection: refused, unresolvable, or too slow."""
        addresses = self._ids or self._servers  # a name that could not be resolved yet has no id
        return all(isinstance(self.causes.get(address), ConnectionLostError) for address in addresses)

    def error(self, why: str) -> BootstrapError:
        """Return an error that names every address with the error of its last attempt."""
        addresses = dict.fromkeys([*self._servers, *self._ids] if self._expand is None else self._ids or self._servers)
        tried = [
            (host, port, self.causes.get((host, port), ConnectionLostError("no answer yet", host=host, port=port)))
            for host, port in addresses
        ]
        texts: list[str] = []
        for host, port, cause in tried:
            begins = f"{address_of(host, port)}: "
            texts.append(begins + _told(cause).removeprefix(begins))
        error = BootstrapError(f"{why}; tried " + "; ".join(texts), tried=tried)
        last = tried[-1][2]
        # What a dial adds to the system's error is in the text: its traceback would say it all a third time.
        error.__cause__ = (
            last.__cause__ if isinstance(last, ConnectionLostError) and last.__cause__ is not None else last
        )
        return error

    def __repr__(self) -> str:
        return f"<BootstrapServers {', '.join(address_of(*each) for each in self._servers)}>"


def _told(cause: AiokprodError) -> str:
    """Return the error's text without the facts in brackets, which would repeat the address."""
    return cause.message
