"""`MemoryBroker`: when the records of a `MemoryProducer` have their outcome. One per start of a producer.

Two turns of the loop later, never within `send`: a task made of `wait()` awaits the Delivery by then. In the order of the
sends over all partitions, unless a delay keeps some of them back. One timer for all partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from aiokprod.testing.memory.partition import MemoryPartition
from aiokprod.testing.memory.pending import PendingRecord
from aiokprod.testing.memory.script import Script


class MemoryBroker:
    """The broker of a `MemoryProducer`, which decides when records have their outcome."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, script: Script, crashed: Callable[[BaseException], None]
    ) -> None:
        self.partitions: list[MemoryPartition] = []
        self._loop = loop
        self._script = script
        self._crashed = crashed
        self._count = 0  # records that came
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0

    def came(self, record: PendingRecord) -> None:
        """Give the record to its partition now."""
        record.number = self._count
        self._count += 1
        self.look_at(self._loop.time())

    def look_at(self, at: float) -> None:
        """Look at the records at that time (loop time, seconds), when one may have its outcome; never within this call."""
        before = self._timer
        if before is not None and self._timer_at <= at:
            return
        soon = at <= self._loop.time()
        timer: asyncio.Handle = self._loop.call_soon(self._next_turn) if soon else self._loop.call_at(at, self.pump)
        self._timer, self._timer_at = timer, at
        if before is not None:
            before.cancel()

    def _next_turn(self) -> None:
        """Let tasks that were made behind `send` take their first step: else their failures would count as not awaited."""
        self._timer = self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Give every record its outcome whose time has come; note when to look again."""
        self.stop()
        now = self._loop.time()
        try:
            self._answer(now)
        except Exception as bug:  # no delivery may hang
            self._crashed(bug)
            return
        heads = [head for partition in self.partitions if (head := partition.head()) is not None]
        if heads:
            self.look_at(min(head.deadline if self._script.is_held else head.next_at for head in heads))

    def _answer(self, now: float) -> None:
        heads: list[tuple[int, int]] = []
        for place, partition in enumerate(self.partitions):
            while (head := partition.head()) is not None and head.deadline <= now:
                partition.expire_head()
            if head is not None:
                heads.append((head.number, place))
        if self._script.is_held:
            return
        heapify(heads)
        while heads:
            _, place = heappop(heads)
            partition = self.partitions[place]
            head = partition.head()
            if head is None or head.due_at > now:
                continue
            partition.answer_head(now)
            following = partition.head()
            if following is not None:
                heappush(heads, (following.number, place))

    def stop(self) -> None:
        """Look at nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
