"""`Lookups`: look-ups of brokers' names, a few at a time. One per start of a client.

A look-up takes a thread, which cannot be stopped: a dial that times out leaves its look-up behind, and the next dial begins
another one. So each counts until it ends, or a Metadata answer with many names that resolve slowly would take all threads
that the application has (`# faults: N17`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from aiokprod.cluster.dialing.dns import Address

LookUp: TypeAlias = Callable[[], Awaitable[Sequence[Address]]]


class Lookups:
    """A limit of look-ups at a time.

    Args:
        count: the number of look-ups that may run.
        spawn: starts a task; its owner cancels the tasks when the client closes, and does not wait for the threads.
    """

    def __init__(self, count: int, spawn: Callable[[Coroutine[Any, Any, None], str], object]) -> None:
        self._places = asyncio.Semaphore(count)
        self._spawn = spawn

    async def run(self, look_up: LookUp, name: str) -> Sequence[Address]:
        """Wait for a place, do the look-up in a task of this name, and return what it returns or raise what it raises.

        Cancellation: a look-up that has begun runs on, and its result is discarded.
        """
        await self._places.acquire()
        outcome: asyncio.Future[Sequence[Address]] = asyncio.get_running_loop().create_future()
        self._spawn(self._run(look_up, outcome), name)
        return await outcome

    async def _run(self, look_up: LookUp, outcome: asyncio.Future[Sequence[Address]]) -> None:
        try:
            found = await look_up()
        except Exception as error:
            if not outcome.done():
                outcome.set_exception(error)
        else:
            if not outcome.done():
                outcome.set_result(found)
        finally:
            self._places.release()
