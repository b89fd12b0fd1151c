"""Who hears of the outcome of a Delivery: the tasks that await it (`Waiter`) and its done callbacks (`DoneCallback`).

A future has the loop call somebody for each of them; those of a batch are woken by one call for all (`wake`), on the same
turn and in the same order.

A `Waiter` is what a task awaits, in the place of an `asyncio.Future`: a task takes anything that has what a future has for
it (`_asyncio_future_blocking`, `get_loop`, `add_done_callback`, `cancel`, `result`).

Invariants, those of a future: a waiter is over once, by `settle` or by `cancel`; a task that is cancelled after `settle`
and before it has run gets its CancelledError. Who has run holds no task: compiled, the garbage collector does not know
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from aiokprod.forms import mypyc_attr


@mypyc_attr(acyclic=True)
class Wakeable:
    """Somebody who waits for an outcome."""

    __slots__ = ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        raise AssertionError("abstract")

    def run(self) -> None:
        """It is known. Called by the loop."""
        raise AssertionError("abstract")


@mypyc_attr(acyclic=True)
class Waiter(Wakeable):
    """Of one task, which adds its one callback as soon as it waits."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_callback",
        "_cancel_message",
        "_context",
        "_is_cancelled",
        "_loop",
        "is_over",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = True  # the task sets it to False: "taken"
        self.is_over = False
        self._loop = loop
        self._callback: Callable[[Waiter], object] | None = None
        self._context: Context | None = None
        self._is_cancelled = False
        self._cancel_message: object = None

    # ------------------------------------------------------------------ the task's side
    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, callback: Callable[[Waiter], object], context: Context | None = None) -> None:
        self._callback = callback
        self._context = context

    def cancel(self, msg: object = None) -> bool:
        """The task is cancelled, or the handle it awaits; False if it is about to run anyway."""
        if self.is_over:
            return False
        self.is_over = True
        self._is_cancelled = True
        self._cancel_message = msg
        alone: list[Wakeable] = [self]
        self._loop.call_soon(wake, alone)
        return True

    def result(self) -> None:
        """What the task asks when it is woken: may it go on?"""
        if self._is_cancelled:
            message = self._cancel_message
            raise asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    # ------------------------------------------------------------------ the Delivery's side
    def settle(self, woken: list[Wakeable]) -> None:
        """The outcome is known: it is among those who are woken next."""
        if not self.is_over:
            self.is_over = True
            woken.append(self)

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return  # not awaited by a task
        context = self._context
        if context is None:
            callback(self)
        else:
            context.run(callback, self)

    def __repr__(self) -> str:
        return f"<Waiter {'cancelled' if self._is_cancelled else 'over' if self.is_over else 'pending'}>"


@mypyc_attr(acyclic=True)
class DoneCallback(Wakeable):
    """A function that is called with the handle it was added to."""

    __slots__ = ("_context", "_handle", "_loop", "function")

    def __init__(
        self, function: Callable[[Any], object], handle: object, loop: asyncio.AbstractEventLoop, context: Context
    ) -> None:
        self.function = function
        self._handle = handle
        self._loop = loop
        self._context = context

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def run(self) -> None:
        try:
            self._context.run(self.function, self._handle)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as broken:  # what becomes of it is for the loop to say, as with any callback
            message = f"Exception in callback {self.function!r}"
            self._loop.call_exception_handler({"message": message, "exception": broken})


def wake(woken: list[Wakeable]) -> None:
    """Let them know, in their order. Called by the loop."""
    for position, one in enumerate(woken):
        try:
            one.run()
        except BaseException:  # KeyboardInterrupt, SystemExit: the others are woken all the same
            if position + 1 < len(woken):
                one.get_loop().call_soon(wake, woken[position + 1 :])
            raise
