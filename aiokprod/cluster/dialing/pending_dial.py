"""`PendingDial`: a dial and the futures that wait for it. Made by the pool, one per broker and purpose at a time.

`DialPlaces`: the limit of dials at a time. One per pool.
"""

from __future__ import annotations

import asyncio
from collections import deque

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.errors import AiokprodError


class PendingDial:
    """A dial, from the request for it to its outcome, and the futures that wait for it."""

    __slots__ = ("has_begun", "task", "waiters")

    def __init__(self) -> None:
        self.has_begun = False  # set by the pool when it connects; until then the dial waits for its backoff and place
        self.task: asyncio.Task[None] | None = None
        self.waiters: list[asyncio.Future[BrokerConnection]] = []

    def succeed(self, connection: BrokerConnection) -> None:
        """Give the connection to all waiting futures."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(connection)

    def fail(self, error: AiokprodError) -> None:
        """Give the error to all waiting futures, each a copy: a shared one would get a longer traceback with each raise."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error.clone())


class DialPlaces:
    """A semaphore for dials with two queues: brokers that failed before wait behind all that have not.

    A dial of a silent address holds its place until its timeout. With one queue the few reachable brokers of an answer
    that names a thousand silent ones would wait for all of these, again and again.

    Args:
        count: the number of places.
    """

    def __init__(self, count: int) -> None:
        self._free = count  # 0 while a dial waits
        self._hopeful: deque[asyncio.Future[None]] = deque()
        self._failed: deque[asyncio.Future[None]] = deque()

    async def take(self, *, has_failed: bool) -> None:
        """Wait for a place; the caller must call `give_back`, also after an error.

        Cancellation: no place is taken.
        """
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._failed if has_failed else self._hopeful).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # `give_back` gave this dial the place in the turn in which the task was cancelled: pass it on, or the
                # number of places shrinks by one with each such cancellation.
                self.give_back()
            raise

    def give_back(self) -> None:
        """Pass the place of a dial that ended to the next one."""
        for line in (self._hopeful, self._failed):
            while line:
                place = line.popleft()
                if not place.done():  # cancelled dials stay in their queue until they come to its front
                    place.set_result(None)
                    return
        self._free += 1

    def __repr__(self) -> str:
        return f"<DialPlaces {self._free} free, {len(self._hopeful) + len(self._failed)} wait>"
