"""`PendingDial`: a connection on its way, and who waits for it. Made by the pool, one per broker and purpose at a time.

`DialPlaces`: how many of them are under way at once. One per pool.
"""

from __future__ import annotations

import asyncio
from collections import deque

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


class DialPlaces:
    """So many dials at once; the others wait in line, those whose broker has failed before behind all that have not.

    A broker that keeps silent has its place for as long as a dial may take, so in one line the few honest brokers of an
    answer that names a thousand others would wait for all of these, again and again.

    Args:
        count: of places.
    """

    def __init__(self, count: int) -> None:
        self._free = count  # 0 while anybody waits
        self._hopeful: deque[asyncio.Future[None]] = deque()
        self._failed: deque[asyncio.Future[None]] = deque()

    async def take(self, *, has_failed: bool) -> None:
        """Wait for a place; give it back in any case.

        Cancellation: none is taken.
        """
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._failed if has_failed else self._hopeful).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it came in the same turn
                self.give_back()
            raise

    def give_back(self) -> None:
        """A dial has ended: the next one in line begins."""
        for line in (self._hopeful, self._failed):
            while line:
                place = line.popleft()
                if not place.done():
                    place.set_result(None)
                    return
        self._free += 1

    def __repr__(self) -> str:
        return f"<DialPlaces {self._free} free, {len(self._hopeful) + len(self._failed)} wait>"
