"""The end of a connection: `HangUp` closes its socket, and the functions here make the errors that say why it ended.

A connection has one `HangUp`. Each error names the broker's address, what happened, and what to check.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokprod.cluster.hosts import address_of
from aiokprod.errors import ConnectionLostError, RequestTimeoutError
from aiokprod.wire.exchange import Entry

CLOSE_GRACE_S: Final = 1.0
"""How long, in seconds, the last bytes may take to leave when no answer is due."""


class HangUp:
    """The orderly or immediate end of one transport."""

    __slots__ = ("_gone", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._gone: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport | None, *, in_peace: bool) -> None:
        """Close the transport: in peace, bytes still to be written have a second to leave; else they are discarded."""
        if transport is None:
            # Never connected: no `connection_lost` will come. (`connection_made` aborts a transport that comes late.)
            self.done()
        elif in_peace:
            # `transport.close` waits for its buffer without a limit: a broker that stops reading would hold the socket,
            # and with it the producer's close, for ever. (faults: N5, N7)
            self._timer = self._loop.call_later(CLOSE_GRACE_S, transport.abort)
            transport.close()
        else:
            transport.abort()

    def done(self) -> None:
        """Note that the transport is closed, and wake all tasks in `wait`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gone.done():
            self._gone.set_result(None)

    @property
    def is_done(self) -> bool:
        return self._gone.done()

    async def wait(self) -> None:
        """Wait for `done`; cancelling one waiter does not affect the others."""
        # The shield: cancelling a task cancels the future it awaits, and all waiters share this one.
        await asyncio.shield(self._gone)


def timed_out(host: str, port: int, head: Entry, waited_s: float) -> RequestTimeoutError:
    """Return the error of a connection whose oldest request waited too long."""
    return RequestTimeoutError(
        f"{address_of(host, port)}: no answer to api {head.api_key} version {head.version} within {waited_s:.1f} s",
        host=host,
        port=port,
    )


def ended_by_broker(
    host: str, port: int, exc: Exception | None, *, in_an_answer: bool, may_want_sasl: bool
) -> ConnectionLostError:
    """Return the error of a connection that the broker closed (`exc` is None) or that broke."""
    text = "the broker closed the connection" if exc is None else f"the connection broke: {exc}"
    if in_an_answer:
        text += " in the middle of an answer"
    elif may_want_sasl:
        # A SASL listener answers ApiVersions before authentication and closes the connection at the next request.
        text += " at the first request (does this listener want SASL? see security_protocol)"
    error = ConnectionLostError(f"{address_of(host, port)}: {text}", host=host, port=port)
    if exc is not None:
        error.__cause__ = exc.with_traceback(None)  # its frames hold what was being written (faults: S18)
    return error


def for_one_waiter(host: str, port: int, cause: Exception | None) -> ConnectionLostError:
    """Return a new error for each waiter: a shared one would get a longer traceback with every raise."""
    if isinstance(cause, ConnectionLostError):
        return cause.clone()
    why = "the connection is not open" if cause is None else f"the connection was closed: {cause}"
    error = ConnectionLostError(f"{address_of(host, port)}: {why}", host=host, port=port)
    error.__cause__ = cause
    return error
