"""`VirtualLoop`: an asyncio event loop without sockets and without waiting. One per virtual run.

When nothing is ready the clock jumps to the next timer, so a minute of timeouts takes a moment. With a seed the ready
callbacks run in a drawn order: those of one object (a task, a connection, a stage) stay in theirs, as asyncio promises
it to whoever schedules them, those of different objects are mixed.

Invariants: nothing here reads a real clock or makes a thread; the same seed gives the same order. A loop with nothing
ready and no timer has deadlocked, and says so at once.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

EPOCH_S: Final = 1_700_000_000.0
"""What the wall clock shows when a virtual run begins, seconds since 1970."""

MOST_TURNS: Final = 5_000_000
"""A run that needs more turns of the loop spins."""


class DeadlockError(RuntimeError):
    """Everybody waits and nothing will ever happen, or the loop spins without end."""


class _JumpingSelector:
    """Stands where BaseEventLoop waits for sockets: jumps the clock instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set: whoever waits now waits for ever")
        self._loop.jump(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Time as a number, order as a draw.

    Args:
        random: draws the order of ready callbacks; None keeps asyncio's own.
    """

    def __init__(self, random: Random | None = None) -> None:
        super().__init__()
        self._selector = _JumpingSelector(self)
        self._now = 0.0
        self._random = random
        self._turns = 0
        self.faults: list[dict[str, Any]] = []  # what reached the loop's exception handler
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    # ------------------------------------------------------------------ time
    def time(self) -> float:
        return self._now

    def wall_s(self) -> float:
        """The wall clock of the run, seconds since 1970."""
        return EPOCH_S + self._now

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        if seconds > 0:
            self._now += seconds

    # ------------------------------------------------------------------ order
    def _run_once(self) -> None:
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise DeadlockError(f"{MOST_TURNS} turns of the loop: something spins")
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if self._random is not None and len(ready) > 1:
            mixed = _mixed(ready, self._random)
            ready.clear()
            ready.extend(mixed)
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There is nobody to wake: the loop never waits."""

    # ------------------------------------------------------------------ threads
    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """No threads: the work is done on a later turn of the loop."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as failed:
                future.set_exception(failed)

        self.call_soon(work)
        return future


def _mixed(ready: deque[asyncio.Handle], random: Random) -> list[asyncio.Handle]:
    """The handles in a drawn order in which those of one owner keep theirs."""
    lines: dict[int, deque[asyncio.Handle]] = {}
    for handle in ready:
        lines.setdefault(_owner(handle), deque()).append(handle)
    if len(lines) == 1:
        return list(ready)
    waiting = list(lines.values())
    mixed: list[asyncio.Handle] = []
    while waiting:
        at = random.randrange(len(waiting))
        line = waiting[at]
        mixed.append(line.popleft())
        if not line:
            waiting[at] = waiting[-1]
            waiting.pop()
    return mixed


def _owner(handle: asyncio.Handle) -> int:
    callback = handle._callback  # type: ignore[attr-defined]
    while isinstance(callback, functools.partial):
        callback = callback.func
    return id(getattr(callback, "__self__", callback))
