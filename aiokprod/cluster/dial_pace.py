"""`DialPace`: when one broker may be dialled again, and how long a dial may take.

One per broker the pool has dialled, shared by all its connections. Pure: time and chance are arguments.

Invariants: never more than `DIALS_PER_SECOND` dials in any second, whatever happens (`# faults: N15, N16`); each
failure in a row doubles the wait (50 ms to 1 s by default) and the time a dial is given (10 s to 30 s, KIP-601); a
connection that ends as soon as it is there counts as a failure, or a flapping broker would be dialled without end; an
authentication that was refused, by either side, is tried again after 1 s at first and 8 s in the end (`# faults: S8`):
servers lock accounts that try too often. The other brokers are not held up: what one refuses others may accept
(`# faults: S22`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from aiokprod.backoff import Backoff

DIALS_PER_SECOND: Final = 5

SETUP_JITTER: Final = 0.2

REFUSED_S: Final = 1.0
REFUSED_MAX_S: Final = 8.0


class DialPace:
    """Backoff of one broker.

    Args:
        backoff: between dials that fail.
        setup_timeout_s: for the first dial (KIP-601).
        setup_timeout_max_s: what it grows to.
    """

    __slots__ = (
        "_backoff",
        "_not_before",
        "_recent",
        "_refusals",
        "_refused_until",
        "_setup_timeout_max_s",
        "_setup_timeout_s",
        "failures",
    )

    def __init__(self, backoff: Backoff, setup_timeout_s: float, setup_timeout_max_s: float) -> None:
        self.failures = 0  # in a row
        self._backoff = backoff
        self._setup_timeout_s = setup_timeout_s
        self._setup_timeout_max_s = setup_timeout_max_s
        self._not_before = 0.0
        self._refusals = 0  # in a row
        self._refused_until = 0.0
        self._recent: deque[float] = deque(maxlen=DIALS_PER_SECOND)

    def next_dial_at(self) -> float:
        """The moment from which a dial is allowed; in the past if it is allowed now."""
        not_before = max(self._not_before, self._refused_until)
        if len(self._recent) < DIALS_PER_SECOND:
            return not_before
        return max(not_before, self._recent[0] + 1.0)

    def dialled(self, now: float) -> None:
        """A dial begins."""
        self._recent.append(now)
        if self._refusals:  # one attempt at a time, whatever the connection is for
            self._refused_until = now + self._refused_s()

    def setup_timeout_s(self, random01: float) -> float:
        """How long this dial may take: doubled for each failure in a row, ±20 % to keep clients out of step."""
        grown = self._setup_timeout_s * (1 << min(self.failures, 16))
        return min(grown, self._setup_timeout_max_s) * (1 + SETUP_JITTER * (2 * random01 - 1))

    def failed(self, now: float, random01: float) -> None:
        """Nobody there, or the handshake failed."""
        self.failures += 1
        self._not_before = now + self._backoff.delay_s(self.failures, random01)

    def refused(self, now: float) -> None:
        """The broker refused our credentials, or we refused its proof that it knows them. (Call `failed` as well.)"""
        self._refusals += 1
        self._refused_until = now + self._refused_s()

    def accepted(self) -> None:
        """A connection was made: whatever was refused is believed now."""
        self._refusals = 0
        self._refused_until = 0.0

    def _refused_s(self) -> float:
        return min(REFUSED_S * (1 << min(self._refusals - 1, 16)), REFUSED_MAX_S)

    def moved(self) -> None:
        """The broker has another address: its failures say nothing of that one."""
        self.failures = 0
        self._not_before = 0.0
        self.accepted()

    def lost(self, now: float, lived_s: float, random01: float) -> None:
        """An open connection ended, not by our will."""
        if lived_s > self._backoff.max_s:
            self.failures = 0
        self.failed(now, random01)

    def __repr__(self) -> str:
        return f"<DialPace {self.failures} failures, not before {self._not_before:.3f}>"
