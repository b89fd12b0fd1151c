"""`SoonCall`: one call of the loop, whose mark is what the loop has returned; `Stall`: the same one at two looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokprod.liveness import SoonCall, Stall


def test_it_is_called_once_on_the_next_turn_however_often_it_is_asked_for() -> None:
    async def scenario() -> None:
        called: list[int] = []
        soon = SoonCall(asyncio.get_running_loop(), lambda: called.append(1))
        soon.set()
        soon.set()
        assert called == []
        assert soon.handle is not None
        await asyncio.sleep(0)
        assert called == [1]
        assert soon.handle is None
        soon.set()
        await asyncio.sleep(0)
        assert called == [1, 1]

    asyncio.run(scenario())


def test_what_it_calls_may_ask_for_the_next_one() -> None:
    async def scenario() -> None:
        called: list[int] = []

        def call() -> None:
            called.append(1)
            if len(called) < 3:
                soon.set()

        soon = SoonCall(asyncio.get_running_loop(), call)
        soon.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert called == [1, 1, 1]

    asyncio.run(scenario())


class Refusing(asyncio.AbstractEventLoop):
    """A loop that takes no call at first."""

    def __init__(self) -> None:
        self.refuses = True
        self.calls: list[Callable[..., object]] = []

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *arguments: object, context: object = None) -> asyncio.Handle:
        if self.refuses:
            raise RecursionError("refused")
        self.calls.append(callback)
        return asyncio.Handle(callback, arguments, self)


def test_a_call_that_the_loop_refuses_leaves_no_mark() -> None:
    loop = Refusing()
    called: list[int] = []
    soon = SoonCall(loop, lambda: called.append(1))
    with pytest.raises(RecursionError):
        soon.set()
    assert soon.handle is None
    loop.refuses = False
    soon.set()
    assert len(loop.calls) == 1
    loop.calls[0]()
    assert called == [1]


def test_a_call_that_does_not_come_is_set_again() -> None:
    async def scenario() -> None:
        called: list[int] = []
        soon = SoonCall(asyncio.get_running_loop(), lambda: called.append(1))
        soon.set()
        assert soon.handle is not None
        soon.handle.cancel()
        await asyncio.sleep(0)
        soon.set()
        await asyncio.sleep(0)
        assert called == []
        soon.set_again()
        await asyncio.sleep(0)
        assert called == [1]
        assert soon.handle is None

    asyncio.run(scenario())


def test_a_stall_is_the_same_if_owner_mark_and_kind_are() -> None:
    owner, mark = object(), object()
    stall = Stall("x stands still", owner, mark, list)
    assert Stall("x stands still", owner, mark, dict).is_same(stall)
    assert not Stall("x stands still", owner, object(), list).is_same(stall)
    assert not Stall("x stands still", object(), mark, list).is_same(stall)
    assert not Stall("y stands still", owner, mark, list).is_same(stall)
