"""`EarlyTransaction`: a transaction that was begun before the transactional id was taken. Of a `Transactor`, one at a time.

The state machine does not know it yet. What is asked of it meanwhile is kept here: the transactor passes it on once the id is
taken, offsets first, then the commit. Nothing of it has been sent, so an abort is done at once.

Invariant: it is open, failed, or being committed. A failure refuses the commit, as in the state machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Protocol

from aiokprod.errors import AiokprodError
from aiokprod.model import TransactionOutcome
from aiokprod.transactions.machine_actions import Refusal
from aiokprod.transactions.offset_calls import OffsetCall


class TransactionHandle(Protocol):
    """The object that a user has of a transaction."""

    number: int
    outcome: TransactionOutcome | None
    ended_by: AiokprodError | None
    """Why the producer has ended it before its block did: it is closed, or has failed."""


class EarlyTransaction:
    """A transaction that waits for its id, with what was asked of it.

    Args:
        handle: of the user; None in the long form.
        loop: of the pipeline.
        late: called when the time of the commit is over.
    """

    def __init__(
        self, handle: TransactionHandle | None, loop: asyncio.AbstractEventLoop, late: Callable[[], None]
    ) -> None:
        self.handle = handle
        self.offsets: list[OffsetCall] = []
        self.is_failed = False
        self.commit_deadline = -inf  # of the loop's clock; -inf: no commit was asked for
        self._loop = loop
        self._late = late
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []  # for the begin

    @property
    def is_committing(self) -> bool:
        """True from a call of commit on, until it is refused."""
        return self.commit_deadline != -inf

    def refusal(self) -> Refusal | None:
        """Return why records, offsets and a commit are refused; None if they are not."""
        if self.is_failed:
            return Refusal.ABORTABLE
        return Refusal.COMMITTING if self.is_committing else None

    def commit(self, deadline: float) -> None:
        """Keep the wish to commit; of several deadlines the latest counts."""
        latest = max(self.commit_deadline, deadline)
        timer = self._loop.call_at(latest, self._late)
        self.stop()
        self._timer, self.commit_deadline = timer, latest

    async def until_begun(self) -> None:
        """Wait until it is begun for good; raises the error of its end if it is ended before that."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def begun(self) -> None:
        """Take in that it is begun for good."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def fail(self, offsets_error: AiokprodError) -> bool:
        """Let it be aborted only. Return whether a commit was asked for, which is refused now."""
        was_committing = self.is_committing
        self.is_failed = True
        self.commit_deadline = -inf
        self.end(offsets_error)
        return was_committing

    def end(self, offsets_error: AiokprodError) -> None:
        """Stop the timer, and fail the offsets and what waits for the begin."""
        self.stop()
        left, self.offsets = self.offsets, []
        for done in (*(call.done for call in left), *self._waiting):
            if not done.done():
                done.set_exception(offsets_error.clone())

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __repr__(self) -> str:
        state = self.refusal()
        return f"<EarlyTransaction {'open' if state is None else state.value}, {len(self.offsets)} offsets>"
