"""The callers of a commit or an abort: each is told the end, also one that comes after a cancelled one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokprod.errors import TransactionAbortedError
from aiokprod.transactions.callers import EndCallers, EndResult
from aiokprod.transactions.machine_actions import Cause, Outcome, Reason

DONE = EndResult(Outcome.COMMITTED, Cause(Reason.ASKED))


def run(scenario: Callable[[EndCallers], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(EndCallers(asyncio.get_running_loop()))

    asyncio.run(whole())


def test_all_that_wait_are_told_and_nothing_is_kept() -> None:
    async def scenario(callers: EndCallers) -> None:
        waiting = [callers.join(), callers.join()]
        assert callers.are_waiting
        callers.tell(DONE)
        assert not callers.are_waiting
        assert [await callers.result(each) for each in waiting] == [DONE, DONE]
        assert callers.take_unseen() is None

    run(scenario)


def test_an_end_that_no_caller_waits_for_is_kept_for_one_call() -> None:
    async def scenario(callers: EndCallers) -> None:
        callers.tell(DONE)
        assert [callers.take_unseen(), callers.take_unseen()] == [DONE, None]
        callers.tell(DONE)
        callers.forget_unseen()
        assert callers.take_unseen() is None
        callers.tell(DONE)
        callers.join()
        assert callers.take_unseen() is None, "a new call is told of its own end"

    run(scenario)


@pytest.mark.parametrize("is_told_first", [True, False])
def test_the_end_of_a_cancelled_caller_is_kept(is_told_first: bool) -> None:
    # faults: X14
    async def scenario(callers: EndCallers) -> None:
        task = asyncio.create_task(callers.result(callers.join()))
        await asyncio.sleep(0)
        if is_told_first:
            callers.tell(DONE)
            task.cancel()
        else:
            task.cancel()
            await asyncio.wait([task])
            callers.tell(DONE)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert callers.take_unseen() == DONE

    run(scenario)


def test_each_that_waits_gets_an_error_of_its_own() -> None:
    async def scenario(callers: EndCallers) -> None:
        waiting = [callers.join(), callers.join()]
        callers.fail(TransactionAbortedError("over"))
        errors = [each.exception() for each in waiting]
        assert all(isinstance(error, TransactionAbortedError) for error in errors)
        assert errors[0] is not errors[1]

    run(scenario)
