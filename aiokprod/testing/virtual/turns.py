"""`Turns`: counts the turns of a virtual loop, and finds out when it spins and which callbacks do. One per loop.

Time passes only when nothing is ready. So tasks that wake each other again and again, or one that polls a clock between
`sleep(0)`s, stop it: what a real loop would leave after a while goes on for ever.
"""

from __future__ import annotations

from asyncio import Handle, TimerHandle
from collections import Counter
from collections.abc import Iterable
from typing import Final

from aiokprod.testing.virtual.handles import describe

MOST_TURNS: Final = 5_000_000
"""A run that needs more turns of the loop than this is taken for an endless loop."""
MOST_TURNS_AT_ONCE: Final = 100_000
"""The same for turns without a step of the clock."""
TURNS_TOLD: Final = 50
"""The error lists the callbacks of this number of turns."""
MOST_TOLD: Final = 10


class DeadlockError(RuntimeError):
    """An error of a run in which every task waits for ever, or the loop spins without end."""


class Turns:
    """The turns of a loop."""

    def __init__(self) -> None:
        self._instant = 0.0
        self._at_once = 0
        self._altogether = 0
        self._seen: Counter[str] = Counter()

    def begin(self, now: float, ready: Iterable[Handle], timers: Iterable[TimerHandle]) -> None:
        """Count a turn.

        Raises:
            DeadlockError: it is one too many.
        """
        self._altogether += 1
        if now != self._instant:
            self._instant, self._at_once = now, 0
            self._seen.clear()
        self._at_once += 1
        if self._at_once <= MOST_TURNS_AT_ONCE - TURNS_TOLD and self._altogether <= MOST_TURNS - TURNS_TOLD:
            return
        if self._at_once > MOST_TURNS_AT_ONCE:
            self._spins(f"{MOST_TURNS_AT_ONCE} turns of the loop at one instant, {now:.6f} s")
        if self._altogether > MOST_TURNS:
            self._spins(f"{MOST_TURNS} turns of the loop")
        due = [timer for timer in timers if timer.when() <= now]
        self._seen.update(describe(handle) for handle in (*ready, *due) if not handle.cancelled())

    def _spins(self, count: str) -> None:
        told = [f"{times} x {what}" for what, times in self._seen.most_common(MOST_TOLD)]
        self._at_once = self._altogether = 0  # cleaning up gets a count of its own
        self._seen.clear()
        raise DeadlockError("\n  ".join([f"{count}: something spins. Ready in its last {TURNS_TOLD} turns:", *told]))
