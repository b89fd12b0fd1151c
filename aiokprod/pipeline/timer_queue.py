"""`TimerQueue`: many things to look at later, one timer of the loop.

There are three of them: batches whose linger ends or backoff is over, partitions whose oldest record expires, and records that
have waited for room or metadata as long as they may (`max_block_ms`). A late or needless call is harmless: what is
called looks at the facts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from aiokprod.liveness import STALLED_S, Stall

T = TypeVar("T")


class TimerQueue(Generic[T]):
    """A queue of items by the time they are due: it calls `due(item)` for each when that has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[T], None], most: int = 0) -> None:
        """Make an empty queue.

        Args:
            loop: its clock.
            due: called with each item.
            most: of the items that are due together, so many are called in one turn of the loop, and the others in the next
                turns; 0: all.
        """
        self._most = most
        self._loop = loop
        self._due = due
        self._heap: list[tuple[float, int, T]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # the handle does not always know: uvloop's has no when() for a time that has passed

    def set(self, at: float, item: T) -> None:
        """Look at `item` at time `at` (the loop's clock, seconds)."""
        if self._timer is None or at < self._timer_at:
            self._arm_at(at)  # first: if the loop does not take the timer, there is no item that waits for it
        heappush(self._heap, (at, next(self._order), item))

    def _arm_at(self, at: float) -> None:
        former = self._timer
        self._timer, self._timer_at = self._loop.call_at(at, self._wake), at
        if former is not None:
            former.cancel()  # behind the call: until then it rings

    def _arm(self) -> None:
        if self._heap:
            self._arm_at(self._heap[0][0])
        elif self._timer is not None:
            former, self._timer = self._timer, None
            former.cancel()

    def _wake(self) -> None:
        self._timer = None
        now = self._loop.time()
        left = self._most
        try:
            while self._heap and self._heap[0][0] <= now:
                item = heappop(self._heap)
                try:
                    self._due(item[2])
                except Exception:
                    raise  # a defect of ours: it would come again
                except (
                    BaseException
                ):  # KeyboardInterrupt comes between any two lines: what it stopped is done in the next turn
                    heappush(self._heap, item)
                    raise
                left -= 1
                if not left:
                    break
        finally:
            self._arm()  # the call may have set it already

    def stall(self, what: str, now: float) -> Stall | None:
        """Return a stall if the timer of the first item is missing, or has not rung; `what`: that stands still then."""
        if not self._heap or (self._timer is not None and self._timer_at > now - STALLED_S):
            return None
        return Stall(what, self, self._timer, self._arm)

    def stop(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._arm()

    def __len__(self) -> int:
        return len(self._heap)
