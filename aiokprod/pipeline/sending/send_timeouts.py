"""`SendTimeouts`: the per-send timeouts (`send(..., timeout=)`). One per pipeline.

Timeouts may all differ (`timeout=deadline - now`), so the deliveries stand in a heap by the time they are due, and what
has settled has to leave it before its time: nothing tells when that happens, so the heap is looked through bit by bit.
There are two of them. New deliveries go into the young one; from the end of the old one, a place from which anything can
be taken out of a heap, a few are taken whenever a new one comes: a settled one is dropped, a pending one goes to the
young heap. When the old heap is empty the two change places. While nothing comes, a timer looks on. So what is kept is a
small multiple of what is pending, and no settled delivery or batch is kept for its timeout.

Tens of thousands may be due at one time: they are told in slices, and the loop turns between two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Final

from aiokprod.liveness import STALLED_S, Stall
from aiokprod.pipeline.delivery.delivery import Delivery

LOOKED_AT: Final = 2  # for each delivery that comes: the old heap is through before the young one is as long
KEPT: Final = 100  # so few are not looked at
SLICE: Final = 500  # deliveries that time out in one callback of the loop
LOOK_EVERY_S: Final = 0.1
SHORTEST_S: Final = 0.001  # uvloop rounds shorter times, down to the next turn of the loop
LOOKED_AT_ONCE: Final = 1_000  # by the timer

Due = tuple[float, int, Delivery]
"""The time when it is due (loop time), its number in the order of the sends, and the Delivery that it is for."""


class SendTimeouts:
    """The timer that calls `timed_out(delivery)` for each delivery without an outcome when its timeout is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timed_out: Callable[[Delivery], None]) -> None:
        self._loop = loop
        self._timed_out = timed_out
        self._young: list[Due] = []
        self._old: list[Due] = []
        self._number = 0
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._looks_on = False  # the timer rings before anything is due
        self._looked_at = loop.time()  # by the timer

    def set(self, sent_at: float, timeout_s: float, delivery: Delivery) -> None:
        """Look at the delivery when its timeout (seconds from `sent_at`, loop time) is over."""
        if len(self) >= KEPT:
            self._look(LOOKED_AT)
        due_at = sent_at + timeout_s
        if self._timer is None or due_at < self._timer_at or (len(self) >= KEPT and not self._looks_on):
            # One that is over at once is told two turns of the loop later, when a task made of `wait()` awaits the Delivery.
            # First: if the loop does not take the timer, nothing waits for it.
            self._arm(self._arm, due_at)
        self._number += 1
        heappush(self._young, (due_at, self._number, delivery))

    def _look(self, count: int) -> None:
        """Look at `count` of the timeouts, and drop those of settled records."""
        for _ in range(count):
            if not self._old:
                self._old, self._young = self._young, self._old
                if not self._old:
                    return
            due = self._old.pop()
            if not due[2].done():
                heappush(self._young, due)

    def _first(self) -> list[Due]:
        """Return the heap with the earliest timeout; it is empty if there is none."""
        if self._old and (not self._young or self._old[0] < self._young[0]):
            return self._old
        return self._young

    def _arm(self, is_due: Callable[[], None] | None = None, next_at: float = inf) -> None:
        """Set the timer; `next_at`: when what comes next is due."""
        former = self._timer
        first = self._first()
        if first or next_at < inf:
            now, at = self._loop.time(), min(first[0][0], next_at) if first else next_at
            looks_on = len(self) + (next_at < inf) > KEPT
            if looks_on:
                at = min(at, now + LOOK_EVERY_S)
            if is_due is not None and at < now + SHORTEST_S:
                self._timer = self._loop.call_soon(is_due)
            elif at <= now:
                self._timer = self._loop.call_soon(self._ring)  # the next slice
            else:
                self._timer = self._loop.call_at(at, self._ring)
            self._timer_at, self._looks_on = at, looks_on
        else:
            self._timer = None
        if former is not None:
            former.cancel()  # behind the call: if the loop does not take the new one, this one still rings

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        try:
            for _ in range(SLICE):
                first = self._first()
                if not first or first[0][0] > now:
                    if now - self._looked_at >= LOOK_EVERY_S:  # and not whenever one of many different ones is due
                        self._looked_at = now
                        self._look(min(LOOKED_AT_ONCE, len(self) - KEPT))
                    break
                due = heappop(first)
                try:
                    if not due[2].done():
                        self._timed_out(due[2])
                except Exception:
                    raise  # a defect of ours: it would come again
                except (
                    BaseException
                ):  # KeyboardInterrupt comes between any two lines: what it stopped is done in the next turn
                    heappush(self._young, due)
                    raise
        finally:
            self._arm()

    def stall(self, now: float) -> Stall | None:
        """Return a stall if the timer of the first timeout is missing, or has not rung."""
        if not len(self) or (self._timer is not None and self._timer_at > now - STALLED_S):
            return None
        return Stall("the timeout of a send is over, and nothing looks at it", self, self._timer, self._arm)

    def stop(self) -> None:
        """Stop: nothing times out any more."""
        self._young.clear()
        self._old.clear()
        self._arm()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
