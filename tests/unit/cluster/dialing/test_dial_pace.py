"""When a broker may be dialled: pure."""

from __future__ import annotations

import pytest

from aiokprod.backoff import Backoff
from aiokprod.cluster.dialing.dial_pace import DialPace

HALF = 0.5


def pace(setup_s: float = 10.0, setup_max_s: float = 30.0) -> DialPace:
    return DialPace(Backoff(0.05, 1.0), setup_s, setup_max_s)


def test_the_first_dial_waits_for_nothing() -> None:
    assert pace().next_dial_at() <= 0.0


def test_failures_move_dials_apart_up_to_a_second() -> None:  # faults: N15, N16
    timing, now, gaps = pace(), 0.0, []
    for _ in range(7):
        timing.dialled(now)
        timing.failed(now, HALF)
        gaps.append(round(timing.next_dial_at() - now, 6))
        now += 10
    assert gaps == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("lived_s", [0.0, 0.2, 0.99])
def test_a_connection_that_ends_soon_counts_as_a_failure(lived_s: float) -> None:  # faults: N15
    timing, now = pace(), 0.0
    for _ in range(10):
        timing.dialled(now)
        timing.lost(now + lived_s, lived_s, HALF)
        now = max(now + lived_s, timing.next_dial_at())
    assert timing.next_dial_at() - now <= 0
    timing.lost(now, lived_s, HALF)
    assert round(timing.next_dial_at() - now, 6) == 1.0


def test_a_connection_that_lived_is_replaced_soon() -> None:
    timing = pace()
    for _ in range(10):
        timing.failed(0.0, HALF)
    timing.lost(100.0, 60.0, HALF)
    assert round(timing.next_dial_at(), 6) == 100.05


def test_never_more_than_five_dials_in_any_second() -> None:  # faults: N15
    timing, now, dials = pace(), 0.0, []
    while now < 60.0:
        dials.append(now)
        timing.dialled(now)
        timing.lost(now, 5.0, 0.0)  # as if each had lived long: the backoff alone would allow 25 a second
        now = max(now, timing.next_dial_at())
    assert all(later - earlier >= 1.0 - 1e-9 for earlier, later in zip(dials, dials[5:], strict=False))


def test_a_refused_authentication_is_tried_again_ever_more_rarely() -> None:  # faults: S8
    timing, now, gaps = pace(), 0.0, []
    for _ in range(6):
        timing.dialled(now)
        timing.refused(now)
        timing.failed(now, HALF)
        gaps.append(timing.next_dial_at() - now)
        now = timing.next_dial_at()
    assert gaps == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_of_two_purposes_one_at_a_time_tries_refused_credentials() -> None:  # faults: S8
    timing = pace()
    timing.dialled(0.0)
    timing.dialled(0.0)
    assert timing.next_dial_at() <= 0.0
    timing.refused(0.5)
    assert timing.next_dial_at() == 1.5
    timing.dialled(1.5)
    assert timing.next_dial_at() == 2.5
    timing.accepted()
    timing.dialled(1.6)
    assert timing.next_dial_at() <= 1.6


def test_a_new_address_has_refused_nothing() -> None:  # faults: B12
    timing = pace()
    timing.refused(0.0)
    timing.moved()
    assert timing.next_dial_at() <= 0.0


def test_the_setup_timeout_grows_with_failures_and_is_spread() -> None:  # faults: B16
    timing = pace()
    grown = []
    for _ in range(3):
        grown.append(timing.setup_timeout_s(HALF))
        timing.failed(0.0, HALF)
    assert grown == [10.0, 20.0, 30.0]
    assert timing.setup_timeout_s(0.0) == pytest.approx(24.0)
    assert timing.setup_timeout_s(1.0) == pytest.approx(36.0)


def test_a_new_address_forgets_failures_and_not_the_limit() -> None:  # faults: B12
    timing = pace()
    for _ in range(5):
        timing.dialled(0.0)
        timing.failed(0.0, HALF)
    timing.moved()
    assert timing.failures == 0
    assert timing.next_dial_at() == 1.0
