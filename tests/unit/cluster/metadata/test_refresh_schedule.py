"""When the next Metadata request is due: pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokprod.backoff import Backoff
from aiokprod.cluster.metadata.refresh_schedule import NEVER, RefreshSchedule

HALF = 0.5  # no jitter


def schedule(max_age_s: float | None = 300.0) -> RefreshSchedule:
    return RefreshSchedule(Backoff(0.1, 1.0), max_age_s)


def test_nothing_is_due_until_it_is_wanted() -> None:
    timing = schedule()
    assert timing.due_at() == NEVER
    timing.want(full=False)
    assert timing.due_at() <= 0.0


def test_any_number_of_wishes_is_one_request() -> None:  # faults: T14
    timing = schedule()
    for _ in range(500):
        timing.want(full=True)
    assert timing.begin(0.0) is True
    assert timing.due_at() == NEVER


def test_wishes_during_a_request_are_for_the_next_one() -> None:
    timing = schedule()
    timing.want(full=False)
    timing.begin(0.0)
    timing.want(full=True)
    timing.answered(0.2, HALF, full=False)
    assert timing.due_at() == 0.2 + 0.1
    assert timing.begin(0.3) is True


def test_requests_without_rest_move_apart() -> None:
    timing, now, gaps = schedule(), 0.0, []
    for _ in range(6):
        timing.want(full=True)
        now = max(now, timing.due_at())
        timing.begin(now)
        timing.answered(now, HALF, full=True)
        timing.want(full=True)
        gaps.append(round(timing.due_at() - now, 6))
    assert gaps == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_after_a_rest_the_first_backoff_holds_again() -> None:
    timing = schedule()
    for now in (0.0, 0.1, 0.3, 0.7):
        timing.want(full=True)
        timing.begin(now)
        timing.answered(now, HALF, full=True)
    timing.begin(10.0)
    timing.answered(10.0, HALF, full=True)
    timing.want(full=True)
    assert round(timing.due_at(), 6) == 10.1


def test_a_failure_keeps_the_wish_and_what_it_was_for() -> None:
    timing = schedule()
    timing.want(full=True)
    assert timing.begin(0.0)
    timing.failed(0.0, HALF, full=True)
    assert timing.is_wanted
    assert timing.due_at() == 0.1
    assert timing.begin(0.1) is True


def test_success_after_failures_ends_the_long_backoff() -> None:
    timing, now = schedule(), 0.0
    for _ in range(8):
        timing.want(full=True)
        timing.begin(now)
        timing.failed(now, HALF, full=True)
        now = timing.due_at()
    timing.begin(now)
    timing.answered(now, HALF, full=True)
    timing.want(full=True)
    assert round(timing.due_at() - now, 6) == 0.1


def test_success_after_a_short_failure_keeps_the_backoff() -> None:
    """One broker of two hangs up at each request: those that the other answers move apart nevertheless."""
    timing, now, gaps = schedule(), 0.0, []
    for number in range(6):
        timing.want(full=True)
        timing.begin(now)
        (timing.answered if number % 2 else timing.failed)(now, HALF, full=True)
        timing.want(full=True)
        gaps.append(round(timing.due_at() - now, 6))
        now = timing.due_at()
    assert gaps == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


FATES = st.sampled_from(
    ((True, False), (False,), (True, True, False), (True,) * 4 + (False,), (True,))
)  # does it fail?
PAUSES_S = st.sampled_from((0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.99, 1.0, 1.01, 3.0))
STEP = st.tuples(FATES, st.integers(1, 30), PAUSES_S, st.sampled_from((0.0, 0.5, 0.99)))


@given(st.lists(STEP, min_size=1, max_size=4))
def test_no_mixture_of_answers_failures_and_pauses_is_a_storm(
    steps: list[tuple[tuple[bool, ...], int, float, float]],
) -> None:
    timing, now, answers = schedule(), 0.0, []
    for fates, times, pause_s, random01 in steps:
        for fails in fates * times:
            timing.want(full=True)
            now = max(now, timing.due_at()) + pause_s
            timing.begin(now)
            if fails:
                timing.failed(now, random01, full=True)
            else:
                timing.answered(now, random01, full=True)
                answers.append(now)
    # The most: three in a row, at 0, 0.08 and 0.24 s, then a pause until the next row may begin, after 1.56 s.
    for first, began in enumerate(answers):
        assert sum(at < began + 10.0 for at in answers[first:]) <= 3 * (10 / 1.56 + 1)


def test_a_new_topic_is_asked_for_at_once_whatever_the_backoff_of_others() -> None:
    timing, now = schedule(), 0.0
    for _ in range(8):
        timing.want(full=False)
        now = max(now, timing.due_at())
        timing.begin(now)
        timing.answered(now, HALF, full=False)
    timing.want(full=False)
    assert round(timing.due_at() - now, 6) == 1.0
    timing.hurry()
    assert round(timing.due_at() - now, 6) == 0.005


def test_hurry_does_not_shorten_the_backoff_of_an_unreachable_cluster() -> None:
    timing, now = schedule(), 0.0
    for _ in range(8):
        timing.want(full=False)
        now = max(now, timing.due_at())
        timing.begin(now)
        timing.failed(now, HALF, full=False)
    timing.hurry()
    assert round(timing.due_at() - now, 6) == 1.0


def test_what_is_too_old_is_renewed_whole() -> None:
    timing = schedule(max_age_s=300.0)
    timing.want(full=True)
    timing.begin(0.0)
    timing.answered(0.0, HALF, full=True)
    assert timing.due_at() == 300.0
    timing.want(full=False)
    assert timing.begin(200.0) is False
    timing.answered(200.0, HALF, full=False)
    assert timing.due_at() == 300.0
    assert timing.begin(300.0) is True


def test_an_age_of_minus_one_means_only_when_asked() -> None:
    timing = schedule(max_age_s=None)
    timing.want(full=True)
    timing.begin(0.0)
    timing.answered(0.0, HALF, full=True)
    assert timing.due_at() == NEVER
