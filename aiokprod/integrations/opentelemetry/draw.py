"""`Draw`: which records are sampled. Pure: the caller supplies the time."""

from __future__ import annotations

import math
from typing import Final

from aiokprod.randomness import new_random

LEAST_SHARE: Final = 1e-12
"""of the records that are drawn: one in more than any producer sends"""


class Draw:
    """Chooses which records are sampled: a share of them, and about `most_per_second` at most."""

    def __init__(self, share: float, most_per_second: float) -> None:
        self._share = share
        self._most_per_second = most_per_second
        self._most_tokens = max(1.0, most_per_second)  # below 1 per second a whole one is still saved up
        self._random = new_random()
        self._tokens = self._most_tokens
        self._filled_at = 0.0
        self._thinning = 1.0  # above 1 while more records are drawn than may be sampled

    def skip(self) -> int:
        """Return how many records pass until the next one that is drawn."""
        share = max(LEAST_SHARE, self._share / self._thinning)
        if share >= 1:
            return 0
        return int(math.log(1.0 - self._random.random()) / math.log1p(-share))

    def takes(self, now: float) -> bool:
        """Return whether a record that was drawn is sampled; `now` in monotonic seconds."""
        if self._share >= 1:
            return True
        most = self._most_tokens
        self._tokens = min(most, self._tokens + (now - self._filled_at) * self._most_per_second)
        self._filled_at = now
        if self._tokens < 1:
            self._thinning *= 2
            return False
        if self._tokens > most * 0.9:
            self._thinning = 1.0
        elif self._tokens > most / 2:
            self._thinning = max(1.0, self._thinning / 2)
        self._tokens -= 1
        return True
