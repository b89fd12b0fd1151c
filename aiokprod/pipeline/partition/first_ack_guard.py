"""`FirstAckGuard`: whether more than one batch of a partition may be in flight (ledger: R5). One per ledger. Pure.

A broker without state of a producer takes any first sequence (broker: 1.1, 5.6). With five batches on the way to such a
broker the first can be lost and the second be taken: a gap that no later answer shows. So one batch travels alone until an
answer shows that the broker has state of this producer, and again whenever it may have lost that state.
"""

from __future__ import annotations


class FirstAckGuard:
    """The evidence of the last answers about the broker's memory of this producer."""

    __slots__ = ("_age_ms", "_idle_s", "_last_ack", "_last_time_ms", "is_log_append_time", "is_proven")

    def __init__(self, idle_s: float, age_ms: int) -> None:
        # This round has shown that the broker has state. Written by `showed_state`; erased by every rewind, as a leadership
        # may have gone away and come back unnoticed, and by the identity of another producer, which no broker knows yet.
        self.is_proven = False
        # The broker dates the records itself, so they are never old (broker: 1.12). Written by the partition queue from
        # answers to first attempts.
        self.is_log_append_time = False
        self._last_ack = 0.0
        self._last_time_ms = 0  # newest timestamp of the batch that was acknowledged last: the broker ages us by it
        self._idle_s = idle_s
        self._age_ms = age_ms

    def showed_state(self, now: float, newest_ms: int) -> None:
        """Note that the broker answered 0, 46 or 45: it compared the sequence with one that it remembers."""
        self.is_proven = True
        self._last_ack = now
        self._last_time_ms = newest_ms

    def is_open(self, now: float, now_ms: int) -> bool:
        return self.is_proven and not self._is_idle(now) and not self._is_aged(now_ms)

    def is_old(self, newest_ms: int, now_ms: int) -> bool:
        """Return whether the broker may forget the producer behind a batch with this timestamp (R5.3, broker: 1.6, 1.12)"""
        return not self.is_log_append_time and now_ms - newest_ms >= self._age_ms

    def _is_idle(self, now: float) -> bool:
        # In a long outage the ledger is never empty while the broker forgets, so silence is counted, not emptiness.
        return now - self._last_ack >= self._idle_s

    def _is_aged(self, now_ms: int) -> bool:
        return self.is_old(self._last_time_ms, now_ms)
