"""`WorkCount`: the work of each single callback of the loop, in function calls. For tests that limit it.

    with loop.counting_work() as work:
        await scenario()
    assert work.most < 10_000, work.most_of

Counted are calls from Python code, to Python functions and to built-in ones, and each resumption of a coroutine: a loop
that calls something counts with each pass, one that calls nothing counts as nothing. The callback in which counting begins
is not counted. No clock is read, so the number is
the same each time. What mypyc has compiled calls unseen: count in the pure form. It makes everything about three times
slower, and takes the place of another `sys.setprofile` function meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from types import FrameType, TracebackType
from typing import Any, Final, Self

from aiokprod.testing.virtual.handles import describe

_RUN: Final = asyncio.Handle._run.__code__


class WorkCount:
    """A context that counts calls on the thread that entered it."""

    def __init__(self) -> None:
        self.callbacks = 0
        """Callbacks of the loop that have begun."""
        self.calls = 0
        """Calls, of all callbacks together."""
        self.most = 0
        """Calls of the callback that made the most."""
        self._most_handle: asyncio.Handle | None = None
        self._handle: asyncio.Handle | None = None
        self._began_at = 0
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = sys.getprofile()
        sys.setprofile(self._count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(self._before)
        self._ended()

    @property
    def most_of(self) -> str:
        """A description of that callback: a task and where it waits now, or a function and its object."""
        return "" if self._most_handle is None else describe(self._most_handle)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is _RUN and event in ("call", "return"):
            self._ended()
            if event == "call":
                self.callbacks += 1
                self._handle = frame.f_locals["self"]
                self._began_at = self.calls
        elif self._handle is not None and event in ("call", "c_call"):
            self.calls += 1

    def _ended(self) -> None:
        calls = self.calls - self._began_at
        if calls > self.most:
            self.most, self._most_handle = calls, self._handle
        self._handle = None
