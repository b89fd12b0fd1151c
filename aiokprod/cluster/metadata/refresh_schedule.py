"""`RefreshSchedule`: when the next Metadata request is due. Pure: time and random numbers are arguments.

One per cache. A wish for a refresh only sets a flag, so any number of wishes leads to one request (`# faults: T14`).

Invariants: requests in a row without a pause are `retry_backoff_ms` apart, growing to `retry_backoff_max_ms`, whether
they fail or bring nothing new (KIP-580); a wish after a pause of `retry_backoff_max_ms`, or after an outage of twice
that, waits only the first backoff, and a wish for a topic that has never been asked for waits for none.
"""

from __future__ import annotations

from typing import Final

from aiokprod.backoff import Backoff

NEVER: Final = float("inf")
GATHER_S: Final = 0.005  # the shortest time between an answer and a request for new topics


class RefreshSchedule:
    """The timing of Metadata requests.

    Args:
        backoff: the delays between requests.
        max_age_s: age in seconds from which metadata is refreshed without a wish; None: never.
    """

    __slots__ = (
        "_age_ends",
        "_attempt",
        "_backoff",
        "_ended_at",
        "_failing_since",
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
        self._attempt = 0  # requests in a row without a pause
        self._ended_at = -NEVER
        self._not_before = -NEVER
        self._age_ends = NEVER
        self._failing_since = NEVER  # the first of the failures in a row

    def want(self, *, full: bool) -> None:
        """Ask for a refresh: of every topic of interest, or of the unsettled ones only."""
        self.is_wanted = True
        self._is_full = self._is_full or full

    def hurry(self) -> None:
        """Shorten the wait for a topic that has not been asked for: its first record waits for the answer.

        Topics that come one by one share a request each `GATHER_S`. After a failure the backoff stays: the cluster cannot
        be reached.
        """
        if self._failing_since == NEVER:
            self._attempt = 0
            self._not_before = min(self._not_before, self._ended_at + GATHER_S)

    def due_at(self) -> float:
        """Return when the next request is due; a time in the past means now, infinity means after the next wish."""
        return max(self._not_before if self.is_wanted else self._age_ends, self._not_before)

    def begin(self, now: float) -> bool:
        """Note that a request is about to be sent, and return whether it is for all topics of interest.

        Wishes from here on are for the request after it.
        """
        full = self._is_full or now >= self._age_ends
        if now > self._not_before + self._backoff.max_s:
            self._attempt = 0
        self.is_wanted = False
        self._is_full = False
        return full

    def answered(self, now: float, random01: float, *, full: bool) -> None:
        """Note that the request was answered and the answer was accepted."""
        if now - self._failing_since >= 2 * self._backoff.max_s:
            # The brokers are back, and may have no leaders yet. Not after a single failure: if every second request fails
            # at once, the first backoff would hold for all of them.
            self._attempt = 0
        self._failing_since = NEVER
        if self._max_age_s is not None and (full or self._age_ends == NEVER):
            self._age_ends = now + self._max_age_s
        self._rest(now, random01)

    def failed(self, now: float, random01: float, *, full: bool) -> None:
        """Note that the request failed; the refresh stays requested."""
        self._failing_since = min(self._failing_since, now)
        self.want(full=full)
        self._rest(now, random01)

    def _rest(self, now: float, random01: float) -> None:
        self._ended_at = now
        self._attempt += 1
        self._not_before = now + self._backoff.delay_s(self._attempt, random01)

    def __repr__(self) -> str:
        wish = ("full" if self._is_full else "unsettled") if self.is_wanted else "nothing"
        return f"<RefreshSchedule {wish} wanted, due {self.due_at():.3f}, attempt {self._attempt}>"
