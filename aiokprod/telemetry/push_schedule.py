"""`PushSchedule`: what a client does about telemetry next, and when, after each answer of a broker. One per start. Pure.

    SUBSCRIBE -> a subscription -> (interval, with jitter) -> PUSH -> (interval) -> PUSH ...
        ^                                                      |
        +------- another subscription, an error, no answer ----+----> STOP (an error that asking again cannot mend)

Source: KIP-714, and Java's ClientTelemetryReporter where the KIP leaves it open. An answer is not believed: intervals, sizes
and counts have bounds here, and every error waits before the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from aiokprod.wire.reader import ZERO_UUID

DEFAULT_INTERVAL_S: Final = 300.0
LEAST_INTERVAL_S: Final = 0.1
"""the least that Kafka's `interval.ms` may be"""
LEAST_WAIT_S: Final = 1.0
"""before a subscription is asked for again after an error"""
MOST_BYTES: Final = 1_048_576
"""of one push, whatever the broker allows: Kafka's default of `telemetry.max.bytes`"""
MOST_PREFIXES: Final = 1_000
CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

STOPS: Final = frozenset({
    ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
})  # fmt: skip
"""Errors that end the telemetry of this start."""
SOON: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors after which the subscription is asked for at once, or nearly."""


class Step(Enum):
    """The next thing to do."""

    SUBSCRIBE = "subscribe"
    PUSH = "push"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Next:
    """A step, and the seconds until then."""

    step: Step
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that a broker asks for."""

    id: int
    prefixes: tuple[str, ...]
    """of the names of metrics; one that is empty: all of them"""
    interval_s: float
    most_bytes: int
    is_delta: bool
    codecs: tuple[int, ...]
    """numbers of the codecs that the broker takes, in its order"""


class PushSchedule:
    """The state of the telemetry of one client.

    Args:
        random: returns a number from 0 to 1, for the jitter.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self.instance_id = ZERO_UUID  # given by the first broker that answers; the client keeps it
        self.subscription: Subscription | None = None
        self._refused_codecs: set[int] = set()
        self._most_bytes = MOST_BYTES

    def subscribed(self, answer: GetTelemetrySubscriptionsResponse) -> Next:
        """Take in what a broker asks for."""
        self.subscription = None
        if answer.error_code:
            return self._failed(answer.error_code)
        if self.instance_id == ZERO_UUID:
            self.instance_id = answer.client_instance_id
        if self.instance_id == ZERO_UUID:
            return self._failed(int(ErrorCode.UNKNOWN_SERVER_ERROR))  # without an id nothing can be pushed
        interval_s = _interval_s(answer.push_interval_ms)
        if not answer.requested_metrics:
            return Next(Step.SUBSCRIBE, interval_s)  # nothing now: the broker may ask for something later
        most_bytes = answer.telemetry_max_bytes
        self.subscription = Subscription(
            answer.subscription_id,
            tuple(answer.requested_metrics[:MOST_PREFIXES]),
            interval_s,
            min(self._most_bytes, most_bytes) if most_bytes > 0 else self._most_bytes,
            answer.delta_temporality,
            tuple(dict.fromkeys(answer.accepted_compression_types)),
        )
        # Spread over an interval, so that the clients of a broker that has restarted do not push together.
        return Next(Step.PUSH, interval_s * (0.5 + self._random()))

    def pushed(self, code: int) -> Next:
        """Take in the answer to a push."""
        subscription = self.subscription
        if code == 0 and subscription is not None:
            return Next(Step.PUSH, subscription.interval_s)
        return self._failed(code)

    def unanswered(self) -> Next:
        """Take in that a request had no answer: the connection was lost, or there is none."""
        interval_s = DEFAULT_INTERVAL_S if self.subscription is None else self.subscription.interval_s
        return Next(Step.SUBSCRIBE, max(LEAST_WAIT_S, interval_s))

    def _failed(self, code: int) -> Next:
        if code in STOPS:
            self.subscription = None
            return Next(Step.STOP)
        if code in SOON and self.subscription is not None:
            if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                self._refused_codecs.add(self.codec()[0])
            self.subscription = None
            return Next(Step.SUBSCRIBE, LEAST_WAIT_S)
        if code == ErrorCode.TELEMETRY_TOO_LARGE and self.subscription is not None:
            self._most_bytes = max(1, self.subscription.most_bytes // 2)
        return self.unanswered()

    def codec(self, usable: Sequence[str] = tuple(CODECS.values())) -> tuple[int, str]:
        """Return the number and the name of the codec to push with: the first that the broker takes and that is usable."""
        subscription = self.subscription
        if subscription is not None:
            for number in subscription.codecs:
                name = CODECS.get(number)
                if name is not None and name in usable and number not in self._refused_codecs:
                    return number, name
        return 0, "none"


def _interval_s(interval_ms: int) -> float:
    return DEFAULT_INTERVAL_S if interval_ms <= 0 else max(LEAST_INTERVAL_S, interval_ms / 1000)
