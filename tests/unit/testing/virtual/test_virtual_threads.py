"""Work for threads is a step of virtual time: nothing of it is a thread, and the same seed is the same run."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from anyio._backends._asyncio import AsyncIOBackend

from aiokprod.testing.virtual import VirtualLimitError, VirtualLoop, VirtualNetwork, run_virtual

CALLER = contextvars.ContextVar("CALLER", default="none")


async def by_executor(call: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def by_asyncio(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)


async def by_anyio(call: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(call)


Way = Callable[[Callable[[], Any]], Awaitable[Any]]
ways = pytest.mark.parametrize("way", [by_executor, by_asyncio, by_anyio])


def played(scenario: Callable[[], Awaitable[Any]], *, seed: int = 1, shuffled: bool = True) -> Any:
    async def play(network: VirtualNetwork, random: Random) -> Any:
        return await scenario()

    return run_virtual(play, seed=seed, shuffled=shuffled)


@pytest.fixture(autouse=True)
def no_thread_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise AssertionError(f"{thread} is a real one")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@ways
def test_work_is_done_in_a_step_without_a_loop_and_told_later(way: Way) -> None:
    async def scenario() -> None:
        def work() -> str:
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            return "done"

        loop = asyncio.get_running_loop()
        assert await way(work) == "done"
        assert asyncio.get_running_loop() is loop

    for seed in range(5):
        played(scenario, seed=seed)


@ways
def test_an_error_is_told_as_a_result_is(way: Way) -> None:
    async def scenario() -> None:
        def fail(error: BaseException) -> None:
            raise error

        with pytest.raises(ZeroDivisionError):
            await way(lambda: fail(ZeroDivisionError()))
        with pytest.raises(SystemExit):
            await way(lambda: fail(SystemExit(3)))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await way(lambda: fail(StopIteration()))
        with pytest.raises(RuntimeError, match="cannot wait for the loop"):
            await way(lambda: fail(VirtualLimitError("it cannot wait for the loop")))

    played(scenario)


@ways
def test_an_interrupt_of_the_user_ends_the_run(way: Way) -> None:
    async def scenario() -> None:
        def interrupted() -> None:
            raise KeyboardInterrupt

        await way(interrupted)

    with pytest.raises(KeyboardInterrupt):
        played(scenario)
    asyncio.run(asyncio.sleep(0))  # no loop is left running


@ways
def test_time_passes_or_not_while_a_thread_works(way: Way) -> None:
    async def scenario() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        began, at = loop.time(), 0.0

        def work() -> None:
            nonlocal at
            at = loop.time() - began

        await way(work)
        return at, loop.time() - began

    seen = [played(scenario, seed=seed) for seed in range(60)]
    assert seen == [played(scenario, seed=seed) for seed in range(60)]
    assert any(at == told == 0 for at, told in seen), "a thread may be quick"
    assert any(0 == at < told for at, told in seen) and any(0 < at == told for at, told in seen)
    assert max(told for _, told in seen) > 0.01


def test_the_variables_of_the_caller_are_known_as_in_a_thread() -> None:
    async def scenario() -> list[str]:
        CALLER.set("caller")

        def work() -> str:
            name = CALLER.get()
            CALLER.set("changed")
            return name

        found = [await way(work) for way in (by_executor, by_asyncio, by_anyio)]
        assert CALLER.get() == "caller"
        return found

    assert played(scenario) == ["none", "caller", "caller"]


def test_an_executor_begins_in_order_and_works_on_no_more_than_it_has_workers_for() -> None:
    async def scenario() -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        begun: list[int] = []
        told: list[int] = []

        async def one(executor: ThreadPoolExecutor, number: int) -> None:
            told.append(await loop.run_in_executor(executor, lambda: (begun.append(number), number)[1]))

        with ThreadPoolExecutor(1) as alone:
            await asyncio.gather(*(one(alone, number) for number in range(10)))
            assert begun == told == list(range(10))
        begun.clear()
        told.clear()
        with ThreadPoolExecutor(4) as several:
            await asyncio.gather(*(one(several, number) for number in range(10)))
        assert begun == told, "what is done first is told first"
        assert begun[0] < 4
        return tuple(begun)

    orders = {played(scenario, seed=seed, shuffled=False) for seed in range(20)}
    assert len(orders) > 5


def test_a_limiter_of_anyio_is_obeyed() -> None:
    async def scenario() -> None:
        limiter = anyio.CapacityLimiter(2)
        most = 0

        async def one() -> None:
            nonlocal most

            def work() -> None:
                nonlocal most
                most = max(most, int(limiter.borrowed_tokens))

            await anyio.to_thread.run_sync(work, limiter=limiter)

        await asyncio.gather(*(one() for _ in range(10)))
        assert most == 2 and limiter.borrowed_tokens == 0

    played(scenario)


@ways
def test_work_that_is_cancelled_in_time_is_not_begun_and_later_goes_on_unheard(way: Way) -> None:
    async def scenario() -> bool:
        done: list[bool] = []
        task = asyncio.ensure_future(way(lambda: done.append(True)))
        await asyncio.sleep(0.0005)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert outcome is None or isinstance(outcome, asyncio.CancelledError)
        before = bool(done)
        await asyncio.sleep(1)
        assert bool(done) == before, "not begun after it was cancelled"
        return before

    assert {played(scenario, seed=seed) for seed in range(40)} == {True, False}


def test_a_scope_of_anyio_waits_for_its_thread_unless_it_may_be_abandoned() -> None:
    async def scenario() -> None:
        for may_abandon in (True, False):
            done: list[bool] = []
            with anyio.move_on_after(0.0005) as scope:
                await anyio.to_thread.run_sync(lambda: done.append(True), abandon_on_cancel=may_abandon)  # noqa: B023
            assert done or (may_abandon and scope.cancelled_caught)

    for seed in range(40):
        played(scenario, seed=seed)


def test_work_knows_when_its_scope_was_cancelled() -> None:
    async def scenario() -> bool:
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_later(0.0005, scope.cancel)
            await anyio.to_thread.run_sync(anyio.from_thread.check_cancelled)
        return scope.cancel_called

    assert {played(scenario, seed=seed) for seed in range(40)} == {True, False}


def test_work_calls_the_loop_and_does_not_wait_for_it() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def calls_back() -> None:
            loop.call_soon_threadsafe(called.set_result, 1)

        called = loop.create_future()
        await asyncio.to_thread(calls_back)
        assert await called == 1
        found = await anyio.to_thread.run_sync(anyio.from_thread.run_sync, asyncio.get_running_loop)
        assert found is loop
        for wait in (
            lambda: anyio.from_thread.run(asyncio.sleep, 0),
            lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(),
        ):
            with pytest.raises(VirtualLimitError, match="cannot wait for the loop"):
                await anyio.to_thread.run_sync(wait)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop))  # from the loop it can be

    played(scenario)


def test_a_loop_of_its_own_may_run_in_a_thread() -> None:
    async def scenario() -> float:
        async def inner() -> float:
            return asyncio.get_running_loop().time()

        return float(await asyncio.to_thread(asyncio.run, inner()))

    assert played(scenario) > 0


def test_a_run_leaves_anyio_as_it_was_and_threads_of_other_loops_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("run_sync_in_worker_thread", "run_sync_from_thread", "run_async_from_thread")
    before = [vars(AsyncIOBackend)[name] for name in names]
    monkeypatch.undo()  # threads may be made

    async def elsewhere() -> tuple[int, int]:
        async def main() -> int:
            return threading.get_ident()

        there = await anyio.to_thread.run_sync(threading.get_ident)
        assert await anyio.to_thread.run_sync(anyio.from_thread.run, main) == threading.get_ident()
        assert await anyio.to_thread.run_sync(anyio.from_thread.run_sync, threading.get_ident) == threading.get_ident()
        return threading.get_ident(), there

    async def scenario() -> None:
        assert [vars(AsyncIOBackend)[name] for name in names] != before
        here, there = await asyncio.to_thread(asyncio.run, elsewhere())
        assert here != there

    played(scenario)
    assert [vars(AsyncIOBackend)[name] for name in names] == before


def test_a_loop_without_a_run_does_the_work_on_a_later_turn() -> None:
    loop = VirtualLoop()
    try:
        assert loop.run_until_complete(loop.run_in_executor(None, lambda: 7)) == 7
        assert loop.time() == 0
    finally:
        loop.close()
