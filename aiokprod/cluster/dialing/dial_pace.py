"""`DialPace`: when one broker may be dialled again, and how long a dial may take.

One per broker the pool has dialled, shared by all its connections. Pure: time and random numbers are arguments.

Invariants:

- At most `DIALS_PER_SECOND` dials in any second (`# faults: N15, N16`).
- Each failure in a row doubles the wait (50 ms to 1 s by default) and the timeout of a dial (10 s to 30 s, KIP-601). A
  connection that ends as soon as it is open counts as a failure: a flapping broker would be dialled without a pause.
- An authentication that either side refused is tried again after 1 s at first, up to 8 s later (`# faults: S8`): servers
  lock accounts that try too often. Other brokers are not delayed: they may accept what one refuses (`# faults: S22`).
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
    """The backoff of one broker's dials.

    Args:
        backoff: the delays after failed dials.
        setup_timeout_s: the timeout of the first dial (KIP-601).
        setup_timeout_max_s: the largest timeout that failures lead to.
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
        """Return the time from which a dial is allowed; in the past if it is allowed now."""
        not_before = max(self._not_before, self._refused_until)
        if len(self._recent) < DIALS_PER_SECOND:
            return not_before
        return max(not_before, self._recent[0] + 1.0)

    def dialled(self, now: float) -> None:
        """Note that a dial begins."""
        self._recent.append(now)
        # After a refusal only one dial at a time: the produce and the control dial of a broker would otherwise try the
        # same wrong password at once, and count twice towards a lock of the account. (faults: S8)
        if self._refusals:
            self._refused_until = now + self._refused_s()

    def setup_timeout_s(self, random01: float) -> float:
        """Return how long this dial may take: doubled for each failure in a row, ±20 % so that clients spread out."""
        grown = self._setup_timeout_s * (1 << min(self.failures, 16))
        return min(grown, self._setup_timeout_max_s) * (1 + SETUP_JITTER * (2 * random01 - 1))

    def failed(self, now: float, random01: float) -> None:
        """Note a dial that failed, at any step of the handshake."""
        self.failures += 1
        self._not_before = now + self._backoff.delay_s(self.failures, random01)

    def refused(self, now: float, random01: float = 0.0) -> None:
        """Note that either side refused the authentication; the caller calls `failed` as well."""
        self._refusals += 1
        # Up to 20 % later: many clients that start together would be refused together, above the rate of a server's logins.
        self._refused_until = now + self._refused_s() * (1 + SETUP_JITTER * random01)

    def accepted(self) -> None:
        """Note that a connection was opened: earlier refusals no longer count."""
        self._refusals = 0
        self._refused_until = 0.0

    def _refused_s(self) -> float:
        return min(REFUSED_S * (1 << min(self._refusals - 1, 16)), REFUSED_MAX_S)

    def moved(self) -> None:
        """Note that the broker has another address: failures of the old one do not count for it (`# faults: B12`)."""
        self.failures = 0
        self._not_before = 0.0
        self.accepted()

    def lost(self, now: float, lived_s: float, random01: float) -> None:
        """Note that an open connection ended, and was not closed by this client."""
        # One that lived shorter than the longest backoff keeps the count: a proxy that resets each connection after a
        # second would otherwise be dialled at the shortest backoff for ever. (faults: N19)
        if lived_s > self._backoff.max_s:
            self.failures = 0
        self.failed(now, random01)

    def __repr__(self) -> str:
        return f"<DialPace {self.failures} failures, not before {self._not_before:.3f}>"
