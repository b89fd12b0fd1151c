"""`Throttle`: the time in which a broker reads nothing from a connection (KIP-219), and the tasks that wait for its end.

One per connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokprod.liveness import STALLED_S, Stall


class Throttle:
    """The throttle of one connection: off at first, on from `last_until` until the time given there.

    Args:
        loop: the event loop of the connection.
        ended: called when a throttle has ended by itself, not when it is stopped.
    """

    __slots__ = ("_ended", "_ends_at", "_loop", "_timer", "_waiting", "is_on")

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        self.is_on = False
        self._loop = loop
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0
        self._waiting: list[asyncio.Future[None]] = []

    def last_until(self, end: float) -> None:
        """Turn the throttle on until `end`, which replaces an earlier end."""
        former = self._timer
        self._timer = self._loop.call_at(end, self._end)  # first: without it the throttle would last for ever
        self.is_on, self._ends_at = True, end
        if former is not None:
            former.cancel()

    def stall(self, now: float) -> Stall | None:
        """Return a stall if the throttle is over, and nothing ends it."""
        if not self.is_on or (self._timer is not None and self._ends_at > now - STALLED_S):
            return None
        return Stall("a throttle is over, and the connection still obeys it", self, self._timer, self._end)

    def stop(self) -> None:
        """Turn the throttle off because the connection has ended: waiters wake, and `ended` is not called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_on = False
        self._wake()

    async def over(self) -> None:
        """Wait until the throttle ends or is stopped."""
        # Asked again after each wake: a request sent by an earlier waiter may have been answered with a new throttle.
        while self.is_on:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def _end(self) -> None:
        self._timer = None
        self.is_on = False
        self._wake()
        self._ended()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
