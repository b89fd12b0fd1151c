"""`HangUp`: the last second of a connection, from the decision to close until the socket is gone. One for each."""

from __future__ import annotations

import asyncio
from typing import Final

CLOSE_GRACE_S: Final = 1.0
"""How long the last bytes may take to leave when nothing is owed any more."""


class HangUp:
    """Ends a transport, in peace or at once, and tells when it is gone."""

    __slots__ = ("_gone", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._gone: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport | None, *, in_peace: bool) -> None:
        """End it: in peace, what is still to be written has a second to leave; else it is thrown away."""
        if transport is None:
            self.done()
        elif in_peace:
            self._timer = self._loop.call_later(CLOSE_GRACE_S, transport.abort)
            transport.close()
        else:
            transport.abort()

    def done(self) -> None:
        """The transport is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gone.done():
            self._gone.set_result(None)

    @property
    def is_done(self) -> bool:
        return self._gone.done()

    async def wait(self) -> None:
        """Wait for `done`; cancelling it disturbs nobody else who waits."""
        await asyncio.shield(self._gone)
