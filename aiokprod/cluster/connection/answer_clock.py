"""`AnswerClock`: the one timer of a connection, which decides that the oldest request has waited too long.

One per connection. It is armed lazily: requests and answers do not touch it; when it fires early it is armed again.

Only a timeout that the broker caused may end a connection. So, before a timeout is believed, answers already in the
socket are read (`# faults: N20`), and if this process or its loop stood still, the broker gets a little more time, once
per request (`# faults: L22`).

Long before that the clock reports that an answer is slow (`tell_slow`): another broker can then be asked whether the
partitions have moved, while this one still has time to answer (`# faults: T21`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from aiokprod.liveness import STALLED_S, Stall
from aiokprod.wire.exchange import Entry, Exchange

QUIET_PASSES: Final = 2
"""Turns of the loop without a byte from the socket before a timeout is believed. Two, because uvloop runs timers and
`call_soon` before it looks at its sockets: only the second turn has surely seen them."""

READ_PASSES: Final = 64
"""Turns of the loop that a timed-out request gets while bytes keep coming: enough to read more than a socket buffer holds
(one turn reads up to 256 KiB), and an end when the bytes never stop (`# faults: H3, N6`)."""

LATE_S: Final = 0.25
"""A timer that fires later than this shows that this process stood still, not that the broker was slow."""

MAX_GRACE_S: Final = 5.0
"""The most extra time, in seconds, that the broker gets after this process stood still."""


class AnswerClock:
    """The timer of the oldest unanswered request of an exchange.

    Args:
        loop: the loop of the connection.
        exchange: the exchange; its oldest unanswered request is its head.
        timed_out: called once, with the request that waited too long; the clock is stopped by then.
    """

    __slots__ = (
        "_bytes_came",
        "_exchange",
        "_fires_at",
        "_judged",
        "_loop",
        "_slow",
        "_slow_after_s",
        "_stopped",
        "_timed_out",
        "_timer",
        "_token",
        "_told_slow",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, exchange: Exchange, timed_out: Callable[[Entry], None]) -> None:
        self._loop = loop
        self._exchange = exchange
        self._timed_out = timed_out
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        self._judged: Entry | None = None  # timed out, unless an answer is found in the socket
        self._token = 0  # of the latest callback: one with an older token does nothing
        self._bytes_came = False
        self._stopped = False
        self._slow: Callable[[], None] | None = None
        self._slow_after_s = inf  # nothing is reported as slow
        self._told_slow: Entry | None = None  # the head that has been reported as slow

    def tell_slow(self, after_s: float, slow: Callable[[], None]) -> None:
        """Call `slow()` once for each request that has been the oldest unanswered one for `after_s`."""
        self._slow_after_s = after_s
        self._slow = slow
        self.look()

    def _due(self) -> float | None:
        """Return when the head becomes slow or times out, whichever comes first; None without a head."""
        deadline = self._exchange.deadline()
        if deadline is None or self._slow is None or self._told_slow is self._exchange.head:
            return deadline
        return min(deadline, self._exchange.head_clock_started + self._slow_after_s)

    def look(self) -> None:
        """Arm the timer after a change of the queue, so that it fires no later than the head becomes slow or times out."""
        deadline = self._exchange.deadline()
        if deadline is None:
            return
        fires_at = self._fires_at
        if (
            self._timer is not None
            and fires_at <= deadline
            and fires_at <= self._exchange.head_clock_started + self._slow_after_s
        ):
            # Nearly always: this runs for every request. An answer makes the next request the head and moves the deadline
            # back; the timer stays where it is, fires early, and is armed again then.
            return
        due = self._due()
        if due is None or self._stopped or self._judged is not None:
            # While a head is judged the deadline is over: a timer would fire at once and judge a second time.
            return
        if self._timer is None:
            self._arm(due)
        elif due < self._fires_at:
            former = self._timer
            self._arm(due)
            former.cancel()

    def stall(self, now: float) -> Stall | None:
        """Return a stall if a request is unanswered and no timer would end the wait for it."""
        is_armed = self._timer is not None and self._fires_at > now - STALLED_S
        if self._stopped or is_armed or self._judged is not None or self._exchange.deadline() is None:
            return None
        return Stall("a request has no answer, and no timer ends the wait for it", self, self._timer, self._arm_again)

    def _arm_again(self) -> None:
        self._timer = None
        self.look()

    def bytes_came(self) -> None:
        """Note that the socket had something to read."""
        self._bytes_came = True

    def stop(self) -> None:
        """Stop for ever: the connection has ended."""
        self._stopped = True
        self._token += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        # Its mark behind the call: a clock with a mark and without a timer would never fire again.
        self._timer = self._loop.call_at(when, self._fired, self._token + 1)
        self._token, self._fires_at = self._token + 1, when

    def _fired(self, token: int) -> None:
        if token != self._token:
            return
        self._timer = None
        due, deadline = self._due(), self._exchange.deadline()
        head = self._exchange.head
        if due is None or deadline is None or head is None:
            return
        now = self._loop.time()
        if now < due:
            self._arm(due)
            return
        if now < deadline:
            # Armed before `slow` is called: that may close the connection, and `stop` must find the timer to cancel.
            self._arm(deadline)
            self._told_slow = head
            if self._slow is not None:
                self._slow()
            return
        # After a SIGSTOP or a blocked loop all timers fire at once, before the socket is read. The broker may have
        # answered long ago, or have been stopped with this process (a suspended machine). (faults: N20, L22)
        late_s = now - deadline
        if late_s > LATE_S and self._exchange.extend_grace(min(late_s, head.timeout_s, MAX_GRACE_S), now):
            self.look()
            return
        self._bytes_came = False
        self._loop.call_soon(self._judge, self._token, 0, READ_PASSES)
        self._judged = head

    def _judge(self, token: int, quiet: int, passes: int) -> None:
        head = self._judged
        if token != self._token or head is None:
            return
        deadline = self._exchange.deadline()
        if deadline is None or self._exchange.head is not head or self._loop.time() < deadline:
            # Its answer was in the socket, or an answer before it brought a throttle, which stops the time.
            self._judged = None
            self.look()
            return
        # Bytes of a large answer count as news, but not for ever: READ_PASSES ends it. (faults: H3, N6)
        quiet = 0 if self._bytes_came else quiet + 1
        self._bytes_came = False
        if quiet < QUIET_PASSES and passes > 1:
            self._loop.call_soon(self._judge, token, quiet, passes - 1)
            return
        self.stop()
        self._timed_out(head)
