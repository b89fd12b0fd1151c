"""`Watch`: finds work that stands still though nothing would move it, and moves it on. One per pipeline.

    housekeeping, each half second -> Backend.stalls -> some turns of the loop -> Backend.stalls -> what both have is healed

A producer moves by what it has scheduled: calls of the loop, timers, tasks, requests that are answered. If such a link is
missing, through an exception in the wrong place or a defect of ours, records wait without an error until they expire, or
for ever. docs/design.md ("The watch") has the invariants: what must be due between any two turns of the loop. What breaks
them is a defect of aiokprod, whatever has led to it, and is reported as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from aiokprod.forms import mypyc_attr
from aiokprod.liveness import SoonCall, Stall
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.pipeline.partition.defects import Defects
from aiokprod.pipeline.partition.ports import RecordQueue

TURNS: Final = 10
"""Turns of the loop between two looks: what is due is done within one or two, also where the loop stood still for long."""


@mypyc_attr(native_class=False)
class Heals:
    """The heals of all watches of this process. Kept in our tests, which fail if there is one that they did not plant."""

    kept: ClassVar[list[str] | None] = None


class Watch:
    """The search for what stands still."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        log: StateLog,
        defects: Defects,
        find: Callable[[Sequence[RecordQueue], float], list[Stall]],
        crashed: Callable[[BaseException], None],
    ) -> None:
        """Make the watch.

        Args:
            loop: of the pipeline.
            metrics: count what is healed.
            log: is told of it, once for each kind.
            defects: take what a look raises: it changes nothing.
            find: returns what stands still, among these partitions too, at a time of the loop.
            crashed: takes what a heal raises.
        """
        self._loop = loop
        self._metrics = metrics
        self._log = log
        self._defects = defects
        self._find = find
        self._crashed = crashed
        self._suspects: list[Stall] = []  # found by the first look
        self._busy: Sequence[RecordQueue] = ()
        self._left = 0  # turns until the second look
        self._turn = SoonCall(loop, self._turned)
        self._told: set[str] = set()

    def look(self, busy: Sequence[RecordQueue]) -> None:
        """Look for what stands still; `busy`: the partitions with records. What is found is looked at again, and healed then.

        Its cost is that of the partitions and brokers that have work, and never that of records.
        """
        try:
            self._suspects = self._find(busy, self._loop.time())
        except Exception as bug:
            self._suspects = []
            self._defects.caught("the watch", bug)
            return
        if self._suspects:
            self._busy, self._left = busy, TURNS
            self._turn.set_again()

    def _turned(self) -> None:
        self._left -= 1
        if self._left > 0:
            self._turn.set()
        elif not self._left:
            self._heal()

    def _heal(self) -> None:
        suspects, self._suspects = self._suspects, []
        busy, self._busy = self._busy, ()
        healed = ""
        try:
            found = self._find(busy, self._loop.time())
        except Exception as bug:
            self._defects.caught("the watch", bug)
            return
        try:
            for stall in found:
                # One kind at a time, causes first: a lost timer also leaves a partition standing.
                if not healed or healed == stall.what:
                    for suspect in suspects:
                        if stall.is_same(suspect):
                            healed = stall.what
                            stall.heal()
                            self._tell(healed)
                            break
        except Exception as bug:
            self._crashed(bug)

    def _tell(self, what: str) -> None:
        self._metrics.stalls_healed.add(1)
        if what not in self._told:
            self._told.add(what)
            self._log.healed(what)
        if Heals.kept is not None:
            Heals.kept.append(what)

    def stop(self) -> None:
        """Look no more: what has ended stands still."""
        self._suspects, self._busy, self._left = [], (), 0

    def __repr__(self) -> str:
        return f"<Watch: {len(self._suspects)} suspects, {sorted(self._told)} healed>"
