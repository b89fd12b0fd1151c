"""The time after each fault until the rate of a soak is usual again. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from book import DETACHED, QUIET
from evidence import Done, Evidence, Life

from aiokprod.testing.checker import Outcome

WELL = 0.9  # of the usual rate
SLOW_S = 10.0  # to recover


def recoveries_of(evidence: Evidence) -> list[tuple[Done, float]]:
    """Return the time from the end of each fault until a second with 90 % of the usual rate.

    Left out are faults that end while another goes on, and faults that are followed by the next before the rate could recover.
    """
    times = successes(evidence.lives)
    rate = per_second(times, evidence.began, evidence.ended)
    usual = sorted(rate)[len(rate) // 2] if rate else 0
    found: list[tuple[Done, float]] = []
    for injection in evidence.injections:
        others = [each for each in evidence.injections if each is not injection]
        if any(each.began <= injection.healed < each.healed for each in others):
            continue
        until = min([each.began for each in others if each.began > injection.healed], default=evidence.ended)
        at = injection.healed
        while at + 1.0 <= until and bisect_left(times, at + 1.0) - bisect_left(times, at) < WELL * usual:
            at += 0.5
        if at + 1.0 <= until or until - injection.healed > SLOW_S:
            found.append((injection, at - injection.healed))
    return found


def per_second(times: Sequence[float], begin: float, end: float) -> list[int]:
    """Return how many of these times fall into each second."""
    counts = [0] * max(1, int(end - begin))
    for at in times:
        if 0 <= (second := int(at - begin)) < len(counts):
            counts[second] += 1
    return counts


def successes(lives: Iterable[Life]) -> list[float]:
    """Return the times when records were acknowledged, in order."""
    return sorted(
        sent.settled_at
        for life in lives
        for sent in life.book.sends
        if sent.outcome is Outcome.DELIVERED and sent.error not in (DETACHED, QUIET)
    )
