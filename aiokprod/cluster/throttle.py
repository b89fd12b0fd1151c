"""`Throttle`: the time in which a broker reads nothing from a connection (KIP-219), and who waits for its end.

One per connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Throttle:
    """Off until `last_until`; off again after it.

    Args:
        loop: of the connection.
        ended: called when a throttle has ended by itself.
    """

    __slots__ = ("_ended", "_loop", "_timer", "_waiting", "is_on")

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        self.is_on = False
        self._loop = loop
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def last_until(self, end: float) -> None:
        """Be on until then, whatever the end was before."""
        self.is_on = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(end, self._end)

    def stop(self) -> None:
        """The connection is over: nobody waits any longer, and nobody is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_on = False
        self._wake()

    async def over(self) -> None:
        """Wait for the end, or for `stop`."""
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
