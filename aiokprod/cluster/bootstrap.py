"""`BootstrapServers`: the addresses the user gave, as nodes the pool can dial, and what became of dialling them.

One per start of a `ClusterClient`. A server has a negative id, for nobody has said which broker it is; an address keeps
its id as long as the client lives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from aiokprod.cluster.snapshot import BrokerNode
from aiokprod.errors import AiokprodError, BootstrapError, ConnectionLostError

Address: TypeAlias = tuple[str, int]

Expand: TypeAlias = Callable[[Sequence[Address]], Awaitable[Sequence[Address]]]
"""Turns the addresses given into those to dial (KIP-235); may raise an `AiokprodError`."""


class BootstrapServers:
    """Where to begin.

    Args:
        servers: host and port of each; repeated ones count once (`# faults: N18`).
        expand: for `client_dns_lookup`; None takes the addresses as they are.
    """

    def __init__(self, servers: Sequence[Address], expand: Expand | None = None) -> None:
        self._servers = list(dict.fromkeys(servers))
        self._expand = expand
        self._ids: dict[Address, int] = {}
        self.causes: dict[Address, AiokprodError] = {}  # what the last attempt at each address failed of

    async def nodes(self) -> list[BrokerNode]:
        """The servers of now; names are looked up anew each time.

        Raises:
            AiokprodError: not one name can be resolved.
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
        """Host, port and id of every address dialled so far."""
        return [(host, port, node_id) for (host, port), node_id in self._ids.items()]

    def failed(self, host: str, port: int, cause: AiokprodError) -> None:
        """An attempt to use this address failed."""
        self.causes[host, port] = cause

    def error(self, why: str) -> BootstrapError:
        """An error that names every address with what its last attempt failed of."""
        addresses = dict.fromkeys([*self._servers, *self._ids] if self._expand is None else self._ids or self._servers)
        tried = [
            (host, port, self.causes.get((host, port), ConnectionLostError("no answer yet", host=host, port=port)))
            for host, port in addresses
        ]
        texts = [f"{host}:{port}: {_told(cause).removeprefix(f'{host}:{port}: ')}" for host, port, cause in tried]
        error = BootstrapError(f"{why}; tried " + "; ".join(texts), tried=tried)
        error.__cause__ = tried[-1][2]
        return error

    def __repr__(self) -> str:
        return f"<BootstrapServers {', '.join(f'{host}:{port}' for host, port in self._servers)}>"


def _told(cause: AiokprodError) -> str:
    """Its text without the facts in brackets: the address is told once."""
    return cause.message
