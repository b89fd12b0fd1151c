"""`Backoff`: exponential backoff with jitter. Pure: the caller supplies the random number and does the waiting."""

from __future__ import annotations

from typing import Final, NamedTuple

SHORTEST_BACKOFF_S: Final = 0.01
"""The least `base_s` and `max_s` where an option may be 0 ms: no busy loop of failing attempts (`# faults: M14`)."""


class Backoff(NamedTuple):
    """A delay of `base_s * factor ** (attempt - 1)`, at most `max_s`, plus or minus a share of `jitter` (KIP-580)."""

    base_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.2

    def delay_s(self, attempt: int, random01: float) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (1 is the first); `random01` is in [0, 1)."""
        exponent = min(max(attempt, 1) - 1, 60)  # a producer may retry for days: 2.0 ** 1024 would overflow
        plain = min(self.base_s * self.factor**exponent, self.max_s)
        return plain * (1 + self.jitter * (2 * random01 - 1))
