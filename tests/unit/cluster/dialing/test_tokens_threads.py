"""Providers of tokens that are plain functions: each call has a thread, which nothing has to wait for."""

from __future__ import annotations

import asyncio
import threading

import pytest
from both_loops import Run, both_loops

from aiokprod.cluster.dialing import tokens as tokens_module
from aiokprod.cluster.dialing.tokens import TokenSource
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.errors import AuthenticationError


async def refused(taking: asyncio.Future[object]) -> str:
    with pytest.raises(AuthenticationError) as raised:
        await taking
    return str(raised.value)


def test_no_thread_for_a_plain_function_is_an_authentication_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # faults: N21
    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        source = TokenSource(lambda: "t")
        monkeypatch.setattr(tokens_module.threading.Thread, "start", no_thread)
        assert "could not be called in a thread: RuntimeError" in await refused(asyncio.ensure_future(source.take()))

    asyncio.run(scenario())


def test_when_the_program_has_ended_a_plain_function_is_called_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[int] = []

    def provide() -> str:
        called.append(threading.get_ident())
        return "token"

    async def scenario() -> None:
        monkeypatch.setattr(tokens_module, "has_ended", lambda: True)
        await TokenSource(provide).take()

    asyncio.run(scenario())
    assert called == [threading.get_ident()]


@both_loops
def test_a_function_that_blocks_does_not_hold_the_loop(run: Run) -> None:  # faults: S14
    let_go = threading.Event()
    threads: list[threading.Thread] = []

    def block() -> str:
        threads.append(threading.current_thread())
        assert let_go.wait(30.0)
        return "t"

    async def scenario() -> None:
        source = TokenSource(block)
        taking = asyncio.ensure_future(source.take())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not taking.done()
        let_go.set()
        assert (await taking).token.reveal() == "t"

    run(scenario())
    (thread,) = threads
    assert thread.daemon and thread is not threading.main_thread()


@both_loops
def test_a_function_that_never_returns_does_not_hold_the_end_of_the_loop(run: Run) -> None:  # faults: S14
    begun, let_go, done = threading.Event(), threading.Event(), threading.Event()

    def block() -> str:
        begun.set()
        let_go.wait(30.0)
        done.set()
        return "t"

    async def scenario() -> None:
        crashes: list[BaseException] = []
        tasks = OwnedTasks(crashes.append)
        source = TokenSource(block).owned(tasks.spawn)
        taking = asyncio.ensure_future(source.take())
        while not begun.is_set():
            await asyncio.sleep(0)
        source.close()
        await tasks.close()
        assert "client is closed" in await refused(taking)
        assert not crashes

    run(scenario())
    assert not done.is_set(), "neither the close nor the end of the loop waited for it"
    let_go.set()
    assert done.wait(30.0), "its result is discarded, and raises nothing in its thread"
