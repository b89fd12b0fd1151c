"""`SendTimeouts`: the per-send timeouts (`send(..., timeout=)`). One per pipeline.

Records with the same timeout are due in the order in which they were sent, so they stand in one line per timeout, and
what has its outcome leaves the front of the line when the next one comes: a line is as long as what is under way, not
as what was sent within the timeout, and no delivery or batch is kept alive for its alarm.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiokprod.pipeline.alarm import Alarm
from aiokprod.pipeline.delivery import Delivery

LOOKED_AT = 2  # settled deliveries that leave the front for each that comes: the line shrinks faster than it grows


class Line:
    """Deliveries with one timeout, by the time they are due."""

    __slots__ = ("due", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.due: deque[tuple[float, Delivery]] = deque()


class SendTimeouts:
    """Calls `timed_out(delivery)` for what has no outcome when its timeout is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timed_out: Callable[[Delivery], None]) -> None:
        self._timed_out = timed_out
        self._lines: dict[float, Line] = {}
        self._alarm: Alarm[Line] = Alarm(loop, self._ring)
        self._clock = loop.time

    def set(self, sent_at: float, timeout_s: float, delivery: Delivery) -> None:
        """Look at the delivery when its timeout (seconds from `sent_at`, loop time) is over."""
        line = self._lines.get(timeout_s)
        if line is None:
            line = self._lines[timeout_s] = Line(timeout_s)
            self._alarm.set(sent_at + timeout_s, line)
        due = line.due
        for _ in range(LOOKED_AT):
            if not due or not due[0][1].done():
                break
            due.popleft()
        due.append((sent_at + timeout_s, delivery))

    def _ring(self, line: Line) -> None:
        """The alarm of a line is set for its first delivery, or for one that has left it: then it is set anew."""
        due, now = line.due, self._clock()
        while due and (due[0][0] <= now or due[0][1].done()):
            _, delivery = due.popleft()
            if not delivery.done():
                self._timed_out(delivery)
        if due:
            self._alarm.set(due[0][0], line)
        else:
            del self._lines[line.timeout_s]

    def stop(self) -> None:
        """Nothing times out any more."""
        self._alarm.stop()
        self._lines.clear()

    def __len__(self) -> int:
        return sum(len(line.due) for line in self._lines.values())
