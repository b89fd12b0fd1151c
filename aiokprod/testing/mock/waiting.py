"""Waiting for partitions to change: the one place where a handler's answer is held back.

Called by Produce (acks=all) and Fetch (long poll). Invariant: when `until` has returned or was cancelled, nothing of
it is left at the partitions or in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiokprod.testing.mock.partition import Partition


async def until(partitions: Iterable[Partition], is_done: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `is_done()`, looking after each change of a partition.

    Returns:
        Whether it was done before the timeout. Cancelling only stops the waiting.
    """
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[bool] = loop.create_future()

    def settle(outcome: bool) -> None:
        if not finished.done():
            finished.set_result(outcome)

    def look() -> None:
        if is_done():
            settle(True)

    watched = list(partitions)
    for partition in watched:
        partition.watchers.add(look)
    timer = loop.call_later(timeout_s, settle, False)
    try:
        look()
        return await finished
    finally:
        timer.cancel()
        for partition in watched:
            partition.watchers.discard(look)
