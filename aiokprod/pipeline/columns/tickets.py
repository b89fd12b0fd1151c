"""`Tickets`: calls of `send_columns` for one topic go one after the other, in the order in which they came. One per pipeline.

A call that waits checks its rows meanwhile. One that ends early, by an error or cancelled, lets none pass an earlier one.
"""

from __future__ import annotations

import asyncio


class Tickets:
    """A line of calls for each name; kept is the last ticket of each that has not ended."""

    def __init__(self) -> None:
        self._last: dict[str, Ticket] = {}

    def join(self, name: str) -> Ticket:
        """Take a ticket behind all earlier ones of the name. It is to be ended in any case."""
        ticket = self._last[name] = Ticket(self, name, self._last.get(name))
        return ticket

    def ended(self, ticket: Ticket) -> None:
        """Forget a ticket that has ended, if it is the last one of its name."""
        if self._last.get(ticket.name) is ticket:
            del self._last[ticket.name]

    def __len__(self) -> int:
        return len(self._last)


class Ticket:
    """One place in a line."""

    __slots__ = ("_before", "_behind", "_ended", "_has_ended", "_tickets", "name")

    def __init__(self, tickets: Tickets, name: str, before: Ticket | None) -> None:
        self.name = name
        self._tickets = tickets
        self._before = before
        self._behind: Ticket | None = None
        self._ended: asyncio.Future[None] | None = None  # awaited, when there are earlier ones
        self._has_ended = False
        if before is not None:
            before._behind = self

    async def wait(self) -> None:
        """Wait until all earlier ones have ended.

        Cancellation: the place is kept; end it.
        """
        if self._before is not None:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    def end(self) -> None:
        """Let the next one go, once all earlier ones have ended."""
        self._has_ended = True
        ticket: Ticket = self
        while ticket._has_ended and ticket._before is None:
            self._tickets.ended(ticket)
            behind = ticket._behind
            if behind is None:
                return
            behind._before = None
            behind._wake()
            ticket = behind

    def _wake(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
