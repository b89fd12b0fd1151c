"""`Turns`: who goes next, name by name, in the order in which they came.

Those who wait prepare meanwhile, and who ends early, by an error or cancelled, lets nobody pass those before.
"""

from __future__ import annotations

import asyncio


class Turns:
    """The last one of each name that has not ended."""

    def __init__(self) -> None:
        self._last: dict[str, Turn] = {}

    def join(self, name: str) -> Turn:
        """Go behind all that came before; end it in any case."""
        turn = self._last[name] = Turn(self, name, self._last.get(name))
        return turn

    def ended(self, turn: Turn) -> None:
        """Nobody waits for it any more."""
        if self._last.get(turn.name) is turn:
            del self._last[turn.name]

    def __len__(self) -> int:
        return len(self._last)


class Turn:
    """One place in a line."""

    __slots__ = ("_before", "_behind", "_ended", "_has_ended", "_turns", "name")

    def __init__(self, turns: Turns, name: str, before: Turn | None) -> None:
        self.name = name
        self._turns = turns
        self._before = before
        self._behind: Turn | None = None
        self._ended: asyncio.Future[None] | None = None  # somebody waits for the one before
        self._has_ended = False
        if before is not None:
            before._behind = self

    async def come(self) -> None:
        """Wait until all that came before have ended.

        Cancellation: the place is kept; end it.
        """
        if self._before is not None:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    def end(self) -> None:
        """Let the next one go, once all before have ended."""
        self._has_ended = True
        turn: Turn = self
        while turn._has_ended and turn._before is None:
            self._turns.ended(turn)
            behind = turn._behind
            if behind is None:
                return
            behind._before = None
            behind._wake()
            turn = behind

    def _wake(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
