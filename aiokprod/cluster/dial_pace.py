"""`DialPace`: when one broker may be dialled again, and how long a dial may take; `CredentialsPace`: when any may.

One per broker the pool has dialled, shared by all its connections. Pure: time and chance are arguments.

Invariants: never more than `DIALS_PER_SECOND` dials in any second, whatever happens (`# faults: N15, N16`); each
failure in a row doubles the wait (50 ms to 1 s by default) and the time a dial is given (10 s to 30 s, KIP-601); a
connection that ends as soon as it is there counts as a failure, or a flapping broker would be dialled without end.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from aiokprod.backoff import Backoff

DIALS_PER_SECOND: Final = 5

SETUP_JITTER: Final = 0.2

REFUSED_S: Final = 1.0
"""Between two dials to anybody while credentials are refused: servers lock accounts that try too often."""


class DialPace:
    """Backoff of one broker.

    Args:
        backoff: between dials that fail.
        setup_timeout_s: for the first dial (KIP-601).
        setup_timeout_max_s: what it grows to.
    """

    __slots__ = ("_backoff", "_not_before", "_recent", "_setup_timeout_max_s", "_setup_timeout_s", "failures")

    def __init__(self, backoff: Backoff, setup_timeout_s: float, setup_timeout_max_s: float) -> None:
        self.failures = 0  # in a row
        self._backoff = backoff
        self._setup_timeout_s = setup_timeout_s
        self._setup_timeout_max_s = setup_timeout_max_s
        self._not_before = 0.0
        self._recent: deque[float] = deque(maxlen=DIALS_PER_SECOND)

    def next_dial_at(self) -> float:
        """The moment from which a dial is allowed; in the past if it is allowed now."""
        if len(self._recent) < DIALS_PER_SECOND:
            return self._not_before
        return max(self._not_before, self._recent[0] + 1.0)

    def dialled(self, now: float) -> None:
        """A dial begins."""
        self._recent.append(now)

    def setup_timeout_s(self, random01: float) -> float:
        """How long this dial may take: doubled for each failure in a row, ±20 % to keep clients out of step."""
        grown = self._setup_timeout_s * (1 << min(self.failures, 16))
        return min(grown, self._setup_timeout_max_s) * (1 + SETUP_JITTER * (2 * random01 - 1))

    def failed(self, now: float, random01: float) -> None:
        """Nobody there, or the handshake failed."""
        self.failures += 1
        self._not_before = now + self._backoff.delay_s(self.failures, random01)

    def moved(self) -> None:
        """The broker has another address: its failures say nothing of that one."""
        self.failures = 0
        self._not_before = 0.0

    def lost(self, now: float, lived_s: float, random01: float) -> None:
        """An open connection ended, not by our will."""
        if lived_s > self._backoff.max_s:
            self.failures = 0
        self.failed(now, random01)

    def __repr__(self) -> str:
        return f"<DialPace {self.failures} failures, not before {self._not_before:.3f}>"


class CredentialsPace:
    """When any broker may be dialled, as long as the credentials are in doubt (`# faults: S8`).

    One per pool: a password that one broker refuses is most likely refused by all of them, and an account is locked by
    the sum of all attempts. One connection that comes to be ends the doubt.
    """

    __slots__ = ("_is_in_doubt", "_not_before")

    def __init__(self) -> None:
        self._is_in_doubt = False
        self._not_before = 0.0

    def next_dial_at(self) -> float:
        """The moment from which a dial is allowed; in the past if it is allowed now."""
        return self._not_before

    def dialled(self, now: float) -> None:
        """A dial begins."""
        if self._is_in_doubt:
            self._not_before = now + REFUSED_S

    def refused(self, now: float) -> None:
        """A broker refused the credentials."""
        self._is_in_doubt = True
        self._not_before = now + REFUSED_S

    def accepted(self) -> None:
        """A connection was made."""
        self._is_in_doubt = False
        self._not_before = 0.0
