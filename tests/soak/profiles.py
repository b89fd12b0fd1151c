"""The producers of a soak: their options, drawn for each session, and what they do besides sending."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

ONE, SIX, MANY = "soak-1", "soak-6", "soak-48"
GROWING, CYCLE = "soak-growing", "soak-cycle"
DROPPED = "soak-dropped"  # only records that nothing waits for: their failures are known by the topic
TOPICS = {ONE: 1, SIX: 6, MANY: 48, GROWING: 3, CYCLE: 4, DROPPED: 3}
VOLATILE = frozenset({CYCLE})  # deleted and made again: what was delivered may be gone with it
KEYS = 1_000
LIMIT_BYTES = 1_000_000  # just below what a request may be
REQUEST_TIMEOUT_S = 4.0
BURST_EVERY_S, BURST_S, BURST = 15.0, 2.0, 4  # so long, so many times the rate: more than there is room for
CODECS = ("none", "gzip", "lz4", "zstd")
LINGERS_MS = (0, 5, 50)
SMALL_REQUEST_BYTES = 16_384  # of the workload with a small buffer
WEIGHTS = {
    "awaited": 12, "watched": 12, "answered": 6, "dropped": 12, "tried": 12, "recalled": 6, "cancelled": 4, "many": 3,
    "streamed": 2, "columns": 3, "flush": 1,
}  # fmt: skip
OPERATIONS = frozenset(WEIGHTS) - {"flush"}  # of the mixed workload: `mixture.py` tells what they are
PLAIN, LOGIN, TLS = "PLAINTEXT", "SASL_PLAINTEXT", "SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One workload process."""

    name: str
    in_flight: int
    delivery_timeout_s: float
    topics: dict[str, int]
    listener: str = PLAIN
    churns: bool = False
    mixes: bool = False  # every way of sending, in a buffer of some tens of kilobytes
    buffer_bytes: int = 16 * 1024 * 1024
    options: dict[str, Any] = field(default_factory=dict)  # on top of everything: to plant a defect

    def settings(self, seed: int, turn: int) -> dict[str, Any]:
        """Return the options of the next producer, the `turn`-th of this profile.

        Codecs and lingers are dealt, not drawn: at any time four workloads have four codecs and all lingers, and each
        producer after another has others.
        """
        deal = random.Random(seed)
        place = turn + next(index for index, each in enumerate(PROFILES) if each.name == self.name)
        return (
            {
                "client_id": self.name,
                "compression_type": deal.sample(CODECS, len(CODECS))[place % len(CODECS)],
                "linger_ms": deal.sample(LINGERS_MS, len(LINGERS_MS))[place % len(LINGERS_MS)],
                "max_in_flight_requests_per_connection": self.in_flight,
                "request_timeout_ms": REQUEST_TIMEOUT_S * 1000,
                "delivery_timeout_ms": self.delivery_timeout_s * 1000,
                "buffer_memory": self.buffer_bytes,
            }
            | (self._small(seed, turn) if self.mixes else {})
            | self.options
        )

    @staticmethod
    def _small(seed: int, turn: int) -> dict[str, Any]:
        """Draw the options of a small buffer: its size, and those of a batch, a request and the waiting line."""
        draw = random.Random(f"{seed} {turn} small")
        return {
            "buffer_memory": draw.randrange(24_000, 96_000),
            "max_request_size": SMALL_REQUEST_BYTES,
            "batch_size": draw.choice((0, 1_000, 4_096, SMALL_REQUEST_BYTES)),
            "max_waiting_bytes": draw.choice((0, 20_000, 200_000)),
            "max_in_flight_requests_per_connection": draw.choice((1, 2, 5)),
            "retry_backoff_ms": draw.choice((10, 100)),
            "metadata_max_age_ms": draw.choice((5_000, 300_000)),
        }


W1 = {ONE: 1, SIX: 6, MANY: 48}
MIXED = {SIX: 6, MANY: 48, CYCLE: 4}
PROFILES = (
    Profile(name="five", in_flight=5, delivery_timeout_s=120.0, topics=W1),
    Profile(name="one", in_flight=1, delivery_timeout_s=120.0, topics=W1),
    Profile(name="login", in_flight=5, delivery_timeout_s=120.0, topics=W1, listener=LOGIN),
    Profile(name="tls", in_flight=1, delivery_timeout_s=120.0, topics=W1, listener=TLS, buffer_bytes=4 * 1024 * 1024),
    Profile(name="mixed", in_flight=5, delivery_timeout_s=15.0, topics=MIXED, churns=True, mixes=True),
    Profile(name="churn", in_flight=5, delivery_timeout_s=10.0, topics={SIX: 6, GROWING: 3, CYCLE: 4}, churns=True),
)


def draw_size(draw: random.Random) -> int:
    """Draw the bytes of a value: log-uniform from 10 B to 64 KB, one in a thousand just below the limit."""
    if draw.random() < 0.001:
        return LIMIT_BYTES - draw.randrange(1_000)
    return round(math.exp(draw.uniform(math.log(10), math.log(65_536))))


def draw_small_size(draw: random.Random) -> int:
    """Draw the bytes of a value for a small buffer: log-uniform, 10 B to 10 kB; one in 100 is too large for a request."""
    if draw.random() < 0.01:
        return SMALL_REQUEST_BYTES + draw.randrange(1_000)
    return round(math.exp(draw.uniform(math.log(10), math.log(10_000))))
