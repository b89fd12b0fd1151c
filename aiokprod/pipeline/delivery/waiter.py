"""The listeners of a Delivery: the tasks that await it (`Waiter`) and its done callbacks (`DoneCallback`).

A future makes one call of the loop for each of them; those of a batch are woken by one call for all (`wake`), on the same
turn: of each Delivery first its tasks, then its done callbacks, both in the order in which they came.

A `DoneCallback` is a function and the context to call it in, without the Delivery: Deliveries of one batch that were given
the same function in the same context share one, so a callback for each record costs no object for each.

A `Waiter` is what a task awaits, in the place of an `asyncio.Future`: a task takes anything that has what a future has for
it (`_asyncio_future_blocking`, `get_loop`, `add_done_callback`, `cancel`, `result`).

Invariants, those of a future: a waiter is over once, by `settle` or by `cancel`; a task that is cancelled after `settle`
and before it has run gets its CancelledError. A waiter that has run references no task: in the compiled form waiters are
not tracked by the garbage collector, and a cycle through one would never be freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from types import BuiltinMethodType, MethodType
from typing import Any, Final

from aiokprod.forms import mypyc_attr


@mypyc_attr(acyclic=True)
class Wakeable:
    """A listener that waits for an outcome."""

    __slots__ = ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        raise AssertionError("abstract")

    def run(self) -> None:
        """Take in the outcome. Called by the loop."""
        raise AssertionError("abstract")


@mypyc_attr(acyclic=True)
class Listener(Wakeable):
    """An object that a Delivery notifies of its outcome."""

    __slots__ = ()

    def settle(self, handle: object, woken: list[Wakeable]) -> None:
        """Join those that are woken next: the outcome of the handle is known."""
        raise AssertionError("abstract")


@mypyc_attr(acyclic=True)
class Waiter(Listener):
    """The listener of one task, which adds its one callback as soon as it waits."""

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
        """Cancel the wait, as its task or its handle was; False if the task is about to run anyway."""
        if self.is_over:
            return False
        alone: list[Wakeable] = []
        self._loop.call_soon(wake, alone)  # first: a waiter that is over is not woken by anything else
        self.join_cancelled(msg, alone)
        return True

    def join_cancelled(self, msg: object, woken: list[Wakeable]) -> None:
        """Join those that are woken next, as cancelled: the handle was."""
        if not self.is_over:
            woken.append(self)
            self._is_cancelled, self._cancel_message, self.is_over = True, msg, True

    def result(self) -> None:
        """Return if the task may go on, else raise its cancellation. The task calls this when it is woken."""
        if self._is_cancelled:
            message = self._cancel_message
            raise asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    # ------------------------------------------------------------------ the Delivery's side
    def settle(self, handle: object, woken: list[Wakeable]) -> None:
        if not self.is_over:
            woken.append(self)
            self.is_over = True  # last: one that is over and in no list would never be woken

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
class DoneCallback(Listener):
    """A function that is called with each handle it was added to.

    Args:
        function: called with a handle, in `context`.
        context: the caller's own, or a copy of the context in which the callback was added.
        is_copy: True for a copy: each call gets a copy of its own, so that no call sees what another one sets.
    """

    __slots__ = ("context", "function", "is_copy", "loop")

    def __init__(
        self, function: Callable[[Any], object], loop: asyncio.AbstractEventLoop, context: Context, is_copy: bool
    ) -> None:
        self.function = function
        self.loop = loop
        self.context = context
        self.is_copy = is_copy

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def settle(self, handle: object, woken: list[Wakeable]) -> None:
        self.settle_all([handle], woken)

    def settle_all(self, handles: list[object], woken: list[Wakeable]) -> None:
        """Join those that are woken next, with several handles, one after another."""
        # Only to the last call: an earlier one of this function would let handles overtake those between.
        last = woken[-1] if woken else None
        if isinstance(last, Calls) and last.callback is self:
            if last.more is None:
                last.more = handles
            else:
                last.more += handles
        else:
            calls = Calls(self, handles[0])
            if len(handles) > 1:
                calls.more = handles[1:]
            woken.append(calls)

    def is_last_of(self, handle: object, woken: list[Wakeable]) -> bool:
        """Return whether this handle joined them last, with this callback."""
        last = woken[-1] if woken else None
        return isinstance(last, Calls) and last.callback is self and last.last_handle() is handle


@mypyc_attr(acyclic=True)
class Calls(Wakeable):
    """The calls of one done callback, with the handles whose outcomes became known together."""

    __slots__ = ("_handle", "_left", "callback", "more")

    def __init__(self, callback: DoneCallback, handle: object) -> None:
        self.callback = callback
        self._handle = handle
        self._left: Iterator[object] | None = None  # those that are not called yet, once the calls have begun
        # A program with a function for each record leaves it None: the list would be one more object for each.
        self.more: list[object] | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.callback.loop

    def last_handle(self) -> object:
        """Return the handle that joined last."""
        return self.more[-1] if self.more else self._handle

    def run(self) -> None:
        callback = self.callback
        function, context, is_copy = callback.function, callback.context, callback.is_copy
        left = self._left
        if left is None:
            handles = [self._handle]
            if self.more is not None:
                handles += self.more
            left = self._left = iter(handles)
        may_share = is_copy and self.more is not None and len(context) == 0
        # What is raised here, also by the exception handler or a `__repr__`, goes to `wake`, which runs it again, for the rest.
        for handle in left:
            # A copy for each: no call sees what another one sets.
            place = context.copy() if is_copy else context
            try:
                if may_share:
                    place.run(_call_while_empty, place, function, handle, left)
                else:
                    place.run(function, handle)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:  # the loop's exception handler decides, as with any callback
                message = f"Exception in callback {function!r}"
                callback.loop.call_exception_handler({"message": message, "exception": broken})


def _call_while_empty(
    context: Context, function: Callable[[Any], object], handle: object, left: Iterator[object]
) -> None:
    """Call a function with this handle, and with those left while no variable is set. Run in `context`, which is empty.

    A call that finds the context as it was when it was empty does not notice that others ran in it.
    """
    function(handle)
    while len(context) == 0:
        following = next(left, None)
        if following is None:
            return
        function(following)


class SharedCallback:
    """The done callback that was added last to a record of a batch, for the next records."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._last: DoneCallback | None = None
        self._count = 0  # variables in its context

    def of(self, function: Callable[[Any], object], loop: asyncio.AbstractEventLoop) -> DoneCallback:
        """Return the callback of this function in the current context: the last one, if it is the same."""
        context = copy_context()
        last = self._last
        if last is not None:
            count = self._count
            if len(context) == count and (not count or _is_same(last.context, context, count)):
                if last.function is function or _is_one_method(last.function, function):
                    return last
                context = last.context  # one for all: a context is an object that the garbage collector visits
        made = self._last = DoneCallback(function, loop, context, True)
        self._count = len(context)
        return made


MANY_VARIABLES: Final = 16  # comparing more would cost more than what it spares


def _is_same(known: Context, current: Context, count: int) -> bool:
    """Return whether two contexts of `count` variables hold the same variables, each with the same object as its value."""
    if count > MANY_VARIABLES:
        return False
    for variable, value in known.items():  # noqa: SIM110 - compiled, a generator would be an object
        # `known` is what `get` returns for a variable that is not there: no variable has it for its value.
        if current.get(variable, known) is not value:
            return False
    return True


def _is_one_method(known: Callable[[Any], object], current: Callable[[Any], object]) -> bool:
    """Return whether two callables are the same method of the same object: another object each time it is looked up.

    Other callables are not compared: they may have an `__eq__` of the user.
    """
    if isinstance(known, MethodType):
        # Not by `==`, which asks the functions: they may be callables of the user.
        return (
            isinstance(current, MethodType)
            and known.__func__ is current.__func__
            and known.__self__ is current.__self__
        )
    return type(known) is BuiltinMethodType and type(current) is BuiltinMethodType and known == current


def wake(woken: list[Wakeable]) -> None:
    """Let them know, in their order. Called by the loop; the list is empty then: after a crash it may be called twice."""
    try:
        for one in woken:
            one.run()
    except BaseException:
        # KeyboardInterrupt, SystemExit, wherever it came: all are woken again, and those that were have nothing left to do.
        if woken:
            again = woken.copy()
            again[0].get_loop().call_soon(wake, again)
        raise
    finally:
        woken.clear()
