"""`OffsetCalls`: the calls that take offsets into a transaction, from their number to their end. One per `Transactor`."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiokprod.errors import TransactionAbortedError
from aiokprod.transactions.failures import TransactionFailures
from aiokprod.transactions.machine_actions import OffsetsDone, Partition, Reason
from aiokprod.transactions.offsets import GroupMetadata, Offsets


class OffsetCall(NamedTuple):
    """A call of `send_offsets`."""

    offsets: Offsets
    group: GroupMetadata
    done: asyncio.Future[None]


class OffsetCalls:
    """The calls whose offsets are not taken yet, by the numbers that the machine gave them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failures: TransactionFailures) -> None:
        self._loop = loop
        self._failures = failures
        self._calls: dict[int, OffsetCall] = {}

    def new(self, offsets: Offsets, group: GroupMetadata) -> OffsetCall:
        """Return a call that has no number yet."""
        done: asyncio.Future[None] = self._loop.create_future()
        # A caller that was cancelled asks for it no more; a commit tells the same error.
        done.add_done_callback(_retrieve)
        return OffsetCall(offsets, group, done)

    def add(self, number: int, call: OffsetCall) -> None:
        """Keep a call under its number, until `ended`."""
        self._calls[number] = call

    def get(self, number: int) -> OffsetCall | None:
        """Return a call that has not ended."""
        return self._calls.get(number)

    def asked(self, number: int) -> list[Partition]:
        """Return the partitions of a call; none if it has ended."""
        known = self._calls.get(number)
        return [] if known is None else list(known.offsets)

    def ended(self, action: OffsetsDone) -> None:
        """Tell the caller how it ended."""
        done = self._calls.pop(action.number).done
        if done.done():
            return
        if action.cause is None:
            done.set_result(None)
        elif action.cause.reason in (Reason.ASKED, Reason.CLOSED):
            done.set_exception(TransactionAbortedError("the transaction was aborted before it had taken the offsets"))
        elif action.cause.reason is Reason.RECORD_FAILED:
            done.set_exception(self._failures.why_aborted(action.cause))
        elif action.cause.reason is Reason.PARTITION_MISSING:
            done.set_exception(self._failures.first_cause())
        else:
            done.set_exception(self._failures.of_cause(action.cause))

    def take_all(self) -> list[asyncio.Future[None]]:
        """Give up all calls; return what their callers wait for."""
        left = [call.done for call in self._calls.values()]
        self._calls.clear()
        return left

    def __repr__(self) -> str:
        return f"<OffsetCalls {list(self._calls)}>"


def _retrieve(done: asyncio.Future[None]) -> None:
    """Mark the exception of a future as seen."""
    if not done.cancelled():
        done.exception()
