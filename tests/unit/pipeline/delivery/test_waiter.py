"""Waiters: a task awaits one as it would a future, and all waiters of an outcome are woken together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar
from types import MethodType

import pytest
from rig import run, started
from source_points import each_fault

from aiokprod.pipeline.delivery.waiter import Calls, DoneCallback, SharedCallback, Waiter, Wakeable, wake

WHO: ContextVar[str] = ContextVar("caller")
BOX: ContextVar[list[int]] = ContextVar("box")


class Awaited:
    """An awaitable that awaits a waiter as a Delivery does."""

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter

    def __await__(self):  # type: ignore[no-untyped-def]
        yield self.waiter


async def waiting(names: str) -> tuple[list[Waiter], list[asyncio.Task[None]], list[str]]:
    """Start a task for each name, which waits and then adds the name from its context to the list."""
    woken: list[str] = []
    waiters = [Waiter(asyncio.get_running_loop()) for _ in names]

    async def wait(name: str, waiter: Waiter) -> None:
        WHO.set(name)
        await Awaited(waiter)
        woken.append(WHO.get())

    tasks = [asyncio.ensure_future(wait(name, waiter)) for name, waiter in zip(names, waiters, strict=True)]
    await asyncio.sleep(0)
    return waiters, tasks, woken


def settled(waiters: list[Waiter]) -> list[Wakeable]:
    together: list[Wakeable] = []
    for waiter in waiters:
        waiter.settle(None, together)
    return together


async def wake_soon(waiters: Sequence[Wakeable]) -> None:
    """Wake them from the loop, as always: a task cannot run inside another."""
    asyncio.get_running_loop().call_soon(wake, list(waiters))
    await asyncio.sleep(0)


def test_tasks_go_on_in_their_order_each_in_its_own_context() -> None:
    async def scenario() -> None:
        waiters, tasks, woken = await waiting("abc")
        await wake_soon(settled(waiters))
        assert woken == ["a", "b", "c"]
        await asyncio.gather(*tasks)

    run(scenario())


def test_a_waiter_is_woken_once() -> None:
    async def scenario() -> None:
        waiters, tasks, woken = await waiting("a")
        assert len(settled(waiters)) == 1
        assert settled(waiters) == []
        assert waiters[0].cancel() is False
        await wake_soon(waiters)
        await wake_soon(waiters)
        assert woken == ["a"]
        await tasks[0]

    run(scenario())


def test_a_cancelled_task_leaves_the_others_waiting() -> None:
    async def scenario() -> None:
        waiters, tasks, woken = await waiting("abc")
        tasks[1].cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert not tasks[0].done() and not tasks[2].done()
        await wake_soon(settled(waiters))
        assert woken == ["a", "c"]
        await asyncio.gather(tasks[0], tasks[2])

    run(scenario())


def test_a_task_cancelled_between_outcome_and_waking_ends_cancelled() -> None:
    async def scenario() -> None:
        waiters, tasks, woken = await waiting("ab")
        together = settled(waiters)
        tasks[0].cancel()
        await wake_soon(together)
        assert woken == ["b"]
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]

    run(scenario())


def test_an_interruption_of_the_waking_does_not_take_the_others_with_it() -> None:
    async def scenario() -> None:
        woken: list[int] = []

        def told(number: int) -> None:
            woken.append(number)
            if number == 1:
                raise KeyboardInterrupt

        waiters = [Waiter(asyncio.get_running_loop()) for _ in range(4)]
        for number, waiter in enumerate(waiters):
            waiter.add_done_callback(lambda _, number=number: told(number))
        with pytest.raises(KeyboardInterrupt):
            wake(settled(waiters))
        assert woken == [0, 1]
        await asyncio.sleep(0)
        assert woken == [0, 1, 2, 3]

    run(scenario())


def test_awaited_by_what_is_no_task_it_says_so() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=1_000) as (_, producer):
            steps = producer.send("t", b"v").__await__()
            next(steps)
            with pytest.raises(RuntimeError, match="no asyncio task"):
                next(steps)

    run(scenario())


def test_callbacks_run_in_their_context_and_a_broken_one_is_told_to_the_loop() -> None:
    async def scenario() -> None:
        loop, told, called = asyncio.get_running_loop(), [], []
        loop.set_exception_handler(lambda _, context: told.append(context))

        def call(handle: object) -> None:
            called.append((handle, WHO.get()))

        def broken(_: object) -> None:
            raise asyncio.CancelledError("broken")

        def named(name: str) -> Context:
            context = Context()
            context.run(WHO.set, name)
            return context

        functions = [call, broken, call]
        callbacks = [DoneCallback(f, loop, named("abc"[n]), False) for n, f in enumerate(functions)]
        await wake_soon([Calls(callback, n) for n, callback in enumerate(callbacks)])
        assert called == [(0, "a"), (2, "c")]
        ((message, error),) = [(context["message"], context["exception"]) for context in told]
        assert "broken" in message and str(error) == "broken"

    run(scenario())


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_leaves_keeps_no_task_asleep(leaving: type[BaseException]) -> None:
    called: list[object] = []

    def leave(_: object) -> None:
        raise leaving

    loop = asyncio.new_event_loop()
    try:
        leaves, calls = (DoneCallback(f, loop, Context(), False) for f in (leave, called.append))
        woken: list[Wakeable] = []
        leaves.settle(0, woken)
        calls.settle(1, woken)
        calls.settle(2, woken)
        assert len(woken) == 2
        loop.call_soon(wake, woken)
        with pytest.raises(leaving):
            loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
    assert called == [1, 2]


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
def test_a_function_that_leaves_is_called_for_the_other_handles_too(leaving: type[BaseException]) -> None:
    called: list[int] = []

    def leave_once(handle: int) -> None:
        called.append(handle)
        if handle == 1:
            raise leaving

    loop = asyncio.new_event_loop()
    try:
        callback, after = (DoneCallback(f, loop, Context(), True) for f in (leave_once, called.append))
        woken: list[Wakeable] = []
        for handle in range(4):
            callback.settle(handle, woken)
        after.settle(4, woken)
        loop.call_soon(wake, woken)
        with pytest.raises(leaving):
            loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
    assert sorted(called) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("leaving", "place"),
    [(SystemExit, "handler"), (KeyboardInterrupt, "handler"), (SystemExit, "repr"), (LookupError, "repr")],
)
def test_an_error_on_the_way_to_the_exception_handler_keeps_no_handle_waiting(
    leaving: type[BaseException], place: str
) -> None:
    called: list[int] = []

    class FailsFirst:
        def __call__(self, handle: int) -> None:
            called.append(handle)
            if handle == 0:
                raise ValueError

        def __repr__(self) -> str:
            if place == "repr":
                raise leaving
            return "FailsFirst()"

    def fail_fast(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        if place == "handler":
            raise leaving

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(fail_fast)
    try:
        callback = DoneCallback(FailsFirst(), loop, Context(), True)
        woken: list[Wakeable] = []
        for handle in range(3):
            callback.settle(handle, woken)
        loop.call_soon(wake, woken)
        for _ in range(2):
            loop.call_soon(loop.stop)
            with contextlib.suppress(SystemExit, KeyboardInterrupt):  # others go to the exception handler
                loop.run_forever()
    finally:
        loop.close()
    assert called == [0, 1, 2]


class Named:
    """A callable that is equal to others of its name, and makes methods of itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a function of the user is not compared")

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, service: object, handle: object) -> None: ...


def test_methods_are_one_only_if_their_functions_are() -> None:
    loop = asyncio.new_event_loop()
    service, other, one, two = object(), object(), Named("a"), Named("a")
    try:
        shared = SharedCallback()
        first = shared.of(MethodType(one, service), loop)
        assert shared.of(MethodType(one, service), loop) is first
        assert shared.of(MethodType(two, service), loop) is not first
        second = shared.of(MethodType(one, service), loop)
        assert shared.of(MethodType(one, other), loop) is not second
        third = shared.of([].append, loop)
        assert shared.of(MethodType(one, service), loop) is not third
    finally:
        loop.close()


def test_one_callback_is_shared_while_the_function_and_the_context_stay_the_same() -> None:
    loop = asyncio.new_event_loop()
    shared, calls = SharedCallback(), list[object]()

    def call(handle: object) -> None:
        calls.append((handle, WHO.get("unset")))

    def of(function: Callable[[object], object]) -> DoneCallback:
        return shared.of(function, loop)

    first = of(call)
    assert of(call) is first
    assert of(calls.append) is of(calls.append), "a bound method is another object each time it is looked up"
    second = of(call)
    assert second is not first and second.context is first.context
    token = WHO.set("a")
    named = of(call)
    assert named.context is not first.context and of(call) is named
    WHO.reset(token)
    assert of(call).context is not named.context
    for callback in (first, named):
        Calls(callback, 0).run()
    assert calls == [(0, "unset"), (0, "a")]
    loop.close()


def test_values_that_are_equal_are_not_taken_for_the_same_object() -> None:
    loop = asyncio.new_event_loop()
    shared = SharedCallback()
    BOX.set([])
    first = shared.of(print, loop)
    BOX.set([])
    assert shared.of(print, loop) is not first
    loop.close()


def test_no_call_sees_what_another_call_of_a_shared_callback_sets() -> None:
    loop = asyncio.new_event_loop()
    seen: list[str] = []

    def call(handle: str) -> None:
        seen.append(WHO.get("none"))
        WHO.set(handle)

    callback = SharedCallback().of(call, loop)
    woken: list[Wakeable] = []
    for handle in "abc":
        callback.settle(handle, woken)
    wake(woken)
    assert seen == ["none"] * 3 and WHO.get("none") == "none"
    loop.close()


def test_calls_in_an_empty_context_see_nothing_of_each_other_and_a_broken_one_stops_none() -> None:
    loop, seen, told = asyncio.new_event_loop(), list[tuple[int, str]](), list[object]()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    def call(handle: int) -> None:
        seen.append((handle, WHO.get("none")))
        if handle % 4 == 1:
            WHO.set(f"set by {handle}")
        if handle % 4 == 2:
            WHO.reset(WHO.set("for a moment"))
        if handle % 4 == 3:
            WHO.set("and then broken")
            raise ValueError(handle)

    def settle() -> list[Wakeable]:
        callback, woken = SharedCallback().of(call, loop), list[Wakeable]()
        callback.settle(0, woken)
        callback.settle_all([1, 2, 3, 4, 5, 6], woken)
        callback.settle(7, woken)
        return woken

    (calls,) = Context().run(settle)
    calls.run()
    assert seen == [(handle, "none") for handle in range(8)]
    assert [str(error) for error in told] == ["3", "7"]
    loop.close()


class Listening(Wakeable):
    """A listener that notes its calls."""

    def __init__(self, name: str, called: list[str]) -> None:
        self.name = name
        self.called = called

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def run(self) -> None:
        if self.name not in self.called:
            self.called.append(self.name)


@pytest.mark.pure("the faults come between lines of the sources")
def test_an_interrupt_between_two_lines_of_the_waking_loses_no_listener() -> None:
    """An interrupt before the first one left all of them asleep: tasks waited for ever, callbacks were never called."""

    async def scenario() -> None:
        faults = 0
        for fault in each_fault(KeyboardInterrupt, inside="wake"):
            called: list[str] = []
            listeners: list[Wakeable] = [Listening(name, called) for name in "abc"]
            with fault:
                wake(listeners)
            await asyncio.sleep(0)
            if fault.function == "wake" and fault.has_begun:
                faults += 1
                assert called == ["a", "b", "c"], fault
        assert faults > 5

    run(scenario())
