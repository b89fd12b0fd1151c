"""Links that keep a producer moving: `SoonCall`, a call that is due at most once, and `Stall`, work that stands still.

A mark ("a look is due", "an alarm is set") is written behind the call that makes it true; best of all it is what that call
has returned. Written before, an exception of the call would leave a mark without anything behind it, and each later call
would trust it. Any call may raise: at the end of the stack (RecursionError) or of the memory, or through a signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

STALLED_S: Final = 0.1
"""A timer that is later than this (s) does not come any more, unless the loop stood still: then it rings on the next turn.
Timers of loops are milliseconds late as a rule."""


class SoonCall:
    """A call on the next turn of the loop, one however often it is asked for."""

    __slots__ = ("_call", "_loop", "handle")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        self.handle: asyncio.Handle | None = None  # of the loop, while the call is due
        self._loop = loop
        self._call = call

    def set(self) -> None:
        """Call on the next turn of the loop, unless that is due already."""
        if self.handle is None:
            self.handle = self._loop.call_soon(self._run)

    def set_again(self) -> None:
        """Call on the next turn of the loop, whatever is due: the watch has found that it does not come."""
        self.handle = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self.handle = None
        self._call()

    def __repr__(self) -> str:
        return f"<SoonCall {'not due' if self.handle is None else 'due'}>"


class Stall:
    """Work that stands still, and that nothing would move: a defect of aiokprod.

    Args:
        what: what stands still, in words that follow "aiokprod has found that".
        owner: the object that does the work.
        mark: what would be another object if the work had moved on meanwhile; None: there is none.
        heal: moves it on. Without a stall it would do no harm.
    """

    __slots__ = ("heal", "mark", "owner", "what")

    def __init__(self, what: str, owner: object, mark: object, heal: Callable[[], object]) -> None:
        self.what = what
        self.owner = owner
        self.mark = mark
        self.heal = heal

    def is_same(self, other: Stall) -> bool:
        """Return whether the other one, found earlier, is this one: nothing has moved in between."""
        return self.owner is other.owner and self.mark is other.mark and self.what == other.what

    def __repr__(self) -> str:
        return f"<Stall: {self.what}>"
