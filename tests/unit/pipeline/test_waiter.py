"""Waiters: to a task what a future is; woken together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context, ContextVar

import pytest
from rig import run, started

from aiokprod.pipeline.waiter import DoneCallback, Waiter, Wakeable, wake

WHO: ContextVar[str] = ContextVar("who")


class Awaited:
    """Awaits a waiter as a Delivery does."""

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter

    def __await__(self):  # type: ignore[no-untyped-def]
        yield self.waiter


async def waiting(names: str) -> tuple[list[Waiter], list[asyncio.Task[None]], list[str]]:
    """A task for each name, which waits and then adds what it knows of itself to the list."""
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
        waiter.settle(together)
    return together


async def wake_soon(waiters: Sequence[Wakeable]) -> None:
    """By the loop, as always: a task cannot go on within another."""
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


def test_who_interrupts_the_waking_does_not_take_the_others_with_it() -> None:
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
        await wake_soon([DoneCallback(f, n, loop, named("abc"[n])) for n, f in enumerate(functions)])
        assert called == [(0, "a"), (2, "c")]
        ((message, error),) = [(context["message"], context["exception"]) for context in told]
        assert "broken" in message and str(error) == "broken"

    run(scenario())


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_leaves_keeps_nobody_asleep(leaving: type[BaseException]) -> None:
    called: list[object] = []

    def leave(_: object) -> None:
        raise leaving

    loop = asyncio.new_event_loop()
    try:
        woken: list[Wakeable] = [DoneCallback(f, n, loop, Context()) for n, f in enumerate([leave, called.append])]
        loop.call_soon(wake, woken)
        with pytest.raises(leaving):
            loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
    assert called == [1]
