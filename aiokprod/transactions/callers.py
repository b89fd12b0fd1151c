"""`EndCallers`: the tasks that wait for a commit or an abort, and the end that none of them saw.

A caller that is cancelled stops nothing: the end is told to the callers that are left, or kept for the next call.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from aiokprod.errors import AiokprodError
from aiokprod.transactions.machine_actions import Cause, Outcome, Reason


class EndResult(NamedTuple):
    """The end of a commit or an abort, as its callers are told."""

    outcome: Outcome | None
    """None: a commit was refused, or the transaction is prepared, and nothing has ended."""
    cause: Cause
    is_prepared: bool = False


LATE: Final = EndResult(None, Cause(Reason.DEADLINE))
"""Of a caller whose own time is over, while the end goes on for another one. Compared by identity."""


class EndCallers:
    """The callers that wait for the end of the transaction at hand. One per `Transactor`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[EndResult]] = []
        self._unseen: EndResult | None = None  # an end that no caller saw

    @property
    def are_waiting(self) -> bool:
        """True: some caller gets the next end."""
        return bool(self._waiting)

    def join(self) -> asyncio.Future[EndResult]:
        """Wait for the end from now on: return the future for `result`."""
        self._unseen = None
        waiting: asyncio.Future[EndResult] = self._loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def take_unseen(self) -> EndResult | None:
        """Return the end that no caller saw, once."""
        seen, self._unseen = self._unseen, None
        return seen

    def keep(self, result: EndResult) -> None:
        """Tell an end to the next call too."""
        self._unseen = result

    def forget_unseen(self) -> None:
        """Drop it: the next calls are told otherwise, or another transaction begins."""
        self._unseen = None

    async def result(self, waiting: asyncio.Future[EndResult]) -> EndResult:
        """Wait for an end. A caller that is cancelled leaves its result to the next call."""
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                result = waiting.result()
                self._unseen = self._unseen if result is LATE else result
            raise

    def leave(self, waiting: asyncio.Future[EndResult]) -> None:
        """Let one caller go with LATE; the end goes on."""
        if waiting in self._waiting and not waiting.done():
            self._waiting.remove(waiting)
            waiting.set_result(LATE)

    def tell(self, result: EndResult) -> None:
        """Tell the end to all that wait, or keep it for the next call."""
        waiting, self._waiting = self._waiting, []
        is_seen = False
        for future in waiting:
            if not future.done():
                future.set_result(result)
                is_seen = True
        if not is_seen:
            self._unseen = result

    def fail(self, error: AiokprodError) -> None:
        """Raise an error of its own to each that waits."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(error.clone())

    def __repr__(self) -> str:
        return f"<EndCallers {len(self._waiting)} waiting>"
