"""The calls of `send_offsets`: what each is told at its end."""

from __future__ import annotations

import asyncio

import pytest
from transaction_table import Desk

from aiokprod.errors import AiokprodError, OffsetCommitRefusedError, SendTimeoutError, TransactionAbortedError
from aiokprod.transactions.failures import TransactionFailures
from aiokprod.transactions.machine_actions import Cause, Mode, OffsetsDone, Reason
from aiokprod.transactions.offset_calls import OffsetCalls
from aiokprod.transactions.offsets import GroupMetadata, offsets_of


def told(cause: Cause | None, first: AiokprodError | None = None) -> BaseException | None:
    """Return what the caller is told if its offsets end so; None: they are taken."""

    async def whole() -> BaseException | None:
        failures = TransactionFailures("tx", Desk(Mode.VERSION_2).machine)
        failures.first = first
        calls = OffsetCalls(asyncio.get_running_loop(), failures)
        call = calls.new(offsets_of({("t", 0): 1, ("t", 1): 2}), GroupMetadata("g"))
        calls.add(7, call)
        assert calls.get(7) is call
        assert calls.asked(7) == [("t", 0), ("t", 1)]
        calls.ended(OffsetsDone(7, cause))
        assert calls.get(7) is None
        assert calls.asked(7) == []
        return call.done.exception()

    return asyncio.run(whole())


def test_offsets_that_are_taken() -> None:
    assert told(None) is None


@pytest.mark.parametrize("reason", [Reason.ASKED, Reason.CLOSED])
def test_offsets_of_a_transaction_that_was_aborted(reason: Reason) -> None:
    error = told(Cause(reason))
    assert isinstance(error, TransactionAbortedError)
    assert error.__cause__ is None


def test_offsets_beside_a_record_that_failed() -> None:
    error = told(Cause(Reason.RECORD_FAILED), SendTimeoutError("late"))
    assert isinstance(error, TransactionAbortedError)
    assert isinstance(error.__cause__, SendTimeoutError)


def test_offsets_that_the_group_refuses() -> None:
    assert isinstance(told(Cause(Reason.GROUP_MOVED_ON, 22)), OffsetCommitRefusedError)


def test_calls_that_are_given_up_are_forgotten() -> None:
    async def whole() -> None:
        calls = OffsetCalls(asyncio.get_running_loop(), TransactionFailures("tx", Desk(Mode.VERSION_1).machine))
        call = calls.new(offsets_of({("t", 0): 1}), GroupMetadata("g"))
        calls.add(1, call)
        assert calls.take_all() == [call.done]
        assert calls.take_all() == []
        call.done.cancel()

    asyncio.run(whole())
