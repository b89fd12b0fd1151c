"""`PendingDial`: a connection on its way, and who waits for it. Made by the pool, one per broker and purpose at a time."""

from __future__ import annotations

import asyncio

from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.snapshot import BrokerNode
from aiokprod.errors import AiokprodError


class PendingDial:
    """A connection on its way, and who waits for it."""

    __slots__ = ("node", "task", "waiters")

    def __init__(self) -> None:
        self.node: BrokerNode | None = None  # once it has begun; before, it waits for the backoff
        self.task: asyncio.Task[None] | None = None
        self.waiters: list[asyncio.Future[BrokerConnection]] = []

    def succeed(self, connection: BrokerConnection) -> None:
        """Tell whoever waits."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(connection)

    def fail(self, error: AiokprodError) -> None:
        """Tell whoever waits; each gets an error of its own, for shared tracebacks grow."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error.clone())
