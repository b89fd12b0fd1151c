"""What the producers of a soak are like: their options, drawn anew for each session, and what they do besides sending."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

ONE, SIX, MANY = "soak-1", "soak-6", "soak-48"
GROWING, CYCLE = "soak-growing", "soak-cycle"
TOPICS = {ONE: 1, SIX: 6, MANY: 48, GROWING: 3, CYCLE: 4}
VOLATILE = frozenset({CYCLE})  # deleted and made anew: what was delivered may be gone with it
KEYS = 1_000
LIMIT_BYTES = 1_000_000  # just below what a request may be
REQUEST_TIMEOUT_S = 4.0
BURST_EVERY_S, BURST_S, BURST = 15.0, 2.0, 4  # so long, so many times the rate: more than there is room for
CODECS = ("none", "gzip", "lz4", "zstd")
LINGERS_MS = (0, 5, 50)
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
    buffer_bytes: int = 16 * 1024 * 1024
    options: dict[str, Any] = field(default_factory=dict)  # on top of everything: to plant a defect

    def settings(self, seed: int, turn: int) -> dict[str, Any]:
        """Options of the next producer, the `turn`-th of this profile.

        Codecs and lingers are dealt, not drawn: at any time four workloads have four codecs and all lingers, and each
        producer after another has others.
        """
        deal = random.Random(seed)
        place = turn + next(index for index, each in enumerate(PROFILES) if each.name == self.name)
        return {
            "client_id": self.name,
            "compression_type": deal.sample(CODECS, len(CODECS))[place % len(CODECS)],
            "linger_ms": deal.sample(LINGERS_MS, len(LINGERS_MS))[place % len(LINGERS_MS)],
            "max_in_flight_requests_per_connection": self.in_flight,
            "request_timeout_ms": REQUEST_TIMEOUT_S * 1000,
            "delivery_timeout_ms": self.delivery_timeout_s * 1000,
            "buffer_memory": self.buffer_bytes,
        } | self.options


W1 = {ONE: 1, SIX: 6, MANY: 48}
PROFILES = (
    Profile(name="five", in_flight=5, delivery_timeout_s=120.0, topics=W1),
    Profile(name="one", in_flight=1, delivery_timeout_s=120.0, topics=W1),
    Profile(name="login", in_flight=5, delivery_timeout_s=120.0, topics=W1, listener=LOGIN),
    Profile(name="tls", in_flight=1, delivery_timeout_s=120.0, topics=W1, listener=TLS, buffer_bytes=4 * 1024 * 1024),
    Profile(name="churn", in_flight=5, delivery_timeout_s=10.0, topics={SIX: 6, GROWING: 3, CYCLE: 4}, churns=True),
)


def draw_size(draw: random.Random) -> int:
    """Bytes of a value: log-uniform from 10 B to 64 KB, one in a thousand just below the limit."""
    if draw.random() < 0.001:
        return LIMIT_BYTES - draw.randrange(1_000)
    return round(math.exp(draw.uniform(math.log(10), math.log(65_536))))
