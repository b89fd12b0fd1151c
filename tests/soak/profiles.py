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


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One workload process."""

    name: str
    in_flight: int
    delivery_timeout_s: float
    topics: dict[str, int]
    churns: bool = False
    codecs: tuple[str, ...] = ("none", "gzip", "lz4", "zstd")
    lingers_ms: tuple[float, ...] = (0, 5, 50)
    options: dict[str, Any] = field(default_factory=dict)  # on top of everything: to plant a defect

    def settings(self, draw: random.Random) -> dict[str, Any]:
        """Options of the next producer."""
        return {
            "compression_type": draw.choice(self.codecs),
            "linger_ms": draw.choice(self.lingers_ms),
            "max_in_flight_requests_per_connection": self.in_flight,
            "request_timeout_ms": REQUEST_TIMEOUT_S * 1000,
            "delivery_timeout_ms": self.delivery_timeout_s * 1000,
            "buffer_memory": 16 * 1024 * 1024,
        } | self.options


PROFILES = (
    Profile(name="five", in_flight=5, delivery_timeout_s=120.0, topics={ONE: 1, SIX: 6, MANY: 48}),
    Profile(name="one", in_flight=1, delivery_timeout_s=120.0, topics={ONE: 1, SIX: 6, MANY: 48}),
    Profile(name="churn", in_flight=5, delivery_timeout_s=10.0, topics={SIX: 6, GROWING: 3, CYCLE: 4}, churns=True),
)


def draw_size(draw: random.Random) -> int:
    """Bytes of a value: log-uniform from 10 B, mostly to 2 KB, one in twelve to 64 KB, very few just below the limit."""
    chance = draw.random()
    if chance < 0.0002:
        return LIMIT_BYTES - draw.randrange(1_000)
    most = 65_536 if chance < 0.08 else 2_048
    return round(math.exp(draw.uniform(math.log(10), math.log(most))))
