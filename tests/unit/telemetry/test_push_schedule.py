"""The step after each answer, and that no answer makes a client ask or push without a pause."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.telemetry.push_schedule import (
    DEFAULT_INTERVAL_S,
    LEAST_INTERVAL_S,
    LEAST_WAIT_S,
    MOST_BYTES,
    MOST_PREFIXES,
    Next,
    PushSchedule,
    Step,
)
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from aiokprod.wire.reader import ZERO_UUID

ID, OTHER = b"i" * 16, b"o" * 16


def asked(**changes: object) -> GetTelemetrySubscriptionsResponse:
    values: dict[str, object] = {
        "client_instance_id": ID, "subscription_id": 7, "accepted_compression_types": [4, 1], "push_interval_ms": 10_000,
        "telemetry_max_bytes": 1_000, "delta_temporality": True, "requested_metrics": ["a."],
    }  # fmt: skip
    return GetTelemetrySubscriptionsResponse(**(values | changes))  # type: ignore[arg-type]


def schedule(random: float = 0.5) -> PushSchedule:
    return PushSchedule(lambda: random)


def test_the_first_push_is_spread_over_an_interval_and_the_others_keep_it() -> None:
    assert [schedule(random).subscribed(asked()).after_s for random in (0.0, 0.5, 1.0)] == [5.0, 10.0, 15.0]
    subscribed = schedule()
    assert subscribed.subscribed(asked()) == Next(Step.PUSH, 10.0)
    assert subscribed.pushed(0) == Next(Step.PUSH, 10.0)


def test_a_broker_that_asks_for_nothing_is_asked_again() -> None:
    subscribed = schedule()
    assert subscribed.subscribed(asked(requested_metrics=[])) == Next(Step.SUBSCRIBE, 10.0)
    assert subscribed.subscription is None


def test_a_client_keeps_the_id_that_it_was_given() -> None:
    subscribed = schedule()
    subscribed.subscribed(asked())
    subscribed.subscribed(asked(client_instance_id=OTHER))
    assert subscribed.instance_id == ID


def test_without_an_id_nothing_is_pushed() -> None:
    assert schedule().subscribed(asked(client_instance_id=ZERO_UUID)) == Next(Step.SUBSCRIBE, DEFAULT_INTERVAL_S)


@pytest.mark.parametrize(
    ("code", "of_push", "of_subscription"),
    [
        (ErrorCode.INVALID_REQUEST, Next(Step.STOP), Next(Step.STOP)),
        (ErrorCode.INVALID_RECORD, Next(Step.STOP), Next(Step.STOP)),
        (ErrorCode.UNSUPPORTED_VERSION, Next(Step.STOP), Next(Step.STOP)),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Next(Step.STOP), Next(Step.STOP)),
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, Next(Step.SUBSCRIBE, LEAST_WAIT_S), None),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, Next(Step.SUBSCRIBE, LEAST_WAIT_S), None),
        (ErrorCode.TELEMETRY_TOO_LARGE, Next(Step.SUBSCRIBE, 10.0), None),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, Next(Step.SUBSCRIBE, 10.0), None),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Next(Step.SUBSCRIBE, 10.0), None),
        (999, Next(Step.SUBSCRIBE, 10.0), None),
    ],
)
def test_errors_by_table(code: int, of_push: Next, of_subscription: Next | None) -> None:
    pushing = schedule()
    pushing.subscribed(asked())
    assert pushing.pushed(int(code)) == of_push
    later = Next(Step.SUBSCRIBE, DEFAULT_INTERVAL_S)
    assert schedule().subscribed(asked(error_code=int(code))) == (of_subscription or later)


def test_no_answer_is_asked_for_again_after_an_interval() -> None:
    assert schedule().unanswered() == Next(Step.SUBSCRIBE, DEFAULT_INTERVAL_S)
    subscribed = schedule()
    subscribed.subscribed(asked(push_interval_ms=100))
    assert subscribed.unanswered() == Next(Step.SUBSCRIBE, LEAST_WAIT_S)


def test_a_push_that_was_too_large_is_half_as_large_the_next_time() -> None:
    pushing = schedule()
    for most in (1_000, 500, 250):
        pushing.subscribed(asked())
        assert pushing.subscription is not None and pushing.subscription.most_bytes == most
        pushing.pushed(int(ErrorCode.TELEMETRY_TOO_LARGE))


def test_the_first_codec_that_both_know_is_taken_and_none_that_was_refused() -> None:
    pushing = schedule()
    pushing.subscribed(asked(accepted_compression_types=[9, -1, 4, 1]))
    assert (pushing.codec(), pushing.codec(["none", "gzip"]), pushing.codec(["none"])) == (
        (4, "zstd"), (1, "gzip"), (0, "none"),
    )  # fmt: skip
    pushing.pushed(int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
    pushing.subscribed(asked(accepted_compression_types=[4, 1]))
    assert pushing.codec() == (1, "gzip")
    assert schedule().codec() == (0, "none")


def test_sizes_and_counts_are_bounded() -> None:
    pushing = schedule()
    pushing.subscribed(asked(telemetry_max_bytes=2**31 - 1, requested_metrics=["x"] * 5_000, push_interval_ms=1))
    subscription = pushing.subscription
    assert subscription is not None
    assert (subscription.most_bytes, len(subscription.prefixes)) == (MOST_BYTES, MOST_PREFIXES)
    assert subscription.interval_s == LEAST_INTERVAL_S
    pushing.subscribed(asked(telemetry_max_bytes=-5, push_interval_ms=-1))
    assert pushing.subscription is not None
    assert (pushing.subscription.most_bytes, pushing.subscription.interval_s) == (MOST_BYTES, DEFAULT_INTERVAL_S)


CODES = st.one_of(st.just(0), st.integers(-(2**15), 2**15 - 1), st.sampled_from([int(code) for code in ErrorCode]))
INT32 = st.integers(-(2**31), 2**31 - 1)
ANSWERS = st.builds(
    asked,
    error_code=CODES,
    client_instance_id=st.sampled_from([ZERO_UUID, ID, OTHER]),
    subscription_id=INT32,
    accepted_compression_types=st.lists(st.integers(-128, 127), max_size=5),
    push_interval_ms=INT32,
    telemetry_max_bytes=INT32,
    requested_metrics=st.lists(st.text(max_size=3), max_size=3),
)


@settings(max_examples=300)
@given(st.lists(st.tuples(ANSWERS, CODES), min_size=1, max_size=8), st.floats(0, 1))
def test_no_answers_make_a_client_busy(
    answers: list[tuple[GetTelemetrySubscriptionsResponse, int]], random: float
) -> None:
    pushing = schedule(random)
    for answer, code in answers:
        due = pushing.subscribed(answer)
        if due.step is Step.PUSH:
            assert due.after_s >= LEAST_INTERVAL_S / 2 and pushing.subscription is not None
            assert pushing.instance_id != ZERO_UUID and 0 < pushing.subscription.most_bytes <= MOST_BYTES
            due = pushing.pushed(code)
        assert due.step is Step.STOP or due.after_s >= LEAST_INTERVAL_S
