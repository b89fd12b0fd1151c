"""`Backoff`: exponential with jitter. Pure: the caller brings the randomness and waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base_s * factor ** (attempt - 1)`, at most `max_s`, give or take `jitter` (KIP-580)."""

    base_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.2

    def delay_s(self, attempt: int, random01: float) -> float:
        """Seconds to wait after failed attempt number `attempt` (1 is the first); `random01` in [0, 1)."""
        exponent = min(max(attempt, 1) - 1, 60)
        plain = min(self.base_s * self.factor**exponent, self.max_s)
        return plain * (1 + self.jitter * (2 * random01 - 1))
