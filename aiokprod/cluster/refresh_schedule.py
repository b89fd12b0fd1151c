"""`RefreshSchedule`: when the next Metadata request is due. Pure: time and chance are arguments.

One per cache. Wishes for a refresh only set a flag, so that any number of them is one request (`# faults: T14`).

Invariants: requests that follow each other without rest are `retry_backoff_ms` apart, growing to
`retry_backoff_max_ms`, whether they fail or are answered with the same old news (KIP-580); a wish that comes after a
time of rest waits only the first backoff, one for a topic nobody asked for before waits for none.
"""

from __future__ import annotations

from typing import Final

from aiokprod.backoff import Backoff

NEVER: Final = float("inf")
GATHER_S: Final = 0.005  # at least so long between an answer and a request for topics that are new


class RefreshSchedule:
    """Timing of Metadata requests.

    Args:
        backoff: between requests.
        max_age_s: refresh what is older, asked or not; None: only when asked.
    """

    __slots__ = (
        "_age_ends",
        "_attempt",
        "_backoff",
        "_ended_at",
        "_has_failed",
        "_is_full",
        "_max_age_s",
        "_not_before",
        "is_wanted",
    )

    def __init__(self, backoff: Backoff, max_age_s: float | None) -> None:
        self.is_wanted = False
        self._backoff = backoff
        self._max_age_s = max_age_s
        self._is_full = False
        self._attempt = 0  # requests in a row, without rest between
        self._ended_at = -NEVER
        self._not_before = -NEVER
        self._age_ends = NEVER
        self._has_failed = False

    def want(self, *, full: bool) -> None:
        """Somebody wants news: of every topic of interest, or of the unsettled ones only."""
        self.is_wanted = True
        self._is_full = self._is_full or full

    def hurry(self) -> None:
        """A topic is wanted that has not been asked for: its first record waits for it, so ask now, not after a backoff.

        Topics that come one by one share a request each `GATHER_S`. While the cluster cannot be reached it does not
        help to hurry.
        """
        if not self._has_failed:
            self._attempt = 0
            self._not_before = min(self._not_before, self._ended_at + GATHER_S)

    def due_at(self) -> float:
        """When the next request is due; in the past: now; infinity: when somebody wants it."""
        return max(self._not_before if self.is_wanted else self._age_ends, self._not_before)

    def begin(self, now: float) -> bool:
        """A request is about to be sent; wishes from now on are for the next. Is it for all topics of interest?"""
        full = self._is_full or now >= self._age_ends
        if now > self._not_before + self._backoff.max_s:
            self._attempt = 0
        self.is_wanted = False
        self._is_full = False
        return full

    def answered(self, now: float, random01: float, *, full: bool) -> None:
        """The request was answered and believed."""
        if self._has_failed:
            self._attempt = 0
            self._has_failed = False
        if self._max_age_s is not None and (full or self._age_ends == NEVER):
            self._age_ends = now + self._max_age_s
        self._rest(now, random01)

    def failed(self, now: float, random01: float, *, full: bool) -> None:
        """It was not; the wish stays."""
        self._has_failed = True
        self.want(full=full)
        self._rest(now, random01)

    def _rest(self, now: float, random01: float) -> None:
        self._ended_at = now
        self._attempt += 1
        self._not_before = now + self._backoff.delay_s(self._attempt, random01)

    def __repr__(self) -> str:
        wish = ("full" if self._is_full else "unsettled") if self.is_wanted else "nothing"
        return f"<RefreshSchedule {wish} wanted, due {self.due_at():.3f}, attempt {self._attempt}>"
