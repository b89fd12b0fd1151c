"""Delays that grow, are bounded, and are spread."""

from __future__ import annotations

from aiokprod.backoff import Backoff

MIDDLE = 0.5  # no jitter


def test_delays_double_up_to_the_largest() -> None:
    backoff = Backoff(0.1, 1.0)
    delays = [backoff.delay_s(attempt, MIDDLE) for attempt in range(1, 7)]
    assert [round(delay, 6) for delay in delays] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_spreads_by_a_fifth_to_both_sides() -> None:
    backoff = Backoff(0.1, 1.0)
    assert round(backoff.delay_s(1, 0.0), 6) == 0.08
    assert round(backoff.delay_s(1, 1.0), 6) == 0.12


def test_an_attempt_without_end_does_not_overflow() -> None:
    assert Backoff(0.1, 1.0).delay_s(10**9, MIDDLE) == 1.0
