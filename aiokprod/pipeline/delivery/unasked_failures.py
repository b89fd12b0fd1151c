"""`UnaskedFailures`: failures that nothing waited for when they happened, kept for their callers for a while. One per pipeline.

A failure has one answer. A caller that asks its Delivery within `GRACE_S` has it; what has not been asked for by then goes to
`on_delivery_error` and to the log (`UnhandledErrors`), once, and a Delivery that is asked later raises an error whose
`reported` is True.

    fails, unwatched -> Unasked in the line -> asked for: the caller has it
                                            -> GRACE_S later, line too long, end of the pipeline: reported

Records that fail together are one `Unasked`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from aiokprod.pipeline.delivery.unasked import Tally, Unasked
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors

GRACE_S: Final = 5.0
"""How long a failure waits for its caller (s)."""
MOST_RECORDS: Final = 100_000
"""Failures that are kept; beyond that the oldest are reported at once."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of records that are kept for `on_delivery_error` with them; beyond that the oldest are reported at once."""
MOST_AT_ONCE: Final = 1_000
"""Failures that are reported in one turn of the loop, when their time is over."""
SHORTEST_S: Final = 0.001  # uvloop rounds shorter times, down to the next turn of the loop


class UnaskedFailures:
    """The line of what is kept, in the order of the failures, and the timer of the first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, unhandled: UnhandledErrors) -> None:
        self.tally = Tally()
        self._loop = loop
        self._unhandled = unhandled
        self._line: deque[tuple[float, Unasked]] = deque()  # with the end of its time (loop time)
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def keep(self, unasked: Unasked) -> None:
        """Keep these failures for their callers. Outside of every state change: older ones may be reported."""
        if self._has_ended:
            self._report(unasked)
        elif unasked.left:
            self._line.append((self._loop.time() + GRACE_S, unasked))
            tally = self.tally
            while self._line and (tally.records > MOST_RECORDS or tally.size_bytes > MOST_BYTES):
                self._report(self._line.popleft()[1])
            self._wait()

    def _wait(self) -> None:
        """Set the timer of the first, unless it is set."""
        if self._timer is None and self._line:
            left_s = self._line[0][0] - self._loop.time()
            self._timer = self._loop.call_later(max(SHORTEST_S, left_s), self._look)

    def _look(self) -> None:
        """Report what was not asked for in time, a part in each turn of the loop."""
        self._timer = None
        try:
            now = self._loop.time() + SHORTEST_S
            line = self._line
            count = 0
            while line and line[0][0] <= now and count < MOST_AT_ONCE:
                unasked = line.popleft()[1]
                count += max(1, unasked.left)
                self._report(unasked)
        finally:
            self._wait()

    def end(self, *, at_once: bool = False) -> None:
        """Report all that is kept, and keep nothing from now on; `at_once`: without another turn of the loop."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._line:
            self._report(self._line.popleft()[1], at_once=at_once)

    def _report(self, unasked: Unasked, *, at_once: bool = False) -> None:
        report = unasked.take()
        if report is None:
            return
        error, count, kept, errors = report
        if at_once:
            self._unhandled.report_at_once(error, count, kept, errors)
        else:
            self._unhandled.report(error, count, kept, errors)

    def __repr__(self) -> str:
        return f"<UnaskedFailures {self.tally.records} records>"
